"""An authenticated peer that lies: what it can create, and how the other end ends the session.

The peer is harness/peer.py; the real binary is at the other end. In each case only what was asked for is made
or changed, the exit code is the documented one, one line says why, and nothing panics.
"""

import contextlib
import os
import select
import stat
import struct

import pytest

from harness import peer
from harness.peer import CHUNK, Piece
from harness.hosts import wait_until
from harness.play import daemon_session, endpoint, with_far_end
from harness.product import EXIT_FILES, EXIT_LOST, EXIT_OK, EXIT_PROTOCOL, EXIT_SOME_FAILED
from harness.trees import leftovers, make_file


class Guarded:
    """A folder with a destination in it. Everything else in it must stay as it is."""

    def __init__(self, base):
        self.base = base
        self.inside = base / "inside"
        self.outside = base / "outside"
        self.base.mkdir(exist_ok=True)
        self.inside.mkdir()
        self.outside.mkdir()
        (self.outside / "kept").write_text("kept")
        (base / "secret").write_text("secret")
        (self.inside / "other").write_text("other")
        self.before = self.look()

    def look(self):
        seen = {}
        for path in [self.base, *sorted(self.base.rglob("*"))]:
            if path == self.inside / "asked" or self.inside / "asked" in path.parents or path in leftovers(self.inside):
                continue
            meta = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            # The destination itself changes when the asked entry is made.
            changed = (0, 0) if path == self.inside else (meta.st_nlink, meta.st_mtime_ns)
            seen[str(path.relative_to(self.base))] = (stat.filemode(meta.st_mode), *changed, content)
        return seen

    def check(self):
        assert self.look() == self.before, "something was made or changed that was not asked for"


@pytest.fixture
def guarded(net):
    return Guarded(net.folder("guarded"))


def pull(net, guarded, script, source="/data/asked"):
    """Pulls `asked` from a far end that `script` plays."""
    def play(_hello, session):
        script(session, guarded)

    outcome = with_far_end(net, play, f"beta:{source}", f"{guarded.inside}/")
    guarded.check()
    assert "panicked" not in outcome.stderr, outcome
    assert len([line for line in outcome.stderr.splitlines() if line.startswith("error")]) <= 1, outcome
    return outcome


def assert_broken(outcome, *misbehaviours):
    """The far end broke the protocol, by one of these misbehaviours of docs/reference/errors.md."""
    assert outcome.code == EXIT_PROTOCOL, outcome
    assert "broke the protocol" in outcome.error_line, outcome
    detail = outcome.report["error_detail"]
    assert (detail["code"], detail["blame"], detail["exit_code"]) == ("FH-MISBEHAVED", "peer", EXIT_PROTOCOL), outcome
    assert detail["misbehaviour"] in misbehaviours, outcome


# ---- names -----------------------------------------------------------------------------------------------------------

NAMES = {
    "parent": "../evil",
    "parent alone": "..",
    "itself": ".",
    "nothing": "",
    "absolute": "/BASE/evil",
    "another": "evil",
    "prefix of the asked": "aske",
    "longer than the asked": "asked2",
    "other case": "ASKED",
    "dotted": ".ssh/authorized_keys",
    "overwrites another": "other",
    "out and down": "asked/../../evil",
    "to its side": "asked/../evil",
    "double slash": "asked//evil",
    "dot inside": "asked/./evil",
    "slash at the end": "asked/evil/",
    "a zero byte": "asked/evil\0.txt",
    "zero byte at the top": "asked\0",
    "too long": "asked/" + "x" * 256,
    "far too long": "asked" + "/x" * 2100,
}


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
@pytest.mark.parametrize("name", NAMES)
def test_names(net, guarded, name, kind):
    def script(session, guarded):
        path = NAMES[name].replace("/BASE", str(guarded.base))
        if path.startswith("asked/"):
            session.directory("asked")
        if kind == "file":
            session.file(path, b"evil")
        elif kind == "directory":
            session.end_directory(session.directory(path))
        else:
            session.entry(path, peer.SYMLINK, target=guarded.outside)
        session.message(peer.ENTRIES_END)

    # A name that is far too long makes the whole message invalid. A directory with an empty name is the
    # destination.
    expected = {"far too long": "SenselessMessage"}.get(name, "PathNotPlain")
    assert_broken(pull(net, guarded, script), expected, "PathUnasked", "ContentUnasked")


@pytest.mark.parametrize("asked", ["asked", "a*d", "/data/asked", "~/asked"])
def test_only_asked_names_however_it_is_written(net, guarded, asked):
    """The entry that was asked for arrives; the next name does not."""
    def script(session, _guarded):
        session.file("asked", b"asked")
        session.next(peer.DONE)
        session.file("evil", b"evil")

    assert_broken(pull(net, guarded, script, source=asked), "PathUnasked")
    assert (guarded.inside / "asked").read_bytes() == b"asked"


