"""An authenticated peer that sends well-formed messages in an order, or with numbers, that no honest peer
uses.

Whatever it sends, nothing panics, the session ends with the documented code and one line, its threads end
with it, and a daemon goes on as before.
"""

import os

import pytest

from harness import peer
from harness.hosts import wait_until
from harness.peer import CHUNK, Piece
from harness.play import daemon_session, with_far_end
from harness.product import EXIT_PROTOCOL, cp
from harness.trees import make_file

#: Names, or beginnings of names, of a session's threads. A daemon that serves nobody has none of them.
SESSION_THREADS = ("session", "request", "flow-", "read", "write", "scan", "compare", "patch", "checkpoint", "memory", "names")


def session_threads(process):
    names = []
    for task in os.listdir(f"/proc/{process.pid}/task"):
        try:
            with open(f"/proc/{process.pid}/task/{task}/comm") as comm:
                names.append(comm.read().strip())
        except OSError:
            continue
    return [name for name in names if name.startswith(SESSION_THREADS)]


def assert_daemon_is_well(net, told):
    """The daemon has logged the misbehaviour, no thread of the session is left, and it serves the next
    client."""
    daemon = net.daemon
    wait_until(lambda: daemon.log_text().count("broke the protocol") > told, what="the daemon logs why")
    wait_until(lambda: not session_threads(daemon.process), what="the session's threads end")
    assert daemon.process.poll() is None and "panicked" not in daemon.log_text()
    make_file(daemon.root / "well", 10)
    cp(net.alpha, "--accept-new", f"fh://{net.beta.v4}:{daemon.port}/well", net.folder("well"))


# ---- a receiver that asks for what it may not -----------------------------------------------------------------------

def again(chunk):
    return lambda session: session.numbers(peer.AGAIN, 0, chunk)


def decide(*values):
    return lambda session: session.message(peer.DECIDE, bytes([0]) + b"".join(map(peer.leb, values)))


def in_turn(*steps):
    def script(session):
        for step in steps:
            step(session)
    return script


def done(session):
    session.numbers(peer.DONE, 0)


def digest_of_nothing(session):
    """The digest that goes into the manifest of an entry, as if the file had been read."""
    session.message(27, peer.leb(0) + bytes(32) + peer.leb(0))


def take(session):
    """Lets the content come."""
    session.granted = 16
    session.feedback()
    session.pieces()


RECEIVERS = {
    "again before it has decided": ("AgainUnasked", again(0), 2 * CHUNK),
    "again of the last chunk before it has decided": ("AgainUnasked", again(1), 2 * CHUNK),
    "again of a small file before it has decided": ("AgainUnasked", again(0), 100),
    "lists what it was to receive": ("UnaskedListing", decide(peer.LISTED), 100),
    "all of it after a part": ("EntryNotOutstanding", in_turn(decide(peer.HAVE, 1, 0, 1), decide(peer.SEND)), 2 * CHUNK),
    "marks end twice": ("MarksEndedTwice", in_turn(decide(5, 0, 1), lambda s: s.numbers(25, 0), lambda s: s.numbers(25, 0)), 2 * CHUNK),
    "unchanged beyond all numbers": ("EntryNotOutstanding", lambda s: s.numbers(29, 2**64 - 1, 2), 100),
    "unchanged, all of them": ("EntryNotOutstanding", lambda s: s.numbers(29, 0, 2**64 - 1), 100),
    "done, then again": ("EntryNotOutstanding", in_turn(decide(peer.SEND), take, done, done), 100),
    "done of what it never wanted": ("UnexpectedMessage", done, 100),
    "done of what it never wanted, with a digest": ("UnexpectedMessage", in_turn(digest_of_nothing, done), 100),
    "done of a large file that was not sent": ("UnexpectedMessage", in_turn(decide(peer.SEND), done), 40 * CHUNK),
}


def failed(id):
    return lambda s: s.message(peer.FAILED, peer.leb(id) + peer.counted(b"file") + peer.leb(4003) + peer.counted(b"no room"))


def many(count, step):
    return lambda s: [step(s) for _ in range(count)]


