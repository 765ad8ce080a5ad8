"""The directories of a token at a peer: the far end keeps the token's jobs below them, wherever links lead. A first
job brings the links, others try to write, read, list and delete through them."""

import base64
import contextlib
import json
import os
import re
import shutil
import sys
import threading
import urllib.parse

import pytest

from harness import peer, steering
from harness.play import RELAY, FarEnd, daemon_session, endpoint, session_with
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_INCOMPATIBLE
from harness.service import Service
from harness.steering import Refused, Steering
from harness.trees import make_file, sha256

PORT = 34080
#: How a job ends that is refused, or of which no file could be copied.
REFUSED = (EXIT_AUTH, EXIT_FILES)


def said_no(session):
    """Whether the far end has refused the request, or its only entry."""
    return any(code in (peer.FAIL, peer.SOURCE_FAILED, peer.FAILED) for code, _ in session.messages)


class Confined:
    """A service on alpha, and a token that reaches one local directory and one directory at a peer."""

    def __init__(self, net, kind):
        self.net, self.kind = net, kind
        self.service = Service(net, net.alpha, far=net.daemon, arguments=["--api-listen", f"127.0.0.1:{PORT}"])
        self.near = net.folder("projects").resolve()
        #: What the far end could use if the token did not confine it.
        self.top = net.daemon.root.resolve() if kind == "daemon" else net.folder("far").resolve()
        self.allowed, self.outside = self.top / "in", self.top / "outside"
        for folder in (self.allowed, self.outside, self.outside / "sub"):
            folder.mkdir()
        make_file(self.outside / "secret", 777)
        self.known = ["--fingerprint", net.daemon.fingerprint] if kind == "daemon" else []
        peer_prefix = "beta:33001:/in" if kind == "daemon" else f"ssh://beta:{self.allowed}"
        self.token = self.service.run("token", "create", "--scope", "submit,read", "--root", self.near,
                                      "--peer", peer_prefix, "-q").strip()
        (self.service.host.home / ".config/farhaul/token").write_text(self.token)
        self.before = self.look_outside()

    def far(self, path):
        """A location at the peer; `path` begins at the token's directory."""
        return self.net.daemon.url(f"in/{path}") if self.kind == "daemon" else f"beta:{self.allowed}/{path}"

    def submit(self, *arguments, expect=0, waits=True):
        env = {"FARHAUL_API": f"http://127.0.0.1:{PORT}"}
        waiting = ["--wait"] if waits else []
        return self.service.run("submit", *arguments, *self.known, "--retry", "0", *waiting, env=env, expect=expect)

    def refused(self, *arguments):
        """A job that ends with one line and a code, and has changed nothing outside."""
        id = self.submit(*arguments, expect=REFUSED).split()[0]
        error = self.service.job(id)["error"]
        assert error and error["code"].startswith("FH-") and "\n" not in error["text"], error
        self.check_outside()
        return error

    def look_outside(self):
        return {path.relative_to(self.top): path.is_file() and sha256(path) for path in self.top.rglob("*")
                if not path.is_relative_to(self.allowed)}

    def check_outside(self):
        assert self.look_outside() == self.before

    def bring_links(self):
        """The first job, which is within its rights: a tree with links that lead out."""
        tree = self.near / "tree"
        (tree / "sub").mkdir(parents=True)
        make_file(tree / "sub/file", 100)
        (tree / "stays").symlink_to("sub")
        (tree / "up").symlink_to("../../outside")
        (tree / "whole").symlink_to(self.outside)
        (tree / "secret").symlink_to("../../outside/secret")
        (tree / "round").symlink_to("/proc/self/root")
        self.submit(tree, self.far("tree"))
        assert os.readlink(self.allowed / "tree/up") == "../../outside"

    def files(self, path):
        """What GET /files says of a directory at the peer."""
        place = urllib.parse.quote(self.far(path), safe="")
        asked = f"http://127.0.0.1:{PORT}/api/v1/files?location={place}"
        program = ("import sys, urllib.request, urllib.error\n"
                   "ask = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]})\n"
                   "try: print(urllib.request.urlopen(ask, timeout=60).read().decode())\n"
                   "except urllib.error.HTTPError as error: print(error.read().decode())\n")
        done = self.service.host.run([sys.executable, "-c", program, asked, self.token], check=True)
        return json.loads(done.stdout)


@pytest.fixture(params=["daemon", "ssh"])
def confined(request, own_net):
    if request.param == "daemon":
        # The service lists the peer's files without a fingerprint.
        made = Confined(own_net, request.param)
        made.service.host.run(["farhaul", "ls", "--accept-new", "-i", made.service.daemon.identity, own_net.daemon.url()], check=True)
        return made
    return Confined(own_net, request.param)


