"""A client of the service `read`, written from docs/reference/wire.md and not from the product's sources.

`Reader` keeps to the page. Its parts can also be used to break the rules: offsets, lengths and rooms go out
as given.

Always true: nothing here reads or writes a file; every wait has the session's limit.
"""

import collections
import contextlib
import dataclasses
import os
import select
import time

from . import peer
from .peer import counted, leb, take_leb
from .play import daemon_session, endpoint

OPEN, CLOSE, READ, ADVISE, STAT, LIST, FIND, MORE, DIGEST, CANCEL = range(70, 80)
OPENED, NOT_OPENED, FAILED, STATED, DIGESTED = range(80, 85)
#: The most ranges in one message.
RANGES_MAX = 2048
#: The most ranges and other operations that may be outstanding, the most lists among them, the most open
#: files.
OUTSTANDING_MAX, LISTS_MAX, FILES_MAX = 1 << 17, 64, 1024
KINDS = ["file", "directory", "symlink", "fifo", "socket", "char-device", "block-device"]
#: How many blocks the server may have under way.
WINDOW = 32
#: How long a session may last.
SESSION_SECONDS = 120


class Refused(Exception):
    """The server has answered with a failure: the number of an error's code, and a reason for people."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


Identity = collections.namedtuple("Identity", "size mtime mtime_ns ctime ctime_ns inode device")
Complaint = collections.namedtuple("Complaint", "exit_code code misbehaviour reason hint")


@dataclasses.dataclass
class Entry:
    path: bytes
    kind: str
    mode: int
    links: int
    identity: Identity
    target: bytes = b""


class Parser:
    """Takes values from the front of some bytes."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def leb(self):
        value, self.at = take_leb(self.data, self.at)
        return value

    def signed(self):
        value = self.leb()
        return value >> 1 ^ -(value & 1)

    def bytes(self, length=None):
        length = self.leb() if length is None else length
        self.at += length
        assert self.at <= len(self.data), "the bytes end too early"
        return bytes(self.data[self.at - length:self.at])

    def is_at_end(self):
        return self.at == len(self.data)

    def identity(self):
        return Identity(self.leb(), self.signed(), self.leb(), self.signed(), self.leb(), self.leb(), self.leb())

    def entry(self, path):
        kind, mode, links, identity = KINDS[self.bytes(1)[0]], self.leb(), self.leb(), self.identity()
        return Entry(path, kind, mode, links, identity, self.bytes() if kind == "symlink" else b"")

    def failure(self):
        return Refused(self.leb(), self.bytes().decode())


def complaint_of(body):
    """Why the other end gives up the request: the body of a `fail`."""
    parser = Parser(body)
    assert parser.leb() == peer.FIRST, "it is about the only request"
    return Complaint(parser.leb(), parser.leb(), parser.leb(), parser.bytes().decode(), parser.bytes().decode())


class Records:
    """Takes a stream of records apart: ("entry", Entry), ("failed", path, Refused), ("path", path), ("not entered", path)."""

    def __init__(self):
        self.held, self.path = b"", b""

    def take(self, data):
        self.held += data
        records = []
        while True:
            try:
                length, start = take_leb(self.held, 0)
            except IndexError:
                return records
            if len(self.held) < start + length:
                return records
            records.append(self._record(Parser(self.held[start:start + length])))
            self.held = self.held[start + length:]

    def _record(self, parser):
        what = parser.bytes(1)[0]
        self.path = self.path[:parser.leb()] + parser.bytes()
        record = {0: lambda: ("entry", parser.entry(self.path)), 1: lambda: ("failed", self.path, parser.failure()),
                  2: lambda: ("path", self.path), 3: lambda: ("not entered", self.path)}[what]()
        assert parser.is_at_end(), "a record has nothing behind it"
        return record


class Incoming:
    """The pieces of a range or of a stream. They may come in any order, and more than once."""

    def __init__(self, length=None):
        self.length = length
        self.parts = {}

    def take(self, at, data, is_last):
        assert self.length is None or at + len(data) <= self.length, "a piece lies within its range"
        assert self.parts.get(at, data) == data, "a piece that comes twice is the same"
        self.parts[at] = data
        if is_last:
            self.length = at + len(data)

    def is_whole(self):
        return self.length is not None and sum(map(len, self.parts.values())) == self.length

    def in_order(self, at=0):
        """The bytes from `at` up to the first gap."""
        data = b""
        while part := self.parts.get(at + len(data)):
            data += part
        return data

    def bytes(self):
        return self.in_order()