#: What a receiver says more often than there can be of it. None of these words may go on for ever.
REPEATED = {
    "one failure twice": ("EntryNotOutstanding", in_turn(failed(0), failed(0)), 100),
    "the failure of what was not announced": ("EntryNotOutstanding", failed(7), 100),
    "the failure of what was announced again, and was not": ("EntryNotOutstanding", failed(1 << 48), 100),
    "its name twice": ("UnexpectedMessage", many(2, lambda s: s.message(28, peer.counted(b"other"))), 100),
    "its directories twice": ("UnexpectedMessage", many(2, lambda s: s.numbers(20, 1)), 100),
    "what is left, though nothing is deleted": ("UnaskedDeletion", lambda s: s.message(54, peer.counted(b"d") + b"\0"), 100),
    "more that is not set than there is": ("UnexpectedMessage", many(100, lambda s: s.message(15, peer.counted(b"file") + peer.counted(b"why"))), 100),
    "more that is replaced than there is": ("UnexpectedMessage", many(100, lambda s: s.message(55, peer.counted(b"file") + b"\0\1")), 100),
    "more that is parted than there is": ("UnexpectedMessage", many(100, lambda s: s.message(39, peer.counted(b"file"))), 100),
}
RECEIVERS |= REPEATED


@pytest.mark.parametrize("case", RECEIVERS)
def test_a_client_ends_well_by_what_a_receiver_says(net, case):
    misbehaviour, script, size = RECEIVERS[case]
    source = make_file(net.folder("source") / "file", size)

    def play(_hello, session):
        session.next(peer.ENTRY)
        script(session)

    outcome = with_far_end(net, play, source, "beta:/data/")
    assert outcome.code == EXIT_PROTOCOL and "broke the protocol" in outcome.error_line, outcome
    assert outcome.report["error_detail"]["misbehaviour"] == misbehaviour, outcome
    assert "panicked" not in outcome.stderr and "farhaul has failed" not in outcome.stderr, outcome


@pytest.mark.parametrize("case", RECEIVERS)
def test_a_daemon_ends_a_session_by_what_a_receiver_says(net, case):
    _, script, size = RECEIVERS[case]
    make_file(net.daemon.root / "file", size)
    told = net.daemon.log_text().count("broke the protocol")
    with daemon_session(net, peer.request("pull", "file")) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        session.next(peer.ENTRY)
        try:
            script(session)
        except peer.Closed:
            pass
        session.drain()
    assert_daemon_is_well(net, told)


# ---- a sender whose stream ends where it cannot -----------------------------------------------------------------------

def stream(*pieces, end):
    """A stream of pieces, each (chunk, length), with an end (size, chunks). With `early` the end comes before
    the pieces."""
    def script(session, early=False):
        identity = session.entry("asked", peer.PIPE)
        session.message(peer.ENTRIES_END)
        session.next(peer.DECIDE)
        if early:
            session.numbers(peer.FILE_END, identity, *end)
        for chunk, length in pieces:
            data = bytes(length)
            session.block(Piece(identity, chunk, data, digest=peer.seal.chaining_value(data)))
        if not early:
            session.numbers(peer.FILE_END, identity, *end)
        session.next(peer.FAILED, peer.DONE)
    return script


STREAMS = {
    "a size below what came": stream((0, CHUNK), (1, CHUNK), (2, 10), end=(CHUNK + 10, 3)),
    "a size and a count below what came": stream((0, CHUNK), (1, CHUNK), (2, 10), end=(10, 1)),
    "no size": stream((0, 10), end=(0, 1)),
    "a size beyond what came": stream((0, 10), end=(11, 1)),
    "all bytes that there are": stream((0, 10), end=(2**64 - 1, 1)),
    "more chunks than its size has": stream((0, 10), end=(10, 2)),
    "a hole": stream((0, 10), (5, 10), end=(5 * CHUNK + 10, 6)),
    "chunks that are far away": stream((0, CHUNK), (1 << 43, 10), end=((1 << 43) * CHUNK + 10, 1)),
    "pieces of a byte": stream((0, 1), (1, 1), (2, 1), end=(3, 3)),
}


@pytest.mark.parametrize("case", STREAMS)
@pytest.mark.parametrize("destination, early", [("folder", False), ("folder", True), ("null:", False)])
def test_a_stream_that_cannot_end_so_ends_the_session(net, case, early, destination):
    folder = net.folder("inside")

    def play(_hello, session):
        STREAMS[case](session, early)

    to = destination if destination == "null:" else f"{folder}/"
    outcome = with_far_end(net, play, "beta:/data/asked", to)
    assert outcome.code == EXIT_PROTOCOL and "broke the protocol" in outcome.error_line, outcome
    # Content and end may overtake each other, so either fault may be found first.
    assert outcome.report["error_detail"]["misbehaviour"] in ("ImpossibleEnd", "PieceBeyondFile"), outcome
    assert "panicked" not in outcome.stderr and "farhaul has failed" not in outcome.stderr, outcome
    assert not (folder / "asked").exists(), "an incomplete stream has got its name"


