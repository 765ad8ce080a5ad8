"""Options that users of rsync know mean here what they mean there: both programs copy random trees, and the results are
the same. A handful of seeds in each run, 200 with --full."""

import os
import pathlib
import random
import shutil
import stat
import subprocess
import tempfile
import time

import pytest

from harness.hosts import USER_ID, require_root, wait_until
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_METADATA, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, cp, start_cp
from harness.service import Service
from harness.three import ThreeNet
from harness.trees import fill, leftovers, names

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 200))]
FEW_SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 200))]
#: Whole seconds, as rsync compares no fractions.
TIMES = [1_500_000_000, 1_500_000_007, 1_600_000_000]
MODES = [0o644, 0o600, 0o755, 0o444]


def random_file(path, draw):
    """Files of one size and time have one content: what these two cannot tell is not asked here."""
    size, time = draw.choice([0, 1, 5, 5, 700, 70_000, 1_200_000]), draw.choice(TIMES)
    path.write_bytes({TIMES[1]: b"b"}.get(time, b"a") * size)
    path.chmod(draw.choice(MODES))
    os.utime(path, (time, time))


def random_tree(root, draw, entries=25):
    root.mkdir(parents=True)
    folders = [root]
    for number in range(entries):
        path = draw.choice(folders) / f"n{number}"
        kind = draw.choice(["file"] * 6 + ["folder", "folder", "symlink", "pipe", "link"])
        files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        if kind == "folder":
            path.mkdir()
            folders.append(path)
        elif kind == "symlink":
            path.symlink_to(draw.choice(["x", "../y", "/nowhere"]))
            os.utime(path, (draw.choice(TIMES),) * 2, follow_symlinks=False)
        elif kind == "pipe":
            os.mkfifo(path, draw.choice(MODES))
            os.utime(path, (draw.choice(TIMES),) * 2)
        elif kind == "link" and files:
            os.link(draw.choice(files), path)
        else:
            random_file(path, draw)
    return root


def change(root, draw):
    """Changes a part of a tree, as a day of work does."""
    for path in sorted(root.rglob("*")):
        if not path.exists() and not path.is_symlink():
            continue
        kind = draw.choice(["nothing"] * 5 + ["content", "mode", "time", "gone", "moved", "other kind"])
        is_file = path.is_file() and not path.is_symlink()
        if kind == "content" and is_file:
            path.unlink()
            random_file(path, draw)
        elif kind == "mode" and is_file:
            path.chmod(draw.choice(MODES))
        elif kind == "time" and is_file and path.lstat().st_mtime != TIMES[1]:
            os.utime(path, (draw.choice([TIMES[0], TIMES[2]]),) * 2)
        elif kind == "moved" and is_file:
            path.rename(path.with_name(path.name + "-moved"))
        elif kind == "gone" or kind == "other kind" and is_file:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if kind == "other kind":
                path.symlink_to("z")
                os.utime(path, (draw.choice(TIMES),) * 2, follow_symlinks=False)
    random_tree(root / f"new{draw.randrange(1_000_000)}", draw, entries=4)


def entry(path):
    there = path.lstat()
    what = stat.S_IFMT(there.st_mode)
    content = path.read_bytes() if stat.S_ISREG(what) else os.readlink(path) if stat.S_ISLNK(what) else None
    mode = None if stat.S_ISLNK(what) else stat.S_IMODE(there.st_mode)
    return what, content, mode, int(there.st_mtime)


def tree(root, but=()):
    return {os.fspath(path.relative_to(root)): entry(path) for path in root.rglob("*")
            if not but or path.relative_to(root).parts[0] not in but}


