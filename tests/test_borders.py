"""What `sync` must not enter, and what it must not skip in silence: mounts below either end, trees that are
deeper than a path may be long, links to directories, entries of another kind. All mounts lie in the pair's
folder and are removed with it."""

import contextlib
import os

import pytest

from harness.hosts import call
from harness.product import EXIT_SOME_FAILED, cp, finish
from harness.trees import differences, fill, names


def text_lines(outcome, start):
    """The lines of stderr that begin with `start`, sorted."""
    return sorted(line for line in outcome.stderr.splitlines() if line.startswith(start))


@contextlib.contextmanager
def mounted(net, folder, of=None, size=16):
    """Mounts a file system in memory at `folder`, or binds `of` there."""
    folder.mkdir(parents=True, exist_ok=True)
    if of is None:
        net.pair.mount_memory(folder, size)
    else:
        call("mount", "--bind", str(of), str(folder))
    try:
        yield folder
    finally:
        call("umount", "-l", str(folder))


@pytest.fixture(params=["another file system", "a bind mount"])
def mount(request, net, way):
    """A function that mounts something at a folder: another file system, or a directory of the same one."""
    with contextlib.ExitStack() as stack:
        def put(folder):
            of = None
            if request.param == "a bind mount":
                of = way.target.parent / f"bound-{len(list(way.target.parent.iterdir()))}"
                of.mkdir()
            return stack.enter_context(mounted(net, folder, of))
        yield put


# ---- mounts below the destination --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["--delete-after", "--delete-before"])
def test_what_is_mounted_below_the_destination_stays(way, mount, when):
    fill(way.source, "a shared/x")
    fill(way.target, "gone/disk/ gone/y shared/ top/")
    for folder in ("gone/disk", "shared", "top"):
        mount(way.target / folder)
    fill(way.target, "gone/disk/precious gone/disk/d/precious shared/precious top/precious")
    left = ["gone/disk: something is mounted there", "shared/precious: it is below something that is mounted",
            "top: something is mounted there"]
    dry = way.sync(when, "--dry-run")
    assert text_lines(dry, "would leave") == [f"would leave {line}" for line in left], dry
    assert text_lines(dry, "would delete ") == ["would delete gone/y"] and dry.report["deleted"] == 1
    done = way.sync(when, "-v")
    assert text_lines(done, "left ") == [f"left {line}" for line in left], done
    assert done.report["deleted"] == 1 and done.report["left_count"] == 3
    assert sorted(f"{entry['path']}: {entry['reason']}" for entry in done.report["left"]) == left
    assert names(way.target) == ("a gone gone/disk gone/disk/d gone/disk/d/precious gone/disk/precious"
                                 " shared shared/precious shared/x top top/precious")


@pytest.mark.parametrize("when", ["--delete-after", "--delete-before"])
def test_with_the_option_what_is_mounted_is_emptied(way, mount, when):
    fill(way.source, "a shared/x")
    fill(way.target, "gone/disk/ gone/y shared/")
    for folder in ("gone/disk", "shared"):
        mount(way.target / folder)
    fill(way.target, "gone/disk/d/old shared/old")
    arguments = [when, "--delete-across-mounts"]
    dry = way.sync(*arguments, "--dry-run")
    left = ["gone/disk: something is mounted there"]
    assert text_lines(dry, "would leave") == [f"would leave {line}" for line in left] and dry.report["deleted"] == 4, dry
    done = way.sync(*arguments, "-v")
    assert text_lines(done, "left ") == [f"left {line}" for line in left] and done.report["deleted"] == 4, done
    assert names(way.target) == "a gone gone/disk shared shared/x"


@pytest.mark.parametrize("when", ["--delete-after", "--delete-before"])
def test_a_directory_with_a_mount_in_it_makes_no_room_for_a_file(way, mount, when):
    fill(way.source, "a x")
    (way.source / "link").symlink_to("a")
    fill(way.target, "x/disk/ x/y link/disk/")
    for folder in ("x/disk", "link/disk"):
        mount(way.target / folder)
    fill(way.target, "x/disk/precious link/disk/precious")
    dry = way.sync(when, "--dry-run", expect=EXIT_SOME_FAILED)
    assert dry.report["failed_count"] == 2 and dry.report["left_count"] == 2, dry
    done = way.sync(when, expect=EXIT_SOME_FAILED)
    assert done.report["failed_count"] == 2 and "directory is in its place" in done.stderr, done
    assert names(way.target) == "a link link/disk link/disk/precious x x/disk x/disk/precious"