# ---- what the entries are --------------------------------------------------------------------------------------------

def test_names_take_only_so_much_memory(net):
    """A name that differs from the one before it only at its end takes some twenty bytes on the wire, four
    thousand in memory."""
    def script(_hello, session):
        path = "asked"
        session.directory(path)
        for _ in range(15):
            path += "/" + "d" * 255
            session.directory(path)
        stem = path + "/" + "f" * 200
        first = session.entry(stem, size=1) + 1
        entries = bytearray()
        for identity in range(first, first + 100_000):
            body = peer.leb(identity) + peer.leb(len(stem)) + peer.counted(b"%05x" % identity) + bytes(3)
            entries += peer.counted(bytes([peer.ENTRY]) + body + bytes([peer.PLAIN_FILE, 1, 1, 1]))
        for at in range(0, len(entries), 16384):
            session.words(entries[at:at + 16384])
            while select.select([session.stream], [], [], 0)[0]:
                session.take_packet()
        session.next(peer.FAIL)

    outcome = with_far_end(net, script, "beta:/data/asked", "null:")
    assert_broken(outcome, "NamesTooLong")
    assert "take more room" in outcome.error_line, outcome


def through_a_link(session, guarded):
    session.entry("asked", peer.SYMLINK, target=guarded.outside)
    session.next(peer.DONE)
    session.file("asked/evil", b"evil")


def through_a_link_below(session, guarded):
    session.directory("asked")
    session.entry("asked/link", peer.SYMLINK, target=guarded.outside)
    session.file("asked/link/evil", b"evil")


def below_nothing(session, _guarded):
    session.file("asked/evil", b"evil")


def below_a_directory_that_ended(session, _guarded):
    session.end_directory(session.directory("asked"))
    session.file("asked/evil", b"evil")


def hard_link_to(target):
    def script(session, guarded):
        session.directory("asked")
        session.entry("asked/link", peer.SYMLINK, target=guarded.base / "secret")
        session.entry("asked/evil", peer.HARD_LINK, target=target)
    return script


def numbered(*identities):
    def script(session, _guarded):
        for identity in identities:
            session.entry("asked", identity=identity)
    return script


def entry_with_kind(kind):
    def script(session, _guarded):
        session.entry("asked", kind)
    return script


def entry_with_body(*values):
    """An entry whose fields are these numbers, in order. Bytes are sent as they are."""
    def script(session, _guarded):
        session.message(peer.ENTRY, b"".join(v if isinstance(v, bytes) else peer.leb(v) for v in values))
    return script


def announced_again(identity):
    def script(session, _guarded):
        session.entry("asked", size=4)
        entry = peer.leb(identity) + b"\0\0" + bytes(3) + bytes([peer.PLAIN_FILE]) + b"\2\1\1"
        session.message(peer.RENEWED, b"\0" + bytes([peer.ENTRY]) + entry)
    return script


NAME = peer.counted(b"asked")
BROKEN_ENTRIES = {
    "through a link": ("EntryOutsideListing", through_a_link),
    "through a link below": ("EntryOutsideListing", through_a_link_below),
    "below nothing": ("EntryOutsideListing", below_nothing),
    "below a directory that ended": ("EntryOutsideListing", below_a_directory_that_ended),
    "hard link to a directory": ("LinkToNothing", hard_link_to(0)),
    "hard link to a symbolic link": ("LinkToNothing", hard_link_to(1)),
    "hard link to itself": ("LinkToNothing", hard_link_to(2)),
    "hard link to what comes later": ("LinkToNothing", hard_link_to(3)),
    "hard link to the last number": ("LinkToNothing", hard_link_to(2**64 - 1)),
    "starts at one": ("EntryOutOfOrder", numbered(1)),
    "the same number twice": ("EntryOutOfOrder", numbered(0, 0)),
    "the same name twice": ("NameTwice", lambda session, _: [session.entry("asked", size=0), session.entry("asked", size=0)]),
    "a number left out": ("EntryOutOfOrder", numbered(0, 2)),
    "the last number": ("EntryOutOfOrder", numbered(2**64 - 1)),
    "block device": ("SenselessMessage", entry_with_kind(0x60)),
    "character device": ("SenselessMessage", entry_with_kind(0x20)),
    "fifo": ("SenselessMessage", entry_with_kind(0x10)),
    "unknown kind": ("SenselessMessage", entry_with_kind(12)),
    "unknown node": ("SenselessMessage", entry_with_body(0, 0, NAME, 0o644, 0, 0, 11, 4, 0, 0)),
    "file and stream": ("SenselessMessage", entry_with_kind(3)),
    "nanoseconds": ("SenselessMessage", entry_with_body(0, 0, NAME, 0o644, 0, 10**9, 8)),
    "mode too large": ("SenselessMessage", entry_with_body(0, 0, NAME, 2**32, 0, 0, 8)),
    "shares what was not": ("SenselessMessage", entry_with_body(0, 9, NAME, 0o644, 0, 0, 8)),
    "name beyond the message": ("SenselessMessage", entry_with_body(0, 0, 5000, b"asked")),
    "cut": ("SenselessMessage", entry_with_body(0, 0, NAME)),
    "something behind": ("SenselessMessage", entry_with_body(0, 0, NAME, 0o644, 0, 0, 8, 8)),
    "announced again under another number": ("AnnouncedAsOther", announced_again(5)),
    "after the end": ("EntryOutOfOrder", lambda session, _: (session.message(peer.ENTRIES_END), session.entry("asked"))),
    "ends what was not begun": ("DirectoryEndOutOfOrder", lambda session, _: session.end_directory(0)),
    "ends twice": ("DirectoryEndOutOfOrder", lambda session, _: [session.end_directory(i) for i in (session.directory("asked"), 0)]),
}