def several_names(root):
    """The names that are hard links, in groups."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found.setdefault(path.lstat().st_ino, []).append(os.fspath(path.relative_to(root)))
    return sorted(sorted(group) for group in found.values())


def shared(root, earlier):
    """The files that are the same inode as the one of their name in an earlier copy."""
    def is_shared(path):
        other = earlier / path.relative_to(root)
        return path.is_file() and not path.is_symlink() and other.exists() and path.samefile(other)
    return {os.fspath(path.relative_to(root)) for path in root.rglob("*") if is_shared(path)}


def rsync(*arguments, links="-H", some_fail=False):
    """Runs rsync; returns whether some entries have failed, where that is allowed."""
    done = subprocess.run(["rsync", "-a", links, *map(os.fspath, arguments)], timeout=60, stderr=subprocess.PIPE)
    assert done.returncode in ((0, 23) if some_fail else (0,)), done
    return done.returncode == 23


# ---- --link-dest and --compare-dest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_earlier_copies_are_used_as_by_rsync(net, near, seed):
    require_root()
    draw = random.Random(seed)
    source = random_tree(near / "source", draw)
    rsync(f"{source}/", near / "older")
    change(source, draw)
    rsync(f"{source}/", near / "old")
    change(source, draw)
    before = {name: tree(near / name) for name in ("older", "old")}
    option = draw.choice(["--link-dest", "--link-dest", "--compare-dest"])
    options = [f"{option}=../old", *draw.choice([[], [f"{option}={near / 'older'}"]]), *draw.choice([[], [], ["-c"]])]
    verb = draw.choice(["sync", "cp"])
    theirs, ours = near / "theirs", near / "ours"
    theirs.mkdir()
    # With -H and --compare-dest, rsync 3.5.0 waits for ever in some trees.
    rsync(*options, f"{source}/", theirs, links="-H" if option == "--link-dest" else "--no-H")
    dry = cp(net.alpha, "--specials", "--dry-run", *options, f"{source}/", f"{ours}/", verb=verb)
    assert not ours.exists()
    done = cp(net.alpha, "--specials", *options, f"{source}/", f"{ours}/", verb=verb)
    assert dry.report["files"] == done.report["files"] or "-c" in options, (dry, done)
    assert {name: tree(near / name) for name in before} == before and not leftovers(ours), "what is there is not changed"
    single = {group[0] for group in several_names(source) if len(group) == 1}
    if option == "--link-dest":
        assert tree(ours) == tree(source) == tree(theirs), f"seed {seed} {options}"
        assert several_names(ours) == several_names(source)
        for earlier in ("old", "older"):
            assert shared(ours, near / earlier) & single == shared(theirs, near / earlier) & single, f"seed {seed} {options}"
    else:
        linked = {name for group in several_names(source) if len(group) > 1 for name in group}
        mine, wanted = tree(ours), tree(theirs)
        for name in linked:
            mine.pop(name, None), wanted.pop(name, None)
        assert mine == wanted, f"seed {seed} {options}"
        for name in linked:
            there = [at / name for at in (ours, near / "old", near / "older") if (at / name).exists()]
            assert entry(source / name) in map(entry, there), f"seed {seed}: {name}"
    # The next run finds all of it there.
    again = cp(net.alpha, "--specials", *options, f"{source}/", f"{ours}/", verb=verb).report
    assert (again["files"], again["bytes"]) == (0, 0), again


def test_a_snapshot_a_night_by_hard_links(way):
    """The files that have not changed are one file in all snapshots, whichever way they go."""
    fill(way.source, "a b d/e d/f")
    rsync(f"{way.source}/", way.target.parent / "monday")
    (way.source / "b").write_text("new")
    (way.source / "d/f").chmod(0o600)
    report = way.sync("--link-dest", "../monday", "--link-dest", "../sunday").report
    assert any("../sunday is not there" in text for text in report["warnings"]), report
    monday = way.target.parent / "monday"
    assert shared(way.target, monday) == {"a", "d/e"} and tree(way.target) == tree(way.source)
    assert (report["files"], report["skipped"]) == (1, 3), report
    # The mode of a file that other snapshots share changes in this one only.
    before = tree(monday)
    (way.source / "a").chmod(0o640)
    way.sync("--link-dest", "../monday")
    assert tree(way.target) == tree(way.source) and tree(monday) == before and shared(way.target, monday) == {"d/e"}
    # A file that is shared is never written through.
    (way.source / "d/e").write_text("changed")
    way.sync("--inplace", "--link-dest", "../monday")
    assert tree(way.target) == tree(way.source) and tree(monday) == before


def test_an_earlier_copy_lies_where_the_destination_may_lie(net, near):
    """At a daemon: below its root, and no link leads out of that."""
    root = net.daemon.root
    fill(near / "source", "a")
    outside = root.parent / "outside"
    fill(outside, "a")
    (root / "leads-out").symlink_to(outside)
    (root / "leads-in").symlink_to("inside")
    fill(root / "inside", "a")
    (root / "copy").mkdir(exist_ok=True)
    go = lambda option, given, **options: cp(
        net.alpha, "--accept-new", option, given, f"{near / 'source'}/", net.daemon.url("copy/"), **options)
    try:
        for option in ("--link-dest", "--compare-dest"):
            for given in ("../../outside", "/../outside", "../leads-out", "/leads-out", "../leads-out/."):
                outcome = go(option, given, expect=EXIT_FILES)
                assert outcome.report["files"] == 0 and names(root / "copy") == "", outcome
        assert go("--link-dest", "/leads-in").report["skipped"] == 1 and shared(root / "copy", root / "inside") == {"a"}
        cp(net.alpha, "--link-dest", "a", "--compare-dest", "b", near / "source", near / "target", expect=EXIT_USAGE)
    finally:
        shutil.rmtree(outside)
        (root / "leads-out").unlink()
        (root / "leads-in").unlink()


def test_a_job_and_a_copy_between_daemons_take_from_earlier_copies(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    source = own_net.folder("source")
    fill(source, "a d/b")
    far = own_net.daemon.root
    rsync(f"{source}/", far / "monday")
    id = service.submit("--sync", "--link-dest", "../monday", source, *service.to_far("tuesday"))
    service.wait(id)
    assert shared(far / "tuesday", far / "monday") == {"a", "d/b"}
    id = service.submit("--compare-dest", "/monday", f"{source}/", *service.to_far("wednesday/"))
    service.wait(id)
    assert names(far / "wednesday") == "d"


def test_two_daemons_take_from_earlier_copies():
    three = ThreeNet()
    try:
        fill(three.b.root / "tree", "a d/b")
        rsync(f"{three.b.root / 'tree'}/", three.c.root / "monday")
        outcome = three.cp("--link-dest", "../monday", three.b.url("tree"), three.c.url("tuesday"), verb="sync")
        assert shared(three.c.root / "tuesday", three.c.root / "monday") == {"a", "d/b"}, outcome
    finally:
        three.pair.close()


# ---- --backup -------------------------------------------------------------------------------------------------------


def without_times_of_directories(entries):
    """Where names are added to a directory by backups, rsync leaves its time."""
    return {name: (*found[:3], None if stat.S_ISDIR(found[0]) else found[3]) for name, found in entries.items()}


def change_kinds(root, draw):
    """Puts a directory in the place of a file, and a file in that of a directory, if there are any."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    folders = sorted(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())
    if files and draw.random() < 0.5:
        path = draw.choice(files)
        path.unlink()
        path.mkdir()
        random_file(path / "in", draw)
    if folders and draw.random() < 0.5:
        path = draw.choice(folders)
        shutil.rmtree(path)
        random_file(path, draw)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_backups_are_kept_as_by_rsync(net, near, seed):
    require_root()
    draw = random.Random(seed)
    source = random_tree(near / "source", draw)
    naming = draw.choice([["--backup"], ["-b", "--suffix=.old"], ["--backup-dir=../kept"], ["--backup-dir={kept}"],
                          ["-b", "--backup-dir=../kept/deeper", "--suffix=~1"]])
    deletes = draw.choice([[], ["--delete"], ["--delete", "--delete-excluded", "--exclude=n3*"]])
    options = draw.choice([[], [], ["-c"]])
    # rsync's --inplace writes through hard links, and 3.5.0 fails with it below a relative --backup-dir.
    in_place = draw.choice([[], [], ["--inplace"]])
    ends = {name: near / name for name in ("theirs", "ours")}
    for end in ends.values():
        end.mkdir()
        rsync(f"{source}/", end / "tree")
    linked = set()

    def alone(end):
        """The entries but those with several names: there it depends on the order which of them is replaced."""
        found = {name: what for name, what in without_times_of_directories(tree(end)).items()
                 if not (name.startswith("kept") and stat.S_ISDIR(what[0]))}
        plain = lambda name: name.removeprefix("tree/").removeprefix("kept/").removeprefix("deeper/")
        ends_of = ("~1", "~", ".old", "")
        return {name: what for name, what in found.items()
                if not any(plain(name).removesuffix(suffix) in linked for suffix in ends_of)}

    # Two nights, so that backups meet those of the night before.
    for _ in range(2):
        change(source, draw)
        if deletes:
            change_kinds(source, draw)
        for there in (source, *(end / "tree" for end in ends.values())):
            linked.update(name for group in several_names(there) if len(group) > 1 for name in group)
        given = {name: [*(option.format(kept=end / "kept") for option in naming), *deletes, *options]
                 for name, end in ends.items()}
        has_failed = rsync(*given["theirs"], f"{source}/", ends["theirs"] / "tree", some_fail=True)
        run = [net.alpha, "--specials", *given["ours"], *in_place, source, ends["ours"] / "tree"]
        dry = cp(*run, "--dry-run", verb="sync", check=False)
        done = cp(*run, verb="sync", check=False)
        told = f"seed {seed} {given['ours']} {done}"
        assert done.code == (EXIT_SOME_FAILED if has_failed else EXIT_OK), told
        assert has_failed or "-c" in options or dry.report["backups"] == done.report["backups"], f"{dry} {told}"
        theirs, ours = map(alone, ends.values())
        assert ours == theirs, told
        assert not leftovers(ends["ours"]), told
    again = cp(*run, verb="sync", check=False).report
    assert has_failed or (again["files"], again["backups"]) == (0, 0), again


