"""`--spread`: a source or a destination that is spread over several directories, in both directions, on both
roads."""

import contextlib
import os
import pathlib
import shutil
import signal

import pytest

from harness.hosts import call, wait_until
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, EXIT_USAGE, finish
from harness.trees import differences, leftovers, make_file, make_tree

MIB = 1 << 20


class Disks:
    """Two directories at each end, and their form on the command line."""

    def __init__(self, road, near, megabytes=None):
        self.road = road
        self.near = self.make(near, megabytes)
        self.far = self.make(road.far, megabytes)

    def make(self, parent, megabytes):
        disks = [parent / f"nvme{number}" for number in range(2)]
        for disk in disks:
            disk.mkdir()
            if megabytes:
                self.road.net.pair.mount_memory(disk, megabytes)
        return disks

    @property
    def near_list(self):
        return ",".join(map(str, self.near))

    @property
    def far_list(self):
        if self.road.name == "ssh":
            return ",".join(map(str, self.far))
        root = self.road.net.daemon.root
        return ",".join(f"/{disk.relative_to(root)}" for disk in self.far)

    def url(self, path=""):
        return self.road.url(f"nvme0/{path}")


@pytest.fixture
def disks(road, near):
    return Disks(road, near)


def files_of(disk, tree="tree"):
    root = pathlib.Path(disk) / tree
    return {os.fspath(path.relative_to(root)): path.lstat().st_size for path in root.rglob("*")
            if path.is_file() and not path.is_symlink() and path.suffix not in (".fhpart", ".fhjournal")}


def _bytes_without_links(disk):
    """The sum of the sizes of the files. A file with several names counts once."""
    seen = {path.lstat().st_ino: path.lstat().st_size for path in disk.rglob("*") if path.is_file() and not path.is_symlink()}
    return sum(seen.values())


def test_a_round_trip_gives_the_same_tree(disks, near):
    source = make_tree(near / "tree", seed=31, files=300)
    spread = disks.road.cp("--spread", disks.far_list, source, disks.url()).report
    parts = [files_of(disk) for disk in disks.far]
    assert not parts[0].keys() & parts[1].keys()
    assert parts[0].keys() | parts[1].keys() == files_of(near).keys()
    # The directory with the least load gets the next file, so the loads differ by one file at most.
    weights = [sum(part.values()) + 4096 * len(part) for part in parts]
    largest = max(files_of(near).values())
    assert abs(weights[0] - weights[1]) <= largest + 4096 * 20, weights
    told = {part["directory"]: part for part in spread["spread"]}
    assert sorted(told) == sorted(disks.far_list.split(","))
    assert sum(part["files"] for part in told.values()) == spread["files"]
    assert sorted(part["bytes"] for part in told.values()) == sorted(_bytes_without_links(disk) for disk in disks.far)
    # A second run finds each file in its directory.
    again = disks.road.cp("--spread", disks.far_list, source, disks.url()).report
    assert (again["files"], again["bytes"]) == (0, 0) and again["skipped"] == spread["files"] + spread["links"]
    back = disks.road.cp("--spread", disks.far_list, disks.url("tree"), near / "back").report
    assert "spread" not in back and back["files"] == spread["files"]
    assert differences(source, near / "back") == []
    for disk in disks.far:
        assert not leftovers(disk)


def test_from_several_to_several(disks, near):
    source = make_tree(near / "tree", seed=32, files=120)
    disks.road.cp("--spread", disks.near_list, source, f"{disks.near[0]}/")
    assert all(files_of(disk) for disk in disks.near)
    there = ["--spread", disks.near_list, "--spread", disks.far_list]
    disks.road.cp(*there, f"{disks.near[0]}/tree", disks.url())
    assert all(files_of(disk) for disk in disks.far)
    for disk in disks.near:
        shutil.rmtree(disk / "tree")
    disks.road.cp(*there, disks.url("tree"), f"{disks.near[1]}/")
    assert all(files_of(disk) for disk in disks.near)
    disks.road.cp("--spread", disks.near_list, f"{disks.near[1]}/tree/", near / "back/")
    assert differences(source, near / "back") == []


