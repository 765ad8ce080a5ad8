"""Clients of `diagnose` that ask for what they may not have, or out of turn: nothing is told, and the daemon goes on."""

import base64
import json

import pytest

from harness import peer
from harness.hosts import wait_until
from harness.peer import counted, leb
from harness.play import daemon_session
from harness.product import cp
from harness.trees import make_file

ASK, ANSWER = 112, 113
CONSULT = {"consult": {}}
TICKET = base64.b64encode(bytes(32)).decode()


def opening(request):
    return peer.opening("diagnose", json.dumps(request).encode(), {"cipher": "chacha20-poly1305"})


def load(way="from", ticket=TICKET):
    return {"load": {"way": way, "ticket": ticket}}


def ask(session, op=1):
    """What the doctor answers."""
    session.message(ASK, leb(op))
    _code, body = session.next(ANSWER)
    answered, at = peer.take_leb(body, 0)
    length, at = peer.take_leb(body, at)
    assert answered == op and length == len(body) - at
    return json.loads(body[at:])


def ends(session):
    with pytest.raises(peer.Closed):
        session.wait(lambda: False)


@pytest.fixture
def served(own_net):
    own_net.daemon.keys.write_text(f"diagnose {own_net.key}")
    yield own_net
    cp(own_net.alpha, "--accept-new", make_file(own_net.folder("near") / "file", 10), own_net.daemon.url("after"))


def refused(net, request, why):
    """Whether a request is refused. The log tells it, as the answer may be cut off with the connection."""
    before = net.daemon.log_text().count(why)
    try:
        with daemon_session(net, opening(request)) as (reply, _session):
            assert why in json.dumps(reply["refusal"]), reply
    except peer.Closed:
        pass
    wait_until(lambda: net.daemon.log_text().count(why) > before, what="the daemon refuses it")


def test_a_key_without_the_right_is_refused_before_anything_is_asked(net):
    for request in (CONSULT, load(), load("to")):
        refused(net, request, "may not ask the doctor")


@pytest.mark.parametrize(("request_", "why"), [
    ({}, "expected value"), ({"load": {"way": "up", "ticket": TICKET}}, "unknown variant"), ({"load": {"way": "to"}}, "missing field"),
    ([], "expected value"), ({"consult": {"rate_bps": -1}}, "invalid value"),
])
def test_what_is_no_request_is_refused(served, request_, why):
    refused(served, request_, why)


def test_a_test_without_a_consultation_moves_nothing(served):
    for way in ("to", "from"):
        with daemon_session(served, opening(load(way))) as (reply, session):
            assert reply["refusal"] is None
            session.message(peer.START)
            ends(session)
    assert served.daemon.log_text().count("FH-FORBIDDEN") >= 2


def test_there_is_one_consultation_at_a_time(served):
    with daemon_session(served, opening(CONSULT)) as (_reply, session):
        session.message(peer.START)
        ticket = ask(session)["ticket"]
        with daemon_session(served, opening(CONSULT)) as (_reply, second):
            second.message(peer.START)
            second.message(ASK, leb(1))
            ends(second)
        assert "FH-BUSY" in served.daemon.log_text()
        assert ask(session, 2)["ticket"] == ticket, "the first one goes on"
        session.finish()
    # The ticket is of no use once the consultation is over.
    with daemon_session(served, opening(load(ticket=ticket))) as (_reply, session):
        session.message(peer.START)
        ends(session)


def test_an_answer_names_no_address_and_no_rule(served):
    with daemon_session(served, opening(CONSULT)) as (_reply, session):
        session.message(peer.START)
        said = ask(session)
        session.finish()
    ids = {finding["id"] for finding in said["diagnosis"]["findings"]}
    assert ids and not ids & {"firewall", "reverse-dns", "quota"}
    assert str(served.beta.v4) not in json.dumps(said["diagnosis"])


@pytest.mark.parametrize(("code", "body"), [(ANSWER, leb(1) + counted(b"{}")), (ASK, b""), (ASK, leb(1) + b"more"), (ANSWER, leb(1) + leb(1 << 40)), (111, leb(1))])
def test_what_is_no_question_ends_the_session_and_nothing_else(served, code, body):
    with daemon_session(served, opening(CONSULT)) as (_reply, session):
        session.message(peer.START)
        session.message(code, body)
        ends(session)