def test_a_night_of_changes_is_kept_in_a_directory_of_its_own(way):
    fill(way.source, "a b d/c d/gone e/")
    rsync(f"{way.source}/", way.target)
    before = tree(way.target)
    (way.source / "a").write_text("new")
    (way.source / "d/gone").unlink()
    (way.source / "e").rmdir()
    (way.source / "e").write_text("a file")
    dry = way.sync("--delete", "--backup-dir", "../kept/monday", "--dry-run")
    kept = way.target.parent / "kept"
    assert dry.report["backups"] == 2 and not kept.exists() and tree(way.target) == before, dry
    report = way.sync("--delete", "--backup-dir", "../kept/monday").report
    assert tree(way.target) == tree(way.source) and report["backups"] == 2, report
    assert {name: what for name, what in tree(kept / "monday").items() if name != "d"} == \
        {name: before[name] for name in ("a", "d/gone")}
    # A directory of backups inside of the destination is neither deleted nor written to.
    (way.source / "kept").mkdir()
    (way.source / "kept/x").write_text("of the source")
    (way.source / "a").write_text("newer")
    (way.source / "d/c").unlink()
    for _ in range(2):
        report = way.sync("--delete", "--delete-excluded", "--backup-dir", "kept").report
        assert (way.target / "kept/a").read_text() == "new" and names(way.target / "kept") == "a d d/c", report
    assert (report["files"], report["backups"], report["deleted"]) == (0, 0, 0), report


