"""Far ends that lie, behind a mount: a program gets an error in time or the bytes that there are, and the mount can be ended.

Always true: the far end is played by the test, from docs/reference/wire.md; the client is the real program.
"""

import errno
import os
import time

import pytest

from harness import peer
from harness.peer import counted, leb
from harness.play import FarEnd
from harness.reading import LIST, OPEN, OPENED, READ, STAT, STATED, Parser
from test_hostile_served import DIRECTORY, FILE, IDENTITY, LISTS, MIB, SYMLINK, Server, entry
from test_mount import Here, pytestmark  # noqa: F401


class Below(Server):
    """Has the directory /dir, and in it whatever is asked for, as a file of a mebibyte."""

    def asked(self, wanted):
        while True:
            code, body = self.session.next(STAT, LIST, OPEN, READ)
            parser = Parser(body)
            number = parser.leb()
            if code == wanted:
                return Parser(body)
            if code == STAT:
                # Whether links are followed stands before the path.
                parser.leb()
                path = parser.bytes()
                self.say(STATED, number, counted(path), entry(DIRECTORY if path == b"/dir" else FILE))
            elif code == OPEN:
                self.say(OPENED, number, IDENTITY)


def behind_a_mount(net, script, act):
    """Mounts what `script` plays, and calls `act` with the mount; then the mount must end."""
    def play(_hello, session):
        script(Below(session))

    here = Here(net)
    try:
        with FarEnd(net, play, features=[]) as far:
            here.mount("beta:/dir", "--cipher", "chacha20-poly1305", "--remote-program", far.program, "--metadata-wait", "3s",
                       "--read-wait", "4s", "--cache-size", "0")
            begin = time.monotonic()
            act(here.seen)
            assert time.monotonic() - begin < 12
            here.umount("--force")
            assert not here.is_mounted()
    finally:
        here.close()


def fails(act):
    with pytest.raises(OSError) as failed:
        act()
    assert failed.value.errno in (errno.EIO, errno.ESTALE), failed.value


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_makes_no_sense_is_an_error(net, case):
    def script(server):
        op = server.asked(LIST).leb()
        LISTS[case](server, op)
        server.until_refused()

    behind_a_mount(net, script, lambda seen: fails(lambda: os.listdir(seen)))


def overlapping(server, op):
    server.send((op, 0, 0, bytes(MIB // 2), False))
    server.send((op, 0, 1, bytes(MIB // 2), False))


def of_another_range(server, op):
    server.send((op, 7, 0, b"x" * 100, True))


def more_than_was_asked_for(server, op):
    server.send((op, 0, MIB - 1, b"xx", True))


@pytest.mark.parametrize("lie", [overlapping, of_another_range, more_than_was_asked_for], ids=lambda lie: lie.__name__)
def test_content_that_nobody_asked_for_is_an_error(net, lie):
    def script(server):
        lie(server, server.asked(READ).leb())
        server.until_refused()

    behind_a_mount(net, script, lambda seen: fails((seen / "file").read_bytes))


def test_a_file_that_is_shorter_than_it_was_said_to_be_is_an_error(net):
    def script(server):
        op = server.asked(READ).leb()
        server.send((op, 0, 0, b"short", True))
        while True:
            server.asked(None)

    behind_a_mount(net, script, lambda seen: fails((seen / "file").read_bytes))


def test_another_version_than_the_one_that_was_looked_up_is_not_read(net):
    """The far end opens another file than it has shown."""
    def script(server):
        server.asked(OPEN)
        server.say(OPENED, 0, leb(1 << 20) + bytes([9, *bytes(5)]))
        while True:
            code, body = server.session.next(STAT, LIST, OPEN, READ)
            assert code != READ, "nothing is read of it"
            if code == STAT:
                server.say(STATED, Parser(body).leb(), counted(b"/dir/file"), entry(FILE))
            elif code == OPEN:
                server.say(OPENED, Parser(body).leb(), leb(1 << 20) + bytes([9, *bytes(5)]))

    behind_a_mount(net, script, lambda seen: fails((seen / "file").read_bytes))


def test_a_far_end_that_says_nothing_makes_nobody_wait_for_long(net):
    def script(server):
        server.asked(LIST)
        server.session.next(peer.FAIL, peer.FINISH)

    behind_a_mount(net, script, lambda seen: fails(lambda: os.listdir(seen)))


def test_links_lead_where_they_say_and_nowhere_for_the_mount(net):
    """The kernel resolves them here, as it does in any directory."""
    def script(server):
        op = server.asked(LIST).leb()
        record = bytes([0, 0]) + counted(b"link") + entry(SYMLINK, b"/etc/../etc/hostname")
        server.send((op, 0, 0, counted(record), True))
        while True:
            server.asked(None)

    def act(seen):
        assert os.listdir(seen) == ["link"] and os.readlink(seen / "link") == "/etc/../etc/hostname"

    behind_a_mount(net, script, act)
