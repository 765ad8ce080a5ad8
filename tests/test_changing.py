"""Sources that change while they are read, sources that grow, and what --durable syncs to the disk."""

import json
import os
import re
import shutil
import threading
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_OK, EXIT_SOME_FAILED, EXIT_VANISHED, cp, finish
from harness.trees import differences, leftovers, make_file, sha256
from harness.watching import Watch

MIB = 1 << 20


def start(way, *arguments):
    far = way.road.url("tree")
    source, target = (f"{way.source}/", far) if way.is_push else (f"{far}/", f"{way.target}")
    return way.road.start("-v", *arguments, source, target)


def wait_for_part(way, size):
    """Waits until a part of the first large file has arrived."""
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
        assert done.report["bytes_matched"] > MIB, "the second reading used what had arrived before"


def test_a_source_that_never_rests_fails_after_a_second_try(way):
    way.source.mkdir()
    big = make_file(way.source / "big", 60 * MIB)
    make_file(way.source / "quiet", 3 * MIB)
    over = threading.Event()

    def scribble():
        # Changes come faster than the second reading, which sends only differences and so is short.
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
    assert (way.source / "small").stat().st_size == 350, "the file rested in between, so this test shows nothing"
    assert differences(way.source, way.target, root_too=False) == [] and not leftovers(way.target)
    again = cp_again(way)
    assert again["files"] == 0 and again["skipped"] == 4, "the copies have the times of the last state"


def test_an_empty_file_that_is_followed_has_no_name_before_it_has_rested(way):
    way.source.mkdir()
    (way.source / "log").touch()
    (way.source / "still-empty").touch()
    make_file(way.source / "rested", 100)
    os.utime(way.source / "rested", (1_000_000_000, 1_000_000_000))
    run = start(way, "--follow-growth=5s")
    # The file that rested long ago arrives only after the others have been decided on, too.
    wait_until(lambda: (way.target / "rested").exists(), seconds=60, what="the file that has rested arrives")
    assert not (way.target / "log").exists() and not (way.target / "still-empty").exists()
    (way.source / "log").write_text("a line\n")
    done = finish(run)
    assert done.code == EXIT_OK, done
    assert (way.target / "log").read_text() == "a line\n"
    assert differences(way.source, way.target, root_too=False) == [] and not leftovers(way.target)


def start_behind_a_large_file(way, *arguments, **options):
    """Starts a copy of a large file and a tree behind it. Nothing of the tree is read while the large file
    fills the memory."""
    base = way.source.parent
    make_file(base / "large", 60 * MIB)
    near, far = (base, None) if way.is_push else (None, way.road)
    sources = [base / "large", way.source] if near else [far.url("large"), far.url("tree")]
    way.target.mkdir(exist_ok=True)
    return way.road.start(*arguments, "--memory", "16M", "--rate", "100M", *sources,
                          way.road.url("tree/") if way.is_push else f"{way.target}/", **options)


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_that_vanishes_before_it_is_read_is_told_apart_from_a_failure(way, fails):
    way.source.mkdir()
    for name in ("stays", "gone", "gone-large", "clash"):
        make_file(way.source / name, 3 * MIB if name == "gone-large" else 1000)
    here = (way.source if way.is_push else way.target).parent
    if fails:
        (way.target / "tree/clash/x").mkdir(parents=True)
    manifest = here / "manifest"
    run = start_behind_a_large_file(way, "--manifest", manifest)
    wait_for_part(way, 1)
    for name in ("gone", "gone-large"):
        (way.source / name).unlink()
    done = finish(run)
    report = done.report
    assert done.code == (EXIT_SOME_FAILED if fails else EXIT_VANISHED), done
    assert sorted(entry["path"] for entry in report["vanished"]) == ["tree/gone", "tree/gone-large"], done
    assert (report["vanished_count"], report["failed_count"], report["ok"]) == (2, int(fails), False)
    assert report["error"] is None and report["complete"]
    assert "vanished before it was read: tree/gone" in done.stderr and "2 vanished" in done.stderr, done
    assert sha256(way.target / "tree/stays") == sha256(way.source / "stays")
    assert not (way.target / "tree/gone").exists() and not leftovers(way.target)
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    results = {line["path"]: line["result"] for line in lines if "path" in line}
    assert results["tree/gone"] == results["tree/gone-large"] == "vanished" and results["tree/stays"] == "sent"
    # Vanished files do not count as failed: `--retry-failed` has nothing to do.
    saved = here / "report"
    saved.write_text(json.dumps(report))
    if not fails:
        assert "nothing failed" in way.road.cp("--retry-failed", saved, way.source, way.target).stderr