def test_what_a_killed_run_has_replaced_is_kept(net, near):
    """After each kill every old content has a name, and one alone at the end."""
    source, target, kept = near / "source", near / "target", near / "kept"
    draw = random.Random(1)
    for folder, letter in ((target, b"o"), (source, b"n")):
        folder.mkdir()
        for number in range(60):
            (folder / f"{number}").write_bytes(letter * (3_000_000 if number % 20 == 0 else 20_000))
    (target / "surplus").write_bytes(b"o")

    def is_old(path, size=None):
        return path.exists() and path.read_bytes()[:1] == b"o" and (size is None or path.stat().st_size == size)
    arguments = ("--delete", "--backup-dir", kept, "--no-delete-guard", f"{source}/", target)
    for _ in range(8):
        process = start_cp(net.alpha, "--rate", "200M", *arguments, verb="sync")
        time.sleep(draw.uniform(0.05, 0.4))
        process.kill()
        process.communicate()
        for path in [*source.iterdir(), target / "surplus"]:
            size = (source / path.name).stat().st_size if path.name != "surplus" else 1
            places = [folder / path.name for folder in (target, kept) if is_old(folder / path.name, size)]
            inodes = {place.stat().st_ino for place in places}
            assert len(inodes) == 1, (path.name, places)
            assert (target / path.name).exists() or path.name == "surplus"
    cp(net.alpha, *arguments, verb="sync")
    assert names(target) == names(source) and {path.read_bytes()[:1] for path in target.iterdir()} == {b"n"}
    assert names(kept) == " ".join(sorted([*names(source).split(), "surplus"])) and not leftovers(kept)
    assert all(path.stat().st_nlink == 1 and is_old(path) for path in kept.iterdir())