@pytest.mark.parametrize("case", BROKEN_ENTRIES)
def test_broken_entries(net, guarded, case):
    misbehaviour, script = BROKEN_ENTRIES[case]
    assert_broken(pull(net, guarded, script), misbehaviour)


def link_then_directory(session, guarded):
    """A symbolic link, then a directory of the same name with something in it."""
    session.directory("asked")
    session.entry("asked/link", peer.SYMLINK, target=guarded.outside)
    session.next(peer.DONE)
    inner = session.directory("asked/link", mode=0o777)
    session.entry("asked/link/evil")
    session.entry("asked/link/kept", size=4)
    session.entry("asked/link/far", peer.SYMLINK, target="/")
    session.entry("asked/link/large", size=CHUNK + 1)
    session.end_directory(inner)
    session.end_directory(0)
    session.message(peer.ENTRIES_END)


def link_then_file(session, guarded):
    """A symbolic link, then files of the same name: they replace it, and nothing is written through it."""
    session.directory("asked")
    for name in ("asked/link", "asked/empty", "asked/large"):
        session.entry(name, peer.SYMLINK, target=guarded.outside / "kept")
        session.next(peer.DONE)
    session.file("asked/link", b"evil", mode=0o777)
    session.entry("asked/empty", mode=0o777)
    large = session.entry("asked/large", size=CHUNK + 1, mode=0o777)
    session.block(Piece(large, 0, bytes(CHUNK), digest=peer.seal.chaining_value(bytes(CHUNK))))
    session.block(Piece(large, 1, b"x", digest=peer.seal.chaining_value(b"x")))
    session.numbers(peer.FILE_END, large, CHUNK + 1, 2)
    session.end_directory(0)
    session.message(peer.ENTRIES_END)


def link_then_hard_link(session, guarded):
    """A hard link takes the place of a symbolic link."""
    session.directory("asked")
    session.file("asked/a", b"a", kind=peer.LINKED)
    session.entry("asked/link", peer.SYMLINK, target=guarded.outside / "kept")
    session.next(peer.DONE)
    session.entry("asked/link", peer.HARD_LINK, target=1)
    session.end_directory(0)
    session.message(peer.ENTRIES_END)


def twice(session, _guarded):
    session.directory("asked")
    for content in (b"first", b"second"):
        session.file("asked/file", content)
        session.next(peer.DONE)
    session.file("asked/directory", b"file")
    session.next(peer.DONE)
    inner = session.directory("asked/directory")
    session.entry("asked/directory/below")
    session.end_directory(inner)
    session.entry("asked/file", peer.SYMLINK, target="/etc")
    session.end_directory(0)
    session.message(peer.ENTRIES_END)


def test_a_directory_in_the_place_of_a_link_stays_empty(net, guarded):
    outcome = pull(net, guarded, link_then_directory)
    assert outcome.code == EXIT_SOME_FAILED and len(outcome.report["failed"]) >= 3, outcome
    assert (guarded.inside / "asked/link").is_symlink()


def test_files_replace_links_and_never_follow_them(net, guarded):
    outcome = pull(net, guarded, link_then_file)
    assert outcome.code == EXIT_OK, outcome
    assert (guarded.inside / "asked/link").read_bytes() == b"evil"
    assert (guarded.inside / "asked/large").stat().st_size == CHUNK + 1
    assert not any(path.is_symlink() for path in (guarded.inside / "asked").iterdir())


def test_hard_links_replace_links_and_never_follow_them(net, guarded):
    assert pull(net, guarded, link_then_hard_link).code == EXIT_OK
    assert (guarded.inside / "asked/link").samefile(guarded.inside / "asked/a")


