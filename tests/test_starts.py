"""How many crossings a very short transfer takes."""

import contextlib
import subprocess
import sys

import pytest

from harness import product
from harness.product import Daemon
from harness.trees import make_file, sha256

FERRY = product.ROOT / "tests/harness/ferry.py"
FERRY_PORT, DAEMON_PORT = 33611, 33610


@contextlib.contextmanager
def ferry(host):
    """While it lasts, a daemon on the client's own host is reached by the ferry: its port carries only datagrams. Yields a
    list that has a line for each crossing afterwards."""
    process = host.start([sys.executable, FERRY, str(FERRY_PORT), str(DAEMON_PORT)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, text=True)
    crossings = []
    try:
        assert process.stdout.readline() == "ready\n"
        yield crossings
    finally:
        process.kill()
        crossings += process.stdout.read().splitlines()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("direction", "trips"), [("push", 3), ("pull", 4)])
def test_what_is_small_takes_three_round_trips_at_first_use(own_net, direction, trips):
    """One round trip for TLS, one for hello and names with their answers, one for content and its end. A
    client that receives takes one more for the sender's figures. One further crossing is allowed, as a datagram may
    come just after one. An end that a busy machine has held up for a whole crossing needs more: the best of three
    counts."""
    alpha, near = own_net.alpha, own_net.folder("near")
    daemon = Daemon(own_net.pair, alpha, [own_net.key], DAEMON_PORT)
    far = daemon.root
    url = f"fh://127.0.0.1:{FERRY_PORT}"
    source = make_file((near if direction == "push" else far) / "file", 1000)
    known = alpha.home / ".config/farhaul/known_hosts"
    counted = []
    for attempt in range(3):
        copy = f"copy{attempt}"
        ends = (source, f"{url}/{copy}") if direction == "push" else (f"{url}/file", near / copy)
        with ferry(alpha) as crossings:
            product.cp(alpha, "--accept-new", *ends)
        assert sha256((far if direction == "push" else near) / copy) == sha256(source)
        assert daemon.fingerprint in known.read_text()
        counted.append(len(crossings))
        if counted[-1] <= 2 * trips + 1:
            break
        # The next one is a first use, too.
        known.unlink()
    assert min(counted) <= 2 * trips + 1, counted
