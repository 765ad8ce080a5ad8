"""Two versions that do not fit: exit code 5, and one line that names both and says what to do."""

import re

import pytest

from harness import peer
from harness.play import FarEnd, daemon_session, endpoint, other_daemon
from harness.product import EXIT_INCOMPATIBLE, cp
from harness.trees import make_file

PORT = 33333
OURS = r"farhaul \d+\.\d+\.\d+ \(protocol 1\)"


def assert_told(text, theirs=r"farhaul 9\.8\.7 \(protocol 2\)"):
    assert re.search(OURS, text) and re.search(theirs, text), text
    assert "install the same version on both ends" in text, text


def assert_one_line(outcome):
    assert outcome.code == EXIT_INCOMPATIBLE, outcome
    assert [line for line in outcome.stderr.splitlines() if line.strip()] == [outcome.error_line], outcome


def later_reply(**changes):
    """What a later version answers; of its other fields nothing is known."""
    return peer.greeting("reply", protocol=2, version="9.8.7", later="field", **changes)


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_far_end_over_ssh(net, near, direction):
    source = make_file(near / "file", 100)
    ends = [source, "beta:/data/"] if direction == "push" else ["beta:/data/file", near / "got"]
    with FarEnd(net, None, protocol=2, version="9.8.7", kind="welcome", flow_ids="changed") as far:
        outcome = cp(net.alpha, "--remote-program", far.program, *ends, check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)
    assert not (near / "got").exists()


def test_client_over_ssh(net):
    """The far end's answer to a client of a later version."""
    wish = {"nothing": "that this version knows"}
    with endpoint(net.beta, wish, protocol=2, version="9.8.7", later=1) as (reply, _session, process):
        assert reply["refusal"]["code"] == "version" and reply["protocol"] == 1
        assert_told(reply["refusal"]["text"])
    assert process.returncode == EXIT_INCOMPATIBLE and process.stderr.read() == b""


def test_client_at_a_daemon(net):
    with daemon_session(net, peer.request("push", "x"), protocol=2, version="9.8.7") as (reply, _session):
        assert reply["refusal"]["code"] == "version" and reply["protocol"] == 1
        assert_told(reply["refusal"]["text"])
    assert not (net.daemon.root / "x").exists()


def test_daemon_of_another_version(net, near):
    def script(stream):
        assert peer.read_hello(stream)["protocol"] == 1
        peer.write_hello(stream, later_reply())
        peer.read_exactly(stream, 1)

    with other_daemon(net, PORT, script):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)


def test_daemon_that_refuses_in_its_own_words(net, near):
    """A later daemon may also answer in the words of version 1."""
    def script(stream):
        peer.read_hello(stream)
        text = "the far end runs farhaul 0.1.0 (protocol 1), this is farhaul 9.8.7 (protocol 2): " \
               "install the same version on both ends"
        peer.write_hello(stream, peer.greeting("reply", version="9.8.7", refusal={"code": "version", "text": text}))
        peer.read_exactly(stream, 1)

    with other_daemon(net, PORT + 1, script):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT + 1}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)


def test_daemon_with_another_protocol_in_tls(net, near):
    """TLS itself finds no protocol in common; the daemon cannot say its version."""
    with other_daemon(net, PORT + 2, None, alpn="farhaul/2"):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT + 2}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line, theirs="none of this program's protocols")