def test_the_same_name_twice(net, guarded):
    outcome = pull(net, guarded, twice)
    assert outcome.code == EXIT_SOME_FAILED, outcome
    assert (guarded.inside / "asked/directory").read_bytes() == b"file"
    assert os.readlink(guarded.inside / "asked/file") == "/etc"


def test_a_link_that_was_there_is_not_followed(net, guarded):
    """The destination has a symbolic link of the asked name; the far end sends a directory."""
    (guarded.inside / "asked").symlink_to(guarded.outside)

    def script(session, _guarded):
        session.directory("asked", mode=0o777)
        session.entry("asked/evil")
        session.entry("asked/kept", size=4)
        session.end_directory(0)
        session.message(peer.ENTRIES_END)

    outcome = pull(net, guarded, script)
    assert outcome.code == EXIT_FILES and (guarded.inside / "asked").is_symlink(), outcome


def test_modes_make_no_devices_and_no_privileges(net, guarded):
    def script(session, _guarded):
        session.directory("asked", mode=0o047777)
        for name, mode in (("setuid", 0o104755), ("setgid", 0o2755), ("device", 0o020666), ("all", 0o37777777777)):
            session.file(f"asked/{name}", b"x", mode=mode)
            session.entry(f"asked/{name}-empty", mode=mode)
        session.end_directory(0)
        session.message(peer.ENTRIES_END)

    outcome = pull(net, guarded, script)
    assert outcome.code == EXIT_OK, outcome
    made = list((guarded.inside / "asked").iterdir())
    assert len(made) == 8
    for path in [guarded.inside / "asked", *made]:
        assert path.is_dir() or stat.S_ISREG(path.lstat().st_mode)
        assert not path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID), path


# ---- content ---------------------------------------------------------------------------------------------------------

def content(size, *pieces, kind=peer.PLAIN_FILE):
    """A file of an announced size, and pieces that say (chunk, data, length)."""
    def script(session, _guarded):
        identity = session.entry("asked", kind, size=size)
        session.message(peer.ENTRIES_END)
        for chunk, data, *length in pieces:
            session.block(Piece(identity, chunk, data, length=length[0] if length else None,
                                digest=peer.seal.chaining_value(data) if size > CHUNK else None))
    return script


def raw_block(data):
    def script(session, _guarded):
        session.entry("asked", size=4)
        session.whole_block(data)
    return script


def segment(*values):
    def script(session, _guarded):
        session.entry("asked", size=4)
        session.wait(lambda: session.credit)
        for block, offset, length, last in values:
            session.segment(block, offset, bytes(length), last)
    return script


BROKEN_CONTENT = {
    "more than announced": ("PieceBeyondFile", content(4, (0, b"longer"))),
    "less than announced": ("PieceBeyondFile", content(4, (0, b"sho"))),
    "nothing of something": ("PieceBeyondFile", content(4, (0, b""))),
    "a second chunk": ("PieceBeyondFile", content(4, (1, b"full"))),
    "the last chunk number": ("PieceBeyondFile", content(4, (2**64 - 1, b"full"))),
    "beyond a large file": ("PieceBeyondFile", content(CHUNK + 4, (2, b"evil"))),
    "far beyond a large file": ("PieceBeyondFile", content(CHUNK + 4, (2**44, b"evil"))),
    "longer than its chunk": ("PieceBeyondFile", content(CHUNK + 4, (1, b"longer"))),
    "a pipe's chunk beyond all files": ("PieceBeyondFile", content(0, (2**43, b"evil"), kind=peer.PIPE)),
    "length that is not there": ("SenselessTrailer", content(4, (0, b"full", 5))),
    "length of four GiB": ("SenselessTrailer", content(4, (0, b"full", 2**32))),
    "no trailer": ("SenselessTrailer", raw_block(b"abc")),
    "trailer longer than its block": ("SenselessTrailer", raw_block(b"full" + struct.pack("<I", 1000))),
    "trailer of four GiB": ("SenselessTrailer", raw_block(b"full" + struct.pack("<I", 2**32 - 1))),
    "trailer cut": ("SenselessTrailer", raw_block(b"full" + bytes([0, 0, 4]) + struct.pack("<I", 3))),
    "too many pieces": ("SenselessTrailer", raw_block((bytes([0, 0, 0]) + bytes(32)) * 1025 + struct.pack("<I", 35 * 1025))),
    "a block of more than the largest": ("BlockLength", segment((0, 2 << 20, 1, False))),
    "a segment beyond its block": ("SegmentBeyondBlock", segment((0, (2 << 20) - 1, 1, False))),
    "two ends of one block": ("BlockLength", segment((0, 10, 1, True), (0, 20, 1, True))),
    "beyond the end": ("BlockLength", segment((0, 10, 1, True), (0, 11, 1, False))),
}


