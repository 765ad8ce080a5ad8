"""How programs are told what happens in a transfer: `--events`, and the log of a daemon."""

import json
import signal
import time

import pytest

from harness.product import EXIT_SOME_FAILED, EXIT_USAGE, cp
from harness.trees import make_file

MIB = 1 << 20


def lines(outcome):
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def told(events, name):
    return [event for event in events if event["event"] == name]


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_each_event_is_a_line_and_the_report_is_the_last(road, near, direction):
    here = near if direction == "push" else road.far
    (here / "tree").mkdir()
    for number in range(5):
        make_file(here / f"tree/{number}", 2 * MIB, seed=number)
    ends = (near / "tree", road.url("copy")) if direction == "push" else (road.url("tree"), near / "copy")
    outcome = road.cp("--events", "--rate", "40M", *ends, as_json=False)
    events = lines(outcome)
    assert [event["event"] for event in events[:2]] == ["started", "connected"], events[:3]
    assert events[1]["transport"] == "udp" and events[1]["cipher"] == "aes-128-gcm" and events[1]["peer"], events[1]
    assert events[-2] | {"seconds": 0} == {
        "event": "ended", "seconds": 0, "ok": True, "error": None, "code": None, "exit_code": 0}, events[-2]
    report = events[-1]
    assert report["event"] == "report" and report["ok"] and report["files"] == 5 and report["bytes"] == 10 * MIB
    done = told(events, "entry_done")
    assert sorted(event["path"].rpartition("/")[2] for event in done) == [str(number) for number in range(5)]
    word = "sent" if direction == "push" else "received"
    assert all(event["done"] == word and event["bytes"] == 2 * MIB and not event["dry_run"] for event in done)
    snapshots = told(events, "snapshot")
    # Ten mebibytes at 40 Mbit/s take two seconds, so there are snapshots.
    assert snapshots and all(seen["state"] == "running" and seen["id"] == events[0]["id"] for seen in snapshots)
    assert snapshots[-1]["bytes_total"] == 10 * MIB and 0 < snapshots[-1]["bytes_done"] <= 10 * MIB, snapshots
    seconds = [event["seconds"] for event in events if event["event"] not in ("snapshot", "report")]
    assert seconds == sorted(seconds)


def test_what_fails_is_told_when_it_does_and_in_the_report(daemon_road, near):
    road = daemon_road
    (near / "tree").mkdir()
    make_file(near / "tree/good", 1000)
    make_file(near / "tree/bad", 1000)
    (road.far / "tree/bad").mkdir(parents=True)
    outcome = road.cp("--events", near / "tree", road.url(""), as_json=False, expect=EXIT_SOME_FAILED)
    events = lines(outcome)
    (failed,) = told(events, "entry_failed")
    assert failed["path"].endswith("bad") and failed["reason"] and failed["code"] == "FH-ALREADY-EXISTS", failed
    (ended,) = told(events, "ended")
    assert (ended["ok"], ended["exit_code"]) == (False, EXIT_SOME_FAILED)
    (reported,) = events[-1]["failed"]
    assert [reported[key] for key in ("path", "code", "reason")] == [failed[key] for key in ("path", "code", "reason")]


def test_a_dry_run_tells_what_would_be_done(daemon_road, near):
    road = daemon_road
    (near / "tree").mkdir()
    (road.far / "copy").mkdir()
    make_file(near / "tree/new", 1000)
    make_file(road.far / "copy/old", 1000)
    argv = ("--events", "--dry-run", "--delete", f"{near}/tree/", road.url("copy"))
    events = lines(road.sync(*argv, as_json=False))
    done = {event["path"]: (event["done"], event["dry_run"]) for event in told(events, "entry_done")}
    assert done == {"new": ("sent", True), "old": ("deleted", True)}
    assert (road.far / "copy/old").exists()


def test_an_interruption_is_the_last_event_before_the_report(daemon_road, near):
    road = daemon_road
    running = road.start("--events", "--rate", "20M", "zero:1G", road.url("copy"), as_json=False)
    for line in running.stdout:
        if json.loads(line)["event"] == "snapshot":
            break
    running.send_signal(signal.SIGINT)
    rest = [json.loads(line) for line in running.stdout]
    running.wait()
    assert rest, running.stderr.read()
    assert [event["event"] for event in rest[-2:]] == ["ended", "report"]
    assert rest[-2]["code"] == "FH-INTERRUPTED" and rest[-2]["exit_code"] == 130 == running.returncode and not rest[-1]["ok"]


def test_the_stream_cannot_share_stdout(daemon_road, near):
    source = make_file(near / "file", 10)
    outcome = cp(daemon_road.net.alpha, "--events", source, "-", as_json=False, expect=EXIT_USAGE)
    assert "--events and - as the destination both need stdout" in outcome.stderr


def test_a_daemon_shows_what_it_serves(daemon_road, near):
    road = daemon_road
    running = road.start("--events", "--rate", "20M", "zero:1G", road.url("copy"), as_json=False)
    for line in running.stdout:
        if json.loads(line)["event"] == "snapshot":
            break
    log = road.net.daemon.log_text
    before = log().count(" runs ")
    road.net.daemon.process.send_signal(signal.SIGUSR1)
    end = time.monotonic() + 30
    while log().count(" runs ") == before and time.monotonic() < end:
        time.sleep(0.05)
    (line,) = [line for line in log().splitlines() if " runs " in line][before:][:1]
    running.send_signal(signal.SIGINT)
    running.stdout.read()
    running.wait()
    for part in ('state="running"', 'transport="udp"', "bytes=", "goodput_bps=", 'key="SHA256:'):
        assert part in line, line
