"""A second implementation of docs/reference/wire.md, over byte streams only: an end of a session that sends
what a test wants.

It is written from that page, not from the product's sources. It can be honest: then the product must work
with it. And it can lie at every level: control messages, blocks, frames, datagrams, hellos.

Always true: nothing here reads or writes a file; every wait has a limit.
"""

import base64
import dataclasses
import json
import os
import socket
import struct
import time

from . import seal

CHUNK = 1 << 20
PADDING, SEGMENT, SEGMENT_LAST, PING, FEEDBACK, STREAM, FLOOR, CLOSE, REPORT, CHALLENGE, ANSWER = range(11)
GIVEN_UP = 12
#: Added to the length of a piece whose bytes are a patch.
PATCH = 1 << 21
ENTRY, DIRECTORY_END, SOURCE_FAILED, FILE_END, FILE_FAILED, ENTRIES_END = range(1, 7)
DECIDE, DONE, FAILED, AGAIN, DIRECTORIES_DONE = range(16, 21)
COMPARED, RENEWED, SAME = 10, 11, 13
DELETED, NOT_DELETED, NAMES, MARKS, RENAMED, KEPT, BACKED_UP = 21, 22, 23, 24, 26, 30, 43
FINISH, ABORT, FLOW_DOWN, START = range(32, 36)
OPEN, FAIL = 59, 60
#: Messages of the session itself; all others are those of a request.
OWN = {FINISH, ABORT, FLOW_DOWN, START, 36, 37, 48, 52, 53, 56, 57, 58, OPEN, FAIL}
#: The request that a session begins with.
FIRST = 1
SEND, SKIP, HAVE, LISTED = range(4)
PLAIN_FILE, PIPE, SPARSE, LINKED, DIRECTORY, SYMLINK, HARD_LINK = 0, 1, 2, 4, 8, 9, 10
#: How long a session, and so any wait in it, may last.
SESSION_SECONDS = 40


class Closed(Exception):
    """The other end has closed the session or its stream."""


# ---- numbers and names -----------------------------------------------------------------------------------------------

def varint(value):
    for size, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if value < 1 << 8 * size - 2:
            return (value | mark << 8 * size - 2).to_bytes(size, "big")
    raise ValueError(value)


def take_varint(data, at):
    size = 1 << (data[at] >> 6)
    return int.from_bytes(data[at:at + size], "big") & (1 << 8 * size - 2) - 1, at + size


