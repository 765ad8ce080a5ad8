"""Large files that changed in places: only the differences travel, and any older version at the destination
is used."""

import os
import random
import shutil
import time

import pytest

from harness.hosts import USER, USER_ID
from harness.product import EXIT_FILES, EXIT_USAGE, cp, finish
from harness.trees import differences, leftovers, make_file, sha256

MIB = 1 << 20
BLOCK = 4096


def change(path, share=0.01, seed=1):
    """Changes one byte in each of a share of the blocks, drawn at random; returns how many blocks."""
    chance = random.Random(seed)
    size = os.path.getsize(path)
    blocks = chance.sample(range(size // BLOCK), max(1, int(size // BLOCK * share)))
    with open(path, "r+b") as file:
        for block in blocks:
            at = block * BLOCK + chance.randrange(BLOCK)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0x5A]))
    return len(blocks)


def both(way, name, size=64 * MIB):
    way.source.mkdir(exist_ok=True)
    way.target.mkdir(exist_ok=True)
    return make_file(way.source / name, size), older(make_file(way.target / name, size))


def older(path):
    """Dates a file back: files that are made one after the other may have the same time."""
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def test_a_hundredth_of_the_blocks_costs_less_than_two_hundredths_of_the_bytes(way):
    source, target = both(way, "big", 200 * MIB)
    change(source)
    report = way.sync().report
    assert report["ok"] and report["files"] == 1
    assert sha256(source) == sha256(target) and differences(way.source, way.target) == []
    size = 200 * MIB
    # This counts all that left the sender; the receiver's digests take another 0.2 % the other way.
    assert report["wire_bytes_sent"] < 0.02 * size - 0.002 * size, report["wire_bytes_sent"] / size
    assert report["bytes"] + report["bytes_matched"] == pytest.approx(size, rel=0.001)
    assert not leftovers(way.target)
    assert way.sync().report["skipped"] == 1


def test_cp_does_the_same_and_whole_file_does_not(road, near):
    source = make_file(near / "big", 20 * MIB)
    older(make_file(road.far / "big", 20 * MIB))
    change(source)
    report = road.cp(source, road.url("big")).report
    assert report["bytes"] < MIB and report["bytes_matched"] > 19 * MIB
    change(source, seed=2)
    for switch in ("-W", "--verify=transit"):
        os.utime(source)
        report = road.cp(switch, source, road.url("big")).report
        assert report["bytes"] == 20 * MIB and report["bytes_matched"] == 0, switch
    assert sha256(source) == sha256(road.far / "big")


@pytest.mark.parametrize("what", ["longer", "shorter", "other", "holes", "readback", "many flows"])
def test_every_kind_of_change_arrives(way, what):
    source, target = both(way, "big", 70 * MIB + 4321)
    change(source, 0.001)
    more = []
    if what == "longer":
        with open(source, "ab") as file:
            file.write(os.urandom(5 * MIB))
    elif what == "shorter":
        os.truncate(source, 33 * MIB + 7)
    elif what == "other":
        make_file(source, 90 * MIB, seed=9)
    elif what == "holes":
        os.truncate(source, 20 * MIB + 100)
        os.truncate(source, 60 * MIB)
        make_file(way.source / "sparse", 0)
        with open(way.source / "sparse", "r+b") as file:
            file.truncate(50 * MIB)
            file.seek(30 * MIB)
            file.write(os.urandom(MIB))
        older(make_file(way.target / "sparse", 50 * MIB))
    elif what == "readback":
        more = ["--verify", "readback"]
    elif what == "many flows":
        more = ["--flows", "4"]
    with way.road.failing("loss=0.02,seed=3" if what == "many flows" else None) as way.road:
        report = way.sync(*more).report
    assert differences(way.source, way.target) == [] and not leftovers(way.target)
    if what == "other":
        # The comparison is given up after a while as useless, and nothing is sent twice because of it.
        assert report["bytes"] == 90 * MIB
    elif what not in ("longer", "holes"):
        assert report["bytes"] < 4 * MIB, report


def test_in_place_only_when_asked(way):
    source, target = both(way, "big")
    change(source)
    file = os.stat(target).st_ino
    report = way.sync("--inplace").report
    assert report["bytes"] < 2 * MIB and report["parted"] == 0
    assert os.stat(target).st_ino == file and differences(way.source, way.target) == []
    change(source, seed=2)
    way.sync()
    assert os.stat(target).st_ino != file and sha256(target) == sha256(source)


