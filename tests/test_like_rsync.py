"""Options that users of rsync know mean here what they mean there: both programs copy random trees, and the results are
the same. A handful of seeds in each run, 200 with --full."""

import os
import random
import shutil
import stat
import subprocess

import pytest

from harness.hosts import require_root
from harness.product import EXIT_FILES, EXIT_USAGE, cp
from harness.service import Service
from harness.three import ThreeNet
from harness.trees import fill, leftovers, names

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 200))]
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


def rsync(*arguments, links="-H"):
    subprocess.run(["rsync", "-a", links, *map(os.fspath, arguments)], check=True, timeout=60)


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
