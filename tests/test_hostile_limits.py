"""How much an authenticated peer can make the other end keep in memory. Everything has a limit: there the
session ends with one line, or waits, and the memory is free again.
"""

import contextlib
import dataclasses
import os
import select

import pytest

from harness import peer
from harness.hosts import wait_until
from harness.peer import CHUNK
from harness.play import daemon_session, endpoint
from harness.product import EXIT_FILES, EXIT_OK, EXIT_PROTOCOL, Daemon, cp
from harness.trees import make_file

MIB = 1 << 20


def peak_mib(process):
    """The most memory that a process has had, also of one that has ended and was not waited for."""
    with open(f"/proc/{process.pid}/status") as status:
        lines = [line for line in status if line.startswith("VmHWM")]
    if not lines:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return used.ru_maxrss / 1024
    return int(lines[0].split()[1]) / 1024


def send(session, messages):
    """Sends many messages, and takes what the other end sends meanwhile."""
    for at in range(0, len(messages), 16384):
        session.words(messages[at:at + 16384])
        while select.select([session.stream], [], [], 0)[0]:
            session.take_packet()


def message(code, body):
    return peer.counted(bytes([code]) + body)


def deep(session):
    """A directory whose path is nearly as long as a path may be."""
    path = "asked"
    session.directory(path)
    for _ in range(14):
        path += "/" + "d" * 255
        session.directory(path)
    return path


def entries_in(session, path, count, kind, size):
    """Entries whose names differ in their last characters only: each takes some 25 bytes on the wire and 4000
    in memory."""
    stem = path + "/" + "f" * 200
    first = session.entry(stem, kind, size=size) + 1
    out = bytearray()
    for identity in range(first, first + count):
        body = peer.leb(identity) + peer.leb(len(stem)) + peer.counted(b"%05x" % identity) + bytes(3)
        out += message(peer.ENTRY, body + bytes([kind]) + peer.leb(size) + b"\1\1")
    return bytes(out)


# ---- an end without a daemon's limits ---------------------------------------------------------------------------------

def test_lines_for_users_are_not_kept_where_no_user_is(net):
    """A file is announced again and again: each time thirty bytes on the wire become a line with its path for
    the user."""
    folder = net.folder("inside")
    wish = peer.request("push", folder, target_is_directory=True, dry_run=False)
    with endpoint(net.beta, wish) as (_, session, process):
        session.message(peer.START)
        path = deep(session)
        first = session.entry(path + "/" + "f" * 200, size=2)
        session.wait(lambda: session.is_answered(first))
        before = peak_mib(process)
        out = bytearray()
        for turn in range(40_000):
            identity = first + (turn << 48)
            entry = peer.leb(identity + (1 << 48)) + b"\0\0" + bytes(3) + bytes([peer.PLAIN_FILE]) + b"\2\1\1"
            out += message(peer.RENEWED, peer.leb(identity) + bytes([peer.ENTRY]) + entry)
        send(session, bytes(out))
        session.wait(lambda: session.is_answered(first + (40_000 << 48)))
        assert peak_mib(process) < before + 64


@pytest.mark.parametrize("code", [peer.ENTRY, peer.RENEWED])
def test_no_path_grows_from_message_to_message(net, code):
    folder = net.folder("inside")
    with endpoint(net.beta, peer.request("push", folder, target_is_directory=True)) as (_, session, process):
        session.message(peer.START)
        with contextlib.suppress(peer.Closed):
            for turn in range(50):
                shared = turn * 1000
                # RENEWED names a file that was never announced: it could be one that has failed, so this
                # alone is allowed.
                identity = 0 if code == peer.ENTRY else 1 + (1 << 48)
                entry = peer.leb(identity) + peer.leb(shared) + peer.counted(b"x" * 1000) + bytes(3)
                entry += bytes([peer.PLAIN_FILE]) + b"\1\1\1"
                session.message(code, entry if code == peer.ENTRY else peer.leb(1) + bytes([peer.ENTRY]) + entry)
            session.drain()
    assert process.returncode == EXIT_PROTOCOL and b"panicked" not in process.stderr.read()


def test_hard_links_take_only_so_much_room(net):
    folder = net.folder("inside")
    wish = peer.request("push", folder, target_is_directory=True, dry_run=True)
    with endpoint(net.beta, wish) as (_, session, process):
        session.message(peer.START)
        with contextlib.suppress(peer.Closed):
            send(session, entries_in(session, deep(session), 130_000, peer.LINKED, 0))
            session.drain()
    assert process.returncode == EXIT_PROTOCOL and b"panicked" not in process.stderr.read()