def test_a_backup_directory_may_lie_on_another_file_system(net, near):
    require_root()
    source, target = near / "source", near / "target"
    fill(source, "a d/b gone")
    (source / "link").symlink_to("x")
    os.mkfifo(source / "pipe")
    rsync(f"{source}/", target)
    os.chown(target / "a", 4242, 4243)
    before = tree(target)
    for name in ("a", "d/b"):
        (source / name).write_text("changed")
    for name in ("gone", "link", "pipe"):
        (source / name).unlink()
    kept = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        assert kept.stat().st_dev != target.stat().st_dev
        report = cp(net.alpha, "--delete", "--backup-dir", kept / "monday", f"{source}/", target, verb="sync").report
        assert report["backups"] == 5 and tree(target) == tree(source), report
        assert without_times_of_directories(tree(kept / "monday")) == without_times_of_directories(before)
        assert (kept / "monday/a").stat()[4:6] == (4242, 4243)
        # What cannot be kept is not replaced.
        (kept / "file").write_text("")
        (source / "a").write_text("again")
        outcome = cp(net.alpha, "--backup-dir", kept / "file/x", f"{source}/", target, verb="sync", expect=EXIT_FILES)
        assert (target / "a").read_text() == "changed" and "not a directory" in outcome.error_line, outcome
    finally:
        shutil.rmtree(kept)


def test_backups_lie_where_the_destination_may_lie(net, near):
    """At a daemon: below its root, and no link leads out of that."""
    root = net.daemon.root
    fill(near / "source", "a")
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "copy").mkdir(exist_ok=True)
    (root / "leads-out").symlink_to(outside)
    (root / "nowhere").symlink_to("/nowhere/x")
    (root / "kept").mkdir()
    (root / "kept/d").symlink_to(outside)
    go = lambda given, **options: cp(
        net.alpha, "--accept-new", "--backup-dir", given, f"{near / 'source'}/", net.daemon.url("copy/"), **options)
    try:
        (root / "copy/a").write_text("old")
        for given in ("../../outside", "/../outside", "../leads-out", "/leads-out", "../leads-out/new", "/nowhere", ".",
                      "../copy"):
            outcome = go(given, check=False)
            assert outcome.code in (EXIT_FILES, EXIT_USAGE) and (root / "copy/a").read_text() == "old", outcome
        # A link in the backup directory makes room for a directory, and is not followed.
        fill(near / "source", "d/b")
        (root / "copy/d").mkdir()
        (root / "copy/d/b").write_text("old")
        go("/kept")
        assert (root / "kept/a").read_text() == (root / "kept/d/b").read_text() == "old"
        assert not (root / "kept/d").is_symlink() and names(outside) == ""
    finally:
        for name in ("leads-out", "nowhere"):
            (root / name).unlink()
        for folder in (outside, root / "kept", root / "copy"):
            shutil.rmtree(folder)