def range_list(ranges):
    return leb(len(ranges)) + b"".join(leb(offset) + leb(length) for offset, length in ranges)


def message(code, *parts):
    """A message as it goes into the request's bytes. Its body is made of these numbers and bytes."""
    return counted(bytes([code]) + b"".join(part if isinstance(part, bytes) else leb(part) for part in parts))


class Reader:
    """One session. A test may ask for several things before the first answer has come."""

    def __init__(self, session, window=WINDOW):
        self.session = session
        self.window = window
        self.ops = self.files = self.seen = self.taken = 0
        #: Answers by ("file" or "op", number).
        self.answers = {}
        #: Ranges and streams by (operation, range).
        self.incoming = {}
        #: All pieces in the order of arrival: (operation, range, offset in the range, bytes, whether it is
        #: the last).
        self.pieces = []
        session.end = time.monotonic() + SESSION_SECONDS
        session.message(peer.START)
        # The first feedback tells this to the server; there is nothing to acknowledge yet.
        session.granted = window

    # -- asking

    def say(self, code, *parts):
        """Sends a message whose body is made of these numbers and bytes."""
        self.say_all(message(code, *parts))

    def say_all(self, messages):
        """Sends many messages in a row. Takes what the server sends meanwhile: it might not read on
        before."""
        for at in range(0, len(messages), 16384):
            self.session.words(messages[at:at + 16384])
            while select.select([self.session.stream], [], [], 0)[0]:
                self.session.take_packet()
                self.look()

    def ask(self, code, *parts):
        """Sends a message that begins an operation; its number comes first. Returns the number."""
        self.ops += 1
        self.say(code, self.ops, *parts)
        return self.ops

    def begin_open(self, path):
        self.files += 1
        self.say(OPEN, self.files, counted(os.fsencode(path)))
        return self.files

    def close(self, file):
        self.say(CLOSE, file)

    def begin_read(self, file, *ranges):
        """Asks for ranges, in as many messages as they need. Ranges are numbered from 0."""
        self.ops += 1
        for number, (_, length) in enumerate(ranges):
            self.incoming[self.ops, number] = Incoming(length)
        for first in range(0, len(ranges), RANGES_MAX):
            self.say(READ, self.ops, file, first, range_list(ranges[first:first + RANGES_MAX]))
        return self.ops

    def advise(self, file, *ranges):
        self.say(ADVISE, file, range_list(ranges))

    def begin_stat(self, path, follow=True):
        return self.ask(STAT, int(follow), counted(os.fsencode(path)))

    def begin_list(self, path, depth=1, room=1 << 20):
        self.incoming[self.ops + 1, 0] = Incoming()
        return self.ask(LIST, depth, room, counted(os.fsencode(path)))

    def begin_find(self, pattern, room=1 << 20):
        self.incoming[self.ops + 1, 0] = Incoming()
        return self.ask(FIND, room, counted(os.fsencode(pattern)))

    def more(self, op, room):
        self.say(MORE, op, room)

    def begin_digest(self, file, algorithm, wanted=None):
        where = leb(0) if wanted is None else leb(1) + leb(wanted[0]) + leb(wanted[1])
        return self.ask(DIGEST, file, where, counted(algorithm.encode()))

    def cancel(self, op):
        self.say(CANCEL, op)

    # -- hearing

    def look(self):
        """Sorts the messages and blocks that have come."""
        messages = self.session.messages
        while self.seen < len(messages):
            code, body = messages[self.seen]
            self.seen += 1
            if code in (OPENED, NOT_OPENED, FAILED, STATED, DIGESTED):
                self._hear(code, Parser(body))
        complete = self.session.complete
        while complete:
            self._take_block(complete.pop(0))
            self.taken += 1
        if self.session.granted < self.taken + self.window // 2:
            self.session.granted = self.taken + self.window
            self.session.feedback()

    def _hear(self, code, parser):
        number = parser.leb()
        what = "file" if code in (OPENED, NOT_OPENED) else "op"
        assert (what, number) not in self.answers, "one answer each"
        self.answers[what, number] = {
            OPENED: parser.identity, NOT_OPENED: parser.failure, FAILED: parser.failure,
            STATED: lambda: parser.entry(parser.bytes()),
            DIGESTED: lambda: (parser.leb(), parser.bytes()),
        }[code]()
        assert parser.is_at_end(), "a message has nothing behind it"

    def _take_block(self, block):
        assert int.from_bytes(block[-8:], "little") == peer.FIRST, "the block names its request"
        end = len(block) - 12
        content = end - int.from_bytes(block[end:end + 4], "little")
        labels, place, count = Parser(block[:end], content), 0, 0
        while not labels.is_at_end():
            op, number, at, last = labels.leb(), labels.leb(), labels.leb(), labels.leb()
            data = block[place:place + (last >> 1)]
            place += last >> 1
            count += 1
            assert op <= self.ops, "it was asked for"
            self.pieces.append((op, number, at, len(data), bool(last & 1)))
            if (op, number) in self.incoming:
                self.incoming[op, number].take(at, data, bool(last & 1))
        assert place == content and count <= 4096, "the pieces fill the content"

    def wait(self, condition):
        def looked():
            self.look()
            return condition()
        return self.session.wait(looked)

    def answer(self, what, number):
        """The answer to one message; raises `Refused` if the server refuses it."""
        found = self.wait(lambda: self.answers.get((what, number)))
        if isinstance(found, Refused):
            raise found
        return found

    def content(self, op, count):
        """The bytes of all ranges of an operation."""
        def is_over():
            return ("op", op) in self.answers or all(self.incoming[op, number].is_whole() for number in range(count))
        self.wait(is_over)
        if ("op", op) in self.answers:
            raise self.answers["op", op]
        return [self.incoming[op, number].bytes() for number in range(count)]

    # -- both at once

    def open(self, path):
        """The file's number and its identity."""
        file = self.begin_open(path)
        return file, self.answer("file", file)

    def read(self, file, *ranges):
        return self.content(self.begin_read(file, *ranges), len(ranges))

    def stat(self, path, follow=True):
        return self.answer("op", self.begin_stat(path, follow))

    def digest(self, file, algorithm, wanted=None):
        """The number of bytes that were digested, and the digest."""
        return self.answer("op", self.begin_digest(file, algorithm, wanted))

    def stream(self, op, room, more):
        """The records of a list that gets `room` at first and `more` whenever that is used up. Asserts that
        the server never sends more than the room."""
        records, parser, at, incoming = [], Records(), 0, self.incoming[op, 0]
        while not incoming.is_whole():
            self.wait(lambda: incoming.is_whole() or ("op", op) in self.answers or len(incoming.in_order(at)) + at == room)
            if ("op", op) in self.answers:
                raise self.answers["op", op]
            data = incoming.in_order(at)
            at += len(data)
            assert at <= room, "a list keeps to its room"
            records += parser.take(data)
            if at == room and not incoming.is_whole():
                room += more
                self.more(op, more)
        assert incoming.length <= room, "a list keeps to its room to its end"
        records += parser.take(incoming.in_order(at))
        assert not parser.held, "a list ends with a record"
        return records

    def list(self, path, depth=1, room=1 << 20, more=1 << 20):
        return self.stream(self.begin_list(path, depth, room), room, more)

    def find(self, pattern, room=1 << 20, more=1 << 20):
        found = self.stream(self.begin_find(pattern, room), room, more)
        assert all(what == "path" for what, *_ in found)
        return [path for _, path in found]

    def finish(self):
        """Ends the session in order."""
        self.session.finish()
        # The server closes the stream after its own finish. Nothing can be sent to it then, but its last
        # packets are still to be read.
        say = self.session.raw

        def say_if_it_hears(data):
            with contextlib.suppress(peer.Closed):
                say(data)

        self.session.raw = say_if_it_hears
        with contextlib.suppress(peer.Closed):
            while True:
                self.session.take_packet()
        assert peer.FINISH in [code for code, _ in self.session.messages], self.session.closed_with
        assert not self.session.closed_with, self.session.closed_with

    def ended(self):
        """Goes on until the server has gone. Returns the complaint with which it ended, None if none has
        come."""
        self.session.drain()
        said = [complaint_of(body) for code, body in self.session.messages if code == peer.FAIL]
        return said[0] if said else None


def wish(**network):
    """The part of a client's hello that asks for this service."""
    return peer.opening("read", b"{}", {"cipher": "chacha20-poly1305", **network})


@contextlib.contextmanager
def reader(net, window=WINDOW, **network):
    """A session with the daemon."""
    with daemon_session(net, wish(**network)) as (reply, session):
        assert reply["refusal"] is None, reply
        yield Reader(session, window)


@contextlib.contextmanager
def reader_over_ssh(host, cwd=None, **network):
    """A session with `farhaul endpoint`, as ssh starts it: the reader, and the process."""
    with endpoint(host, wish(**network), cwd=cwd) as (reply, session, process):
        assert reply["refusal"] is None, reply
        yield Reader(session), process