def test_a_file_that_something_is_mounted_on_stays(net, way):
    fill(way.source, "a")
    fill(way.target, "d/hosts d/old")
    fill(way.target.parent, "other")
    call("mount", "--bind", str(way.target.parent / "other"), str(way.target / "d/hosts"))
    try:
        for dry in (["--dry-run"], []):
            outcome = way.sync("--delete", *dry)
            assert [entry["path"] for entry in outcome.report["left"]] == ["d/hosts"] and outcome.report["deleted"] == 1
        assert names(way.target) == "a d d/hosts"
    finally:
        call("umount", "-l", str(way.target / "d/hosts"))


def test_what_is_mounted_is_not_renamed(way, mount):
    fill(way.source, "new/big")
    (way.source / "new/big").write_bytes(b"x" * 300_000)
    fill(way.target, "disk/")
    mount(way.target / "disk")
    fill(way.target, "disk/old")
    (way.target / "disk/old").write_bytes(b"x" * 300_000)
    for path in (way.source / "new/big", way.target / "disk/old"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    done = way.sync("--delete", "--detect-renames")
    assert (done.report["renames"], done.report["files"], done.report["left_count"]) == (0, 1, 1), done
    assert names(way.target) == "disk disk/old new new/big"


def test_each_disk_of_a_spread_destination_is_its_own(net, ssh_road, near):
    """That the second directory is another file system than the first is no border. A mount in it is one."""
    far = ssh_road.far
    fill(near, "tree/a")
    fill(far, "one/tree/old two/tree/")
    with mounted(net, far / "two"):
        fill(far, "two/tree/old2 two/tree/disk/")
        with mounted(net, far / "two/tree/disk"):
            fill(far, "two/tree/disk/precious")
            spread = ["--spread", f"{far}/one,{far}/two"]
            done = ssh_road.sync("--delete", *spread, near / "tree", f"beta:{far}/one/tree")
            assert done.report["deleted"] == 2 and [entry["path"] for entry in done.report["left"]] == ["disk"], done
            assert (far / "two/tree/disk/precious").exists()


# ---- mounts below a source ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-x", "--one-file-system"])
@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_one_file_system_sends_mount_points_as_empty_directories(net, way, option, verb):
    fill(way.source, "a d/disk/ d/b bound/")
    fill(way.source.parent, "elsewhere/x")
    with mounted(net, way.source / "d/disk"), mounted(net, way.source / "bound", of=way.source.parent / "elsewhere"):
        fill(way.source, "d/disk/inside/y")
        (way.source / "d/disk").chmod(0o751)
        way.sync(option, verb=verb, target_slash="")
        assert names(way.target) == "a bound d d/b d/disk"
        assert (way.target / "d/disk").stat().st_mode & 0o777 == 0o751, "the mode of what is mounted"
        everything = way.sync(verb=verb, target_slash="-all")
        assert everything.report["files"] == 4


@pytest.mark.parametrize("when", ["--delete-after", "--delete-before"])
def test_what_is_not_looked_at_is_not_deleted_at_the_other_end(net, way, when):
    fill(way.source, "a disk/")
    fill(way.target, "a old disk/inside/y")
    with mounted(net, way.source / "disk"):
        fill(way.source, "disk/inside/x")
        report = way.sync("-x", when).report
        assert report["deleted"] == 1 and names(way.target) == "a disk disk/inside disk/inside/y"
    report = way.sync("-x", when).report
    assert report["deleted"] == 2 and names(way.target) == "a disk", "nothing is mounted there any more"


def test_a_name_that_is_asked_for_is_sent_from_beyond_a_border(net, way):
    fill(way.source, "disk/ a")
    with mounted(net, way.source / "disk"):
        fill(way.source, "disk/x disk/y")
        way.sync("-x", "--files-from", "-", input=b"a\ndisk/x\n")
        assert names(way.target) == "a disk disk/x"


def test_a_name_beyond_a_border_is_asked_for_beside_the_directory_above_it(net, way):
    fill(way.source, "d/disk/ d/a")
    with mounted(net, way.source / "d/disk"):
        fill(way.source, "d/disk/x d/disk/y")
        outcome = way.sync("-x", "--files-from", "-", input=b"d\nd/disk/x\nd/disk/none\n", expect=EXIT_SOME_FAILED)
        assert names(way.target) == "d d/a d/disk d/disk/x"
        assert [entry["path"] for entry in outcome.report["failed"]] == ["d/disk/none"], outcome


def test_a_source_that_is_a_mount_point_itself_is_sent(net, way):
    with mounted(net, way.source):
        fill(way.source, "a d/b")
        assert way.sync("-x").report["files"] == 2


# ---- trees deeper than a path is long ----------------------------------------------------------------------------------


def make_deep(top, levels, name):
    """Directories in one another, each with a file beside the next one."""
    top.mkdir(parents=True, exist_ok=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(levels - 1):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at))
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def count_deep(top, name):
    """How many levels the tree has."""
    levels, at = 1, os.open(top, os.O_RDONLY)
    with contextlib.suppress(FileNotFoundError):
        while True:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            levels, at = levels + 1, below
    os.close(at)
    return levels


