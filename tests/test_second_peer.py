"""docs/reference/wire.md suffices for a second implementation: harness/peer.py exchanges files with the real
binary."""

import base64
import contextlib
import os
import stat

import pytest

from harness import peer, seal
from harness.peer import CHUNK, Piece
from harness.play import attach, daemon_session, endpoint, with_far_end
from harness.product import EXIT_OK
from harness.trees import make_file


def test_vectors():
    """RFC 8439 section 2.8.2, and BLAKE3's own test vectors."""
    key, nonce = bytes(range(0x80, 0xA0)), bytes.fromhex("070000004041424344454647")
    plain = (b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
             b"sunscreen would be it.")
    sealed = seal.seal(key, nonce, bytes.fromhex("50515253c0c1c2c3c4c5c6c7"), plain)
    assert sealed[-16:].hex() == "1ae10b594f09e26a7e902ecbd0600691"
    pattern = bytes(n % 251 for n in range(2049))
    assert seal.blake3(pattern).hex() == "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"
    assert seal.blake3(pattern[:1024]).hex() == "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"


def send_tree(session):
    """Sends a small tree as an honest sender does."""
    session.directory("asked", mode=0o750)
    session.file("asked/a", b"first", kind=peer.LINKED)
    session.entry("asked/empty")
    session.entry("asked/link", peer.SYMLINK, target="a")
    session.entry("asked/second", peer.HARD_LINK, target=1)
    large = session.entry("asked/large", size=CHUNK + 5)
    session.end_directory(0)
    session.message(peer.ENTRIES_END)
    head = bytes(CHUNK)
    session.block(Piece(large, 0, head, digest=seal.chaining_value(head)))
    session.block(Piece(large, 1, b"12345", digest=seal.chaining_value(b"12345")))
    session.numbers(peer.FILE_END, large, CHUNK + 5, 2)


def check_tree(tree):
    assert stat.S_IMODE(tree.stat().st_mode) == 0o750
    assert (tree / "a").read_bytes() == b"first" and (tree / "a").stat().st_mtime == 1_700_000_000
    assert (tree / "empty").read_bytes() == b"" and os.readlink(tree / "link") == "a"
    assert (tree / "second").samefile(tree / "a")
    assert (tree / "large").read_bytes() == bytes(CHUNK) + b"12345"
    assert sorted(os.listdir(tree)) == ["a", "empty", "large", "link", "second"]


def test_pull_from_a_second_implementation(net, near):
    outcome = with_far_end(net, lambda _hello, session: send_tree(session), "beta:/data/asked", f"{near}/")
    assert outcome.code == EXIT_OK, outcome
    assert outcome.report["files"] == 3 and outcome.report["links"] == 2 and outcome.report["transport"] == "ssh"
    check_tree(near / "asked")


def test_push_from_a_second_implementation(net):
    far = net.folder("far")
    with endpoint(net.beta, peer.request("push", far, target_is_directory=True)) as (reply, session, process):
        assert reply["refusal"] is None
        session.message(peer.START)
        send_tree(session)
        session.drain()
    assert process.returncode == EXIT_OK
    check_tree(far / "asked")


def receive(session, count, got):
    """Receives as an honest receiver does: it asks for every file, and confirms each when it has arrived."""
    sizes, paths = {}, {}
    for _ in range(count):
        identity, path, kind, size = session.entry_of(session.next(peer.ENTRY)[1])
        paths[identity] = path.decode()
        if kind == peer.DIRECTORY:
            continue
        sizes[identity], got[paths[identity]] = size, b""
        session.numbers(peer.DECIDE, identity, peer.SEND)
    session.next(peer.ENTRIES_END)
    session.granted = 16
    session.feedback()
    while sizes:
        for identity, chunk, data in session.pieces():
            before = got[paths[identity]].ljust(chunk * CHUNK, b"?")
            got[paths[identity]] = before[:chunk * CHUNK] + data + before[chunk * CHUNK + len(data):]
            sizes[identity] -= len(data)
            if sizes[identity] == 0:
                del sizes[identity]
                session.numbers(peer.DONE, identity)
    session.numbers(peer.DIRECTORIES_DONE, 1)
    session.finish()
    session.next(peer.FINISH)


@pytest.mark.parametrize("side", ["push", "pull"])
def test_content_goes_to_a_second_implementation(net, near, side):
    tree = near / "tree"
    tree.mkdir()
    make_file(tree / "small", 1000)
    make_file(tree / "large", CHUNK + 100)
    got = {}
    if side == "push":
        outcome = with_far_end(net, lambda _hello, session: receive(session, 3, got), tree, "beta:/data/")
        assert outcome.code == EXIT_OK, outcome
        assert outcome.report["files"] == 2
    else:
        with endpoint(net.alpha, peer.request("pull", tree)) as (_reply, session, process):
            session.message(peer.START)
            receive(session, 3, got)
        assert process.returncode == EXIT_OK
    assert got == {f"tree/{name}": (tree / name).read_bytes() for name in ("small", "large")}


def test_hello_is_as_documented(net, near):
    """The fields that docs/reference/wire.md names, as the client sends them."""
    seen = {}

    def script(hello, session):
        seen.update(hello)
        session.message(peer.ENTRIES_END)

    with_far_end(net, script, "beta:/data/asked", near / "x")
    assert seen["magic"] == "farhaul" and seen["kind"] == "hello" and seen["protocols"] == [1, 1]
    assert peer.asked(seen)["direction"] == "pull" and len(seen["flow_ids"]) == 5 and seen["udp"] is True
    assert set(seen["features"]) == set(peer.FEATURES) and set(seen["network"]) == set(peer.NETWORK)
    assert len(base64.b64decode(seen["secret_half"])) == 32


def test_a_carrier_of_a_daemons_session_names_a_fresh_flow_index(net):
    """The keys derive from the index: with one that was used before, packets would be sealed under the same
    numbers again."""
    wish = peer.request("push", "indices/", target_is_directory=True)
    with daemon_session(net, wish) as (reply, _session), contextlib.ExitStack() as carriers:
        answers = [carriers.enter_context(attach(net, reply["ticket"], index)) for index in (1, 7, 1, 0, 65535, 7, 2)]
        refusals = [answer["refusal"] for answer in answers]
        assert [refusal is None for refusal in refusals] == [True, True, False, False, False, False, True]
        assert all("flow index" in refusal["text"] for refusal in refusals if refusal)
