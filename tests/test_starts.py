"""How many crossings a very short transfer takes."""

import subprocess
import sys

import pytest

from harness import product
from harness.product import Daemon
from harness.trees import make_file, sha256

FERRY = product.ROOT / "tests/harness/ferry.py"
FERRY_PORT, DAEMON_PORT = 33611, 33610


@pytest.fixture
def ferry(own_net):
    """A daemon on the client's own host that is reached by the ferry: its port carries only datagrams."""
    own_net.near_daemon = Daemon(own_net.pair, own_net.alpha, [own_net.key], DAEMON_PORT)
    process = own_net.alpha.start([sys.executable, FERRY, str(FERRY_PORT), str(DAEMON_PORT)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def crossings(ferry):
    ferry.kill()
    return ferry.stdout.read().splitlines()


@pytest.mark.parametrize(("direction", "trips"), [("push", 3), ("pull", 4)])
def test_what_is_small_takes_three_round_trips_at_first_use(own_net, ferry, direction, trips):
    """One round trip for TLS, one for hello and names with their answers, one for content and its end. A
    client that receives takes one more for the sender's figures. One further crossing is allowed for a slow
    machine."""
    near, far = own_net.folder("near"), own_net.near_daemon.root
    url = f"fh://127.0.0.1:{FERRY_PORT}"
    source = make_file((near if direction == "push" else far) / "file", 1000)
    ends = (source, f"{url}/copy") if direction == "push" else (f"{url}/file", near / "copy")
    product.cp(own_net.alpha, "--accept-new", *ends)
    assert sha256((far if direction == "push" else near) / "copy") == sha256(source)
    known = (own_net.alpha.home / ".config/farhaul/known_hosts").read_text()
    assert own_net.near_daemon.fingerprint in known
    counted = crossings(ferry)
    assert len(counted) <= 2 * trips + 1, counted
