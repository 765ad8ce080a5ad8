"""Far ends that lie, to programs that read through fsspec: each gets an exception in time, or the bytes that there are.

Always true: the far end is played by the test, from docs/reference/wire.md; the client is the real package.
"""

import pytest

from harness import extension
from harness.peer import counted, leb
from harness.play import SECONDS_MAX, FarEnd
from harness.reading import LIST, OPEN, OPENED, READ, STAT, STATED, Parser
from test_hostile_served import FILE, IDENTITY, LISTS, MIB, Server, entry

PROGRAM = """
import asyncio, sys
import fsspec
import farhaul

fs = fsspec.filesystem("fh+ssh", host="beta", remote_program=sys.argv[1], cipher="chacha20-poly1305")
calls = {
    "ls": lambda: fs.ls("/dir"),
    "find": lambda: fs.find("/dir"),
    "whole": lambda: fs.cat_file("/dir/file"),
    "range": lambda: fs.cat_file("/dir/file", 10, 1 << 20),
    "ranges": lambda: fs.cat_ranges(["/dir/file"] * 2, [0, 1 << 19], [1 << 19, 1 << 20], on_error="raise"),
    "object": lambda: fs.open("/dir/file").read(),
}
try:
    got = calls[sys.argv[2]]()
except (farhaul.FarhaulError, OSError) as error:
    cause = error if isinstance(error, farhaul.FarhaulError) else error.__cause__
    print(cause.code)
else:
    print("nothing was wrong", len(got))
"""


@pytest.fixture(autouse=True)
def package():
    extension.needed()
    pytest.importorskip("fsspec", reason="fsspec is not installed: ./x bindings")


def said(net, call, script):
    with FarEnd(net, lambda _hello, session: script(Server(session)), features=[]) as far:
        return extension.run(net.alpha, PROGRAM, far.program, call, timeout=SECONDS_MAX).strip()


#: tests/test_python.py has all cases of the package itself.
QUICK = ["overlapping", "two_ends", "more_than_its_room", "b'../up'", "b'below/it'"]


@pytest.mark.parametrize("call", ["ls", pytest.param("find", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in LISTS])
def test_a_list_that_makes_no_sense_is_an_exception(net, case, call):
    def script(server):
        LISTS[case](server, server.asked(LIST).leb())
        server.until_refused()

    # What find asks for is everything below the directory.
    expected = "nothing was wrong 1" if call == "find" and case == "b'below/it'" else "FH-MISBEHAVED"
    assert said(net, call, script) == expected


def overlapping(server, op):
    server.send((op, 0, 0, bytes(MIB // 2), False))
    server.send((op, 0, 1, bytes(MIB // 2), False))


def of_another_range(server, op):
    server.send((op, 7, 0, b"x" * 100, True))
    server.send((op + 1, 0, 0, b"x" * 100, True))


def more_than_the_file_has(server, op):
    server.send((op, 0, MIB - 1, b"xx", True))


@pytest.mark.parametrize("call", ["whole", "range", "ranges", "object"])
@pytest.mark.parametrize("lie", [overlapping, of_another_range, more_than_the_file_has], ids=lambda lie: lie.__name__)
def test_content_that_nobody_asked_for_is_an_exception(net, lie, call):
    def script(server):
        lie(server, server.asked(READ).leb())
        server.until_refused()

    assert said(net, call, script) == "FH-MISBEHAVED"


@pytest.mark.parametrize("call", ["range", "ranges", "object"])
def test_a_file_that_is_shorter_than_it_was_said_to_be_is_an_exception(net, call):
    def script(server):
        op = server.asked(READ).leb()
        for number in range(2):
            server.send((op, number, 0, b"short", True))
        server.until_refused()

    assert said(net, call, script) in ("FH-SOURCE-CHANGED", "FH-MISBEHAVED")


def test_a_file_that_says_late_how_large_it_is_has_no_more_than_that(net):
    """The content of a whole file comes before its size does."""
    def script(server):
        code, body = server.session.next(OPEN)
        file = Parser(body).leb()
        code, body = server.session.next(READ)
        assert code == READ
        server.send((Parser(body).leb(), 0, 0, bytes(MIB // 2), False))
        server.say(OPENED, file, leb(1000) + bytes(6))
        server.until_refused()

    assert said(net, "whole", script) == "FH-MISBEHAVED"


def test_a_directory_that_is_a_file_when_it_is_looked_at_is_that_file(net):
    def script(server):
        op = server.asked(LIST).leb()
        server.send((op, 0, 0, counted(bytes([0, 0]) + counted(b"") + entry(FILE)), True))
        code, body = server.session.next(STAT)
        assert code == STAT
        server.say(STATED, Parser(body).leb(), counted(b"/dir"), bytes([FILE]) + leb(0o644) + leb(1) + IDENTITY)
        server.until_refused()

    assert said(net, "ls", script) == "nothing was wrong 1"
