"""Keys stay only where, and only as long as, they are needed: none is left in memory after a session, or in a
core dump."""

import contextlib
import os
import struct
import subprocess

import pytest

from conftest import road_to
from harness import peer, seal
from harness.hosts import USER, wait_until
from harness.play import daemon_session
from harness.product import Daemon, cp, finish, keygen, start_cp
from harness.trees import differences, make_file, make_tree

MIB = 1 << 20


def memory(pid):
    """The memory of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as content:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1].startswith("rw") and end - start < 256 * MIB:
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    content.seek(start)
                    yield content.read(end - start), line.strip()


def places(pid, secrets):
    """The secrets that a process has in memory, and where they are."""
    found = {}
    for content, where in memory(pid):
        for name, secret in secrets.items():
            if secret in content:
                found.setdefault(name, []).append(where)
    return found


def of_session(session, secret):
    """The secrets of a session: the session secret, and the flow secrets and keys that are derived from
    it."""
    found = {"session secret": secret}
    for direction in (0, 1):
        flow = seal.hkdf_expand(secret, b"farhaul flow\0" + struct.pack(">HB", 0, direction), 32)
        found[f"flow secret {direction}"] = flow
        found[f"key {direction}"] = seal.hkdf_expand(flow, b"farhaul key\0" + bytes(8), 32)
    return found


def test_nothing_of_a_session_stays_in_a_daemons_memory(own_net, monkeypatch):
    secrets = []
    made = peer.Peer.__init__

    def note(self, stream, secret, *arguments, **more):
        secrets.append(secret)
        made(self, stream, secret, *arguments, **more)

    monkeypatch.setattr(peer.Peer, "__init__", note)
    daemon = own_net.daemon.process
    # AWS-LC wipes its own copies of keys; the test looks for those of Farhaul.
    with daemon_session(own_net, peer.request("push", "x")) as (reply, session):
        wanted = of_session(session, secrets[0])
        wanted["ticket"] = reply["ticket"].encode()
        session.message(peer.START)
        session.file("x", b"content")
        session.next(peer.DONE)
        assert "session secret" in places(daemon.pid, wanted), "the search finds the secret while the session needs it"
        session.message(peer.ENTRIES_END)
        session.drain()
    wait_until(lambda: own_net.daemon.log_text().count("direction") > 0, what="the session has ended")
    seen = {}

    def is_wiped():
        seen.clear()
        seen.update(places(daemon.pid, wanted))
        return not seen

    with contextlib.suppress(Exception):
        wait_until(is_wiped, 5, what="all secrets are wiped")
    assert not seen, "\n".join(f"{name}: {place}" for name, where in seen.items() for place in where)


def test_the_text_of_a_key_file_is_not_kept(own_net):
    lines = own_net.daemon.identity.read_text().splitlines()
    assert lines[0] == "-----BEGIN PRIVATE KEY-----"
    cp(own_net.alpha, "--accept-new", "random:1M", own_net.daemon.url("x"))
    assert places(own_net.daemon.process.pid, {"private key": lines[1].encode()}) == {}


def dumpable(pid):
    """Whether the kernel would write a core dump of the process."""
    with open(f"/proc/{pid}/status") as status:
        flags = status.read()
    assert flags
    # If a process may not be dumped, its files in /proc belong to root.
    return os.stat(f"/proc/{pid}/environ").st_uid != 0


def test_no_core_of_who_holds_keys_and_all_works_for_an_ordinary_user(own_net):
    """The files in /proc of a process that may not be dumped belong to root. Farhaul makes links and reads
    attributes by these files, and this must work all the same."""
    pair = own_net.pair
    key = keygen(pair.alpha, user=USER)
    daemon = Daemon(pair, pair.beta, [key], port=33630, user=USER)
    assert not dumpable(daemon.process.pid)
    near = own_net.folder("near")
    near.chmod(0o777)
    tree = make_tree(near / "tree", seed=5, files=200)
    make_file(tree / "large", 9 * MIB)
    subprocess.run(["chown", "-hR", "54321:54321", near], check=True)
    cp(pair.alpha, "--accept-new", "-X", "-A", tree, daemon.url("tree"), user=USER)
    assert differences(tree, daemon.root / "tree") == []
    cp(pair.alpha, "-X", "-A", daemon.url("tree"), near / "back", user=USER)
    assert differences(tree, near / "back") == []
    running = start_cp(pair.alpha, "--rate", "8M", tree / "large", daemon.url("slow"), user=USER)
    wait_until(lambda: (daemon.root / "slow").exists() or any(daemon.root.glob(".*.fhpart")), what="the slow copy has begun")
    assert not dumpable(running.pid)
    finish(running)


def test_a_debugger_can_have_it(own_net):
    pair = own_net.pair
    daemon = Daemon(pair, pair.beta, [keygen(pair.alpha, user=USER)], port=33631, user=USER, env={"FARHAUL_DUMPABLE": "1"})
    assert dumpable(daemon.process.pid)