@pytest.mark.parametrize("case", BROKEN_CONTENT)
def test_broken_content(net, guarded, case):
    misbehaviour, script = BROKEN_CONTENT[case]
    assert_broken(pull(net, guarded, script), misbehaviour)
    assert not (guarded.inside / "asked").exists()


@pytest.mark.parametrize("size", [4, CHUNK + 4])
def test_a_wrong_digest_is_never_written_and_ends(net, guarded, size):
    """The piece is asked for again, and the file fails when it is wrong each time."""
    asked = []

    def script(session, _guarded):
        chunk = (size - 1) // CHUNK
        identity = session.entry("asked", size=size)
        session.message(peer.ENTRIES_END)
        while True:
            session.block(Piece(identity, chunk, b"evil", digest=bytes(32)))
            code, body = session.next(peer.AGAIN, peer.FAILED)
            asked.append(code)
            if code == peer.FAILED:
                return

    outcome = pull(net, guarded, script)
    assert outcome.code == EXIT_FILES and "digest" in outcome.error_line, outcome
    assert 1 < len(asked) < 20
    assert not (guarded.inside / "asked").exists()


def test_the_same_as_nothing(net, guarded):
    """The sender says that a chunk is the same, but the receiver never said that it has anything of it."""
    def script(session, _guarded):
        session.entry("asked", size=5 * CHUNK)
        session.wait(lambda: session.is_answered(0))
        session.numbers(peer.SAME, 0, 1)

    assert_broken(pull(net, guarded, script), "SameAsNothing")


def test_a_patch_that_makes_no_sense(net, guarded):
    make_file(guarded.inside / "asked", 5 * CHUNK)

    def script(_hello, session):
        session.entry("asked", size=5 * CHUNK)
        session.wait(lambda: any(code == peer.MARKS for code, _ in session.messages))
        session.block(Piece(0, 0, b"\xff" * 8, digest=bytes(32), length=8 | peer.PATCH))

    assert_broken(with_far_end(net, script, "--no-whole-file", "beta:/data/asked", f"{guarded.inside}/"), "SenselessPatch")
    guarded.check()


def test_blocks_that_were_not_granted_are_dropped(net, guarded):
    def script(session, _guarded):
        session.wait(lambda: session.credit)
        session.segment(session.credit, 0, b"evil", True)
        session.segment((1 << 40) - 1, 0, b"evil", True)
        session.file("asked", b"asked")
        session.message(peer.ENTRIES_END)

    assert pull(net, guarded, script).code == EXIT_OK
    assert (guarded.inside / "asked").read_bytes() == b"asked"


def test_blocks_are_given_up(net, guarded):
    """Blocks are given up after a half, before their first segment, twice, and before late segments. The
    content comes in a block with the next number."""
    def script(session, _guarded):
        session.wait(lambda: session.credit > 3)
        session.segment(0, 0, b"evil", False)
        session.give_up((0, 1), (2, 1))
        session.give_up((0, 3))
        session.segment(0, 4, b"evil", True)
        session.segment(2, 0, b"evil", True)
        session.blocks = 3
        session.file("asked", b"asked")
        session.message(peer.ENTRIES_END)

    assert pull(net, guarded, script).code == EXIT_OK
    assert (guarded.inside / "asked").read_bytes() == b"asked"


def test_pieces_of_files_that_nobody_announced_are_dropped(net, guarded):
    def script(session, _guarded):
        session.file("asked", b"asked")
        session.block(Piece(1, 0, b"evil"), Piece(2**63, 2**63, b"evil"))
        session.message(peer.ENTRIES_END)

    assert pull(net, guarded, script).code == EXIT_OK


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_sizes_that_no_file_has(net, guarded, size, sparse):
    def script(session, _guarded):
        identity = session.entry("asked", peer.SPARSE if sparse else peer.PLAIN_FILE, size=size)
        session.message(peer.ENTRIES_END)
        if session.next(peer.DECIDE, peer.FAILED)[0] == peer.DECIDE:
            session.numbers(peer.FILE_END, identity, size, 0)

    outcome = pull(net, guarded, script)
    assert outcome.code in (EXIT_OK, EXIT_FILES) and (outcome.code == EXIT_OK or outcome.error_line), outcome


@pytest.mark.parametrize("chunks", [0, 1, 2**64 - 1])
def test_an_end_without_the_content(net, guarded, chunks):
    """The sender says that a file is complete, and ends."""
    def script(session, _guarded):
        identity = session.entry("asked", size=CHUNK + 4)
        session.message(peer.ENTRIES_END)
        session.next(peer.DECIDE)
        session.numbers(peer.FILE_END, identity, CHUNK + 4, chunks)
        if chunks == 0:
            session.next(peer.FAILED)
        else:
            session.datagram(peer.frame(peer.CLOSE, struct.pack(">H", 0) + b"gone \x1b[2J"))

    outcome = pull(net, guarded, script)
    assert outcome.code == (EXIT_FILES if chunks == 0 else EXIT_LOST) and outcome.error_line, outcome
    assert "\x1b" not in outcome.stderr
    assert not (guarded.inside / "asked").exists()


