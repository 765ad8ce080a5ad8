"""Sources that change while they are read, sources that grow, and what --durable syncs."""

import os
import re
import shutil
import threading
import time

import pytest

from harness.product import EXIT_SOME_FAILED, cp, finish
from harness.trees import differences, leftovers, make_file, sha256

MIB = 1 << 20


def start(way, *arguments):
    far = way.road.url("tree")
    source, target = (f"{way.source}/", far) if way.is_push else (f"{far}/", f"{way.target}")
    return way.road.start("-v", *arguments, source, target)


def wait_for_part(way, size):
    """Until some of the first large file has arrived."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for part in way.target.glob(".*.fhpart"):
            if part.stat().st_blocks * 512 >= size:
                return
        time.sleep(0.02)
    raise TimeoutError("nothing arrives")


@pytest.mark.parametrize("how", ["in place", "shorter", "tiny"])
def test_a_source_that_changes_once_arrives_as_it_is_then(way, how):
    way.source.mkdir()
    big = make_file(way.source / "big", 60 * MIB)
    (way.source / "small").write_text("small")
    os.link(big, way.source / "linked")
    run = start(way, "--rate", "150M")
    wait_for_part(way, 1)
    time.sleep(0.5)
    if how == "in place":
        with open(big, "r+b") as file:
            file.seek(MIB)
            file.write(b"changed")
    else:
        os.truncate(big, 2 * MIB + 5 if how == "shorter" else 1000)
    done = finish(run)
    assert done.code == 0, done.report["failed"]
    assert "changed while it was read; it is read again" in done.stderr, done
    assert differences(way.source, way.target, root_too=False) == [] and not leftovers(way.target)
    if how == "in place":
        assert done.report["bytes_matched"] > MIB, "what had come served for the second time"


def test_a_source_that_never_rests_fails_after_a_second_try(way):
    way.source.mkdir()
    big = make_file(way.source / "big", 60 * MIB)
    make_file(way.source / "quiet", 3 * MIB)
    over = threading.Event()

    def scribble():
        # More often than the second reading takes, of which only what differs is sent.
        while not over.wait(0.005):
            with open(big, "r+b") as file:
                file.write(os.urandom(8))

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        done = finish(start(way, "--rate", "300M"))
    finally:
        over.set()
        thread.join()
    assert done.code == EXIT_SOME_FAILED, done
    assert [entry["path"] for entry in done.report["failed"]] == ["big"]
    assert "changed while it was read, and again" in done.report["failed"][0]["reason"]
    assert done.report["failed"][0]["code"] == "FH-SOURCE-CHANGED"
    assert sha256(way.target / "quiet") == sha256(way.source / "quiet") and not (way.target / "big").exists()


def test_a_growing_file_is_followed_until_it_rests(way):
    way.source.mkdir()
    for name, size in (("large", 20 * MIB), ("small", 100), ("quiet", 100), ("becomes-large", 1000)):
        make_file(way.source / name, size)
    os.utime(way.source / "quiet", (1_000_000_000, 1_000_000_000))
    over = threading.Event()

    def append():
        for _ in range(25):
            for name in ("large", "small", "becomes-large"):
                with open(way.source / name, "ab") as file:
                    file.write(os.urandom(200_000 if name != "small" else 10))
            if over.wait(0.1):
                return

    thread = threading.Thread(target=append)
    thread.start()
    try:
        done = finish(start(way, "--follow-growth=2s"))
    finally:
        over.set()
        thread.join()
    assert done.code == 0, done
    assert (way.source / "small").stat().st_size == 350, "it rested in between, and the test means nothing"
    assert differences(way.source, way.target, root_too=False) == [] and not leftovers(way.target)
    again = cp_again(way)
    assert again["files"] == 0 and again["skipped"] == 4, "their times are those of their last state"


def cp_again(way):
    done = finish(start(way))
    assert done.code == 0, done
    return done.report


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("switch", [None, "--durable", "--durable=file"])
def test_durable_syncs_at_the_end_or_each_file(net, near, switch):
    source = near / "tree"
    (source / "d").mkdir(parents=True)
    for number in range(20):
        (source / "d" / f"small{number}").write_text("x" * number)
    make_file(source / "large", 9 * MIB)
    log = near / "strace"
    argv = ["strace", "-f", "-o", log, "-e", "trace=fsync,fdatasync,syncfs", "farhaul", "cp", "-q"]
    argv += ([switch] if switch else []) + [f"{source}/", near / "copy"]
    assert net.alpha.run(argv).returncode == 0
    calls = [match.group(1) for match in re.finditer(r"\b(fsync|fdatasync|syncfs)\(", log.read_text())]
    counts = {name: calls.count(name) for name in ("fsync", "syncfs")}
    if switch is None:
        assert counts == {"fsync": 0, "syncfs": 0}, calls
    else:
        assert counts["syncfs"] >= 1
        assert calls[-1] == "syncfs", "nothing is written behind it"
        files = 21
        assert counts["fsync"] >= 2 * files if switch == "--durable=file" else counts["fsync"] == 0, counts
    assert differences(source, near / "copy") == []


@pytest.mark.parametrize("switch", ["--durable", "--durable=file"])
def test_durable_transfers_arrive(way, switch):
    way.source.mkdir()
    make_file(way.source / "large", 9 * MIB)
    (way.source / "d").mkdir()
    (way.source / "d/small").write_text("x")
    assert way.sync(switch).report["files"] == 2
    assert differences(way.source, way.target) == []
