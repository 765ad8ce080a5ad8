"""Copies between two daemons one of which lies to the client that lets it copy.

Always true: the lying daemon is played by the test; the client, the service and the other daemon are the real program.
"""

import json
import os
import time

import pytest

from harness.hostile_daemon import HostileDaemon, report, snapshot
from harness.product import EXIT_FILES, EXIT_LOST, EXIT_PROTOCOL, cp
from harness.service import Service
from harness.three import ThreeNet

MOST = (1 << 64) - 1
#: The largest figure that is taken from a far end.
FIGURE_MAX = (1 << 63) - 1
PORT = 34100
#: Numbers of error codes, as docs/reference/errors.md has them.
NOT_FOUND, PEER_SILENT = 1022, 3005


@pytest.fixture(scope="module")
def three():
    made = ThreeNet()
    yield made
    made.pair.close()


@pytest.fixture(scope="module")
def identity(three):
    key = three.folder("hostile") / "key"
    three.beta.run(["farhaul", "keygen", "-f", key], check=True)
    return key


def carried(three, identity, script, *options, as_json=True):
    """Lets alpha copy from a daemon on beta, which `script` plays, to gamma's."""
    hostile = HostileDaemon(three.beta, identity, PORT)
    hostile.scripts = [hostile.carries(script)]
    with hostile:
        outcome = cp(three.alpha, "--accept-new", *options, hostile.url("file"), three.c.url("file"), check=False, timeout=60,
                     as_json=as_json)
    assert "panicked" not in outcome.stderr, outcome
    return outcome


def ended(three, identity, document, *options):
    return carried(three, identity, lambda carrier: carrier.ended(document), *options)


def assert_shown(outcome):
    """Nothing that a daemon says fills the screen or steers it."""
    lines = outcome.stderr.splitlines()
    assert all(len(line) < 20_000 and line.isprintable() for line in lines), outcome


def altered(field, value):
    """A report with a value that Python's own writer would not write."""
    return json.dumps({"report": report(**{field: 4711}), "error": None}).replace("4711", value).encode()


@pytest.mark.parametrize("document", [
    {"report": report(ok=False), "error": None},
    {"report": report(complete=False), "error": None},
    {"report": report(failed_count=5), "error": None},
    {"report": report(vanished_count=5), "error": None},
    {"report": report(dry_run=True), "error": None},
    altered("bytes", "-7"), altered("seconds", "NaN"), altered("seconds", "-1.5"), altered("seconds", "1e999"),
    b'{"report": ' + b"[" * 100_000, b"\xff\xfe", b"", b"[]",
], ids=["not ok", "not complete", "ok and failed", "ok and vanished", "dry", "negative", "nan", "before it began", "infinite",
        "deep", "no text", "nothing", "list"])
def test_a_report_that_makes_no_sense_or_contradicts_itself_ends_with_a_code(three, identity, document):
    outcome = ended(three, identity, document)
    assert outcome.code == EXIT_PROTOCOL and outcome.report["error_detail"]["misbehaviour"] == "SenselessMessage", outcome
    assert outcome.report["ok"] is False and outcome.report["complete"] is False
    assert_shown(outcome)


def test_a_report_of_another_copy_ends_with_a_code(three, identity):
    outcome = carried(three, identity, lambda carrier: carrier.ended({"report": report(), "error": None}, op=99))
    assert outcome.code == EXIT_PROTOCOL and outcome.report["error_detail"]["misbehaviour"] == "UnexpectedMessage", outcome


def test_what_a_daemon_writes_is_bounded_and_steers_no_terminal(three, identity):
    hostile = "\x1b[2J\n\rall is \u202ewell"
    error = {"code": NOT_FOUND, "what": hostile + "x" * (1 << 20), "hint": hostile}
    failed = [{"path": hostile + "p" * 100, "code": "FH-NO", "reason": hostile + "r" * 3000}] * 500
    told = report(failed=failed, failed_count=1, warnings=[hostile + "w" * 100_000] * 5, bottleneck="b" * 100_000, tree_root=hostile)
    outcome = ended(three, identity, {"report": told, "error": error})
    assert outcome.code == EXIT_FILES and outcome.report["ok"] is False, outcome
    assert len(outcome.report["error"]) < 1100 and len(outcome.report["warnings"][0]) <= 1000
    assert outcome.report["failed_count"] == 500 and "tree_root" not in outcome.report
    assert_shown(outcome)
    # An error without words is one, too.
    outcome = ended(three, identity, {"report": report(), "error": {"code": NOT_FOUND, "what": "", "hint": ""}})
    assert outcome.code == EXIT_FILES and outcome.error_line == "error: beta: it gives no reason", outcome
    assert "hint" not in outcome.stderr, outcome