def test_patterns_find_only_so_much_together(net):
    folder = net.folder("many")
    for number in range(500):
        (folder / f"file{number:04}").write_text("")
    wish = peer.request("pull", *["*" * (1 + n % 7) for n in range(4000)])
    with endpoint(net.beta, wish, cwd=folder) as (_, session, process):
        session.message(peer.START)
        with contextlib.suppress(peer.Closed):
            session.next(peer.FAIL)
        assert peak_mib(process) < 600
        session.drain()
    assert process.returncode == EXIT_FILES
    assert any(b"too many files" in body for code, body in session.messages if code == peer.FAIL), session.messages


# ---- a daemon with little memory --------------------------------------------------------------------------------------

#: MiB for the whole daemon and for one key. A session takes at least 14 MiB.
MEMORY, PER_KEY = 96, 64


@pytest.fixture(scope="module")
def small(shared_net):
    arguments = ["--memory", f"{MEMORY}M", "--memory-per-key", f"{PER_KEY}M"]
    daemon = Daemon(shared_net.pair, shared_net.beta, [shared_net.key], port=33007, arguments=arguments)
    return dataclasses.replace(shared_net, daemon=daemon)


@contextlib.contextmanager
def refused_for_memory(net):
    """The session in this context is refused memory. The daemon logs why, stays within its limit, and serves
    the next client."""
    def refusals():
        return net.daemon.log_text().count("memory of this key is used up")

    told = refusals()
    yield
    wait_until(lambda: refusals() > told, what="the daemon refuses it")
    assert net.daemon.process.poll() is None and "panicked" not in net.daemon.log_text()
    # The budget does not count all memory of the process, but most of what clients make it use.
    assert peak_mib(net.daemon.process) < 2 * MEMORY + 64
    works(net)


def works(net):
    make_file(net.daemon.root / "well", 3 * CHUNK)
    for arguments in ([net.daemon.url("well", net.beta.v4), net.folder("well")],
                      [net.daemon.root / "well", net.daemon.url("pushed", net.beta.v4)]):
        wait_until(lambda: cp(net.alpha, "--accept-new", *arguments, check=False).code == EXIT_OK, what="the daemon serves")


def test_large_files_go_both_ways_with_little_memory(small):
    source = make_file(small.daemon.root / "large", 200 * CHUNK)
    folder = small.folder("large")
    cp(small.alpha, "--accept-new", small.daemon.url("large", small.beta.v4), folder)
    assert (folder / "large").read_bytes() == source.read_bytes()
    cp(small.alpha, "--accept-new", folder / "large", small.daemon.url("pushed", small.beta.v4))
    assert (small.daemon.root / "pushed").read_bytes() == source.read_bytes()


def test_unfinished_names_are_counted(small):
    with refused_for_memory(small):
        with daemon_session(small, peer.request("push", "", target_is_directory=True)) as (_, session):
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                send(session, entries_in(session, deep(session), 30_000, peer.PLAIN_FILE, 1))
                session.drain()


def test_hard_links_are_counted(small):
    with refused_for_memory(small):
        wish = peer.request("push", "", target_is_directory=True, dry_run=True)
        with daemon_session(small, wish) as (_, session):
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                send(session, entries_in(session, deep(session), 30_000, peer.LINKED, 0))
                session.drain()


def test_lists_of_names_are_counted(small):
    with refused_for_memory(small):
        wish = peer.request("pull", "", select={"by_name": True})
        with daemon_session(small, wish) as (_, session):
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                names = b"".join(peer.counted(b"%07d" % n) for n in range(7000))
                more = message(peer.NAMES, b"\0" + peer.leb(7000) + names)
                for _ in range(140):
                    send(session, more)
                session.drain()


def test_what_patterns_find_is_counted(small):
    for number in range(500):
        (small.daemon.root / f"found{number:04}").write_text("")
    with refused_for_memory(small):
        wish = peer.request("pull", *["found" + "*" * (1 + n % 7) for n in range(1000)])
        with daemon_session(small, wish) as (_, session):
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                session.next(peer.FAIL)


def test_sessions_of_one_key_are_as_many_as_its_memory_allows(small):
    """One session too many is told, in words, that the daemon is busy. When another one has ended, the next
    is let in."""
    with contextlib.ExitStack() as sessions:
        replies = []
        for _ in range(6):
            reply, _session = sessions.enter_context(daemon_session(small, peer.request("push", "")))
            replies.append(reply["refusal"])
        refused = [refusal for refusal in replies if refusal]
        assert replies[:4] == [None] * 4 and len(refused) == 2, replies
        assert all(r["code"] == "FH-BUSY" and f"memory of this key is used up ({PER_KEY} MiB)" in r["text"] for r in refused)
    works(small)