def test_events_tell_of_what_has_vanished(way):
    way.source.mkdir()
    make_file(way.source / "gone", 1000)
    process = start_behind_a_large_file(way, "--events", as_json=False)
    wait_for_part(way, 1)
    (way.source / "gone").unlink()
    out, _ = process.communicate(timeout=120)
    events = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == EXIT_VANISHED
    assert [event["path"] for event in events if event["event"] == "entry_vanished"] == ["tree/gone"]
    assert not [event for event in events if event["event"] == "entry_failed"]
    ended = next(event for event in events if event["event"] == "ended")
    assert (ended["ok"], ended["error"], ended["exit_code"]) == (False, None, EXIT_VANISHED)


def test_what_has_vanished_keeps_a_sync_from_no_deletion(way):
    way.source.mkdir()
    make_file(way.source / "large", 60 * MIB)
    # Whatever the order of the directory, some of these come behind the large file.
    small = [make_file(way.source / f"small{number}", 1000) for number in range(50)]
    way.target.mkdir()
    (way.target / "surplus").write_text("x")
    run = way.road.start("--delete", "--memory", "16M", "--rate", "100M", verb="sync",
                         *[f"{way.source}/", way.road.url("tree")] if way.is_push else [way.road.url("tree/"), way.target])
    wait_for_part(way, 1)
    for path in small:
        path.unlink()
    done = finish(run)
    assert done.code == EXIT_VANISHED and done.report["failed_count"] == 0, done
    assert done.report["deleted"] == 1 and not (way.target / "surplus").exists()


def cp_again(way):
    done = finish(start(way))
    assert done.code == 0, done
    return done.report


@pytest.mark.parametrize("announced", [True, False])
def test_who_watches_a_directory_hears_once_of_each_file_that_is_whole(net, near, announced):
    """By default a new small file is created, and any other file is moved there. With --announce all are
    moved there."""
    source, target = near / "tree", near / "copy"
    source.mkdir()
    sizes = {"empty": 0, "small": 100, "one-chunk": MIB, "middle": 3 * MIB, "large": 9 * MIB}
    for name, size in sizes.items():
        make_file(source / name, size)
    small = {"empty", "small", "one-chunk"}
    target.mkdir()
    watch = Watch(target, ("moved_to", "create"))
    switch = ["--announce"] if announced else []
    assert cp(net.alpha, *switch, f"{source}/", target).report["files"] == 5
    heard = [(event, name) for event, name in watch.heard() if not name.startswith((".", "#"))]
    wanted = [("create" if name in small and not announced else "moved_to", name) for name in sizes]
    assert sorted(heard) == sorted(wanted)
    # A file that replaces an older version is moved there.
    for name in sizes:
        with open(source / name, "ab") as file:
            file.write(b"more")
    assert cp(net.alpha, *switch, f"{source}/", target).report["files"] == 5
    heard = [(event, name) for event, name in watch.heard() if not name.startswith((".", "#"))]
    assert sorted(heard) == sorted(("moved_to", name) for name in sizes)
    watch.close()
    assert differences(source, target, root_too=False) == []


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
        assert calls[-1] == "syncfs", "nothing is written after the sync"
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