@pytest.mark.parametrize("when, levels, name", [
    ("--delete-after", 400, "a-name-of-twenty-bytes"), ("--delete-before", 400, "a-name-of-twenty-bytes"),
    ("--delete-after", 10_000, "level")])
def test_a_surplus_tree_is_deleted_however_deep_it_is(net, way, levels, name, when):
    fill(way.source, "a")
    with mounted(net, way.target, size=200):
        make_deep(way.target / "deep", levels, name)
        count = 2 * levels - 1
        if levels < 1000:
            assert way.sync(when, "--dry-run").report["deleted"] == count
        assert way.sync(when).report["deleted"] == count and names(way.target) == "a"


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("levels, name, arrive", [(400, "a-name-of-twenty-bytes", 179), (5_000, "d", 2049)])
def test_of_a_deep_source_what_does_not_arrive_has_failed(net, way, verb, levels, name, arrive):
    """A path has at most 4095 bytes: entries below that cannot be named to the other end, so they fail."""
    with mounted(net, way.source, size=200), mounted(net, way.target, size=200):
        make_deep(way.source / "top" if verb == "cp" else way.source, levels, name)
        top = way.source / "top" if verb == "cp" else way.source
        report = way.sync(verb=verb, slash="/", expect=EXIT_SOME_FAILED).report
        assert any("too long" in entry["reason"] for entry in report["failed"])
        assert count_deep(top, name) == levels
        came = count_deep(way.target / "top" if verb == "cp" else way.target, name)
        assert arrive - 2 <= came <= arrive, came


def test_what_verify_cannot_look_at_is_not_left_out_in_silence(net, near):
    fill(near, "source/a")
    with mounted(net, near / "copy", size=200):
        cp(net.alpha, "--manifest", near / "manifest", near / "source/", near / "copy/")
        # The manifest has the directories above, so verify enters them.
        make_deep(near / "copy/deep", 600, "a-name-of-twenty-bytes")
        done = net.alpha.run(["farhaul", "verify", "--extra", near / "manifest", near / "copy"])
        assert done.returncode == 1 and b"deep" in done.stdout + done.stderr, done


# ---- what makes room for another kind ----------------------------------------------------------------------------------


def tick(net):
    """Waits for the next tick of the kernel's clock for file times: a link of the same tick counts as made in
    the run."""
    net.alpha.run(["sleep", "0.05"], check=True)