@pytest.mark.parametrize("size", [0, 3000, 3 * MIB, 9 * MIB], ids=["empty", "small", "large", "with a journal"])
def test_what_a_disk_refuses_that_says_it_has_room_goes_to_the_next_one(road, near, size):
    """The free space of a file system does not show a quota or a lack of inodes: this shows only when a file
    is made."""
    disks = Disks(road, near, megabytes=100)
    source = near / "tree"
    source.mkdir()
    for number in range(4):
        make_file(source / f"f{number}", size)
    os.symlink("f0", source / "link")
    # Both disks have the directory of the tree; the first one has no free inode beyond it.
    for disk in disks.far:
        (disk / "tree").mkdir()
    call("mount", "-o", "remount,nr_inodes=4", disks.far[0])
    filled = 0
    with contextlib.suppress(OSError):
        for filled in range(10):
            (disks.far[0] / f"filler{filled}").touch()
    assert filled < 9, "the disk takes all files, so this test shows nothing"
    report = road.cp("--spread", disks.far_list, source, disks.url()).report
    assert report["files"] == 4 and report["failed_count"] == 0, report
    assert sorted(files_of(disks.far[1])) == ["f0", "f1", "f2", "f3"] and (disks.far[1] / "tree/link").is_symlink()
    for disk in disks.far:
        assert not leftovers(disk)
    again = road.cp("--spread", disks.far_list, source, disks.url()).report
    assert (again["files"], again["skipped"]) == (0, 5), again


def test_a_sync_deletes_wherever_it_is(disks, near):
    source = near / "tree"
    source.mkdir()
    for number in range(40):
        make_file(source / f"gone{number}", 3000 + number)
        make_file(source / f"stays{number}", 3000 + number)
    (source / "gone-too").mkdir()
    make_file(source / "gone-too/x", 10)
    sync = ["--spread", disks.far_list, "--delete", source, disks.url("tree")]
    disks.road.sync(*sync)
    assert all(any("gone" in name for name in files_of(disk)) for disk in disks.far)
    for number in range(40):
        (source / f"gone{number}").unlink()
    shutil.rmtree(source / "gone-too")
    assert disks.road.sync(*sync).report["deleted"] == 42
    disks.road.cp("--spread", disks.far_list, disks.url("tree"), near / "back")
    assert differences(source, near / "back") == []


def test_both_are_written_at_once_and_a_killed_run_goes_on(own_road):
    """Both directories have partial files before any file is complete. After kill -9 the same command goes
    on."""
    road = own_road
    disks = Disks(road, road.net.folder("near"))
    tree = road.net.folder("near") / "tree"
    tree.mkdir()
    for number in range(4):
        make_file(tree / f"large{number}", 60 * MIB, seed=number)
    command = ["--spread", disks.far_list, "--rate", "400M", tree, disks.url()]
    process = road.start(*command)

    def parts():
        # By directory, how much of each partial file has been written.
        return [[part.stat().st_blocks * 512 for part in disk.rglob(".*.fhpart")] for disk in disks.far]

    def journals():
        return [sum(path.stat().st_size for path in disk.rglob(".*.fhjournal")) for disk in disks.far]

    wait_until(lambda: process.poll() is not None or all(size > 2 * 144 + 4 * 56 for size in journals()), seconds=60,
               what="both directories have chunks")
    assert process.poll() is None and all(parts()), parts()
    assert not any(files_of(disk) for disk in disks.far), "one file after the other"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    report = road.cp(*command).report
    assert report["ok"] and report["bytes_resumed"] >= 2 * MIB, report
    assert [len(files_of(disk)) for disk in disks.far] == [2, 2]
    # On the way back both directories are read at once, too; here the receiver is killed.
    back = road.net.folder("near") / "back"
    command = ["--spread", disks.far_list, "--rate", "400M", disks.url("tree/"), back]
    process = road.start(*command)

    def begun():
        found = list(back.rglob(".*.fhjournal")) if back.exists() else []
        return sorted(path.stat().st_size for path in found)

    wait_until(lambda: process.poll() is not None or sum(size > 144 + 3 * 56 for size in begun()) >= 2, seconds=60,
               what="two files have chunks")
    assert process.poll() is None
    process.kill()
    finish(process)
    report = road.cp(*command).report
    assert report["ok"] and report["bytes_resumed"] >= 2 * MIB, report
    assert differences(tree, back) == []