# ---- messages and frames ---------------------------------------------------------------------------------------------

def message(code, body=b""):
    return lambda session, _guarded: session.message(code, body)


def control(data):
    return lambda session, _guarded: session.control(data)


def words(data, request=peer.FIRST):
    return lambda session, _guarded: session.words(data, request)


def datagram(data):
    return lambda session, _guarded: session.datagram(data)


def give_up_for_ever(session, _guarded):
    session.wait(lambda: session.credit)
    again = peer.frame(peer.GIVEN_UP, peer.varint(0) + peer.varint(session.credit))
    for _ in range(10):
        session.datagram(again * 10000)


BROKEN_MESSAGES = {
    "no such message": ("SenselessMessage", message(99)),
    "no code": ("SenselessMessage", control(b"\0\0")),
    "message of a megabyte": ("SenselessMessage", control(b"\0" + peer.leb(1 << 20))),
    "message of 2^64 bytes": ("SenselessMessage", control(b"\0" + b"\xff" * 9 + b"\x01")),
    "words without a code": ("SenselessMessage", words(b"\0")),
    "words of a megabyte": ("SenselessMessage", words(peer.leb(1 << 20))),
    "words of a request that nobody began": ("UnknownRequest", words(b"\1\1", request=3)),
    "a request where there is to be one": ("SecondRequest", message(peer.OPEN, peer.leb(2) + b"{}")),
    "a request out of turn": ("SecondRequest", message(peer.OPEN, peer.leb(3) + b"{}")),
    "the end of a request that nobody began": ("UnknownRequest", message(peer.FINISH, peer.leb(4) + bytes(15))),
    "the failure of no request": ("SenselessMessage", message(peer.FAIL, b"\0" + peer.complaint(7))),
    "number without end": ("SenselessMessage", control(b"\xff" * 11)),
    "decide": ("UnexpectedMessage", message(peer.DECIDE, bytes([0, 0]))),
    "done": ("UnexpectedMessage", message(peer.DONE, b"\0")),
    "again": ("UnexpectedMessage", message(peer.AGAIN, b"\0\0")),
    "compared": ("NotCompared", message(peer.COMPARED, b"\0\1")),
    "directories done": ("UnexpectedMessage", message(peer.DIRECTORIES_DONE, b"\0")),
    "finish too early": ("UnexpectedMessage", lambda session, _guarded: session.finish()),
    "flow 65536": ("SenselessMessage", message(peer.FLOW_DOWN, peer.leb(65536))),
    "unknown frame": ("UnknownFrame", datagram(peer.frame(0x70, b"x"))),
    "frame beyond the packet": ("MalformedFrame", datagram(bytes([peer.STREAM, 50, 0]))),
    "stream beyond the window": ("ControlWindow", datagram(peer.frame(peer.STREAM, peer.varint(1 << 24) + b"x"))),
    "stream at the end of numbers": ("ControlWindow", datagram(peer.frame(peer.STREAM, peer.varint((1 << 62) - 1) + b"x"))),
    "feedback cut": ("MalformedFrame", datagram(peer.frame(peer.FEEDBACK, b"\1\2"))),
    "acknowledges what was not sent": ("AckOfUnsent", lambda session, _: session.feedback(newest=5000, words=[2**64 - 1] * 80)),
    "credit for all packets and more": ("Credit", lambda session, _: session.feedback(credit=(1 << 40) + 1)),
    "gives up blocks that were not granted": ("GivenUp", lambda session, _: session.give_up((1 << 39, 1))),
    "gives up all blocks": ("GivenUp", lambda session, _: session.give_up((0, 1 << 40))),
    "gives up no blocks": ("MalformedFrame", lambda session, _: session.give_up((0, 0))),
    "gives up half a range": ("MalformedFrame", datagram(peer.frame(peer.GIVEN_UP, b"\1"))),
    "gives up the same for ever": ("GivenUp", give_up_for_ever),
    "carrier frame of no bytes": ("DamagedCarrier", lambda session, _guarded: session.raw(b"\0\0")),
    "carrier frame too long": ("DamagedCarrier", lambda session, _guarded: session.raw(b"\xff\xff" + bytes(65535))),
}


@pytest.mark.parametrize("case", BROKEN_MESSAGES)
def test_broken_messages(net, guarded, case):
    misbehaviour, say = BROKEN_MESSAGES[case]

    def script(session, guarded):
        session.wait(lambda: session.messages)
        say(session, guarded)

    assert_broken(pull(net, guarded, script), misbehaviour)


