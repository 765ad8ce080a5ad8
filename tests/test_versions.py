"""Two versions that have no protocol in common: exit code 5, and one line that names both and says what to
do."""

import re

import pytest

from harness import peer, seal
from harness.play import FarEnd, daemon_session, endpoint, other_daemon, with_far_end
from harness.product import EXIT_INCOMPATIBLE, EXIT_OK, cp
from harness.trees import make_file
from test_second_peer import check_tree, send_tree

PORT = 33333
OURS = r"farhaul \d+\.\d+\.\d+ \(protocol 1\)"


def assert_told(text, theirs=r"farhaul 9\.8\.7 \(protocols 2 to 3\)"):
    assert re.search(OURS, text) and re.search(theirs, text), text
    assert "install the newer version on both ends" in text, text


def assert_one_line(outcome):
    assert outcome.code == EXIT_INCOMPATIBLE, outcome
    assert [line for line in outcome.stderr.splitlines() if line.strip()] == [outcome.error_line], outcome


def later_reply(**changes):
    """The reply of a later version, with a field that this version does not know."""
    return peer.greeting("reply", protocols=(2, 3), version="9.8.7", later="field", **changes)


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_far_end_over_ssh(net, near, direction):
    source = make_file(near / "file", 100)
    ends = [source, "beta:/data/"] if direction == "push" else ["beta:/data/file", near / "got"]
    with FarEnd(net, None, protocols=(2, 3), version="9.8.7", kind="welcome", flow_ids="changed") as far:
        outcome = cp(net.alpha, "--remote-program", far.program, *ends, check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)
    assert not (near / "got").exists()


def test_client_over_ssh(net):
    """The far end's answer to a client of a later version."""
    wish = {"nothing": "that this version knows"}
    with endpoint(net.beta, wish, protocols=(2, 3), version="9.8.7", later=1) as (reply, _session, process):
        assert reply["refusal"]["code"] == "FH-NO-COMMON-VERSION" and reply["protocols"] == [1, 1]
        assert_told(reply["refusal"]["text"])
    assert process.returncode == EXIT_INCOMPATIBLE and process.stderr.read() == b""


def test_client_at_a_daemon(net):
    with daemon_session(net, peer.request("push", "x"), protocols=(2, 3), version="9.8.7") as (reply, _session):
        assert reply["refusal"]["code"] == "FH-NO-COMMON-VERSION" and reply["protocols"] == [1, 1]
        assert_told(reply["refusal"]["text"])
    assert not (net.daemon.root / "x").exists()


def test_daemon_of_another_version(net, near):
    def script(stream):
        assert peer.read_hello(stream)["protocols"] == [1, 1]
        peer.write_hello(stream, later_reply())
        peer.read_exactly(stream, 1)

    with other_daemon(net, PORT, script):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)


def test_daemon_that_refuses_in_its_own_words(net, near):
    """A later daemon may also refuse with a text of its own in a reply of version 1."""
    def script(stream):
        peer.read_hello(stream)
        text = "the far end runs farhaul 0.1.0 (protocol 1), this is farhaul 9.8.7 (protocols 2 to 3): " \
               "install the newer version on both ends"
        peer.write_hello(stream, peer.greeting("reply", version="9.8.7", refusal={"code": "FH-NO-COMMON-VERSION", "exit": 5, "text": text}))
        peer.read_exactly(stream, 1)

    with other_daemon(net, PORT + 1, script):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT + 1}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line)


def test_daemon_with_another_protocol_in_tls(net, near):
    """TLS itself finds no protocol in common; the daemon cannot say its version."""
    with other_daemon(net, PORT + 2, None, alpn="lugfar"):
        outcome = cp(net.alpha, "--accept-new", f"fh://beta:{PORT + 2}/file", near / "got", check=False)
    assert_one_line(outcome)
    assert_told(outcome.error_line, theirs="none of this program's protocols")