def leb(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def take_leb(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def counted(data):
    return leb(len(data)) + data


def complaint(code, reason=b"", hint=b"", number=0, misbehaviour=0):
    """Why an end gives up: `code` is an exit code, `number` is the number of an error's code."""
    return leb(code) + leb(number) + leb(misbehaviour) + counted(reason) + counted(hint)


def zigzag(value):
    return value << 1 if value >= 0 else (-value << 1) - 1


def frame(kind, body=b""):
    return bytes([kind]) + varint(len(body)) + body


# ---- hello -----------------------------------------------------------------------------------------------------------

def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        try:
            piece = stream.recv(min(1 << 16, count - len(data)))
        except ConnectionError:
            raise Closed("the stream was cut") from None
        if not piece:
            raise Closed("the stream ended")
        data += piece
    return data


def read_hello(stream):
    return json.loads(read_exactly(stream, int.from_bytes(read_exactly(stream, 4), "big")))


def write_hello(stream, value):
    body = json.dumps(value).encode()
    stream.sendall(len(body).to_bytes(4, "big") + body)


def greeting(kind, protocols=(1, 1), version="0.0.0-peer", **fields):
    return {"magic": "farhaul", "kind": kind, "protocols": protocols, "version": version, **fields}


# The features that this peer names in its hello; docs/reference/wire.md lists them.
FEATURES = ["cipher-none", "auto-paths", "further-paths", "delta", "readback", "sync", "checksum", "detect-renames",
            "manifest", "follow-growth", "announce", "spread", "xattrs", "acls", "receipt", "more-paths",
            "new-directories", "within", "guard", "hard-links", "earlier", "backup", "owners"]
# The options that belong to the session; all others belong to the copy.
NETWORK = ["cipher", "policy", "rate_bps", "rate_min_bps", "flows", "paths", "auto_paths", "further_paths", "mtu",
           "memory_bytes", "udp_only", "udp_ports"]


def request(direction, *paths, target_is_directory=False, within=None, **options):
    """The part of a client's hello that asks for a copy; `within` are directories that it does not leave."""
    network = {"cipher": "chacha20-poly1305", **{name: options.pop(name) for name in NETWORK if name in options}}
    asked = {"direction": direction, "paths": [base64.b64encode(os.fsencode(path)).decode() for path in paths],
             "target_is_directory": target_is_directory, "options": options}
    if within is not None:
        asked["within"] = [base64.b64encode(os.fsencode(path)).decode() for path in within]
    return opening("copy", json.dumps(asked).encode(), network)


def opening(service, words, network):
    """The part of a hello that names the service and carries the first request to it."""
    return {"service": service, "request": base64.b64encode(words).decode(), "network": network}


def asked(hello):
    """What the client of a copy asks for in its hello."""
    assert hello["service"] == "copy", hello
    return json.loads(base64.b64decode(hello["request"]))


def ssh_secret(client, server):
    halves = base64.b64decode(client["secret_half"]) + base64.b64decode(server["secret_half"])
    return seal.hkdf_expand(seal.hkdf_extract(b"farhaul ssh session", halves), b"master", 32)


def half():
    return base64.b64encode(os.urandom(32)).decode()


def answer(stream, **changes):
    """The far end's part over ssh: reads the hello, agrees to a session without UDP, and returns the hello
    and the session. `changes` to other fields than the features and versions make a reply that no client may
    accept."""
    hello = read_hello(stream)
    ids = [1000 + n for n in range(len(hello["flow_ids"]))]
    reply = greeting("reply", features=FEATURES, refusal=None, flow_ids=ids, udp_ports=[], secret_half=half())
    reply.update(changes)
    write_hello(stream, reply)
    if changes and not changes.keys() <= {"features", "protocols", "later"}:
        read_exactly(stream, 1)
        raise AssertionError("the client went on after a reply that it should refuse")
    return hello, Peer(stream, ssh_secret(hello, reply), 1, send_id=hello["flow_ids"][0], recv_id=ids[0])


def ask(stream, wish, **changes):
    """The client's part over ssh: returns the reply and the session, which is None if the reply is a
    refusal."""
    hello = greeting("hello", features=FEATURES, **wish, flow_ids=[77], udp=False, secret_half=half())
    hello.update(changes)
    write_hello(stream, hello)
    reply = read_hello(stream)
    if reply.get("refusal"):
        return reply, None
    return reply, Peer(stream, ssh_secret(hello, reply), 0, send_id=reply["flow_ids"][0], recv_id=77)


def ask_daemon(stream, wish, **changes):
    """As `ask`, over TLS: `stream` begins with the secret that TLS exports."""
    secret = read_exactly(stream, 32)
    hello = greeting("hello", features=FEATURES, **wish, flow_ids=[77], udp=False)
    hello.update(changes)
    try:
        write_hello(stream, hello)
    except (BrokenPipeError, ConnectionResetError):
        raise Closed("the stream was cut") from None
    reply = read_hello(stream)
    if reply.get("refusal"):
        return reply, None
    return reply, Peer(stream, secret, 0, send_id=reply["flow_ids"][0], recv_id=77)


def attach(stream, ticket, index):
    """Asks to be a further carrier of a daemon's session, under this flow index; returns the reply."""
    read_exactly(stream, 32)
    write_hello(stream, greeting("attach", ticket=ticket, flow_id=78, flow_index=index))
    return read_hello(stream)


# ---- packets ---------------------------------------------------------------------------------------------------------

class Keys:
    """The keys of one direction of a flow. An epoch has 2^22 packets, so no test reaches its end."""

    def __init__(self, secret, direction, index=0, key_len=32):
        self.index = index
        flow = seal.hkdf_expand(secret, b"farhaul flow\0" + struct.pack(">HB", index, direction), 32)
        self.key = seal.hkdf_expand(flow, b"farhaul key\0" + bytes(8), key_len)
        self.iv = seal.hkdf_expand(flow, b"farhaul iv\0" + bytes(8), 12)

    def nonce(self, number):
        mixed = struct.pack(">Q", 5 << 56 | self.index << 40 | number)
        return self.iv[:4] + bytes(a ^ b for a, b in zip(self.iv[4:], mixed))


@dataclasses.dataclass
class Piece:
    """A piece as a block describes it; any field may be untrue."""

    file: int
    chunk: int
    data: bytes
    digest: bytes | None = None
    length: int | None = None

    def record(self):
        digest = self.digest if self.digest is not None else seal.blake3(self.data)
        return leb(self.file) + leb(self.chunk) + leb(len(self.data) if self.length is None else self.length) + digest


def pieces_of(block):
    """The pieces of a block, its request's number included, their digests checked: (file, chunk, data)."""
    block = block[:-8]
    start = len(block) - 4 - struct.unpack("<I", block[-4:])[0]
    content, at, found = 0, start, []
    while at < len(block) - 4:
        file, at = take_leb(block, at)
        chunk, at = take_leb(block, at)
        length, at = take_leb(block, at)
        data, digest, at = block[content:content + length], block[at:at + 32], at + 32
        assert digest in (seal.blake3(data), seal.chaining_value(data)), "the digest is right"
        content += length
        found.append((file, chunk, data))
    assert content == start, "the pieces fill the content"
    return found


class Peer:
    """One end of a running session. Methods that wait answer pings and acknowledge meanwhile."""

    def __init__(self, stream, secret, direction, send_id, recv_id, index=0, key_len=32):
        self.stream = stream
        self.end = time.monotonic() + SESSION_SECONDS
        self.sealing, self.opening = Keys(secret, direction, index, key_len), Keys(secret, 1 - direction, index, key_len)
        self.send_id, self.recv_id = send_id, recv_id
        self.number = 0
        self.arrived = set()
        self.answer_due = False
        self.offset = self.read_offset = 0
        self.last_path = b""
        self.entries = 0
        self.blocks = self.credit = 0
        self.granted = 0
        self.incoming = bytearray()
        self.heard = bytearray()
        #: The bytes that have come for requests after the first one, by the request's number.
        self.further = {}
        #: The messages of the other end, (code, body), oldest first. `closed_with` is the content of its
        #: close frame.
        self.messages = []
        self.seen = 0
        self.closed_with = None
        #: The segments of blocks that have not arrived completely; `complete` has the blocks that have.
        self.parts = {}
        self.complete = []

    # -- sending

    def datagram(self, plain):
        """Seals and sends one packet."""
        header = struct.pack(">Q", 5 << 56 | self.send_id << 40 | self.number)
        sealed = seal.seal(self.sealing.key, self.sealing.nonce(self.number), header, plain)
        self.number += 1
        self.raw(struct.pack(">H", len(header) + len(sealed)) + header + sealed)

    def raw(self, data):
        """Sends bytes on the carrier as they are."""
        try:
            self.stream.sendall(data)
        except OSError:
            raise Closed("the stream was cut") from None

    def control(self, data):
        """Sends bytes on the control stream."""
        for at in range(0, len(data), 16384):
            piece = data[at:at + 16384]
            self.datagram(frame(STREAM, varint(self.offset) + piece))
            self.offset += len(piece)

    def message(self, code, body=b"", request=FIRST):
        framed = counted(bytes([code]) + body)
        if code in OWN:
            self.control(leb(0) + framed)
        else:
            self.words(framed, request)

    def words(self, data, request=FIRST):
        """Sends bytes of a request's messages. They may end in the middle of a message."""
        self.control(leb(request) + counted(data))

    def numbers(self, code, *values):
        self.message(code, b"".join(map(leb, values)))

    def entry(self, path, kind=PLAIN_FILE, size=0, target=None, mode=0o644, mtime=1_700_000_000, identity=None):
        """Announces an entry under the next id; returns the id."""
        path = os.fsencode(path)
        shared = len(os.path.commonprefix([path, self.last_path]))
        self.last_path = path
        identity = self.entries if identity is None else identity
        body = leb(identity) + leb(shared) + counted(path[shared:]) + leb(mode) + leb(zigzag(mtime)) + leb(0)
        body += bytes([kind])
        if kind == SYMLINK:
            body += counted(os.fsencode(target))
        elif kind == HARD_LINK:
            body += leb(target)
        elif kind not in (DIRECTORY, PIPE):
            body += leb(size) + leb(4711) + leb(1)
            if size > CHUNK:
                body += leb(zigzag(mtime)) + leb(0)
        self.message(ENTRY, body)
        self.entries += 1
        return identity

    def directory(self, path, mode=0o755):
        return self.entry(path, DIRECTORY, mode=mode)

    def end_directory(self, identity):
        self.numbers(DIRECTORY_END, identity)

    def file(self, path, data, kind=PLAIN_FILE, mode=0o644):
        """A file of at most one chunk, with its content."""
        identity = self.entry(path, kind, size=len(data), mode=mode)
        if data:
            self.block(Piece(identity, 0, data))
        return identity

    def block(self, *pieces, trailer=None):
        """Sends a block when the other end has decided about its files and has granted one more block."""
        for identity in {piece.file for piece in pieces if piece.file < self.entries}:
            self.wait(lambda: self.is_answered(identity))
        records = b"".join(piece.record() for piece in pieces)
        records = trailer if trailer is not None else records + struct.pack("<I", len(records))
        self.whole_block(b"".join(piece.data for piece in pieces) + records)

    def whole_block(self, data, request=FIRST):
        self.wait(lambda: self.credit > self.blocks)
        data += request.to_bytes(8, "little")
        for at in range(0, len(data), 32768):
            piece = data[at:at + 32768]
            self.segment(self.blocks, at, piece, at + len(piece) == len(data))
        self.blocks += 1

    def segment(self, block, offset, payload, last):
        kind = SEGMENT_LAST if last else SEGMENT
        self.datagram(bytes([kind]) + block.to_bytes(5, "big") + struct.pack(">I", offset) + payload)

    def give_up(self, *ranges):
        """Says that nothing more of these blocks is sent; each range is (first block, number of blocks),
        ascending."""
        body, end = b"", 0
        for first, count in ranges:
            body += varint(first - end) + varint(count)
            end = first + count
        self.datagram(frame(GIVEN_UP, body))

    def feedback(self, credit=None, newest=None, map_start=0, words=None):
        """Acknowledges all that has arrived."""
        newest = max(self.arrived, default=0) if newest is None else newest
        if words is None:
            words = [0] * (newest // 64 + 1)
            for number in self.arrived:
                words[number // 64] |= 1 << number % 64
        told = [newest, int(time.monotonic() * 1e6), 0, 0, 0, self.granted if credit is None else credit,
                self.read_offset + (8 << 20), map_start]
        bits = varint(0) + varint(len(words)) + b"".join(struct.pack("<Q", word) for word in words)
        self.datagram(frame(FEEDBACK, b"".join(map(varint, told)) + bits))

    def finish(self, request=FIRST):
        self.message(FINISH, leb(request) + bytes(13) + leb(0) + leb(0))

    # -- receiving

    def wait(self, condition):
        """Takes packets until the condition holds; returns its value."""
        while not (value := condition()):
            self.take_packet()
        return value

    def is_answered(self, identity):
        """Whether the receiver has decided about an entry."""
        return any(code in (DECIDE, DONE, FAILED) and take_leb(body, 0)[0] == identity for code, body in self.messages)

    def next(self, *codes):
        """The next message with one of these codes. Messages before it are skipped, and not looked at
        again."""
        def found():
            while self.seen < len(self.messages):
                self.seen += 1
                if self.messages[self.seen - 1][0] in codes:
                    return self.messages[self.seen - 1]
            return None
        return self.wait(found)

    def take_packet(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the session lasts too long; so far {self.messages}")
        self.stream.settimeout(left)
        length = int.from_bytes(read_exactly(self.stream, 2), "big")
        data = read_exactly(self.stream, length)
        header = int.from_bytes(data[:8], "big")
        number = header & (1 << 40) - 1
        assert header >> 56 == 5 and header >> 40 & 0xFFFF == self.recv_id, "a packet of this flow"
        plain = seal.open_sealed(self.opening.key, self.opening.nonce(number), data[:8], data[8:])
        assert plain is not None, "its tag is right"
        assert number not in self.arrived, "no number is used twice"
        self.arrived.add(number)
        self.take_frames(plain)
        if self.answer_due:
            self.answer_due = False
            self.feedback()

    def take_frames(self, plain):
        at = 0
        while at < len(plain) and plain[at] != PADDING:
            kind = plain[at]
            if kind in (SEGMENT, SEGMENT_LAST):
                self.answer_due = True
                self.take_segment(kind == SEGMENT_LAST, plain[at + 1:])
                return
            length, start = take_varint(plain, at + 1)
            body, at = plain[start:start + length], start + length
            if kind in (PING, REPORT, STREAM):
                self.answer_due = True
            if kind == STREAM:
                self.take_control(body)
            elif kind == CHALLENGE:
                self.datagram(frame(ANSWER, body))
            elif kind == FEEDBACK:
                numbers, place = [], 0
                for _ in range(8):
                    value, place = take_varint(body, place)
                    numbers.append(value)
                self.credit = max(self.credit, numbers[5])
            elif kind == CLOSE:
                self.closed_with = body[2:].decode()
                raise Closed(self.closed_with)

    def take_control(self, body):
        offset, at = take_varint(body, 0)
        assert offset == self.read_offset, "an ordered carrier brings the stream in order"
        self.read_offset += len(body) - at
        self.incoming += body[at:]
        while self.incoming:
            try:
                request, start = take_leb(self.incoming, 0)
                length, start = take_leb(self.incoming, start)
            except IndexError:
                return
            if len(self.incoming) < start + length:
                return
            piece = self.incoming[start:start + length]
            del self.incoming[:start + length]
            if request == 0:
                self.messages.append([piece[0], bytes(piece[1:])])
            elif request in self.further:
                self.further[request] += piece
            else:
                assert request == FIRST, "no other request was begun"
                self.heard += piece
                self.take_words()

    def take_words(self):
        """Takes the messages of the request apart; each stands behind its length."""
        while self.heard:
            try:
                length, start = take_leb(self.heard, 0)
            except IndexError:
                return
            if len(self.heard) < start + length:
                return
            self.messages.append([self.heard[start], bytes(self.heard[start + 1:start + length])])
            del self.heard[:start + length]

    def take_segment(self, last, body):
        block, offset = int.from_bytes(body[:5], "big"), int.from_bytes(body[5:9], "big")
        parts = self.parts.setdefault(block, {"length": None})
        parts[offset] = body[9:]
        if last:
            parts["length"] = offset + len(body) - 9
        have = sum(len(part) for at, part in parts.items() if at != "length")
        if have == parts["length"]:
            del self.parts[block]["length"]
            self.complete.append(b"".join(parts[at] for at in sorted(parts)))

    def pieces(self):
        """The pieces of the next complete block, their digests checked: (file, chunk, data)."""
        self.wait(lambda: self.complete)
        block = self.complete.pop(0)
        assert int.from_bytes(block[-8:], "little") == FIRST, "the block names its request"
        return pieces_of(block)

    def entry_of(self, body):
        """(id, path, kind, size or target) of an entry message. Entries must be passed in their order."""
        identity, at = take_leb(body, 0)
        shared, at = take_leb(body, at)
        length, at = take_leb(body, at)
        self.last_path = self.last_path[:shared] + body[at:at + length]
        at += length
        for _ in range(3):
            _, at = take_leb(body, at)
        kind, at = body[at], at + 1
        if kind in (DIRECTORY, PIPE):
            return identity, self.last_path, kind, None
        value, at = take_leb(body, at)
        return identity, self.last_path, kind, body[at:at + value] if kind == SYMLINK else value

    def drain(self):
        """Goes on until the other end has gone, and answers its finish. Returns the content of its close
        frame."""
        answered = False
        try:
            while True:
                self.take_packet()
                if not answered and any(code == FINISH for code, _ in self.messages):
                    answered = True
                    self.finish()
        except (Closed, socket.timeout):
            return self.closed_with