def test_in_place_changes_no_other_name_of_a_file(way):
    """A hard link that only the destination has is a snapshot (`cp -al`), or another file's content."""
    source, target = both(way, "a", 8 * MIB)
    other = way.source / "b"
    shutil.copy2(source, other)
    os.link(target, way.target / "b")
    old, snapshot = sha256(target), way.target.parent / "snapshot"
    os.link(target, snapshot)
    change(source)
    change(other, seed=2)
    dry = way.sync("--inplace", "--dry-run").report
    assert dry["parted"] == 2 and sha256(target) == old, dry
    outcome = way.sync("--inplace", "--verify", "readback")
    assert outcome.report["parted"] == 2 and outcome.report["bytes"] < 3 * MIB, outcome
    assert "parted 2 from other names" in outcome.stderr, outcome
    assert differences(way.source, way.target) == [] and not leftovers(way.target)
    assert sha256(snapshot) == old and os.stat(snapshot).st_nlink == 1
    os.unlink(snapshot)


def test_in_place_keeps_the_hard_links_of_the_source(way):
    source, target = both(way, "a", 8 * MIB)
    os.link(source, way.source / "b")
    os.link(target, way.target / "b")
    change(source)
    assert way.sync("--inplace").report["bytes"] < 2 * MIB
    assert os.path.samefile(target, way.target / "b") and differences(way.source, way.target) == []


def test_in_place_changes_a_file_of_ones_own_that_nobody_may_write(net):
    own = net.folder("own")
    os.chown(own, USER_ID, USER_ID)
    source, target = make_file(own / "a", 4 * MIB), older(make_file(own / "b", 4 * MIB))
    change(source)
    for name in (source, target):
        os.chmod(name, 0o444)
        os.chown(name, USER_ID, USER_ID)
    file = os.stat(target).st_ino
    cp(net.alpha, "--inplace", "--dry-run", source, target, user=USER)
    report = cp(net.alpha, "--inplace", source, target, user=USER).report
    after = os.stat(target)
    assert report["bytes"] < 2 * MIB and (after.st_ino, after.st_mode & 0o777) == (file, 0o444), report
    assert sha256(source) == sha256(target)


def test_a_file_that_has_no_room_in_its_place_stays_as_it_was(own_net):
    disk = own_net.pair.small_disk(24)
    target = older(make_file(disk / "big", 8 * MIB, seed=1))
    before, content = os.stat(target), sha256(target)
    source = make_file(own_net.folder("near") / "big", 40 * MIB, seed=2)
    outcome = cp(own_net.alpha, "--inplace", source, f"beta:{target}", expect=EXIT_FILES)
    assert "no space left (32.0 MiB needed, 16.0 MiB free)" in outcome.stderr
    after = os.stat(target)
    assert (after.st_size, after.st_mtime_ns, sha256(target)) == (before.st_size, before.st_mtime_ns, content)


def test_a_local_copy_is_sent_whole_unless_asked(net, near):
    source, target = make_file(near / "a", 20 * MIB), older(make_file(near / "b", 20 * MIB))
    change(source)
    for wrong in (["-W", "--inplace"], ["--inplace", "--overwrite", "older"], ["--inplace", "--verify", "transit"]):
        assert "--inplace" in cp(net.alpha, *wrong, source, target, expect=EXIT_USAGE).error_line
    assert cp(net.alpha, source, target).report["bytes"] == 20 * MIB
    change(source, seed=2)
    assert cp(net.alpha, "--no-whole-file", source, target).report["bytes"] < MIB
    change(source, seed=3)
    assert cp(net.alpha, "--inplace", source, target).report["bytes"] < MIB
    assert sha256(source) == sha256(target)


def test_what_came_of_a_source_that_has_changed_since_is_kept(road, near):
    source = make_file(near / "big", 300 * MIB)
    run = road.start("--rate", "400M", source, road.url("big"))
    part = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        part = next(iter(road.far.glob(".*.fhpart")), None)
        if part and part.stat().st_blocks * 512 > 60 * MIB and run.poll() is None:
            break
        time.sleep(0.2)
    time.sleep(2)
    run.kill()
    finish(run)
    change(source, 0.001, seed=5)
    report = road.cp(source, road.url("big")).report
    assert sha256(source) == sha256(road.far / "big") and not leftovers(road.far)
    assert report["bytes_matched"] > 30 * MIB, report