def test_no_link_leads_a_token_out_of_its_directory_at_a_peer(confined):
    confined.bring_links()
    payload = make_file(confined.near / "payload", 333)
    empty = confined.near / "empty"
    empty.mkdir()

    # Within the directory everything works, also through links and patterns.
    confined.submit(payload, confined.far("tree/stays/new"))
    assert sha256(confined.allowed / "tree/sub/new") == sha256(payload)
    confined.submit(confined.far("tree/s?b/f*"), f"{confined.near}/got/")
    assert sha256(confined.near / "got/file") == sha256(confined.near / "tree/sub/file")

    # Writing: a new file, into a directory, and in the place of what is there.
    for path in ("tree/up/evil", "tree/whole/evil", "tree/whole/sub/", "tree/up/new/", "tree/round/evil", "tree/secret"):
        error = confined.refused(payload, confined.far(path))
        assert error["code"] in ("FH-FORBIDDEN", "FH-PERMISSION-DENIED"), (path, error)

    # Reading: by name, through a link, by a pattern, and by following links.
    for path in ("tree/up/secret", "tree/whole/secret", "tree/secret", "tree/up/s*", "tree/wh*/secret", "tree/up/"):
        confined.refused(confined.far(path), f"{confined.near}/read/")
    confined.submit("--follow", confined.far("tree"), confined.near / "followed", expect=range(1, 9))
    mine = [path for path in confined.near.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sha256(confined.outside / "secret") not in {sha256(path) for path in mine}

    # Deleting.
    for path in ("tree/up", "tree/whole", "tree/up/"):
        confined.refused("--sync", "--delete", f"{empty}/", confined.far(path))
    # A link that stands for a directory is not used if it leads out.
    into = confined.near / "into"
    (into / "up").mkdir(parents=True)
    make_file(into / "up/evil", 10)
    confined.submit("--keep-dirlinks", f"{into}/", confined.far("tree"), expect=range(0, 9))
    confined.check_outside()

    # Listing.
    listing = confined.files("tree/stays")
    assert "file" in {entry["name"] for entry in listing.get("files", [])}, listing
    for path in ("tree/up", "tree/whole", "tree/round", "tree/up/sub"):
        answer = confined.files(path)
        assert "files" not in answer and answer["code"].startswith("FH-"), (path, answer)
    confined.check_outside()


@pytest.mark.parametrize("option", ["--link-dest", "--compare-dest"])
def test_an_earlier_copy_outside_of_the_directories_of_a_token_is_not_looked_at(confined, option):
    source = confined.near / "source"
    source.mkdir()
    shutil.copy2(confined.outside / "secret", source / "secret")
    (confined.allowed / "out").symlink_to(confined.outside)
    (confined.near / "out").symlink_to(confined.outside)
    confined.before = confined.look_outside()
    root = "/outside" if confined.kind == "daemon" else confined.outside
    out, back = (f"{source}/", confined.far("copy/")), (f"{confined.far('tree')}/", f"{confined.near}/copy/")
    for given, ends in (("../../outside", out), (root, out), ("../../outside", back), (confined.outside, back)):
        assert confined.submit(*ends, option, given, expect=EXIT_AUTH) == ""
        assert "reach" in confined.service.stderr, confined.service.stderr
    # What the text does not show, whoever opens the directory sees.
    for ends in (out, back):
        confined.refused(*ends, option, "../out")


def test_a_link_that_is_swapped_in_at_a_peer_leads_no_job_of_a_token_out(own_net):
    """A directory of the destination and a link that leads out take turns while jobs write below them."""
    confined = Confined(own_net, "daemon")
    source = confined.near / "many"
    (source / "d").mkdir(parents=True)
    for number in range(300):
        make_file(source / f"d/{number}", 100)
    (confined.allowed / "tree/d/sub").mkdir(parents=True)
    (confined.allowed / "link").symlink_to("../../outside")
    over = threading.Event()

    def swap():
        spot, aside, link = (confined.allowed / name for name in ("tree/d", "aside", "link"))
        while not over.is_set():
            with contextlib.suppress(OSError):
                spot.rename(aside)
                link.rename(spot)
                spot.rename(link)
                aside.rename(spot)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        confined.submit(f"{source}/", confined.far("tree"), expect=range(0, 9))
        ids = [confined.submit(source / "d/1", confined.far(f"tree/d/sub/{number}"), waits=False).strip() for number in range(12)]
        confined.service.wait(*ids, expect=range(0, 9))
    finally:
        over.set()
        swapping.join()
    confined.check_outside()


def test_between_two_daemons_each_keeps_to_the_directories_of_the_token(own_net):
    confined = Confined(own_net, "daemon")
    beta, service = own_net.daemon, confined.service
    other = Service(own_net, own_net.beta, port=34002).daemon
    other.keys.write_text(service.key)
    for daemon in (beta, other):
        service.host.run(["farhaul", "ls", "--accept-new", "-i", service.daemon.identity, daemon.url()], check=True)
    token = service.run("token", "create", "--scope", "submit,read", "--root", confined.near, "--peer", "beta:33001:/in",
                        "--peer", "beta:34002:/in", "-q").strip()
    (service.host.home / ".config/farhaul/token").write_text(token)
    confined.known = []
    for root in (beta.root, other.root):
        (root / "in").mkdir(exist_ok=True)
        (root / "in/out").symlink_to("../elsewhere")
        (root / "elsewhere").mkdir()
        make_file(root / "elsewhere/secret", 500)
        make_file(root / "in/file", 100)
    confined.submit(beta.url("in/file"), other.url("in/copy"))
    assert sha256(other.root / "in/copy") == sha256(beta.root / "in/file")
    confined.before = confined.look_outside()
    elsewhere = sorted(os.listdir(other.root / "elsewhere"))
    confined.refused(beta.url("in/out/secret"), other.url("in/stolen"))
    confined.refused(beta.url("in/file"), other.url("in/out/evil"))
    confined.refused(beta.url("in/out/*"), other.url("in/"))
    assert not (other.root / "in/stolen").exists() and sorted(os.listdir(other.root / "elsewhere")) == elsewhere
    assert not (other.root / "in/secret").exists()


def test_a_grant_names_the_directories_that_its_bearer_may_not_leave(own_net):
    """The bearer cannot widen them by its own request."""
    root = own_net.daemon.root
    (root / "in").mkdir()
    (root / "outside").mkdir()
    (root / "in/out").symlink_to("../outside")
    bearer = own_net.folder("bearer") / "key"
    made = own_net.alpha.run(["farhaul", "keygen", "-f", bearer], check=True)
    fingerprint = re.search(r"SHA256:[A-Za-z0-9+/]{43}", (made.stdout + made.stderr).decode()).group(0)

    def come(path, granted, asked):
        with daemon_session(own_net, steering.WISH) as (reply, session):
            assert reply["refusal"] is None, reply
            token = Steering(session).grant(fingerprint, path, within=granted)
        wish = peer.request("push", path, within=asked)
        shown = base64.b64encode(token).decode()
        with session_with(own_net.alpha, own_net.daemon, bearer, wish, grant=shown) as (reply, session):
            assert reply["refusal"] is None, reply
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                session.file("x", b"content")
                session.message(peer.ENTRIES_END)
            session.drain()
        return said_no(session)

    assert not come("in/x", ["/in"], None) and (root / "in/x").exists()
    for path, granted, asked in [("in/out/x", ["/in"], None), ("in/out/x", ["/in"], ["/"]), ("in/y", ["/in"], ["/outside"]),
                                 ("in/y", ["/other"], ["/in"]), ("in/y", [], None)]:
        assert come(path, granted, asked), (path, granted, asked)
    assert sorted(os.listdir(root / "in")) == ["out", "x"] and not os.listdir(root / "outside")
    with daemon_session(own_net, steering.WISH) as (reply, session), pytest.raises(peer.Closed):
        Steering(session).grant(fingerprint, "in/x", within=["in"])


@pytest.mark.parametrize("answer", ["lacks it", "refuses"])
def test_a_far_end_that_is_too_old_to_keep_a_token_s_directories_is_refused(own_net, answer):
    """Nothing is sent to it, and the job says why."""
    confined = Confined(own_net, "ssh")
    payload = make_file(confined.near / "payload", 333)
    old = {"features": [name for name in peer.FEATURES if name != "within"]}
    if answer == "refuses":
        text = "the far end, farhaul 0.0.9, cannot do what was asked for: it lacks 'within'"
        old = {"refusal": {"code": "FH-FEATURE-MISSING", "exit": 5, "text": text}}
    with FarEnd(own_net, lambda *_: None, **old) as far:
        program = own_net.beta.bin / "farhaul"
        program.unlink()
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {RELAY} {far.path}\n")
        program.chmod(0o755)
        id = confined.submit(payload, confined.far("x"), expect=EXIT_INCOMPATIBLE).split()[0]
    error = confined.service.job(id)["error"]
    assert error["code"] == "FH-FEATURE-MISSING" and "too old to keep this below the directories" in error["text"], error
    assert "install a newer version" in error["hint"], error


def test_a_request_over_ssh_leaves_no_directory_that_it_names(own_net):
    """The far end itself holds to it, whoever the client is."""
    far = own_net.folder("far").resolve()
    (far / "in").mkdir()
    (far / "in/out").symlink_to(far)
    make_file(far / "secret", 100)
    cases = [("pull", "in/out/secret", [far / "in"]), ("pull", "secret", [far / "in"]), ("pull", "in/../secret", [far / "in"]),
             ("push", "in/out/evil", [far / "in"]), ("push", "evil", [far / "in"]), ("push", "in/evil", []),
             ("pull", "in/out/s*", [far / "in"])]
    for direction, path, within in cases:
        with endpoint(own_net.beta, peer.request(direction, far / path, within=within)) as (reply, session, _process):
            assert reply["refusal"] is None, reply
            session.message(peer.START)
            with contextlib.suppress(peer.Closed):
                if direction == "push":
                    session.file("evil", b"content")
                    session.message(peer.ENTRIES_END)
            session.drain()
            assert said_no(session), (direction, path, session.messages)
    assert sorted(path.name for path in far.iterdir()) == ["in", "secret"] and os.listdir(far / "in") == ["out"]
    wrong = peer.request("pull", far / "in", within=["relative"])
    with endpoint(own_net.beta, wrong) as (reply, session, _process):
        assert reply["refusal"] is None
        session.drain()
        assert said_no(session), session.messages
