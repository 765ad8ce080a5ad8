"""A daemon is restarted, or replaced by another version, while clients copy: they go on by themselves."""

import os
import signal
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_INTERRUPTED, EXIT_LOST, finish, start_cp
from harness.trees import differences, make_file, sha256

MIB = 1 << 20


def begun(folder):
    """Whether the journal in a folder names a few chunks that have arrived."""
    return sum(path.stat().st_size for path in folder.glob(".*.fhjournal")) > 144 + 56 * 4


def start(net, *arguments, **options):
    return start_cp(net.alpha, "--accept-new", "--rate", "80M", *arguments, **options)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_copy_goes_on_by_itself_when_its_daemon_is_restarted(own_net, direction, end):
    near, far = own_net.folder("near") / "file", own_net.daemon.root / "file"
    source, target = (near, far) if direction == "push" else (far, near)
    make_file(source, 40 * MIB)
    ends = (near, own_net.daemon.url("file")) if direction == "push" else (own_net.daemon.url("file"), near)
    copying = start(own_net, *ends)
    wait_until(lambda: begun(target.parent), what="a part has arrived")
    os.kill(own_net.daemon.process.pid, end)
    own_net.daemon.process.wait(timeout=20)
    if end == signal.SIGTERM:
        # The client sees that nothing listens there.
        time.sleep(2)
    own_net.daemon.start()
    outcome = finish(copying)
    assert outcome.code == 0 and outcome.report["bytes_resumed"] > 0, outcome
    assert "the daemon has ended the session; this copy goes on" in outcome.stderr, outcome
    assert sha256(target) == sha256(source)


def test_a_sync_of_many_files_goes_on_through_several_restarts(own_net):
    source, target = own_net.folder("source"), own_net.daemon.root / "target"
    for number in range(300):
        (source / f"{number % 7}").mkdir(exist_ok=True)
        make_file(source / f"{number % 7}" / f"{number}", 100_000, seed=number)
    copying = start(own_net, f"{source}/", own_net.daemon.url("target"), verb="sync")
    for part in (60, 120):
        wait_until(lambda: sum(path.is_file() for path in target.rglob("[0-9]*")) > part, 60, what="files have arrived")
        assert own_net.daemon.stop() == 0
        own_net.daemon.start()
    outcome = finish(copying)
    assert outcome.code == 0 and outcome.report["skipped"] > 60, outcome
    assert differences(source, target) == []


def test_a_copy_whose_daemon_stays_away_ends_as_its_session_did(own_net):
    source = make_file(own_net.folder("near") / "file", 40 * MIB)
    copying = start(own_net, "--busy-wait", "2s", source, own_net.daemon.url("file"))
    wait_until(lambda: begun(own_net.daemon.root), what="a part has arrived")
    assert own_net.daemon.stop() == 0
    outcome = finish(copying)
    assert outcome.code == EXIT_LOST and outcome.report["bytes_kept"] > 0, outcome
    assert outcome.error_line.endswith("was ended by the far end") and "run the same command again" in outcome.stderr, outcome
    own_net.daemon.start()
    assert finish(start(own_net, source, own_net.daemon.url("file"))).report["bytes_resumed"] > 0


def test_a_copy_that_waits_for_its_daemon_hears_a_signal(own_net):
    source = make_file(own_net.folder("near") / "file", 40 * MIB)
    said = own_net.folder("said") / "stderr"
    with open(said, "wb") as stderr:
        copying = start(own_net, "--busy-wait", "1h", source, own_net.daemon.url("file"), stderr=stderr)
    wait_until(lambda: begun(own_net.daemon.root), what="a part has arrived")
    assert own_net.daemon.stop() == 0
    wait_until(lambda: b"goes on when the daemon is back" in said.read_bytes(), 30, what="the client says that it waits")
    copying.send_signal(signal.SIGINT)
    assert finish(copying, timeout=30).code == EXIT_INTERRUPTED
    own_net.daemon.start()


@pytest.mark.parametrize("option", ["--manifest", "--receipt"])
def test_a_copy_that_makes_a_list_is_left_to_the_user(own_net, option):
    """The list would not have what the first session has brought."""
    source = make_file(own_net.folder("near") / "file", 40 * MIB)
    copying = start(own_net, option, own_net.folder("list") / "list", source, own_net.daemon.url("file"))
    wait_until(lambda: begun(own_net.daemon.root), what="a part has arrived")
    own_net.daemon.restart()
    outcome = finish(copying)
    assert outcome.code == EXIT_LOST and "goes on when" not in outcome.stderr, outcome
