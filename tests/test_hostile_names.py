"""Clients of `names` that ask for what they may not have: nothing outside of their root changes, and the daemon goes on."""

import base64
import json

import pytest

from harness import peer
from harness.peer import counted, leb
from harness.play import daemon_session, endpoint
from harness.product import cp
from harness.trees import make_file

MAKE, RENAME, REMOVE, SET_TIME, CHANGED, FAILED = range(104, 110)


def opening(**request):
    return peer.opening("names", json.dumps(request).encode(), {"cipher": "chacha20-poly1305"})


def answer(session, code, body):
    """Asks for a change as operation 1; returns the code of the answer."""
    session.message(code, leb(1) + body)
    return session.next(CHANGED, FAILED)[0]


@pytest.fixture
def out(net):
    """A directory beside the daemon's root, and a link to it in there."""
    folder = net.folder("out")
    (folder / "secret").write_text("secret")
    link = net.daemon.root / "out"
    link.symlink_to(folder)
    yield folder
    assert [path.name for path in folder.iterdir()] == ["secret"] and (folder / "secret").read_text() == "secret"
    link.unlink(missing_ok=True)


def test_no_path_leads_out_of_the_root(net, out):
    make_file(net.daemon.root / "mine", 10)
    with daemon_session(net, opening()) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        for path in (b"out/secret", b"../%s/secret" % out.name.encode(), b"/../../etc/passwd", bytes(out / "secret"), b"out/../out/secret"):
            assert answer(session, REMOVE, leb(2) + counted(path)) == FAILED, path
            assert answer(session, SET_TIME, leb(0) + leb(0) + counted(path)) == FAILED, path
            assert answer(session, RENAME, leb(0) + leb(1) + counted(path) + counted(b"got")) == FAILED, path
            assert answer(session, RENAME, leb(1) + leb(1) + counted(b"mine") + counted(path)) == FAILED, path
            # An absolute path is one below the root, where it could be made.
            parents = leb(not path.startswith(b"/"))
            assert answer(session, MAKE, parents + counted(path + b"/new")) == FAILED, path
        for whole in (b"", b"/", b".", b"//./"):
            assert answer(session, REMOVE, leb(2) + counted(whole)) == FAILED, whole
        # The link itself is an entry of the root.
        assert answer(session, REMOVE, leb(2) + counted(b"out")) == CHANGED
        session.finish()
    assert (net.daemon.root / "mine").exists()


def test_a_key_without_the_right_changes_and_removes_nothing_whatever_it_sends(net):
    """Each change is judged: also one in a session that began as it may."""
    daemon = net.daemon
    before = daemon.keys.read_text()
    make_file(daemon.root / "kept", 10)
    make_file(daemon.root / "other", 20)
    (daemon.root / "full").mkdir(exist_ok=True)
    old = (daemon.root / "kept").stat().st_mtime_ns
    daemon.keys.write_text(f"no-delete,no-overwrite {net.key.strip()}\n")
    try:
        with daemon_session(net, opening()) as (reply, session):
            assert reply["refusal"] is None
            session.message(peer.START)
            for extent in range(3):
                for path in (b"kept", b"full", b"none"):
                    assert answer(session, REMOVE, leb(extent) + counted(path)) == FAILED, (extent, path)
            for into in range(3):
                for replace in range(2):
                    assert answer(session, RENAME, leb(into) + leb(replace) + counted(b"kept") + counted(b"other")) == FAILED
                    assert answer(session, RENAME, leb(into) + leb(replace) + counted(b"kept") + counted(b"fresh")) == FAILED
            assert answer(session, SET_TIME, leb(0) + leb(0) + counted(b"kept")) == FAILED
            assert answer(session, MAKE, leb(1) + counted(b"may/make")) == CHANGED
            session.finish()
    finally:
        daemon.keys.write_text(before)
    assert (daemon.root / "kept").stat().st_mtime_ns == old and (daemon.root / "other").stat().st_size == 20
    assert (daemon.root / "full").is_dir() and (daemon.root / "may/make").is_dir()


@pytest.mark.parametrize("body", [b"", leb(1), leb(1) + leb(3) + counted(b"x"), leb(1) + leb(2) + counted(b"a\0b"),
                                  leb(1) + leb(2) + counted(b"a" * 4096), leb(1) + leb(2) + counted(b"x") + b"more"])
def test_what_is_no_message_ends_the_session_and_nothing_else(net, near, body):
    with daemon_session(net, opening()) as (_reply, session):
        session.message(peer.START)
        session.message(REMOVE, body)
        with pytest.raises(peer.Closed):
            session.wait(lambda: False)
    cp(net.alpha, "--accept-new", make_file(near / "file", 10), net.daemon.url("after"))


def test_an_answer_from_a_client_breaks_the_protocol(net):
    with daemon_session(net, opening()) as (_reply, session):
        session.message(peer.START)
        session.message(CHANGED, leb(1))
        with pytest.raises(peer.Closed):
            session.wait(lambda: False)


def test_a_request_over_ssh_leaves_no_directory_that_it_names(net):
    folder = net.folder("within")
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    (folder / "out/file").write_text("x")
    (folder / "in/link").symlink_to("../out")
    within = {"within": [base64.b64encode(bytes(folder / "in")).decode()]}
    with endpoint(net.beta, opening(**within)) as (reply, session, _process):
        assert reply["refusal"] is None
        session.message(peer.START)
        for path in (folder / "in/link/file", folder / "out/file", folder / "in/../out/file", folder / "in"):
            assert answer(session, REMOVE, leb(2) + counted(bytes(path))) == FAILED, path
        assert answer(session, MAKE, leb(0) + counted(bytes(folder / "in/new"))) == CHANGED
        session.finish()
    assert (folder / "out/file").exists() and (folder / "in/new").is_dir()