def test_a_full_directory_leaves_it_to_the_other_and_two_full_ones_are_told(own_road):
    road = own_road
    disks = Disks(road, road.net.folder("near"), megabytes=40)
    source = road.net.folder("near") / "tree"
    source.mkdir()
    make_file(disks.far[0] / "filler", 30 * MIB)
    for number in range(6):
        make_file(source / f"f{number}", 5 * MIB, seed=number)
    report = road.cp("--spread", disks.far_list, source, disks.url()).report
    sizes = [len(files_of(disk)) for disk in disks.far]
    assert report["ok"] and sum(sizes) == 6 and 1 <= sizes[0] <= 2, sizes
    make_file(source / "large", 20 * MIB)
    failed = road.cp("--spread", disks.far_list, source, disks.url(), expect=EXIT_SOME_FAILED)
    [entry] = failed.report["failed"]
    assert entry["path"].endswith("large") and "no space" in entry["reason"] and "nvme" in entry["reason"], entry
    assert failed.report["skipped"] == 6 and not any(leftovers(disk) for disk in disks.far)


def test_the_same_name_with_another_content_is_an_error_that_names_both(disks, near):
    for disk in disks.far:
        (disk / "tree").mkdir()
    for disk, name in [(0, "a"), (1, "b")]:
        make_file(disks.far[disk] / "tree" / name, 100)
    for number, disk in enumerate(disks.far):
        make_file(disk / "tree/same", 1000 + number)
    outcome = disks.road.cp("--spread", disks.far_list, disks.url("tree"), near / "back", expect=EXIT_SOME_FAILED)
    [entry] = outcome.report["failed"]
    assert entry["path"] == "tree/same" and "nvme0" in entry["reason"] and "nvme1" in entry["reason"], entry
    assert sorted(files_of(near, "back")) == ["a", "b"]
    # The same holds for a destination.
    (near / "tree").mkdir()
    make_file(near / "tree/same", 5)
    outcome = disks.road.cp("--spread", disks.far_list, near / "tree", disks.url(), expect=EXIT_FILES)
    [entry] = outcome.report["failed"]
    assert "nvme0" in entry["reason"] and "nvme1" in entry["reason"], entry


def test_directories_that_make_no_sense_are_one_line(disks, near):
    source = make_file(near / "file", 10)
    lists = disks.far_list
    for spread, code, words in [
        (["--spread", f"{lists},{lists.split(',')[1]}-missing"], EXIT_FILES, "is not a directory"),
        (["--spread", "/elsewhere/a,/elsewhere/b"], EXIT_USAGE, "neither a source nor the destination"),
        (["--spread", lists.split(",")[0]], EXIT_USAGE, "is not a list of at least two directories"),
        (["--spread", f"{lists},{lists.split(',')[0]}/below"], EXIT_USAGE, "none of them in another"),
    ]:
        outcome = disks.road.cp(*spread, source, disks.url(), expect=code)
        assert words in outcome.stderr and "panicked" not in outcome.stderr, outcome
    assert not list(disks.far[0].iterdir())


def test_a_daemon_keeps_every_directory_below_its_root(daemon_road, near):
    outside = near / "outside"
    outside.mkdir()
    source = make_file(near / "file", 10)
    disks = Disks(daemon_road, near)
    relative = os.path.relpath(outside, disks.far[0].parent)
    first = disks.far_list.split(",")[0]
    (disks.far[0].parent / "link").symlink_to(outside)
    for other in [f"{pathlib.PurePosixPath(first).parent}/{relative}", f"{pathlib.PurePosixPath(first).parent}/link", f"{outside}"]:
        for arguments in [[source, disks.url()], [disks.url("x"), near / "got"]]:
            outcome = daemon_road.cp("--spread", f"{first},{other}", *arguments, expect=EXIT_FILES)
            assert "panicked" not in outcome.stderr, outcome
    assert not list(outside.iterdir())
