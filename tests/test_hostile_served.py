"""Far ends of `ls`, `du`, `sum` and `cat` that send what nobody asked for: the client ends with a code, and keeps no
more than what it has asked for.

Always true: the far end is played by the test, from docs/reference/wire.md; the client is the real program.
"""

import select

import pytest

from harness import peer
from harness.peer import counted, leb
from harness.play import SECONDS_MAX, FarEnd
from harness.product import EXIT_PROTOCOL
from harness.reading import DIGEST, DIGESTED, FIND, LIST, OPEN, OPENED, READ, STAT, STATED, Parser, message

MIB = 1 << 20
DIRECTORY, FILE, SYMLINK = 1, 0, 2
IDENTITY = leb(1 << 20) + bytes(6)


def entry(kind, target=b""):
    return bytes([kind]) + leb(0o755) + leb(1) + IDENTITY + (counted(target) if kind == SYMLINK else b"")


class Server:
    """Answers what the client asks first, and then sends what the test says."""

    def __init__(self, session):
        self.session = session
        session.message(peer.START)

    def asked(self, wanted):
        """Answers questions until the client asks this; returns the body of that question."""
        while True:
            code, body = self.session.next(STAT, LIST, FIND, OPEN, READ, DIGEST)
            number = Parser(body).leb()
            if code == wanted:
                return Parser(body)
            if code == STAT:
                self.say(STATED, number, counted(b"dir"), entry(DIRECTORY if wanted == LIST else FILE))
            elif code == OPEN:
                self.say(OPENED, number, IDENTITY)

    def say(self, code, *parts):
        self.session.words(message(code, *parts))

    def send(self, *pieces):
        """Sends pieces in one block: (operation, range, offset, content, whether it is the last)."""
        content = b"".join(piece[3] for piece in pieces)
        labels = b"".join(leb(op) + leb(number) + leb(at) + leb(len(data) << 1 | is_last)
                          for op, number, at, data, is_last in pieces)
        self.session.whole_block(content + labels + len(labels).to_bytes(4, "little"))
        while select.select([self.session.stream], [], [], 0)[0]:
            self.session.take_packet()

    def until_refused(self):
        """Waits until the client gives the session up, or ends it after a list that it has given up."""
        code, _ = self.session.next(peer.FAIL, peer.FINISH)
        if code == peer.FINISH:
            self.session.finish()


# ---- lists -----------------------------------------------------------------------------------------------------------

def overlapping(server, op):
    """The second piece begins one byte later than the first."""
    for at in range(1, 9):
        server.send((op, 0, at, bytes(MIB - 4096), False))


def overlaps_what_was_read(server, op):
    server.send((op, 0, 0, b"\x05\x02\x00", False))
    server.send((op, 0, 1, b"\x02\x00\x01x", False))


def crumbs_apart(server, op):
    for first in range(1, 40_000, 4000):
        server.send(*((op, 0, 2 * at, b"x", False) for at in range(first, first + 4000)))


def crumbs_before_the_first(server, op):
    for first in range(1, 40_000, 4000):
        server.send(*((op, 0, at, b"x", False) for at in range(first, first + 4000)))


def two_ends(server, op):
    server.send((op, 0, 10, b"x", True), (op, 0, 20, b"x", True))


def goes_on_behind_its_end(server, op):
    server.send((op, 0, 10, b"x", True), (op, 0, 20, b"x", False))


def more_than_its_room(server, op):
    server.send((op, 0, (32 << 20) - 1, b"xx", False))


def a_second_range(server, op):
    server.send((op, 1, 0, b"x", False))


def a_record_of_a_mebibyte(server, op):
    record = bytes([0, 0]) + counted(b"link") + entry(SYMLINK, bytes(MIB - 4096))
    server.send((op, 0, 0, counted(record)[:MIB - 4096], False))
    server.send((op, 0, MIB - 4096, counted(record)[MIB - 4096:], False))


def below(path):
    """A list with an entry of this path below the directory."""
    record = bytes([0, 0]) + counted(path) + entry(FILE)

    def sends(server, op):
        server.send((op, 0, 0, counted(record), True))
    sends.__name__ = repr(path[:20])
    return sends


#: Paths that are not plain ones in the listed directory itself.
PATHS = [below(path) for path in (b"../up", b"..", b".", b"/etc/passwd", b"a//b", b"a/", b"a/../../b", b"a\0b", b"below/it")]

LISTS = {case.__name__: case for case in [
    overlapping, overlaps_what_was_read, crumbs_apart, crumbs_before_the_first, two_ends, goes_on_behind_its_end, more_than_its_room,
    a_second_range, a_record_of_a_mebibyte, *PATHS]}


def look(net, verb, script, place="beta:/dir"):
    """Runs a verb at a far end that `script` plays; returns the exit code and stderr."""
    def play(_hello, session):
        script(Server(session))

    with FarEnd(net, play, features=[]) as far:
        argv = ["farhaul", verb, "--cipher", "chacha20-poly1305", "--remote-program", far.program, place]
        done = net.alpha.run(argv, timeout=SECONDS_MAX)
    said = done.stderr.decode()
    assert "panicked" not in said, said
    return done.returncode, said


def assert_broken(ended):
    code, said = ended
    assert code == EXIT_PROTOCOL and "broke the protocol" in said, ended


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_makes_no_sense_ends_with_a_code(net, case):
    def script(server):
        op = server.asked(LIST).leb()
        LISTS[case](server, op)
        server.until_refused()

    assert_broken(look(net, "ls", script))


def test_a_pattern_that_matches_without_end_ends_with_a_code(net):
    """A path that differs from the one before it only at its end takes few bytes on the wire, four thousand in
    memory."""
    def script(server):
        op = server.asked(FIND).leb()
        stem = b"/".join([b"d" * 200] * 20)
        records = counted(b"\x02" + leb(0) + counted(stem))
        for number in range(40_000):
            records += counted(b"\x02" + leb(len(stem)) + counted(b"%05x" % number))
        for first in range(0, len(records), MIB // 4):
            part = records[first:first + MIB // 4]
            server.send((op, 0, first, part, False))
        server.until_refused()

    assert_broken(look(net, "ls", script, place="beta:/dir/*"))


# ---- answers ---------------------------------------------------------------------------------------------------------

def test_a_link_with_a_target_that_no_link_has_ends_with_a_code(net):
    def script(server):
        op = server.asked(STAT).leb()
        server.say(STATED, op, counted(b"dir"), entry(SYMLINK, b"x" * 60_000))
        server.until_refused()

    assert_broken(look(net, "stat", script))


def test_a_digest_that_no_algorithm_has_ends_with_a_code(net):
    def script(server):
        op = server.asked(DIGEST).leb()
        server.say(DIGESTED, op, 1, counted(bytes(60_000)))
        server.until_refused()

    assert_broken(look(net, "sum", script))


@pytest.mark.parametrize("second", [1, MIB // 2 - 1])
def test_a_range_of_overlapping_pieces_is_not_taken_for_whole(net, second):
    """As many bytes as the range has come, but not all of its bytes."""
    def script(server):
        op = server.asked(READ).leb()
        half = bytes(MIB // 2)
        server.send((op, 0, 0, half, False))
        server.send((op, 0, second, half, False))
        server.until_refused()

    assert_broken(look(net, "cat", script))