def test_events_and_snapshots_that_lie_are_shown_and_do_no_harm(three, identity):
    def script(carrier):
        for done in (MOST, 0, MOST, 1):
            carrier.snapshot(snapshot(bytes_done=done, bytes_skipped=done, files_done=done, failed=done, wire_bytes_sent=done,
                                      goodput_bps=1e308, state="ended"))
        carrier.snapshot(b'{"bytes_done": -1}')
        carrier.snapshot(b"[" * 30_000)
        carrier.event(event="warning", text="\x1b[2J\nhello " + "x" * 50_000)
        for number in range(2000):
            carrier.event(event="entry_failed", path=f"../{number}\n", code="FH-NOPE", reason="r")
        carrier.event(event="ended", ok=True, error=None, code=None, exit_code=0)
        carrier.event(event="connected", peer=7)
        # Before this the copy has not ended, whatever was said.
        carrier.ended({"report": report(), "error": {"code": PEER_SILENT, "what": "lost", "hint": None}})

    outcome = carried(three, identity, script, "--events", as_json=False)
    assert outcome.code == EXIT_LOST and "lost" in outcome.stderr, outcome.stderr[-2000:]
    assert_shown(outcome)
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [line["exit_code"] for line in lines if line["event"] == "ended"] == [EXIT_LOST]
    assert all(line.get("bytes_done", 0) <= FIGURE_MAX for line in lines)


def test_a_daemon_that_does_not_answer_for_a_grant_keeps_nobody_waiting(three, identity):
    """Its session lives, and it never says anything in it."""
    (three.b.root / "file").write_text("x")
    with HostileDaemon(three.beta, identity, PORT, lambda _hello, session: session.drain()) as hostile:
        outcome = cp(three.alpha, "--accept-new", three.b.url("file"), hostile.url("file"), check=False, timeout=60)
    assert outcome.code == EXIT_LOST and "has not answered the request for a grant" in outcome.stderr, outcome


def test_figures_of_a_lying_daemon_neither_end_a_service_nor_its_sums(three, identity):
    """They are added up over attempts, and over all runs of the history."""
    service = Service(three, three.alpha, port=34200, env={"FARHAUL_JOBS_RETRY_FIRST": "1s"})
    three.c.keys.write_text(three.key + service.key)
    huge = report(bytes=MOST, files=MOST, seconds=1e308, wire_bytes_sent=MOST, bytes_resumed=MOST, loss_fraction=1e308)

    def breaks(carrier):
        carrier.snapshot(snapshot(bytes_done=MOST, bytes_total=MOST, goodput_bps=1e308, wire_bytes_sent=MOST, packets_sent=MOST))
        time.sleep(1.2)
        carrier.ended({"report": huge, "error": {"code": PEER_SILENT, "what": "x" * 100_000, "hint": None}})

    hostile = HostileDaemon(three.beta, identity, PORT)
    is_good = hostile.carries(lambda carrier: carrier.ended({"report": huge, "error": None}))
    hostile.scripts = [is_good, hostile.carries(breaks), is_good, is_good]
    with hostile:
        # The service knows both daemons from then on.
        cp(three.alpha, "--accept-new", hostile.url("file"), three.c.url("x"))
        job = service.submit(hostile.url("file"), three.c.url("x"))
        service.run("wait", job, timeout=40)
        # On a busy machine an attempt more may not reach the daemon in time.
        assert service.job(job)["attempt"] >= 2
        service.run("wait", service.submit(hostile.url("file"), three.c.url("x")), timeout=40)
    three.c.keys.write_text(three.key)
    assert "panicked" not in service.daemon.log_text(), service.daemon.log_text()
    assert len(service.run("logs", job)) < 10_000
    (peer,) = [one for one in service.json("peers") if "beta" in str(one)]
    print(peer)
    assert peer["transfers"] == 2 and peer["bytes"] == FIGURE_MAX, peer
    service.daemon.kill()