@pytest.mark.parametrize("case", STREAMS)
def test_a_daemon_ends_a_session_by_a_stream_that_cannot_end_so(net, case):
    told = net.daemon.log_text().count("broke the protocol")
    with daemon_session(net, peer.request("push", "", target_is_directory=True)) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        try:
            STREAMS[case](session)
        except peer.Closed:
            pass
        session.drain()
    assert not (net.daemon.root / "asked").exists()
    assert_daemon_is_well(net, told)


def test_a_stream_arrives_that_ends_as_it_should(net):
    folder = net.folder("inside")

    def play(_hello, session):
        stream((1, CHUNK), (0, CHUNK), (2, 10), end=(2 * CHUNK + 10, 3))(session)
        # The receiver finishes first.
        session.next(peer.FINISH)
        session.finish()

    outcome = with_far_end(net, play, "beta:/data/asked", f"{folder}/")
    assert outcome.code == 0, outcome
    assert (folder / "asked").stat().st_size == 2 * CHUNK + 10


def end_of_another_size(session):
    identity = session.entry("asked", size=2 * CHUNK)
    session.message(peer.ENTRIES_END)
    session.next(peer.DECIDE)
    session.numbers(peer.FILE_END, identity, 2 * CHUNK + 1, 2)


def two_ends(session):
    identity = session.entry("asked", size=2 * CHUNK)
    session.message(peer.ENTRIES_END)
    session.next(peer.DECIDE)
    session.numbers(peer.FILE_END, identity, 2 * CHUNK, 2)
    session.numbers(peer.FILE_END, identity, 2 * CHUNK, 1)


@pytest.mark.parametrize("script", [end_of_another_size, two_ends])
def test_a_file_ends_as_it_was_announced(net, script):
    folder = net.folder("inside")
    outcome = with_far_end(net, lambda _hello, session: script(session), "beta:/data/asked", f"{folder}/")
    assert outcome.code == EXIT_PROTOCOL, outcome
    assert not (folder / "asked").exists()


# ---- a sender that says more than there is ----------------------------------------------------------------------------

def after_a_file(*steps):
    """These words, after a file that is wanted."""
    def script(session):
        session.entry("asked", size=100)
        session.next(peer.DECIDE)
        in_turn(*steps)(session)
        session.next(peer.FINISH)
    return script


SENDERS = {
    "the end of entries twice": ("UnexpectedMessage", after_a_file(many(2, lambda s: s.message(peer.ENTRIES_END)))),
    "the end of a file that was not announced": ("EntryNotOutstanding", after_a_file(lambda s: s.numbers(peer.FILE_END, 9, 1, 1))),
    "the failure of a file that was not announced": (
        "EntryNotOutstanding", after_a_file(lambda s: s.message(peer.FILE_FAILED, peer.leb(9) + peer.leb(4005) + peer.counted(b"why")))),
    "where the source lies, after an entry": ("UnexpectedMessage", after_a_file(lambda s: s.numbers(42, 1, 2))),
    "where the source lies, twice": ("UnexpectedMessage", in_turn(many(2, lambda s: s.numbers(42, 1, 2)), after_a_file())),
    "the end of a list ahead that nobody asked for": ("UnexpectedMessage", after_a_file(lambda s: s.message(9, b"\1"))),
    "a list ahead that nobody asked for": ("UnexpectedMessage", after_a_file(lambda s: s.message(8, peer.counted(b"asked") + b"\0"))),
}


@pytest.mark.parametrize("case", SENDERS)
def test_a_client_ends_well_by_what_a_sender_says(net, case):
    misbehaviour, script = SENDERS[case]
    folder = net.folder("inside")
    outcome = with_far_end(net, lambda _hello, session: script(session), "beta:/data/asked", f"{folder}/")
    assert outcome.code == EXIT_PROTOCOL and outcome.report["error_detail"]["misbehaviour"] == misbehaviour, outcome
    assert "panicked" not in outcome.stderr and list(folder.iterdir()) == []


@pytest.mark.parametrize("case", SENDERS)
def test_a_daemon_ends_a_session_by_what_a_sender_says(net, case):
    told = net.daemon.log_text().count("broke the protocol")
    with daemon_session(net, peer.request("push", "", target_is_directory=True)) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        try:
            SENDERS[case][1](session)
        except peer.Closed:
            pass
        session.drain()
    assert_daemon_is_well(net, told)
