"""`--receipt`: what both ends of a copy sign, and `farhaul receipt verify`. Other tools check the signatures,
too."""

import base64
import copy
import json
import os
import re
import subprocess

import pytest

from harness import peer
from harness.digest_tree import record, root_of, root_of_manifest
from harness.hosts import wait_until
from harness.play import daemon_session, other_daemon
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_INCOMPATIBLE, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, cp, finish
from harness.trees import make_file, make_tree

CONTEXT = {"sent": b"farhaul receipt v1 sent", "received": b"farhaul receipt v1 received"}


@pytest.fixture(params=["push", "pull"])
def receipt(request, daemon_road, near):
    """A tree to copy with a receipt and a manifest, and the places of all files."""
    class Receipt:
        road = daemon_road
        is_push = request.param == "push"
        source = (near if is_push else road.far) / "tree"
        target = (road.far if is_push else near) / "copy"
        manifest = near / "m.jsonl"
        file = near / "receipt.json"
        client_key = road.alpha.home / ".config/farhaul/id_ed25519.pub"
        daemon_key = road.daemon.identity.with_name("identity.pub")

        def run(self, *arguments, verb="sync", **options):
            ends = (f"{self.source}/", self.road.url("copy/")) if self.is_push else (self.road.url("tree/"), f"{self.target}/")
            run = getattr(self.road, verb)
            return run("--manifest", self.manifest, "--receipt", self.file, *arguments, *ends, **options)

        def read(self):
            return json.loads(self.file.read_bytes())

        def verify(self, *arguments, keys=None, expect=EXIT_OK, document=None):
            if document is not None:
                self.file.write_text(document if isinstance(document, str) else json.dumps(document))
            keys = [self.client_key, self.daemon_key] if keys is None else keys
            words = [*sum((["--key", key] for key in keys), []), self.file, *arguments]
            done = self.road.alpha.run(["farhaul", "receipt", "verify", *map(os.fspath, words)], timeout=60)
            assert done.returncode == expect, done
            return done.stdout.decode(), done.stderr.decode()
    made = Receipt()
    make_tree(made.source, seed=71, files=60)
    make_file(made.source / "large", (9 << 20) + 3, seed=2)
    return made


def raw_key(line):
    return base64.b64decode(line.split()[1])


def test_a_receipt_says_what_has_been_copied(receipt):
    outcome = receipt.run()
    document = receipt.read()
    assert outcome.report["receipt"] == document and outcome.report["tree_root"] == root_of_manifest(receipt.manifest)
    assert f"receipt {receipt.file}, tree root {outcome.report['tree_root']}" in outcome.stderr
    sent, received = (document[part]["statement"] for part in ("sent", "received"))
    assert sent["tree_root"] == received["tree_root"] == outcome.report["tree_root"]
    assert received["files"] == outcome.report["files"] and received["bytes"] >= outcome.report["bytes"]
    assert received["failed"] == received["unread"] == sent["digests_told"] == 0
    assert received["durable"] == "end" and received["started_ms"] <= received["ended_ms"]
    lines = {"client": receipt.client_key.read_text(), "daemon": receipt.daemon_key.read_text()}
    sender, receiver = ("client", "daemon") if receipt.is_push else ("daemon", "client")
    assert raw_key(received["sender_key"]) == raw_key(lines[sender])
    assert raw_key(received["receiver_key"]) == raw_key(lines[receiver])
    out, err = receipt.verify("--manifest", receipt.manifest)
    assert out == "" and "the same as in the manifest" in err and "not among" not in err
    out, err = receipt.verify("--json", keys=[receipt.daemon_key])
    told = json.loads(out)
    assert told["ok"] and not told["manifest"] and told["statement"] == received
    assert told["receiver"]["is_trusted"] == receipt.is_push and told["sender"]["is_trusted"] != receipt.is_push
    # The statement says that the content was synced to the disk.
    assert receipt.run("--durable=file", "--verify", "readback").report["receipt"]["sent"]["statement"]["durable"] == "file"