REPLACED = [
    "dir-for-file: a file makes room for a directory",
    "dir-for-link: a symbolic link makes room for a directory",
    "dir-for-pipe: a pipe makes room for a directory",
    "file-for-dangling: a symbolic link makes room for a file",
    "file-for-link: a symbolic link makes room for a file",
    "file-for-pipe: a pipe makes room for a file",
    "hard-for-link: a symbolic link makes room for a file",
    "large-for-link: a symbolic link makes room for a file",
    "link-for-file: a file makes room for a symbolic link",
    "link-for-pipe: a pipe makes room for a symbolic link",
    "pipe-for-file: a file makes room for a pipe",
    "pipe-for-link: a symbolic link makes room for a pipe",
]


def kinds(source, target):
    """Makes, for each pair of kinds, an entry of one kind at the source and one of the other kind at the
    destination. Entries of the same kind at both ends replace nothing."""
    fill(source, "dir-for-file/x dir-for-link/x dir-for-pipe/x file-for-dangling file-for-link file-for-pipe first same-file")
    (source / "large-for-link").write_bytes(b"x" * (3 << 20))
    os.link(source / "first", source / "hard-for-link")
    for name in ("link-for-file", "link-for-pipe", "same-link"):
        (source / name).symlink_to("first")
    for name in ("pipe-for-file", "pipe-for-link"):
        os.mkfifo(source / name)
    fill(target, "dir-for-file link-for-file pipe-for-file dir/precious old-first")
    (target / "same-file").write_text("another content")
    for name, to in (("dir-for-link", "dir"), ("file-for-dangling", "nowhere"), ("file-for-link", "old-first"), ("same-link", "dir"),
                     ("hard-for-link", "old-first"), ("large-for-link", "old-first"), ("pipe-for-link", "dir")):
        (target / name).symlink_to(to)
    for name in ("dir-for-pipe", "file-for-pipe", "link-for-pipe"):
        os.mkfifo(target / name)


def test_whatever_makes_room_for_another_kind_is_listed_and_counted(way):
    kinds(way.source, way.target)
    before = names(way.target)
    dry = way.sync("--specials", "--dry-run")
    assert text_lines(dry, "would replace ")[:len(REPLACED)] == [f"would replace {line}" for line in REPLACED], dry
    assert dry.report["replaced"] == len(REPLACED) and names(way.target) == before
    done = way.sync("--specials", "-v")
    assert text_lines(done, "replaced ") == [f"replaced {line}" for line in REPLACED], done
    assert done.report["replaced"] == len(REPLACED) and done.report["deleted"] == 0
    assert (way.target / "dir/precious").exists() and (way.target / "old-first").exists()
    assert way.sync("--specials").report["replaced"] == 0
    assert f"replaced {len(REPLACED)} of another kind" in done.stderr.splitlines()[-1]


def test_a_copy_lists_the_same_of_what_it_replaces(way):
    kinds(way.source, way.target)
    stay = ("dir-for-file", "dir-for-link", "dir-for-pipe", "file-for-pipe", "link-for-pipe")
    expected = [line for line in REPLACED if not line.startswith(stay)]
    for dry in (["--dry-run"], []):
        done = way.sync("--specials", "-v", *dry, verb="cp", slash="/", expect=EXIT_SOME_FAILED)
        does = "would replace" if dry else "replaced"
        found = [line for line in text_lines(done, f"{does} ") if "makes room" in line]
        assert found == [f"{does} {line}" for line in expected] and done.report["replaced"] == len(expected), done
        assert {entry["path"].split("/")[0] for entry in done.report["failed"]} >= set(stay), done
    assert (way.target / "dir-for-link").is_symlink() and not (way.target / "dir/x").exists()


# ---- links to directories that are kept --------------------------------------------------------------------------------