def test_optional_frames_and_foreign_packets_are_passed_over(net, guarded):
    def script(session, _guarded):
        session.wait(lambda: session.messages)
        session.datagram(peer.frame(0xF0, b"from a later version"))
        session.raw(struct.pack(">H", 40) + bytes(40))
        session.raw(struct.pack(">H", 40) + b"\5" + struct.pack(">H", session.send_id) + bytes(37))
        session.datagram(peer.frame(peer.PING) + bytes(100))
        session.file("asked", b"asked")
        session.message(peer.ENTRIES_END)

    assert pull(net, guarded, script).code == EXIT_OK


@pytest.mark.parametrize("last", ["abort", "fail"])
def test_its_words_do_not_reach_the_terminal_as_they_are(net, guarded, last):
    evil = b"\x1b[2J\x1b]0;evil\x07\r\nerror: all done"

    def script(session, _guarded):
        session.message(peer.SOURCE_FAILED, peer.counted(b"asked/" + evil) + peer.leb(9999) + peer.counted(evil))
        session.entry("asked", size=4)
        session.next(peer.DECIDE)
        session.message(peer.FILE_FAILED, b"\0" + peer.leb(4005) + peer.counted(evil))
        session.next(peer.FAILED)
        if last == "abort":
            session.message(peer.ABORT, peer.complaint(7, evil, evil))
        else:
            session.message(peer.FAIL, b"\1" + peer.complaint(7, evil, evil))

    outcome = pull(net, guarded, script)
    assert outcome.code == EXIT_LOST, outcome
    assert not set(outcome.stderr) & {"\x1b", "\x07", "\r"}, outcome


REPLIES = {
    "flows that were not asked for": ("MalformedHello", {"flow_ids": [1, 2, 3]}),
    "no flows": ("MalformedHello", {"flow_ids": []}),
    "ports for no flow": ("MalformedHello", {"udp_ports": [1, 2, 3]}),
    "no secret": ("NoSecretHalf", {"secret_half": None}),
    "a short secret": ("MalformedHello", {"secret_half": "AAAA"}),
    "not a reply": ("MalformedHello", {"kind": "hello"}),
    "a port beyond all": ("MalformedHello", {"udp_ports": [65536]}),
}


@pytest.mark.parametrize("case", REPLIES)
def test_broken_replies(net, guarded, case):
    misbehaviour, reply = REPLIES[case]
    assert_broken(with_far_end(net, None, "beta:/data/asked", f"{guarded.inside}/", **reply), misbehaviour)
    guarded.check()


# ---- a hostile receiver ----------------------------------------------------------------------------------------------

def have(*ranges):
    body = b"".join(peer.leb(first) + peer.leb(count) for first, count in ranges)
    return message(peer.DECIDE, bytes([0, peer.HAVE]) + peer.leb(len(ranges)) + body)


def decides_twice(session, _guarded):
    session.message(peer.DECIDE, bytes([0, peer.SEND]))
    session.message(peer.DECIDE, bytes([0, peer.SEND]))


def keeps(session, chunk):
    session.message(peer.DECIDE, bytes([0, 5, 0, 2]))
    session.message(peer.KEPT, bytes([0, chunk]) + bytes(32))


def again_beyond(session, _guarded):
    session.message(peer.DECIDE, bytes([0, peer.SEND]))
    session.numbers(peer.AGAIN, 0, 2)


BROKEN_RECEIVERS = {
    "decides what was not announced": ("EntryNotOutstanding", message(peer.DECIDE, bytes([9, 0]))),
    "decides twice": ("EntryNotOutstanding", decides_twice),
    "unknown decision": ("SenselessMessage", message(peer.DECIDE, bytes([0, 7]))),
    "has what the file has not": ("ChunksNotThere", have((0, 3))),
    "has beyond all numbers": ("ChunksNotThere", have((2**63, 2**63))),
    "has 2^64 ranges": ("SenselessMessage", message(peer.DECIDE, bytes([0, peer.HAVE]) + b"\xff" * 9 + b"\x01")),
    "kept more than the file has": ("ToldUnfitting", lambda session, _guarded: keeps(session, 2)),
    "kept without a word on it": ("SenselessMessage", message(peer.KEPT, bytes([0, 0]))),
    "again beyond the file": ("AgainUnasked", message(peer.AGAIN, b"\0" + peer.leb(2**63))),
    "again of nothing": ("EntryNotOutstanding", message(peer.AGAIN, b"\x09\0")),
    "done of nothing": ("EntryNotOutstanding", message(peer.DONE, b"\x09")),
    "finish before the end": ("FinishedTooEarly", lambda session, _guarded: session.finish()),
    "deletes": ("UnaskedDeletion", message(peer.DELETED, peer.counted(b"file"))),
    "does not delete": ("UnaskedDeletion", message(peer.NOT_DELETED, peer.counted(b"file") + peer.leb(4005) + peer.counted(b"why"))),
    "renames": ("UnaskedRenaming", message(peer.RENAMED, b"\0" + peer.counted(b"file"))),
    "keeps old files": ("UnaskedBackup", message(peer.BACKED_UP, peer.counted(b"file"))),
    "names that nobody waits for": ("NamesOutOfOrder", message(peer.NAMES, b"\1\0")),
    "again beyond the file, which it wants": ("ChunkBeyondFile", again_beyond),
    "an entry": ("UnexpectedMessage", lambda session, _guarded: session.entry("evil")),
    "entries end": ("UnexpectedMessage", message(peer.ENTRIES_END)),
}


