"""Destinations that keep less than the source has: coarse or narrow times, no hard links, no allocation
without zeros, and append-only directories, in which nothing is replaced."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from harness import fuse
from harness.hosts import USER, call, wait_until
from harness.product import EXIT_FILES, EXIT_METADATA, EXIT_OK, EXIT_SOME_FAILED, cp, start_cp
from harness.trees import leftovers, make_file, sha256

MIB = 1 << 20
#: Times in years that every file system can store, with fractions that no coarse one keeps. The seconds of
#: the second one are odd, which FAT does not keep.
TIMES = [1_600_000_000_123_456_789, 1_600_000_001_999_999_999, 1_700_000_000_000_000_001]
BEYOND_2038 = 4_000_000_000_500_000_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount file systems")


def program(name):
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    return name


def image(folder, megabytes):
    file = folder.parent / f"{folder.name}.image"
    with open(file, "wb") as out:
        out.truncate(megabytes << 20)
    return file


@contextlib.contextmanager
def loop_device(file):
    done = subprocess.run(["losetup", "--find", "--show", os.fspath(file)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no loop devices here: {done.stderr.decode().strip()}")
    device = done.stdout.decode().strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


def mount(stack, *command, what, folder):
    done = subprocess.run([*map(os.fspath, command)], capture_output=True)
    if done.returncode:
        pytest.skip(f"{what} cannot be mounted here: {done.stderr.decode().strip()}")
    stack.callback(lambda: subprocess.run(["umount", "-l", os.fspath(folder)], check=False))
    return folder


def old_ext4(stack, folder, megabytes=32):
    """ext4 with inodes of 128 bytes: times in seconds, up to 2038."""
    file = image(folder, megabytes)
    call("mkfs.ext4", "-q", "-F", "-I", "128", "-O", "^has_journal", str(file))
    folder = mount(stack, "mount", "-o", "loop", file, folder, what="ext4", folder=folder)
    (folder / "lost+found").rmdir()
    return folder


def exfat(stack, folder, megabytes=64):
    """exFAT by FUSE: times in steps, no modes, no hard links, no holes."""
    program("mount.exfat-fuse")
    file = image(folder, megabytes)
    call(program("mkfs.exfat"), str(file))
    device = stack.enter_context(loop_device(file))
    return mount(stack, "mount.exfat-fuse", device, folder, what="exFAT", folder=folder)


def ntfs(stack, folder, megabytes=64):
    """NTFS by FUSE: times in steps of 100 ns."""
    program("lowntfs-3g")
    file = image(folder, megabytes)
    call("mkntfs", "--fast", "--force", "--quiet", "--sector-size", "512", str(file))
    return mount(stack, "lowntfs-3g", file, folder, what="NTFS", folder=folder)


def vfat(stack, folder, megabytes=32):
    """FAT: times in steps of 2 s."""
    file = image(folder, megabytes)
    call(program("mkfs.vfat"), str(file))
    return mount(stack, "mount", "-t", "vfat", "-o", "loop", file, folder, what="FAT", folder=folder)


COARSE = {"old ext4": old_ext4, "exFAT": exfat, "NTFS": ntfs, "FAT": vfat}


@pytest.fixture(params=COARSE)
def coarse(request, way):
    """A way whose destination is a file system with coarse times."""
    way.source.mkdir()
    way.target.mkdir()
    with contextlib.ExitStack() as stack:
        COARSE[request.param](stack, way.target)
        yield way


def fill(tree, times=TIMES):
    (tree / "d").mkdir()
    for number, at in enumerate(times):
        make_file(tree / f"d/small{number}", 1000 + number)
        make_file(tree / f"large{number}", 2 * MIB + number)
        for name in (f"d/small{number}", f"large{number}"):
            os.utime(tree / name, ns=(at, at))
    os.utime(tree / "d", ns=(times[0], times[0]))


def warnings_of(outcome):
    return [text for text in outcome.report["warnings"] if "keeps times" in text]


@pytest.mark.parametrize("verb", ["sync", "cp"])
def test_what_the_destination_keeps_of_a_time_is_that_time(coarse, verb):
    fill(coarse.source)
    both = {"verb": verb, "slash": "/", "target_slash": "/"}
    first = coarse.sync(**both)
    assert first.report["files"] == 6 and first.report["not_set_count"] == 0, first
    assert warnings_of(first) == []
    dry = coarse.sync("--dry-run", **both)
    assert (dry.report["files"], dry.report["skipped"]) == (0, 6), dry
    second = coarse.sync(**both)
    assert (second.report["files"], second.report["skipped"]) == (0, 6), second
    assert len(warnings_of(second)) == 1, second.report["warnings"]
    assert not leftovers(coarse.target)
    # A user who sets the window gets no warning.
    known = coarse.sync("--modify-window", "2", **both)
    assert known.report["skipped"] == 6 and warnings_of(known) == []
    # A change by more than the window is sent.
    at = TIMES[0] + 4_000_000_000
    os.utime(coarse.source / "large0", ns=(at, at))
    changed = coarse.sync(**both)
    assert (changed.report["files"], changed.report["skipped"]) == (1, 5), changed
    older = coarse.sync("--overwrite", "older", **both)
    assert older.report["skipped"] == 6, older


def test_verify_agrees_on_times(coarse, net):
    fill(coarse.source)
    where = coarse.road.alpha
    manifest = net.folder("manifests") / "m"
    coarse.sync("--manifest", manifest)
    host = net.beta if coarse.is_push else where
    done = host.run(["farhaul", "verify", "--metadata", "--json", manifest, coarse.target], check=False)
    text = done.stdout.decode()
    assert "modification time" not in text, text


def test_times_beyond_2038(net, near):
    """A time that is later than the file system can store becomes the last second that it can store."""
    source, target = near / "source", near / "target"
    source.mkdir()
    target.mkdir()
    fill(source, [BEYOND_2038, TIMES[0]])
    with contextlib.ExitStack() as stack:
        old_ext4(stack, target)
        cp(net.alpha, f"{source}/", target, verb="sync")
        again = cp(net.alpha, f"{source}/", target, verb="sync")
        assert (again.report["files"], again.report["skipped"]) == (0, 4), again
        assert len(warnings_of(again)) == 1


def test_a_fine_file_system_keeps_every_difference(way):
    """A difference that a coarse file system would explain counts as one on a fine file system."""
    way.source.mkdir()
    (way.source / "f").write_text("one")
    os.utime(way.source / "f", ns=(TIMES[0], TIMES[0]))
    way.sync()
    seconds = TIMES[0] // 1_000_000_000 * 1_000_000_000
    os.utime(way.target / "f", ns=(seconds, seconds))
    report = way.sync().report
    assert (report["files"], report["skipped"]) == (1, 0), report
    os.utime(way.target / "f", ns=(seconds, seconds))
    assert way.sync("--modify-window", "1").report["skipped"] == 1


def test_renames_are_found_where_times_are_coarse(net, near):
    source, target = near / "source", near / "target"
    source.mkdir()
    target.mkdir()
    fill(source)
    with contextlib.ExitStack() as stack:
        old_ext4(stack, target)
        cp(net.alpha, f"{source}/", target, verb="sync")
        os.rename(source / "large1", source / "renamed")
        report = cp(net.alpha, "--detect-renames", "--delete", f"{source}/", target, verb="sync").report
        assert report["renames"] == 1 and report["files"] == 0, report
        assert (target / "renamed").read_bytes() == (source / "renamed").read_bytes()


@pytest.fixture
def stick(own_net):
    """A device with exFAT, which gives files other inode numbers each time that it is mounted."""
    folder = own_net.folder("stick")
    program("mount.exfat-fuse")
    file = image(folder, 96)
    call(program("mkfs.exfat"), str(file))
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(loop_device(file))

        def plug():
            mount(stack, "mount.exfat-fuse", device, folder, what="exFAT", folder=folder)

        def replug():
            subprocess.run(["umount", os.fspath(folder)], check=True)
            plug()

        plug()
        folder.joinpath("first").mkdir()
        folder.joinpath("data").mkdir()
        yield own_net, folder / "data", replug


@pytest.mark.parametrize("arguments", [[], ["--verify", "transit"]], ids=["digest", "transit"])
def test_what_has_come_is_found_again_when_the_device_was_unplugged(stick, arguments):
    net, folder, replug = stick
    source = make_file(net.folder("near") / "big", 48 * MIB)

    def interrupt():
        running = start_cp(net.alpha, *arguments, "--rate", "100M", source, f"{folder}/")
        wait_until(lambda: sum(path.stat().st_size for path in leftovers(folder) if path.suffix == ".fhjournal") > 144 + 56 * 12,
                   seconds=60, what="a part of the file has arrived")
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        wait_until(lambda: not busy(folder), what="no process holds the partial file")

    interrupt()
    user = folder / ".0123456789abcdef.fhpart"
    user.write_text("a user's")
    before = {path.name: path.stat().st_ino for path in leftovers(folder)}
    replug()
    assert {path.name: path.stat().st_ino for path in leftovers(folder)} != before, "the device numbers its files anew"
    out = net.folder("out")
    report = cp(net.alpha, f"{folder}/", f"{out}/").report
    assert report["files"] == 1 and os.listdir(out) == [user.name], "what is ours is not copied on"
    report = cp(net.alpha, *arguments, source, f"{folder}/").report
    assert sha256(folder / "big") == sha256(source)
    # Without digests, nothing tells whether the content is still what has come.
    assert arguments or report["bytes_resumed"] >= 8 * MIB, report
    assert leftovers(folder) == [user]
    (folder / "big").unlink()
    interrupt()
    replug()
    cleaned = net.alpha.run(["farhaul", "clean", "--older", "0s", folder])
    assert b"1 leftover removed" in cleaned.stderr and leftovers(folder) == [user], cleaned
    assert user.read_text() == "a user's"


def busy(folder):
    def is_free(path):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True
    return [path for path in leftovers(folder) if not is_free(path)]


#: Names that one file system takes and another one refuses: ext4 counts bytes, exFAT characters.
REFUSED = {"exFAT": (None, "2026-11-29T10:00.tar"), "old ext4": (exfat, "\u00e9" * 200)}


def names_it(outcome):
    return "refuses this name" in outcome.stderr or "name too long" in outcome.stderr


@pytest.mark.parametrize("kind", REFUSED)
def test_a_name_that_is_refused_costs_no_content(own_net, kind):
    (mounted, name), folder, near = REFUSED[kind], own_net.folder("narrow"), own_net.folder("near")
    with contextlib.ExitStack() as stack:
        if mounted:
            mounted(stack, near)
        source = near / "source"
        source.mkdir()
        renamed = make_file(source / name, 9 * MIB)
        COARSE[kind](stack, folder)
        kept = folder.stat().st_mtime_ns
        dry = cp(own_net.alpha, "--dry-run", renamed, f"{folder}/", expect=EXIT_FILES)
        assert folder.stat().st_mtime_ns == kept and list(folder.iterdir()) == [], dry
        assert names_it(dry), dry
        # In a directory that does not exist yet, too.
        dry = cp(own_net.alpha, "--dry-run", source, f"{folder}/new", expect=EXIT_SOME_FAILED)
        assert dry.report["failed_count"] == 1, dry
        for _ in range(2):
            outcome = cp(own_net.alpha, renamed, f"{folder}/", expect=EXIT_FILES)
            assert outcome.report["bytes"] == 0 and names_it(outcome), outcome
            assert list(folder.iterdir()) == [], "nothing is left of it"
        renamed.write_text("small")
        outcome = cp(own_net.alpha, renamed, f"{folder}/", expect=EXIT_FILES)
        assert names_it(outcome) and list(folder.iterdir()) == [], outcome


def test_a_change_of_case_arrives_as_the_failure_says(own_net):
    source, target = own_net.folder("source"), own_net.folder("target")
    for name in ("Name", "other"):
        (source / name).write_text(name)
    with contextlib.ExitStack() as stack:
        exfat(stack, target)
        # In two directories, as the kernel remembers for a second which names FUSE has found.
        for folder in ("refused", "brought"):
            (target / folder).mkdir()
            (target / folder / "name").write_text("old")
        outcome = cp(own_net.alpha, "--delete", f"{source}/", f"{target}/refused/", verb="sync", expect=EXIT_SOME_FAILED)
        (failed,) = outcome.report["failed"]
        assert failed["reason"].endswith("rename one of them (if it was renamed at the source: farhaul sync `delete-before`)"), failed
        brought = target / "brought"
        cp(own_net.alpha, "--delete-before", f"{source}/", f"{brought}/", verb="sync")
        assert sorted(os.listdir(brought)) == ["Name", "other"] and (brought / "Name").read_text() == "Name"


# ---- hard links --------------------------------------------------------------------------------------------------------


def test_a_hard_link_that_cannot_be_made_is_copied(way):
    way.source.mkdir()
    way.target.mkdir()
    make_file(way.source / "a", 3 * MIB)
    (way.source / "s").write_text("small")
    for name, of in (("b", "a"), ("c", "a"), ("t", "s")):
        os.link(way.source / of, way.source / name)
    with contextlib.ExitStack() as stack:
        exfat(stack, way.target)
        outcome = way.sync(expect=EXIT_OK)
        notes = [text for text in outcome.report["warnings"] if "hard links" in text]
        assert len(notes) == 1 and outcome.report["failed_count"] == 0, outcome
        for name in "abcst":
            assert (way.target / name).read_bytes() == (way.source / name).read_bytes(), name
        again = way.sync()
        assert (again.report["files"], again.report["links"]) == (0, 0), again
        assert not leftovers(way.target)


def test_files_that_share_an_inode_number_stay_apart(net, near):
    """A program that provides a file system may give each file the same inode number, and two names."""
    source = net.folder("alike")
    content = {f"f{number:02}": f"content {number:03}".encode() for number in range(42)}
    files = {name: (len(text), text) for name, text in content.items()}
    with fuse.mounted(source, files, inode=7):
        for number, location in enumerate([source, f"beta:{source}"]):
            target = near / f"copy{number}"
            outcome = cp(net.alpha, f"{location}/", f"{target}/")
            assert (outcome.report["files"], outcome.report["links"]) == (42, 0), outcome
            assert {path.name: path.read_bytes() for path in target.iterdir()} == content
            assert any("`hard-links`" in text for text in outcome.report["warnings"]), outcome
        quiet = cp(net.alpha, "--no-hard-links", f"{source}/", f"{near}/quiet/")
        assert not any("hard links" in text for text in quiet.report["warnings"]), quiet
        # Who knows better says so, but no file has more names than its file system says.
        believed = cp(net.alpha, "--hard-links", f"{source}/", f"{near}/believed/")
        assert (believed.report["files"], believed.report["links"]) == (21, 21), believed
    sizes = {name: (len(text), text) for name, text in (("a", b"1"), ("b", b"22"), ("c", b"333"))}
    with fuse.mounted(source, sizes, inode=7):
        other = cp(net.alpha, "--hard-links", f"{source}/", f"{near}/sizes/")
        assert (other.report["files"], other.report["links"]) == (3, 0), other
        assert (near / "sizes/c").read_bytes() == b"333"


def test_each_name_can_be_a_file_of_its_own(way):
    way.source.mkdir()
    (way.source / "a").write_text("content")
    os.link(way.source / "a", way.source / "b")
    report = way.sync("--no-hard-links").report
    assert (report["files"], report["links"]) == (2, 0), report
    assert not os.path.samefile(way.target / "a", way.target / "b")
    assert way.sync().report["links"] == 1 and os.path.samefile(way.target / "a", way.target / "b")


def test_a_file_that_has_as_many_links_as_there_can_be(net, near):
    """EMLINK: ext4 allows at most 65,000 names for one file."""
    source, target = near / "source", near / "target"
    source.mkdir()
    target.mkdir()
    (source / "a").write_text("content")
    os.link(source / "a", source / "b")
    with contextlib.ExitStack() as stack:
        folder = old_ext4(stack, target, megabytes=64)
        cp(net.alpha, f"{source}/", f"{folder}/")
        (folder / "more").mkdir()
        count = 2
        with contextlib.suppress(OSError):
            while count < 70_000:
                os.link(folder / "a", folder / f"more/{count}")
                count += 1
        assert count < 70_000
        # The first name in the listing becomes the file, the others become links to it: it must be a name
        # that the destination has, so the new name must not come first.
        new = next(name for name in map("new{}".format, range(100)) if is_not_first(source, name))
        outcome = cp(net.alpha, f"{source}/", f"{folder}/")
        assert (folder / new).read_text() == "content" and not os.path.samefile(folder / "a", folder / new)
        assert any("too many links" in text for text in outcome.report["warnings"]), outcome
        assert cp(net.alpha, f"{source}/", f"{folder}/").report["links"] == 0


def is_not_first(folder, name):
    """Makes another name for `a`; removes it again if it comes first in the listing."""
    os.link(folder / "a", folder / name)
    if os.listdir(folder)[0] != name:
        return True
    os.unlink(folder / name)
    return False


def test_a_link_onto_another_file_system_is_no_way_out(net, near):
    """EXDEV: a directory of the destination is another file system."""
    source, target = near / "source", near / "target"
    (source / "d").mkdir(parents=True)
    (target / "d").mkdir(parents=True)
    (source / "a").write_text("content")
    os.link(source / "a", source / "d/b")
    with contextlib.ExitStack() as stack:
        old_ext4(stack, target / "d")
        outcome = cp(net.alpha, f"{source}/", f"{target}/")
        assert outcome.report["failed_count"] == 0 and (target / "d/b").read_text() == "content"
        assert not any("way out" in text for text in outcome.report["warnings"]), outcome
        assert any("hard links" in text for text in outcome.report["warnings"]), outcome
        assert cp(net.alpha, f"{source}/", f"{target}/").report["links"] == 0


# ---- set-group-id directories -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["sync", "cp"])
@pytest.mark.parametrize("option", [[], ["-p"]])
def test_a_directory_below_a_set_group_id_one_keeps_the_bit(way, verb, option):
    (way.source / "new/deep").mkdir(parents=True)
    (way.source / "new/deep/f").write_text("x")
    (way.source / "there").mkdir()
    os.chmod(way.source / "new", 0o751)
    way.target.mkdir()
    os.chown(way.target, 0, 12345)
    os.chmod(way.target, 0o2775)
    (way.target / "there").mkdir()
    is_daemon = way.road.name == "daemon"
    for number in range(2):
        way.sync(*option, verb=verb, slash="/", target_slash="/")
        for name in ("new", "new/deep", "there"):
            there = (way.target / name).stat()
            assert there.st_mode & 0o2000 and there.st_gid == 12345, f"run {number}: {name} has mode {there.st_mode:o}"
        assert (way.target / "new").stat().st_mode & 0o777 == 0o751, is_daemon


def test_the_bit_of_a_group_that_the_receiver_is_not_in(net, near):
    """A change of mode by a user who is not in the group clears the bit. So the directory is made with its
    final mode."""
    source, target = near / "source", near / "target"
    (source / "new").mkdir(parents=True)
    (source / "new/f").write_text("x")
    os.chmod(source / "new", 0o755)
    target.mkdir()
    os.chown(target, 0, 12345)
    os.chmod(target, 0o2777)
    os.chmod(near, 0o755)
    for _ in range(2):
        cp(net.alpha, "--omit-dir-times", f"{source}/", target, verb="sync", user=USER, cwd="/")
        there = (target / "new").stat()
        assert there.st_mode & 0o7777 == 0o2755 and there.st_gid == 12345, f"{there.st_mode:o}"


# ---- append-only directories ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def attribute(path, letter):
    done = subprocess.run(["chattr", f"+{letter}", os.fspath(path)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no chattr +{letter} here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", f"-{letter}", os.fspath(path)], check=False)


def test_new_files_arrive_in_an_append_only_directory(way):
    way.source.mkdir()
    way.target.mkdir()
    for number in range(3):
        (way.source / f"small{number}").write_text(f"{number}")
        make_file(way.source / f"large{number}", 9 * MIB, seed=number)
    os.symlink("small0", way.source / "link")
    with attribute(way.target, "a"):
        report = way.sync("--omit-dir-times", "--no-perms").report
        assert report["ok"] and report["files"] == 6, report
        assert leftovers(way.target) == []
        assert all((way.target / path.name).read_bytes() == path.read_bytes() for path in way.source.iterdir())
        again = way.sync("--omit-dir-times", "--no-perms").report
        assert again["ok"] and again["skipped"] == 7 or again["files"] == 0, again
        # Files that exist cannot be replaced, and the receiver knows this before they are sent.
        for path in way.source.glob("*0"):
            os.utime(path, (1, 1))
        report = way.sync("--omit-dir-times", "--no-perms", expect=EXIT_SOME_FAILED).report
        assert {entry["path"] for entry in report["failed"]} == {"small0", "large0"}, report
        assert all("append-only" in entry["reason"] for entry in report["failed"]), report
        assert report["bytes"] < MIB and leftovers(way.target) == []
        plain = way.sync("--overwrite", "never", expect=EXIT_METADATA).report
        assert plain["failed_count"] == 0


@pytest.mark.parametrize("letter, word", [("i", "immutable"), ("a", "append-only")])
def test_a_large_file_that_cannot_be_replaced_is_not_sent(way, letter, word):
    way.source.mkdir()
    way.target.mkdir()
    make_file(way.source / "large", 9 * MIB)
    (way.source / "other").write_text("x")
    make_file(way.target / "large", MIB, seed=3)
    with attribute(way.target / "large", letter):
        report = way.sync("--whole-file", expect=EXIT_SOME_FAILED).report
        (failed,) = report["failed"]
        assert failed["path"] == "large" and word in failed["reason"], report
        assert report["bytes"] < MIB and leftovers(way.target) == []


# ---- room without zeros --------------------------------------------------------------------------------------------------


def test_a_file_is_not_filled_with_zeros_before_it_comes(net, near):
    """The file system's program writes the content to its device once, not zeros first and then the
    content."""
    source, target = near / "source", near / "target"
    source.mkdir()
    target.mkdir()
    make_file(source / "large", 48 * MIB)
    with contextlib.ExitStack() as stack:
        folder = exfat(stack, target, megabytes=128)
        before = written_to(folder)
        report = cp(net.alpha, source / "large", f"{folder}/").report
        subprocess.run(["sync", "-f", os.fspath(folder)], check=True)
        amount = written_to(folder) - before
        assert report["ok"] and (folder / "large").read_bytes() == (source / "large").read_bytes()
        assert amount < 72 * MIB, f"{amount / MIB:.0f} MiB written for a file of 48"


def written_to(folder):
    """Bytes that the program behind a FUSE mount has written so far."""
    device = os.stat(folder).st_dev
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == os.fspath(folder):
            source = fields[fields.index("-") + 2]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (process / "cmdline").read_bytes().split(b"\0")
            if b"exfat" in argv[0] and os.fsencode(source) in argv:
                for line in (process / "io").read_text().splitlines():
                    if line.startswith("wchar:"):
                        return int(line.split()[1])
    raise AssertionError(f"no program behind {folder} ({device})")


@pytest.mark.parametrize("kind", ["exFAT", "NTFS"])
def test_an_interrupted_file_goes_on_where_files_grow(way, kind):
    way.source.mkdir()
    way.target.mkdir()
    make_file(way.source / "large", 40 * MIB)
    with contextlib.ExitStack() as stack:
        COARSE[kind](stack, way.target, megabytes=128)
        url = way.road.url("tree")
        ends = (f"{way.source}/", url) if way.is_push else (f"{url}/", f"{way.target}")
        process = way.road.start("--rate", "100M", *ends)
        parts = wait_for_part(way.target, process)
        assert parts
        process.kill()
        process.wait()
        report = way.sync().report
        assert report["ok"] and report["bytes_resumed"] > 0, report
        assert (way.target / "large").read_bytes() == (way.source / "large").read_bytes()
        assert leftovers(way.target) == []


def wait_for_part(folder, process):
    from harness.hosts import wait_until
    def has_come():
        parts = [path for path in leftovers(folder) if path.suffix == ".fhpart"]
        return process.poll() is not None or parts and parts[0].stat().st_size > 8 * MIB
    wait_until(has_come, seconds=60, what="a part of the file has arrived")
    assert process.poll() is None, "it has ended before it was killed"
    return leftovers(folder)