def test_a_link_to_a_directory_is_kept_and_used(net, way):
    disk = way.target.parent / "disk"
    fill(way.source, "a data/x data/deep/y data/large")
    (way.source / "data/large").write_bytes(os.urandom(5 << 20))
    fill(way.target, "a")
    fill(way.target.parent, "disk/x disk/old disk/deep/old")
    (disk / "x").write_text("another version")
    (way.target / "data").symlink_to("../disk" if way.road.name == "daemon" else disk)
    tick(net)
    for when, deleted in (("--dry-run", 2), ("--delete-before", 2), ("--delete-after", 0)):
        arguments = ["--delete", when] if when == "--dry-run" else [when]
        done = way.sync("-K", "-v", *arguments)
        assert (done.report["deleted"], done.report["replaced"]) == (deleted, 0), done
        assert (way.target / "data").is_symlink()
    assert names(disk) == "deep deep/y large x" and differences(way.source / "data", disk) == []
    (way.source / "data/x").write_text("new")
    assert way.sync("--keep-dirlinks").report["files"] == 1
    assert differences(way.source / "data", disk) == [], "its mode and time, too"
    done = way.sync("-v")
    assert done.report["replaced"] == 1 and not (way.target / "data").is_symlink(), done


def test_what_a_kept_link_leads_to_on_another_file_system_is_not_deleted(net, way):
    fill(way.source, "data/x")
    fill(way.target, "a")
    with mounted(net, way.target.parent / "disk") as disk:
        fill(disk, "old")
        (way.target / "data").symlink_to("../disk")
        tick(net)
        done = way.sync("-K", "--delete")
        assert [entry["path"] for entry in done.report["left"]] == ["data/old"] and names(disk) == "old x", done
        assert way.sync("-K", "--delete", "--delete-across-mounts").report["deleted"] == 1
        assert names(disk) == "x"


def test_a_copy_uses_kept_links_too(net, way):
    fill(way.source, "data/x")
    fill(way.target, "a")
    fill(way.target.parent, "disk/")
    (way.target / "data").symlink_to("../disk")
    tick(net)
    way.sync("-K", verb="cp", slash="/")
    assert names(way.target.parent / "disk") == "x" and (way.target / "data").is_symlink()


@pytest.mark.parametrize("what", ["made by a transfer", "made by a copy", "of somebody else", "with two names",
                                  "up", "through one made by a transfer", "to another directory of the destination"])
def test_a_link_that_cannot_be_trusted_is_not_used(net, way, what):
    fill(way.source, "data/x")
    fill(way.target, "a other/y inner/y")
    fill(way.target.parent, "disk/z/ origin/")
    link, to = way.target / "data", "../disk"
    if what == "up":
        to = ".."
    elif what.startswith("to another"):
        to = "inner"
        fill(way.source, "inner/y other/y a")
    elif what.startswith("through"):
        to = "brought/z"
    link.symlink_to(to)
    if what == "made by a copy":
        os.utime(link, (1_500_000_000, 1_500_000_000), follow_symlinks=False)
    elif what == "of somebody else":
        os.chown(link, 54321, 54321, follow_symlinks=False)
    elif what == "with two names":
        os.link(link, way.target / "second", follow_symlinks=False)
    elif what in ("made by a transfer", "through one made by a transfer"):
        name = "data" if what == "made by a transfer" else "brought"
        if name == "data":
            link.unlink()
        (way.target.parent / "origin" / name).symlink_to("../disk")
        tick(net)
        cp(net.alpha, f"{way.target.parent}/origin/", way.target)
    tick(net)
    before = names(way.target.parent / "disk")
    done = way.sync("-K", "--delete", "--filter", "protect second", "--filter", "protect brought", expect=EXIT_SOME_FAILED)
    assert "is not used" in done.stderr or "leads" in done.stderr, done
    assert link.is_symlink() and names(way.target.parent / "disk") == before
    assert not (way.target / "inner/x").exists() and not (way.target.parent / "x").exists()


def test_a_daemon_follows_a_link_only_beneath_its_root(net, daemon_road, near):
    root, far = net.daemon.root, daemon_road.far
    fill(near, "tree/in/x tree/out/x tree/absolute/x tree/chain/x")
    fill(far, "tree/ inside/")
    outside = net.folder("outside")
    (far / "tree/in").symlink_to("../inside")
    (far / "tree/out").symlink_to(os.path.relpath(outside, far / "tree"))
    (far / "tree/absolute").symlink_to(far / "inside")
    (far / "tree/chain").symlink_to("../hop")
    (far / "hop").symlink_to("inside")
    tick(net)
    done = daemon_road.sync("-K", near / "tree", daemon_road.url("tree"), expect=EXIT_SOME_FAILED)
    assert names(far / "inside") == "x" and names(outside) == "" and root in far.parents, done
    assert (far / "tree/out").is_symlink() and (far / "tree/absolute").is_symlink() and (far / "tree/chain").is_symlink()
    assert done.stderr.count("is not used") >= 3, done