@pytest.mark.parametrize("case", BROKEN_RECEIVERS)
def test_broken_receivers(net, guarded, case):
    source = make_file(net.folder("source") / "file", CHUNK + 4)
    misbehaviour, say = BROKEN_RECEIVERS[case]

    def script(_hello, session):
        session.next(peer.ENTRY)
        say(session, guarded)

    outcome = with_far_end(net, script, source, "beta:/data/")
    assert_broken(outcome, misbehaviour)
    assert "panicked" not in outcome.stderr


def test_what_has_failed_may_still_be_asked_for_again(net):
    """A message about a file that has failed may have crossed the message that says so, so it does not end
    the session."""
    source = make_file(net.folder("source") / "file", CHUNK + 4)

    def script(_hello, session):
        session.next(peer.ENTRIES_END)
        session.message(peer.FAILED, b"\0" + peer.counted(b"file") + peer.leb(4003) + peer.counted(b"no room"))
        session.numbers(peer.AGAIN, 0, 0)
        session.finish()
        session.next(peer.FINISH)

    outcome = with_far_end(net, script, source, "beta:/data/")
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED), outcome
    assert "no room" in outcome.stderr and "panicked" not in outcome.stderr


# ---- a hostile client ------------------------------------------------------------------------------------------------

def assert_told_why(session):
    """The daemon's last words name the misbehaviour. They may be lost: TCP drops them if the daemon closes
    with unread data."""
    words = session.closed_with or session.drain()
    assert words is None or "broke the protocol" in words


def test_a_daemon_is_asked_for_a_name_that_cannot_be(net):
    with daemon_session(net, peer.request("pull", "", select={"by_name": True})) as (_, session):
        session.message(peer.START)
        session.message(peer.NAMES, b"\1\1" + peer.counted(b"../secret"))
        session.drain()
    wait_until(lambda: 'misbehaviour="BadName"' in net.daemon.log_text(), what="the daemon logs it")
    assert net.daemon.process.poll() is None and "panicked" not in net.daemon.log_text()


PUSHED = {name: NAMES[name] for name in NAMES if name not in
          ("another", "prefix of the asked", "longer than the asked", "other case", "overwrites another")}


@pytest.mark.parametrize("name", PUSHED)
def test_no_name_leaves_a_daemons_root(net, name):
    guarded = Guarded(net.daemon.root / f"guarded{len(list(net.daemon.root.iterdir()))}")
    beside = sorted(net.daemon.root.parent.iterdir())
    told = net.daemon.log_text().count("broke the protocol")
    wish = peer.request("push", guarded.inside.relative_to(net.daemon.root), target_is_directory=True)
    with daemon_session(net, wish) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        path = PUSHED[name].replace("/BASE", str(guarded.base))
        if path.startswith("asked/"):
            session.directory("asked")
        session.entry(path)
        session.drain()
    wait_until(lambda: net.daemon.log_text().count("broke the protocol") > told, what="the daemon logs it")
    guarded.check()
    assert sorted(net.daemon.root.parent.iterdir()) == beside
    assert net.daemon.process.poll() is None and "panicked" not in net.daemon.log_text()


@pytest.mark.parametrize("name", PUSHED)
def test_names_of_a_push(net, guarded, name):
    with endpoint(net.beta, peer.request("push", guarded.inside, target_is_directory=True)) as (_, session, process):
        path = PUSHED[name].replace("/BASE", str(guarded.base))
        session.message(peer.START)
        if path.startswith("asked/"):
            session.directory("asked")
        session.entry(path)
        assert_told_why(session)
    guarded.check()
    assert process.returncode == EXIT_PROTOCOL and b"panicked" not in process.stderr.read()


@pytest.mark.parametrize("case", BROKEN_ENTRIES)
def test_broken_entries_of_a_push(net, guarded, case):
    with endpoint(net.beta, peer.request("push", guarded.inside, target_is_directory=True)) as (_, session, process):
        session.message(peer.START)
        with contextlib.suppress(peer.Closed):
            BROKEN_ENTRIES[case][1](session, guarded)
        assert_told_why(session)
    guarded.check()
    assert process.returncode == EXIT_PROTOCOL and b"panicked" not in process.stderr.read()