def test_versions_that_overlap_talk(net, near):
    """The other end is of the next version, with fields and features that this version does not know."""
    later = {"protocols": (1, 2), "version": "9.8.7", "later": {"field": 1}, "features": [*peer.FEATURES, "telepathy"]}
    far = net.folder("far")
    wish = peer.request("push", far, target_is_directory=True, tomorrows_option=True, mtu=1400)
    with endpoint(net.beta, wish, **later) as (reply, session, process):
        assert reply["refusal"] is None and set(reply["features"]) == set(peer.FEATURES)
        session.message(peer.START)
        send_tree(session)
        session.drain()
    assert process.returncode == EXIT_OK
    check_tree(far / "asked")
    with daemon_session(net, peer.request("pull", "none"), **later) as (reply, _session):
        assert reply["refusal"] is None and reply["protocols"] == [1, 1]
    with_later = {name: value for name, value in later.items() if name != "version"}
    outcome = with_far_end(net, lambda _hello, session: send_tree(session), "beta:/data/asked", f"{near}/", **with_later)
    assert outcome.code == EXIT_OK, outcome
    check_tree(near / "asked")


def test_what_is_asked_for_and_missing_is_named(net, near):
    """A far end lacks a feature that the user asks for; a client needs a feature that the daemon does not
    know."""
    source = make_file(near / "file", 100)
    lacking = [name for name in peer.FEATURES if name != "acls"]
    with FarEnd(net, lambda *_: None, features=lacking) as far:
        outcome = cp(net.alpha, "--remote-program", far.program, "--acls", source, "beta:/data/", check=False)
    assert outcome.code == EXIT_INCOMPATIBLE and "leave out the options" in outcome.stderr, outcome
    assert outcome.report["error_detail"]["code"] == "FH-FEATURE-MISSING" and "lacks 'acls'" in outcome.error_line
    needs = {**peer.request("push", "x"), "needs": ["telepathy"]}
    with daemon_session(net, needs) as (reply, _session):
        assert reply["refusal"]["code"] == "FH-FEATURE-MISSING" and "'telepathy'" in reply["refusal"]["text"]
    with endpoint(net.beta, needs) as (reply, _session, process):
        assert reply["refusal"]["code"] == "FH-FEATURE-MISSING" and "'telepathy'" in reply["refusal"]["text"]
    assert process.returncode == EXIT_INCOMPATIBLE


def test_a_service_that_is_not_there_is_named(net):
    wish = peer.opening("juggle", b"three balls", {})
    with daemon_session(net, wish) as (reply, _session):
        assert reply["refusal"]["code"] == "FH-FEATURE-MISSING" and "'juggle'" in reply["refusal"]["text"]
    with endpoint(net.beta, wish) as (reply, _session, process):
        assert reply["refusal"]["code"] == "FH-FEATURE-MISSING" and "'juggle'" in reply["refusal"]["text"]
    assert process.returncode == EXIT_INCOMPATIBLE


def test_what_one_end_lacks_is_left_out(net, near):
    """A sender that knows no patches is never asked for one: the file comes whole."""
    tree = near / "asked"
    tree.mkdir()
    old = make_file(tree / "large", 3 * peer.CHUNK)
    content = bytes(3 * peer.CHUNK)
    asked = []

    def script(_hello, session):
        session.directory("asked")
        large = session.entry("asked/large", size=len(content))
        session.end_directory(0)
        session.message(peer.ENTRIES_END)
        body = session.next(peer.DECIDE)[1]
        identity, at = peer.take_leb(body, 0)
        assert identity == large
        asked.append(body[at])
        for chunk in range(3):
            piece = content[:peer.CHUNK]
            session.block(peer.Piece(large, chunk, piece, digest=seal.chaining_value(piece)))
        session.numbers(peer.FILE_END, large, len(content), 3)

    lacking = [name for name in peer.FEATURES if name != "delta"]
    outcome = with_far_end(net, script, "beta:/data/asked", f"{near}/", features=lacking)
    assert outcome.code == EXIT_OK, outcome
    assert old.read_bytes() == content and asked == [peer.SEND]