def test_a_link_that_is_swapped_during_the_run_leads_nowhere_else(net, way):
    """The receiver goes on using the directory that it found at first, wherever the link leads later."""
    fill(way.target.parent, "disk/ evil/")
    fill(way.target, "a")
    (way.target / "data").symlink_to("../disk")
    way.source.mkdir()
    (way.source / "data").mkdir()
    for number in range(300):
        (way.source / f"data/{number}").write_bytes(os.urandom(60_000))
    tick(net)
    ends = (way.source, way.road.url("tree")) if way.is_push else (way.road.url("tree"), way.target)
    process = way.road.start("-K", "--rate", "100M", *ends, verb="sync")
    swaps = 0
    while process.poll() is None:
        aside = way.target / "aside"
        aside.symlink_to("../evil" if swaps % 2 == 0 else "/etc")
        if names(way.target.parent / "disk"):
            aside.replace(way.target / "data")
            swaps += 1
        else:
            aside.unlink()
    outcome = finish(process)
    assert swaps > 0 and names(way.target.parent / "evil") == "", outcome
    assert outcome.code == 0 and len(names(way.target.parent / "disk").split()) == 300, outcome


# ---- other cases of another file system or another name
# ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["a kept link", "a mount"])
def test_room_is_looked_for_where_the_file_goes(net, way, how):
    """The destination itself is nearly full; the file system that is mounted below it, or that a link leads
    to, is not."""
    way.source.mkdir()
    (way.source / "data").mkdir()
    (way.source / "data/large").write_bytes(os.urandom(20 << 20))
    with mounted(net, way.target, size=1), mounted(net, way.target.parent / "disk", size=64) as disk:
        if how == "a kept link":
            (way.target / "data").symlink_to("../disk")
            tick(net)
            assert way.sync("-K").report["files"] == 1
            assert names(disk) == "large"
        else:
            with mounted(net, way.target / "data", size=64) as data:
                assert way.sync().report["files"] == 1
                assert names(data) == "large"


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_what_is_too_long_under_a_new_name_fails_by_itself(net, way, dry):
    with mounted(net, way.source, size=100):
        make_deep(way.source / "x", 199, "a-name-of-twenty-bytes")
        longer = "y" * 200
        far = way.road.url(f"tree/{longer}") if way.is_push else way.road.url("tree/x")
        ends = (way.source / "x", far) if way.is_push else (far, way.target / longer)
        way.target.mkdir()
        done = way.road.cp(*dry, *ends, check=False)
        assert done.code == EXIT_SOME_FAILED, done.stderr[-300:]
        reasons = {entry["reason"] for entry in done.report["failed"]}
        assert done.report["files"] > 150 and any("too long" in reason for reason in reasons), reasons
        if not dry:
            assert count_deep(way.target / longer, "a-name-of-twenty-bytes") > 150


def test_a_directory_keeps_the_set_group_id_bit_that_the_destination_gave_it(way):
    """A group shares this directory: what is made in it later belongs to the group, too. With -p the source
    decides."""
    fill(way.source, "new/sub/x there/x")
    fill(way.target, "there/old")
    for folder in (way.target, way.target / "there"):
        folder.chmod(0o2775)
    bits = lambda: [(way.target / name).stat().st_mode & 0o7777 for name in ("there", "new", "new/sub")]  # noqa: E731
    (way.source / "there").chmod(0o750)
    for arguments in (["--delete"], []):
        way.sync(*arguments)
        assert [f"{mode:o}" for mode in bits()] == ["2750", "2755", "2755"], arguments
    way.sync("-p")
    assert [f"{mode:o}" for mode in bits()] in (["750", "755", "755"], ["2750", "2755", "2755"])