def test_a_renamed_file_is_no_backup_and_shares_nothing_with_one(net, near):
    source, target = near / "source", near / "target"
    fill(source, "a longer")
    rsync(f"{source}/", target)
    (source / "a").rename(source / "moved")
    (source / "longer").rename(source / "moved-too")
    (source / "longer").write_text("another one")
    run = ("--delete", "--no-delete-guard", "--detect-renames", "--backup-dir", near / "kept", f"{source}/", target)
    report = cp(net.alpha, *run, verb="sync").report
    assert tree(target) == tree(source) and names(near / "kept") == "longer", report
    assert (report["backups"], report["deleted"]) == (1, 0), report
    # `moved-too` is found only if the destination was listed before the new `longer` took the place of the old one.
    assert report["renames"] in (1, 2), report
    assert all(path.stat().st_nlink == 1 for path in [*target.iterdir(), near / "kept/longer"])


def test_a_job_a_watch_and_a_copy_between_daemons_keep_what_they_replace(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    source = own_net.folder("source")
    fill(source, "a d/b")
    far = own_net.daemon.root
    rsync(f"{source}/", far / "tree")
    (source / "a").write_text("new")
    (source / "d/b").unlink()
    id = service.submit("--sync", "--delete", "--backup-dir", "../kept", source, *service.to_far("tree"))
    service.wait(id)
    assert names(far / "tree") == "a d" and names(far / "kept") == "a d d/b"
    assert "2 entries were kept under another name" in service.run("logs", id)
    (source / "a").write_text("newer")
    os.chown(source / "a", 0, 0)
    service.wait(service.submit("-b", "--chown", ":fhuser", f"{source}/", own_net.folder("local")))
    place, *trust = service.to_far("tree")
    service.run("watch", "add", source, "--to", place, *trust, "--settle", "1s", "--backup", "--suffix", ".old")
    wait_until(lambda: (far / "tree/a").read_text() == "newer", 60, 0.2, "the file has arrived")
    assert (far / "tree/a.old").read_text() == "new"


def test_two_daemons_keep_what_they_replace():
    three = ThreeNet()
    try:
        fill(three.b.root / "tree", "a")
        fill(three.c.root / "copy", "a")
        (three.b.root / "tree/a").write_text("new")
        for kept in ("../kept", "/kept"):
            (three.c.root / "copy/a").write_text("old")
            outcome = three.cp("--backup-dir", kept, three.b.url("tree"), three.c.url("copy"), verb="sync")
            assert (three.c.root / "kept/a").read_text() == "old" and outcome.report["backups"] == 1, outcome
            shutil.rmtree(three.c.root / "kept")
    finally:
        three.pair.close()


# ---- --owner, --group, --chown, --usermap and --groupmap ------------------------------------------------------------

IDS = [0, 7, 1005, 54321, 4_200_000_001]


def owners(root):
    return {os.fspath(path.relative_to(root)): path.lstat()[4:6] for path in root.rglob("*")}


def give_to_others(root, draw):
    for path in sorted(root.rglob("*")):
        if draw.random() < 0.7:
            os.chown(path, draw.choice(IDS), draw.choice(IDS), follow_symlinks=False)


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_owners_are_those_that_rsync_sets(net, near, seed):
    require_root()
    draw = random.Random(seed)
    source = random_tree(near / "source", draw, entries=12)
    give_to_others(source, draw)
    origins = ["0", "7", "1-2000", "54321-54321", "root", "fhuser", "f*", "[a-m]*", "", "*"]
    tos = ["0", "12", "fhuser", "root", "4200000009"]
    a_map = lambda: ",".join(f"{draw.choice(origins)}:{draw.choice(tos)}" for _ in range(draw.randrange(1, 4)))
    options = [*draw.choice([["--owner"], ["--group"], ["--owner", "--group"], ["--chown=fhuser:12"], ["--chown=:root"],
                             ["--chown=12"], [f"--usermap={a_map()}"], [f"--groupmap={a_map()}"],
                             [f"--usermap={a_map()}", f"--groupmap={a_map()}"]]),
               *draw.choice([[], [], ["--numeric-ids"]])]
    theirs, ours = near / "theirs", near / "ours"
    # What is there already, with other owners, gets them, too.
    for end in (theirs, ours):
        shutil.copytree(source, end, symlinks=True, copy_function=shutil.copy2, ignore=lambda *_: [
            name for name in os.listdir(_[0]) if name.endswith(("3", "7")) or (source / _[0] / name).is_fifo()])
    flags = ["rsync", "-rlptDH", *options, f"{source}/", os.fspath(theirs)]
    done = net.alpha.run(flags, timeout=60)
    assert done.returncode == 0, done
    cp(net.alpha, "--specials", *options, f"{source}/", ours, verb="sync")
    assert owners(ours) == owners(theirs), f"seed {seed} {options}"
    again = cp(net.alpha, "--specials", *options, f"{source}/", ours, verb="sync").report
    assert (again["files"], again["links"]) == (0, 0) and owners(ours) == owners(theirs), again


def test_set_user_id_bits_stay_with_their_new_owner(net, near):
    require_root()
    fill(near / "source", "program plain")
    (near / "source/program").chmod(0o4755)
    for options, mode in ((["-p"], 0o4755), ([], 0o755)):
        target = near / f"target{mode:o}"
        for _ in range(2):
            cp(net.alpha, *options, "--chown", "fhuser:fhuser", f"{near / 'source'}/", target, verb="sync")
            meta = (target / "program").stat()
            assert (stat.S_IMODE(meta.st_mode), meta.st_uid, meta.st_gid) == (mode, USER_ID, USER_ID)
            os.chown(target / "program", 0, 0)


def test_who_may_not_give_files_away_is_told_so(net, near):
    require_root()
    fill(near / "source", "a")
    near.chmod(0o777)
    (near / "own").mkdir()
    os.chown(near / "own", USER_ID, USER_ID)
    go = lambda *options, **more: cp(net.alpha, *options, f"{near / 'source'}/", near / "own/target/", **more)
    outcome = go("--chown", "root", user="fhuser", expect=EXIT_METADATA)
    assert (near / "own/target/a").exists() and outcome.report["not_set_count"] >= 1, outcome
    assert "owner: operation not permitted" in outcome.stderr, outcome
    go("--chown", "fhuser:fhuser", user="fhuser")
    for options, words in ((["--chown", "nobody-there"], "knows no user"), (["--groupmap", "1-:2"], "range"),
                           (["--chown", ":"], "--chown takes"), (["--usermap", "a"], "colon")):
        outcome = go(*options, expect=EXIT_USAGE)
        assert words in outcome.error_line, outcome
    outcome = cp(net.alpha, "--accept-new", "--owner", near / "source", net.daemon.url("x/"), check=False)
    assert outcome.code == EXIT_AUTH and "a daemon gives files to nobody else" in outcome.stderr, outcome
    assert not (net.daemon.root / "x/source/a").exists()


def test_earlier_copies_of_other_owners_are_not_linked_to(net, near):
    require_root()
    fill(near / "source", "a b")
    rsync(f"{near / 'source'}/", near / "old")
    os.chown(near / "source/a", 7, 7)
    cp(net.alpha, "--owner", "--group", "--link-dest", "../old", near / "source", near / "new", verb="sync")
    assert shared(near / "new", near / "old") == {"b"} and owners(near / "new") == owners(near / "source")
    assert owners(near / "old")["a"] == (0, 0)