def test_other_tools_check_it(receipt, near):
    receipt.run()
    for part in ("sent", "received"):
        statement = subprocess.run(["jq", "-jcS", f".{part}.statement", receipt.file], check=True, stdout=subprocess.PIPE).stdout
        document = receipt.read()[part]
        python = json.dumps(document["statement"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert statement == python.encode()
        role = "sender_key" if part == "sent" else "receiver_key"
        files = {"message": CONTEXT[part] + b"\n" + statement, "signature": base64.b64decode(document["signature"]),
                 "key.der": raw_key(document["statement"][role])}
        for name, content in files.items():
            (near / name).write_bytes(content)
        check = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", near / "key.der", "-keyform", "DER", "-rawin",
                 "-in", near / "message", "-sigfile", near / "signature"]
        assert subprocess.run(check, stdout=subprocess.PIPE).returncode == 0
        (near / "message").write_bytes(files["message"].replace(b"v1", b"v2"))
        assert subprocess.run(check, stdout=subprocess.PIPE).returncode != 0


def test_whatever_was_changed_has_a_line_of_its_own(receipt, net, near):
    receipt.run()
    whole, text = receipt.read(), receipt.file.read_text()
    wrong = lambda document, **options: receipt.verify(document=document, expect=EXIT_SOME_FAILED, **options)[1]  # noqa: E731

    def changed(change):
        document = copy.deepcopy(whole)
        change(document)
        return document
    for part in ("sent", "received"):
        for field, value in whole[part]["statement"].items():
            other = value + 1 if isinstance(value, int) else ["x"] if isinstance(value, list) else f"{value}x"
            if field in ("role", "direction", "durable"):
                other = {"sent": "received", "received": "sent", "push": "pull", "pull": "push", "end": "file"}[value]
            err = wrong(changed(lambda document: document[part]["statement"].update({field: other})))
            assert len(err.splitlines()) == 1 and "the receipt is not right" in err, (field, err)
        assert "the signature of the" in wrong(changed(lambda document: document[part].update(signature="AAAA")))
    replayed = wrong(changed(lambda document: document.update(sent=whole["received"])))
    assert "in the place of the sender's" in replayed
    assert "by other keys" in wrong(whole, keys=[other_key(net, near)])
    assert "ends too early" in receipt.verify(document=text[:-40], expect=EXIT_FILES)[1]
    assert "version 2" in receipt.verify(document=changed(lambda document: document.update(receipt=2)), expect=EXIT_FILES)[1]
    receipt.verify(document="", expect=EXIT_FILES)
    receipt.verify(document=whole, keys=[near / "none.pub"], expect=EXIT_FILES)
    receipt.verify(document=whole, keys=[receipt.manifest], expect=EXIT_AUTH)
    receipt.verify(document=whole, keys=[], expect=EXIT_USAGE)
    lines = receipt.manifest.read_text().splitlines(keepends=True)
    for damaged in (lines[:-2] + lines[-1:], [lines[0], lines[1].replace('"mtime_ns":1', '"mtime_ns":2'), *lines[2:]]):
        (near / "other.jsonl").write_text("".join(damaged))
        out, err = receipt.verify("--manifest", near / "other.jsonl", document=whole, expect=EXIT_SOME_FAILED)
        assert "not for this manifest" in err
    (near / "other.jsonl").write_text("".join(lines[:-1]))
    assert "has no end" in receipt.verify("--manifest", near / "other.jsonl", expect=EXIT_FILES)[1]


def other_key(net, near):
    net.alpha.run(["farhaul", "keygen", "-q", "-f", os.fspath(near / "other")], check=True)
    return near / "other.pub"


def test_what_is_there_and_what_was_begun_before(receipt):
    first = receipt.run().report["tree_root"]
    (receipt.source / "large").rename(receipt.source / "moved")
    with open(receipt.source / "moved", "r+b") as out:
        out.seek(5 << 20)
        out.write(b"changed")
    again = receipt.run("--delete").report
    statement = again["receipt"]["received"]["statement"]
    assert statement["unread"] > 0 and again["tree_root"] == root_of_manifest(receipt.manifest) != first
    receipt.verify("--manifest", receipt.manifest)
    read = receipt.run("--checksum-unchanged").report["receipt"]
    assert read["received"]["statement"]["unread"] == 0 < read["sent"]["statement"]["digests_told"]
    receipt.verify("--manifest", receipt.manifest)
    assert receipt.run("--checksum", "--detect-renames", "-W").report["receipt"]["received"]["statement"]["unread"] == 0


def test_a_run_that_goes_on_has_a_receipt_for_all(receipt):
    make_file(receipt.source / "large", 40 << 20, seed=3)
    ends = (f"{receipt.source}/", receipt.road.url("copy/")) if receipt.is_push else (receipt.road.url("tree/"), f"{receipt.target}/")
    begun = receipt.road.start("--rate", "100M", *ends)
    # The journal has one record for each chunk.
    wait_until(lambda: any(path.stat().st_size > 1000 for path in receipt.target.glob("**/.*.fhjournal")), 60)
    begun.kill()
    begun.wait()
    report = receipt.run().report
    # For chunks that an earlier run sent, the sender signs the digests that the receiver told it.
    assert report["bytes_resumed"] > 0 and report["receipt"]["sent"]["statement"]["digests_told"] == 1, report
    receipt.verify("--manifest", receipt.manifest)


@pytest.mark.parametrize("options", [
    ["--inplace"], ["--follow-growth=1s"], ["-W", "--flows", "2"], ["--verify", "readback", "--checksum-extra", "sha256"], ["-L"],
    ["--no-links", "--exclude", "*7*"], ["--overwrite", "never"], ["--specials", "-XA", "--durable=file"], ["--files-from"], ["--max-size", "1M"],
], ids=" ".join)
def test_the_ends_agree_whatever_the_options_are(receipt, near, options):
    os.mkfifo(receipt.source / "a pipe")
    if options == ["--files-from"]:
        (near / "names").write_text("large\n")
        options = [*options, near / "names"]
    for change in (lambda: None, lambda: (receipt.source / "large").write_bytes(os.urandom(7 << 20))):
        change()
        document = receipt.run(*options, expect=None, check=False).report["receipt"]
        assert document["sent"]["statement"]["tree_root"] == root_of_manifest(receipt.manifest)
        receipt.verify("--manifest", receipt.manifest)


def test_a_file_that_changes_meanwhile_is_signed_for_as_it_is_in_the_end(receipt):
    large = make_file(receipt.source / "large", 30 << 20, seed=4)
    ends = (f"{receipt.source}/", receipt.road.url("copy/")) if receipt.is_push else (receipt.road.url("tree/"), f"{receipt.target}/")
    running = receipt.road.start("--rate", "60M", "--manifest", receipt.manifest, "--receipt", receipt.file, *ends)
    wait_until(lambda: any(path.stat().st_size > 500 for path in receipt.target.glob("**/.*.fhjournal")), 60)
    with open(large, "r+b") as out:
        out.write(b"other content")
    outcome = finish(running)
    assert outcome.code == EXIT_OK and (receipt.target / "large").read_bytes() == large.read_bytes(), outcome
    assert outcome.report["receipt"]["sent"]["statement"]["digests_told"] == 0
    receipt.verify("--manifest", receipt.manifest)


def test_standard_input(daemon_road, near):
    content = os.urandom(3 << 20)
    for size in (len(content), 5000):
        outcome = daemon_road.cp("--receipt", near / "r", "--manifest", near / "m", "-", daemon_road.url("stream"), input=content[:size])
        statement = outcome.report["receipt"]["sent"]["statement"]
        assert (statement["bytes"], statement["digests_told"]) == (size, 0)
        assert statement["tree_root"] == root_of_manifest(near / "m")


def test_over_a_path_that_loses(receipt):
    with receipt.road.failing("loss=0.2,duplicate=0.1") as bad:
        receipt.road = bad
        assert receipt.run(timeout=300).report["transport"] == "udp"
        receipt.verify("--manifest", receipt.manifest, keys=[bad.daemon.identity.with_name("identity.pub")])


def test_over_ssh_there_is_none(ssh_road, near):
    make_tree(near / "tree", seed=72, files=3)
    for source, target in ((near / "tree", ssh_road.url("copy")), (ssh_road.url("copy"), near / "got"), (near / "tree", near / "got")):
        outcome = ssh_road.cp("--receipt", near / "r", source, target, expect=EXIT_USAGE)
        assert re.fullmatch("error: there can be no receipt: (over SSH|within one host).*fh://\\)", outcome.error_line)
    assert not (near / "r").exists() and not (ssh_road.far / "copy").exists() and not (near / "got").exists()


def test_what_makes_no_sense_is_refused_before_anything_is_sent(daemon_road, near):
    make_file(near / "file", 100, seed=1)
    for arguments, code in (
        (["--receipt", near / "r", "--dry-run", near / "file", daemon_road.url("x")], EXIT_USAGE),
        (["--receipt", near / "r", "--verify", "transit", near / "file", daemon_road.url("x")], EXIT_USAGE),
        (["--receipt", near / "none/r", near / "file", daemon_road.url("x")], EXIT_FILES),
        (["--receipt", near, near / "file", daemon_road.url("x")], EXIT_FILES),
        (["--receipt", near / "r", near / "file", "fh://beta/null:"], EXIT_USAGE),
    ):
        daemon_road.cp(*arguments, expect=code)
    assert not (daemon_road.far / "x").exists() and not (near / "r").exists()


def test_what_cannot_be_synced_has_no_receipt(daemon_road, near):
    make_tree(daemon_road.far / "tree", seed=73, files=5)
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=syncfs:error=EIO"]
    words = ["farhaul", "cp", "--accept-new", "--json", "--receipt", near / "r", daemon_road.url("tree"), near / "copy"]
    done = daemon_road.alpha.run([*inject, *map(os.fspath, words)], timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == EXIT_FILES and report["error_detail"]["code"] == "FH-NOT-ON-DISK", done
    assert "receipt" not in report and "signed nothing" in report["no_receipt"] and not (near / "r").exists()


def test_a_daemon_that_knows_no_receipts_is_named(net, near):
    make_file(near / "file", 100, seed=1)

    def script(stream):
        ids = [1000 + number for number in range(len(peer.read_hello(stream)["flow_ids"]))]
        features = [name for name in peer.FEATURES if name != "receipt"]
        peer.write_hello(stream, peer.greeting("reply", features=features, refusal=None, flow_ids=ids, udp_ports=[]))
        peer.read_exactly(stream, 1)

    with other_daemon(net, 33337, script):
        outcome = cp(net.alpha, "--accept-new", "--receipt", near / "r", near / "file", "fh://beta:33337/x", expect=EXIT_INCOMPATIBLE)
    assert outcome.report["error_detail"]["code"] == "FH-FEATURE-MISSING" and "lacks 'receipt'" in outcome.error_line


def pushed(net, session):
    """A small file, and what the daemon has signed for it."""
    (net.daemon.root / "asked").unlink(missing_ok=True)
    session.message(peer.START)
    session.file("asked", b"content")
    session.message(peer.ENTRIES_END)
    body = session.next(31)[1]
    length, at = peer.take_leb(body, 0)
    return json.loads(body[at:at + length])


def test_what_a_client_of_another_kind_is_signed(net):
    """The second implementation of the wire computes the same tree root as the daemon signs."""
    wish = peer.request("push", "", target_is_directory=True, integrity={"receipt": "5e" * 16})
    with daemon_session(net, wish) as (_reply, session):
        statement = pushed(net, session)["statement"]
        line = {"kind": "file", "path": "asked", "mode": "644", "mtime_ns": 1_700_000_000 * 10**9, "size": 7,
                "digest": peer.seal.blake3(b"content").hex()}
        assert statement["tree_root"] == root_of([record(line)], (1, 1, 7)) and statement["transfer"] == "5e" * 16
        session.message(31, peer.counted(b"") + peer.counted(b"I have no pen"))
        session.drain()
    assert (net.daemon.root / "asked").read_bytes() == b"content"


@pytest.mark.parametrize("answer", ["nothing that is one", "its own words", "too early"])
def test_a_daemon_ends_a_session_by_a_receipt_that_does_not_fit(net, answer):
    wish = peer.request("push", "", target_is_directory=True, integrity={"receipt": "5e" * 16})
    told = net.daemon.log_text().count("broke the protocol")
    with daemon_session(net, wish) as (_reply, session):
        if answer == "too early":
            session.message(peer.START)
            session.message(31, peer.counted(b"{}") + peer.counted(b""))
        else:
            signed = pushed(net, session)
            words = b"{}" if answer == "nothing that is one" else json.dumps(signed).encode()
            session.message(31, peer.counted(words) + peer.counted(b""))
        session.drain()
    wait_until(lambda: net.daemon.log_text().count("broke the protocol") > told)
    how = "UnexpectedMessage" if answer == "too early" else "ReceiptUnfit"
    assert how in net.daemon.log_text().splitlines()[-1]
