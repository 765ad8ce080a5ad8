"""Copies between two daemons: alpha tells beta to send to gamma, and no content passes through alpha."""

import base64
import contextlib
import json
import pathlib
import re
import signal
import time

import pytest

from harness import peer, steering
from harness.hosts import wait_until
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_FILES, EXIT_INTERRUPTED, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, finish, public_key_line
from harness.steering import Refused, Steering, document
from harness.three import ThreeNet
from harness.trees import differences, make_file, make_tree, sha256

MIB = 1 << 20
#: Numbers of error codes, as docs/reference/errors.md has them.
FORBIDDEN, GRANT_REFUSED, GRANT_USED, GRANT_EXPIRED, HOST_KEY_WRONG = 2007, 2015, 2016, 2017, 1019
INTERRUPTED, BAD_PATH = 1031, 1026


@pytest.fixture(scope="module")
def shared_three():
    made = ThreeNet()
    yield made
    made.pair.close()


@pytest.fixture
def three(shared_three):
    """The three hosts, with empty roots and daemons that both know alpha's key."""
    net = shared_three
    for daemon in (net.b, net.c):
        net.beta.run(["find", daemon.root, "-mindepth", "1", "-delete"], check=True)
        daemon.keys.write_text(net.key)
        if daemon.process.poll() is not None:
            daemon.start()
    return net


@contextlib.contextmanager
def steering_of(net, daemon, key=None):
    with net.session(daemon, steering.WISH, key=key) as (reply, session):
        assert reply["refusal"] is None, reply
        yield Steering(session)


def grant_at(net, daemon, path, **options):
    """Asks a daemon, as alpha, for a grant; it is for the other daemon's key if no other key is named."""
    other = net.b if daemon is net.c else net.c
    with steering_of(net, daemon) as control:
        return control.grant(options.pop("key", other.fingerprint), path, **options)


def carry(net, *arguments, **options):
    """Tells beta to make a copy; returns how it ended."""
    with steering_of(net, net.b) as control:
        control.begin(document(*arguments, **options))
        return control.ended()


def come(net, daemon, wish, token, key=None, host=None):
    """The refusal of a hello with a grant, sent under the other daemon's key; None if the daemon accepts."""
    other = net.b if daemon is net.c else net.c
    with net.session(daemon, wish, key=key or other.identity, host=host or other.host,
                     grant=base64.b64encode(token).decode()) as (reply, _session):
        return reply["refusal"]


def last_line(daemon, words):
    """The last line of the daemon's log that has these words, without quotes."""
    lines = [line.replace('"', "") for line in daemon.log_text().splitlines() if words in line]
    assert lines, daemon.log_text()
    return lines[-1]


# ---- through the command line ----------------------------------------------------------------------------------------


def test_a_tree_goes_from_one_daemon_to_the_other_and_not_through_here(three):
    tree = make_tree(three.b.root / "tree", seed=7, files=80)
    make_file(tree / "large", 40 * MIB)
    before = three.bytes_at_alpha()
    outcome = three.cp(three.b.url("tree"), three.c.url(""))
    carried = three.bytes_at_alpha() - before
    assert differences(tree, three.c.root / "tree") == []
    assert outcome.report["ok"] and outcome.report["bytes"] >= 40 * MIB and outcome.report["transport"] == "udp", outcome
    assert carried < 1 * MIB, f"{carried} bytes passed alpha"
    # The log of each daemon names the client who asked.
    given = last_line(three.c, " grant ")
    client = given.split(" key=")[1].split()[0]
    assert f" bearer={three.b.fingerprint}" in given and "way=write" in given, given
    begins = last_line(three.c, "session begins")
    assert f" key={client}" in begins and f" bearer={three.b.fingerprint}" in begins, begins
    line = last_line(three.b, "copy with another daemon ")
    assert f" key={client}" in line and f" with_key={three.c.fingerprint}" in line, line
    assert "result=ok" in line and "direction=push" in line and " path=tree " in line, line
    # A second copy finds the files there.
    again = three.cp(three.b.url("tree"), three.c.url(""))
    assert again.report["bytes"] == 0 and again.report["skipped"] > 0, again


@pytest.mark.parametrize("sources, target, expected", [
    (["one"], "new", ["new"]),
    (["one"], "into/", ["into", "into/one"]),
    (["one", "two"], "into", ["into", "into/one", "into/two"]),
    (["dir/"], "into", ["into", "into/x"]),
    (["*"], "into/", ["into", "into/dir", "into/dir/x", "into/one", "into/two"]),
    (["one"], "", ["one"]),
], ids=["name", "into", "several", "content", "pattern", "root"])
def test_names_mean_what_they_mean_elsewhere(three, sources, target, expected):
    (three.b.root / "dir").mkdir()
    for name in ("one", "two", "dir/x"):
        make_file(three.b.root / name, 1000)
    three.cp(*[three.b.url(source) for source in sources], three.c.url(target))
    found = sorted(str(path.relative_to(three.c.root)) for path in three.c.root.rglob("*"))
    assert found == expected
    assert sha256(three.c.root / expected[-1]) in {sha256(three.b.root / name) for name in ("one", "two", "dir/x")}


def test_a_sync_between_daemons_deletes_what_is_too_much(three):
    tree = make_tree(three.b.root / "tree", seed=3, files=30)
    (three.c.root / "copy/more").mkdir(parents=True)
    make_file(three.c.root / "copy/more/file", 100)
    three.cp(three.b.url("tree"), three.c.url("copy"), verb="sync")
    assert (three.c.root / "copy/more/file").exists()
    outcome = three.cp("--delete", three.b.url("tree"), three.c.url("copy"), verb="sync")
    assert outcome.report["deleted"] == 2, outcome
    assert differences(tree, three.c.root / "copy") == []


def test_one_daemon_copies_nothing_into_itself(three):
    """Both ends may be one daemon, by whatever name."""
    make_tree(three.b.root / "t/sub", seed=3, files=5)
    make_file(three.b.root / "t/precious", 1000)
    before = {path: path.is_file() and sha256(path) for path in three.b.root.rglob("*")}
    by_address = three.b.url("", host=three.beta.v4)
    for verb, arguments, words in [
        ("sync", ["--delete", three.b.url("t/sub"), three.b.url("t")], "is in the other"),
        ("sync", ["--delete", three.b.url("t"), f"{by_address}t/new"], "is in the other"),
        ("cp", [three.b.url("t"), f"{by_address}t/self/"], "into itself"),
        ("cp", [three.b.url("t/precious"), three.b.url("t/./precious")], "is copied to where it is"),
        ("cp", [three.b.url("t/precious"), three.b.url("t/")], "is copied to where it is"),
    ]:
        outcome = three.cp(*arguments, verb=verb, expect=EXIT_USAGE)
        assert words in outcome.error_line, outcome
    assert before == {path: path.is_file() and sha256(path) for path in three.b.root.rglob("*")}
    three.cp(three.b.url("t"), f"{by_address}u")
    assert differences(three.b.root / "t", three.b.root / "u") == []


@contextlib.contextmanager
def closed_to_beta(three):
    """While it lasts, gamma rejects connections from beta."""
    rules = "".join(f"{kind} dport {three.c.port} ip saddr {three.beta.v4} reject;" for kind in ("tcp", "udp"))
    three.gamma.nft(f"table inet closed {{ chain c {{ type filter hook input priority 0; policy accept; {rules} }}; }}")
    try:
        yield
    finally:
        three.gamma.nft("delete table inet closed")


def test_several_sources_are_not_fetched(three):
    """A grant is for one path, so gamma cannot fetch two sources. The error is that of the first attempt, in
    which beta sends."""
    for name in ("one", "two"):
        make_file(three.b.root / name, 1000)
    with closed_to_beta(three):
        outcome = three.cp(three.b.url("one"), three.b.url("two"), three.c.url("into/"), expect=EXIT_CONNECT)
    assert "beta: " in outcome.error_line and "gamma" in outcome.error_line, outcome
    assert list(three.c.root.iterdir()) == []


def test_any_number_of_names_goes_from_one_daemon_to_the_other(three):
    names = [f"{number:05}-{'x' * 100}" for number in range(5000)]
    for name in names:
        (three.b.root / name).write_text(name)
    outcome = three.cp(*(three.b.url(name) for name in names), three.c.url("into/"))
    assert outcome.report["files"] == len(names), outcome
    assert {path.name: path.read_text() for path in (three.c.root / "into").iterdir()} == {name: name for name in names}


def test_who_drives_is_the_source_unless_it_cannot_reach_the_destination(three):
    make_file(three.b.root / "file", 3 * MIB)
    with closed_to_beta(three):
        outcome = three.cp(three.b.url("file"), three.c.url("file"))
    assert sha256(three.c.root / "file") == sha256(three.b.root / "file")
    assert any("so gamma fetches it" in warning for warning in outcome.report["warnings"]), outcome
    assert "so gamma fetches it" in outcome.stderr
    assert "direction=pull" in last_line(three.c, "copy with another daemon")


@pytest.mark.parametrize("is_fetched", [False, True], ids=["brought", "fetched"])
def test_a_manifest_is_kept_where_the_copy_was_asked_for(three, is_fetched):
    """Its lines come from the daemon that makes the copy, and each says what became of an entry."""
    tree = three.b.root / "tree"
    for number in range(300):
        (tree / f"{number % 7}").mkdir(parents=True, exist_ok=True)
        make_file(tree / f"{number % 7}/ü {number}", number * 100)
    (tree / "secret").write_bytes(b"x")
    # This file cannot be written: a directory that is not empty is in its place.
    (three.c.root / "new/tree/secret/x").mkdir(parents=True)
    manifest = three.folder("here") / "m"
    manifest.write_text('{"manifest":1,"of":"an earlier one"}\n')
    with closed_to_beta(three) if is_fetched else contextlib.nullcontext():
        outcome = three.cp("--manifest", manifest, "--checksum-extra", "sha256", three.b.url("tree"), three.c.url("new/"),
                           expect=EXIT_SOME_FAILED)
    first, *entries, last = map(json.loads, manifest.read_text().splitlines())
    assert first["manifest"] == 1 and last["end"] is True and last["complete"] is True and last["ok"] is False, last
    assert len({entry["path"] for entry in entries}) == len(entries)
    (failed,) = [entry for entry in entries if entry["result"] == "failed"]
    assert failed["path"] == "tree/secret" and failed["code"] == outcome.report["failed"][0]["code"], failed
    sent = {entry["path"]: entry for entry in entries if entry.get("kind") == "file" and entry["result"] == "sent"}
    files = {f"tree/{path.relative_to(tree)}" for path in tree.rglob("*") if path.is_file()}
    assert set(sent) == files - {"tree/secret"}, set(sent) ^ files
    assert all(sent[path]["sha256"] == sha256(three.b.root / path) for path in list(sent)[:40])
    assert re.fullmatch("[0-9a-f]{64}", outcome.report["tree_root"].removeprefix("blake3-tree-1MiB:")), outcome.report
    checked = three.alpha.run(["farhaul", "verify", "--json", manifest, three.c.root / "new"])
    report = json.loads(checked.stdout)
    assert report["tree_root"] == outcome.report["tree_root"], report


def test_a_manifest_of_a_copy_that_never_began_says_so(three):
    manifest = three.folder("here") / "m"
    three.cp("--manifest", manifest, three.b.url("missing"), three.c.url("x"), check=False)
    first, *entries, last = map(json.loads, manifest.read_text().splitlines())
    assert first["manifest"] == 1 and last["ok"] is False and "missing" in last["error"], last
    assert all(entry["result"] == "failed" for entry in entries), entries
    # No daemon listens at that port.
    three.cp("--manifest", manifest, f"fh://{three.beta.v4}:9/x", three.c.url("x"), expect=EXIT_CONNECT)
    first, last = map(json.loads, manifest.read_text().splitlines())
    assert last["complete"] is False and "missing" not in last["error"], last


def test_a_client_that_stands_still_for_a_while_has_the_whole_manifest(three):
    """The daemon keeps only a limited number of lines for a slow client: its copy waits, too, and goes on
    when the client does."""
    for number in range(30_000):
        (three.b.root / f"tree/{number % 50}").mkdir(parents=True, exist_ok=True)
        (three.b.root / f"tree/{number % 50}/{number:0100}").touch()
    manifest = three.folder("here") / "m"
    run = three.start("--manifest", manifest, three.b.url("tree"), three.c.url("new/"))
    wait_until(lambda: manifest.exists() and manifest.stat().st_size > 0, 30)
    run.send_signal(signal.SIGSTOP)
    time.sleep(1)
    run.send_signal(signal.SIGCONT)
    assert finish(run).code == EXIT_OK
    lines = manifest.read_text().splitlines()
    assert len([line for line in lines if '"kind":"file"' in line]) == 30_000


def test_names_and_addresses_are_found_from_either_host(three):
    """A name that only alpha knows, a name that means beta itself on beta, and an IPv6 address."""
    make_file(three.b.root / "file", 1000)
    hosts = {host: pathlib.Path(f"/etc/netns/{host.netns}/hosts") for host in (three.alpha, three.beta)}
    before = {host: path.read_text() for host, path in hosts.items()}
    hosts[three.alpha].write_text(before[three.alpha] + f"{three.gamma.v4} onlyhere other\n")
    hosts[three.beta].write_text(before[three.beta] + f"{three.beta.v4} other\n")
    try:
        three.cp(three.b.url("file"), three.c.url("one", host="onlyhere"))
        three.cp(three.b.url("file", host="[fd77::2]"), three.c.url("two", host="[fd77::3]"))
        outcome = three.cp(three.b.url("file"), three.c.url("three", host="other"), check=False)
    finally:
        for host, path in hosts.items():
            path.write_text(before[host])
    assert outcome.code == EXIT_OK or outcome.report["error_detail"]["code"] == "FH-HOST-KEY-WRONG", outcome
    found = {path.name for path in three.c.root.iterdir()}
    assert found == {"one", "two", "three"} - ({"three"} if outcome.code else set())
    assert [path.name for path in three.b.root.iterdir()] == ["file"]


def test_a_dry_run_changes_nothing(three):
    make_tree(three.b.root / "tree", seed=9, files=10)
    outcome = three.cp("--dry-run", three.b.url("tree"), three.c.url("new/"))
    assert "would send tree" in outcome.stderr, outcome
    assert list(three.c.root.iterdir()) == []


def test_both_may_be_one_daemon(three):
    make_file(three.b.root / "file", 1 * MIB)
    three.cp(three.b.url("file"), three.b.url("copy"))
    assert sha256(three.b.root / "file") == sha256(three.b.root / "copy")


def test_ssh_on_either_side_is_refused_in_words(three):
    for source, target in ((three.b.url("x"), "gamma:x"), ("beta:x", three.c.url("x")), ("beta:x", "gamma:x")):
        outcome = three.cp(source, target, expect=EXIT_USAGE)
        assert "over SSH" in outcome.error_line and "farhaul serve" in outcome.stderr, outcome


@pytest.mark.parametrize("options, word", [
    (["--fingerprint", "SHA256:" + "A" * 43], "--fingerprint"),
    (["--path", "10.77.0.1=10.77.0.2"], "--path"),
], ids=["fingerprint", "path"])
def test_what_needs_this_host_is_refused_in_words(three, options, word):
    make_file(three.b.root / "file", 100)
    outcome = three.cp(*options, three.b.url("file"), three.c.url("file"), expect=EXIT_USAGE)
    assert word in outcome.error_line, outcome
    assert list(three.c.root.iterdir()) == []


def test_what_is_missing_is_said_as_of_any_copy(three):
    outcome = three.cp(three.b.url("none"), three.c.url("file"), expect=EXIT_FILES)
    assert "none" in outcome.error_line, outcome
    make_file(three.b.root / "file", 100)
    outcome = three.cp(three.b.url("file"), three.c.url("no/such/place/"), expect=EXIT_FILES)
    assert "beta" in outcome.error_line and outcome.report["error_detail"]["code"] == "FH-NOT-FOUND", outcome


def test_a_copy_that_is_interrupted_goes_on_where_it_stopped(three):
    make_file(three.b.root / "file", 48 * MIB)
    running = three.start("--rate", "80M", three.b.url("file"), three.c.url("file"))
    journal_bytes = lambda: sum(path.stat().st_size for path in three.c.root.glob(".*.fhjournal"))
    wait_until(lambda: journal_bytes() > 64 + 56 * 12, what="a part of the file has arrived")
    running.send_signal(signal.SIGINT)
    outcome = finish(running)
    assert outcome.code == EXIT_INTERRUPTED, outcome
    assert not (three.c.root / "file").exists()
    wait_until(lambda: "FH-INTERRUPTED" in last_line(three.b, "copy with another daemon"), what="beta has stopped")
    outcome = three.cp(three.b.url("file"), three.c.url("file"))
    assert outcome.report["bytes_resumed"] > 4 * MIB, outcome
    assert sha256(three.c.root / "file") == sha256(three.b.root / "file")


def test_progress_and_events_are_those_of_a_copy(three):
    make_tree(three.b.root / "tree", seed=5, files=20)
    done = three.alpha.run(["farhaul", "cp", "--accept-new", "--events", three.b.url("tree"), three.c.url("")])
    assert done.returncode == EXIT_OK, done
    text = done.stdout.decode()
    assert text.count('"event":"started"') == 1 and text.count('"event":"ended"') == 1
    assert '"event":"connected"' in text and text.count('"done":"sent"') > 15, text


# ---- rights ------------------------------------------------------------------------------------------------------------


def test_each_daemon_goes_by_what_the_client_may_do_there(three):
    make_file(three.b.root / "file", 1000)
    three.c.keys.write_text(f"read-only {three.key}")
    outcome = three.cp(three.b.url("file"), three.c.url("file"), expect=EXIT_AUTH)
    assert "gamma: you may only read here" in outcome.error_line, outcome
    three.c.keys.write_text(three.key)
    three.b.keys.write_text(f"write-only {three.key}")
    outcome = three.cp(three.b.url("file"), three.c.url("file"), expect=EXIT_AUTH)
    assert "beta: you may only write here" in outcome.error_line, outcome
    assert list(three.c.root.iterdir()) == []


def test_both_ends_are_confined_to_the_clients_roots(three):
    for daemon in (three.b, three.c):
        (daemon.root / "mine").mkdir()
        daemon.keys.write_text(f"root={daemon.root}/mine {three.key}")
    make_file(three.b.root / "secret", 1000)
    make_file(three.b.root / "mine/file", 2000)
    (three.b.root / "mine/link").symlink_to("../secret")
    three.cp(three.b.url("/file"), three.c.url("/file"))
    assert sha256(three.c.root / "mine/file") == sha256(three.b.root / "mine/file")
    for source in ("../secret", "/../secret", "link"):
        three.cp("--follow", three.b.url(source), three.c.url("got"), check=False)
    three.cp(three.b.url("file"), three.c.url("../out"), check=False)
    assert {path.name for path in three.c.root.iterdir()} == {"mine"}
    assert {path.name for path in (three.c.root / "mine").iterdir()} <= {"file"}


def test_the_clients_rate_holds_at_either_daemon(three):
    make_file(three.b.root / "file", 20 * MIB)
    for daemon in (three.b, three.c):
        daemon.keys.write_text(f"max-rate=40M {three.key}")
        outcome = three.cp(three.b.url("file"), three.c.url(f"from-{daemon.host.name}"))
        daemon.keys.write_text(three.key)
        rate = 8 * outcome.report["bytes"] / outcome.report["seconds"]
        assert 15_000_000 < rate < 46_000_000, (daemon.host.name, outcome)


@pytest.mark.parametrize("whose", ["source", "destination"])
def test_a_copy_ends_when_its_client_is_let_in_no_more(three, whose):
    make_file(three.b.root / "file", 64 * MIB)
    daemon = three.b if whose == "source" else three.c
    running = three.start("--rate", "40M", three.b.url("file"), three.c.url("file"))
    wait_until(lambda: any(three.c.root.iterdir()), what="the copy has begun")
    daemon.keys.write_text("")
    outcome = finish(running)
    assert outcome.code == EXIT_AUTH and outcome.report["error_detail"]["code"] == "FH-KEY-REVOKED", outcome
    wait_until(lambda: "result=" in last_line(three.b, "copy with another daemon"), what="beta has stopped")
    assert not (three.c.root / "file").exists()


# ---- grants ------------------------------------------------------------------------------------------------------------


def test_a_grant_is_good_once(three):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file")
    assert carry(three, ["file"], three.c, "file", token)["error"] is None
    assert sha256(three.c.root / "file") == sha256(three.b.root / "file")
    make_file(three.b.root / "file", 2000)
    ended = carry(three, ["file"], three.c, "file", token)
    assert ended["error"]["code"] == GRANT_USED and "has been used" in ended["error"]["what"], ended
    assert (three.c.root / "file").stat().st_size == 1000


def test_a_grant_expires(three):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file", seconds=1)
    time.sleep(1.1)
    ended = carry(three, ["file"], three.c, "file", token)
    assert ended["error"]["code"] == GRANT_EXPIRED and "has expired" in ended["error"]["what"], ended
    assert list(three.c.root.iterdir()) == []


def test_a_grant_that_another_key_shows_is_refused(three):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file")
    # Gamma knows alpha's key, but the grant is for another key.
    own = three.alpha.home / ".config/farhaul/id_ed25519"
    refusal = come(three, three.c, peer.request("push", "file"), token, key=own, host=three.alpha)
    assert refusal["code"] == "FH-GRANT-REFUSED" and "for another key" in refusal["text"], refusal
    # After a restart gamma has no grants for beta's key, and a grant for another key does not help beta.
    three.c.restart()
    other = grant_at(three, three.c, "file", key=three.c.fingerprint)
    ended = carry(three, ["file"], three.c, "file", other)
    assert ended["error"]["code"] == GRANT_REFUSED and "knows of no grant" in ended["error"]["what"], ended
    # A grant that the daemon has forgotten is refused, too.
    grant_at(three, three.c, "file")
    ended = carry(three, ["file"], three.c, "file", token)
    assert ended["error"]["code"] == GRANT_REFUSED and "nobody has given" in ended["error"]["what"], ended
    assert list(three.c.root.iterdir()) == []


@pytest.mark.parametrize("wish, words", [
    (peer.request("push", "other"), "for another path"),
    (peer.request("push", "file/"), "for another path"),
    (peer.request("pull", "file"), "for writing here, not for reading"),
    (peer.request("push", "file", sync={"delete": {}}), "does not let anything be deleted"),
    (peer.request("push", "file", files={"keep_dirlinks": True}), "does not let links be followed"),
    (peer.request("push", "file", spread={"target": [base64.b64encode(name).decode() for name in (b"a", b"b")]}), "another path"),
    ({**peer.request("push", "file"), "many": True}, "for one copy"),
    (peer.opening("read", b"{}", {}), "for one copy"),
    (steering.WISH, "for one copy"),
], ids=["path", "slash", "direction", "delete", "links", "spread", "many", "read", "control"])
def test_a_grant_is_for_nothing_else(three, wish, words):
    """A refused use does not use the grant up: afterwards it is still good for its own copy."""
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file")
    refusal = come(three, three.c, wish, token)
    assert refusal["code"] == "FH-GRANT-REFUSED" and words in refusal["text"], refusal
    assert carry(three, ["file"], three.c, "file", token)["error"] is None
    assert sha256(three.c.root / "file") == sha256(three.b.root / "file")


def test_a_grant_that_is_altered_cut_or_shown_elsewhere_is_nobody_s(three):
    """It is for a key that both daemons let in, and stays good for its own copy."""
    own = three.alpha.home / ".config/farhaul/id_ed25519"
    grant_at(three, three.c, "other")
    fingerprint = last_line(three.c, " grant ").split(" key=")[1].split()[0]
    token = grant_at(three, three.c, "file", key=fingerprint)
    wish = peer.request("push", "file")

    def shown(daemon, token):
        return come(three, daemon, wish, token, key=own, host=three.alpha)

    for bit in (0, 7, 100, 255):
        flipped = (int.from_bytes(token, "big") ^ 1 << bit).to_bytes(32, "big")
        refusal = shown(three.c, flipped)
        assert refusal["code"] == "FH-GRANT-REFUSED" and "nobody has given" in refusal["text"], refusal
    assert "nobody has given" in shown(three.b, token)["text"], "another daemon's"
    for size in (0, 31, 33):
        refusal = shown(three.c, (token * 2)[:size])
        assert refusal["code"] in ("FH-MISBEHAVED", "FH-ACCUSED", "FH-BAD-REQUEST"), refusal
    # Two sessions at once: the second one comes while the first one is open.
    with three.session(three.c, wish, key=own, grant=base64.b64encode(token).decode()) as (reply, _session):
        assert reply["refusal"] is None, reply
        assert shown(three.c, token)["code"] == "FH-GRANT-USED"


def test_a_grant_for_reading_is_not_one_for_writing(three):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.b, "file", way="read")
    refusal = come(three, three.b, peer.request("push", "file"), token)
    assert "for reading here, not for writing" in refusal["text"], refusal
    with three.session(three.b, peer.request("pull", "file"), key=three.c.identity, host=three.gamma,
                       grant=base64.b64encode(token).decode()) as (reply, session):
        assert reply["refusal"] is None, reply
        session.message(peer.START)
        assert session.entry_of(session.next(peer.ENTRY)[1])[1] == b"file"


@pytest.mark.parametrize("line, words", [
    ("read-only {key}", "may do less here now"),
    ("root={root}/sub {key}", "it has another root"),
    ("max-rate=1G {key}", "its rate is limited further"),
    ("", "no longer let in here"),
], ids=["read-only", "root", "rate", "revoked"])
def test_a_grant_goes_with_the_rights_of_who_gave_it(three, line, words):
    make_file(three.b.root / "file", 1000)
    (three.c.root / "sub").mkdir()
    token = grant_at(three, three.c, "file")
    three.c.keys.write_text(line.format(key=three.key, root=three.c.root))
    ended = carry(three, ["file"], three.c, "file", token)
    assert ended["error"]["code"] == GRANT_REFUSED and words in ended["error"]["what"], ended
    assert [path.name for path in three.c.root.iterdir()] == ["sub"]


def test_a_grant_gives_no_more_than_when_it_was_given(three):
    """The key of who gave it has got more since: its path leads where it led, below the root of then."""
    make_file(three.b.root / "file", 1000)
    (three.c.root / "sub").mkdir()
    three.c.keys.write_text(f"root={three.c.root}/sub {three.key}")
    token = grant_at(three, three.c, "file")
    three.c.keys.write_text(three.key)
    ended = carry(three, ["file"], three.c, "file", token)
    assert ended["error"] is None, ended
    assert [path.name for path in three.c.root.iterdir()] == ["sub"] and (three.c.root / "sub/file").exists()


def test_no_grant_is_given_for_what_the_client_may_not_do(three):
    three.c.keys.write_text(f"read-only {three.key}")
    with steering_of(three, three.c) as control:
        with pytest.raises(Refused) as refused:
            control.grant(three.b.fingerprint, "file")
        assert refused.value.code == FORBIDDEN and "you may only read here" in refused.value.reason
        assert control.grant(three.b.fingerprint, "file", way="read")


def test_grants_of_one_key_are_bounded(three):
    three.c.restart()
    with steering_of(three, three.c) as control:
        for _ in range(64):
            control.grant(three.b.fingerprint, "file")
        with pytest.raises(Refused) as refused:
            control.grant(three.b.fingerprint, "file")
        assert "yet to be used" in refused.value.reason
    three.c.restart()


def test_without_a_grant_the_other_daemon_is_nobody(three):
    """A made-up grant does not help. A key that has a grant, but no line in the list, gets nothing without
    the grant."""
    make_file(three.b.root / "file", 1000)
    three.c.restart()
    ended = carry(three, ["file"], three.c, "file", bytes(32))
    assert ended["error"]["code"] == GRANT_REFUSED, ended
    grant_at(three, three.c, "file")
    with three.session(three.c, peer.request("push", "file"), key=three.b.identity, host=three.beta) as (reply, _session):
        assert reply["refusal"]["code"] == "FH-KEY-NOT-AUTHORIZED", reply
    assert list(three.c.root.iterdir()) == []


def test_what_a_daemon_may_do_itself_is_no_clients(three):
    """Gamma lets beta's key in, and alpha's key may only read there: a copy for alpha has the rights of
    alpha."""
    make_file(three.b.root / "file", 1000)
    beta = three.beta.run(["cat", f"{three.b.identity}.pub"], check=True).stdout.decode()
    three.c.keys.write_text(f"read-only {three.key}{beta}")
    outcome = three.cp(three.b.url("file"), three.c.url("file"), expect=EXIT_AUTH)
    assert "gamma: you may only read here" in outcome.error_line, outcome
    ended = carry(three, ["file"], three.c, "file", bytes(32))
    assert ended["error"]["code"] == GRANT_REFUSED and "nobody has given" in ended["error"]["what"], ended
    assert list(three.c.root.iterdir()) == []


# ---- the daemon that copies ----------------------------------------------------------------------------------------------


def test_a_daemon_with_another_key_than_it_was_told_gets_nothing(three):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file")
    ended = carry(three, ["file"], three.c, "file", token, key="SHA256:" + "A" * 43)
    assert ended["error"]["code"] == HOST_KEY_WRONG and three.c.fingerprint in ended["error"]["what"], ended
    assert list(three.c.root.iterdir()) == []
    assert carry(three, ["file"], three.c, "file", token)["error"] is None, "the daemon has not seen the grant"


def test_it_can_be_held_slowed_down_and_cancelled(three):
    make_file(three.b.root / "file", 64 * MIB)
    token = grant_at(three, three.c, "file")
    with steering_of(three, three.b) as control:
        control.begin(document(["file"], three.c, "file", token, network={"rate_bps": 80_000_000}))
        def until(condition):
            while not condition(snapshot := control.snapshot()):
                pass
            return snapshot
        until(lambda snapshot: snapshot["bytes_done"] > 4 * MIB)
        control.hold(True)
        until(lambda snapshot: snapshot["state"] == "paused")
        control.snapshot()
        held = control.snapshot()["bytes_done"]
        assert held < 60 * MIB and control.snapshot()["bytes_done"] == held
        control.rate(8_000_000)
        control.hold(False)
        begin = until(lambda snapshot: snapshot["state"] == "running" and snapshot["bytes_done"] > held)
        for _ in range(3):
            later = control.snapshot()
        moved = 8 * (later["bytes_done"] - begin["bytes_done"]) / (later["seconds"] - begin["seconds"])
        assert moved < 24_000_000, (begin, later)
        control.cancel()
        ended = control.ended()
        assert ended["error"]["code"] == INTERRUPTED, ended
    assert not (three.c.root / "file").exists()


def test_it_stops_when_its_client_goes(three):
    make_file(three.b.root / "file", 64 * MIB)
    token = grant_at(three, three.c, "file")
    with steering_of(three, three.b) as control:
        control.begin(document(["file"], three.c, "file", token, network={"rate_bps": 40_000_000}))
        while control.snapshot()["bytes_done"] < 2 * MIB:
            pass
        control.session.finish()
    wait_until(lambda: "FH-INTERRUPTED" in last_line(three.b, "copy with another daemon"), what="beta has stopped")
    outcome = three.cp(three.b.url("file"), three.c.url("file"))
    assert outcome.report["bytes_resumed"] > 0, outcome


@pytest.mark.parametrize("change, words", [
    (lambda asked: asked["far"].update(port=0), "address is not valid"),
    (lambda asked: asked["far"].update(host=""), "address is not valid"),
    (lambda asked: asked["copy"].update(paths=[]), "between 1 and 1,048,576 paths"),
    (lambda asked: asked["copy"]["options"].update(select={"by_name": True}), "has no `spread`"),
    (lambda asked: asked["network"].update(flows=99), "flows"),
    (lambda asked: asked.pop("far"), "far"),
], ids=["port", "host", "paths", "names", "flows", "far"])
def test_what_makes_no_sense_is_refused_and_the_session_goes_on(three, change, words):
    make_file(three.b.root / "file", 1000)
    token = grant_at(three, three.c, "file")
    with steering_of(three, three.b) as control:
        asked = document(["file"], three.c, "file", token)
        change(asked)
        control.begin(asked)
        ended = control.ended()
        assert words in ended["error"]["what"], ended
        control.begin(document(["file"], three.c, "file", token))
        assert control.ended()["error"] is None


def ended_by(session):
    """The words with which the daemon ends the session."""
    return session.next(peer.FAIL, peer.ABORT)[1]


def test_hostile_clients_end_their_own_session_alone(three):
    """Malformed messages, messages that only a daemon sends, and questions without reading the answers. This
    peer is too slow to send a document without end: the crate's own test `a_document_without_end_is_refused`
    does that."""
    part = peer.leb(1) + peer.leb(0) + peer.counted(bytes(steering.PART))
    for code, body in ((steering.BEGIN, part[:-1]), (89, b""), (100, b""), (steering.GRANT, b"\1\1\2\0\0\0"),
                       (steering.RATE, b"\3\0\0"), (steering.HOLD, b"\2")):
        with steering_of(three, three.b) as control:
            control.session.message(code, body)
            assert b"makes no sense" in ended_by(control.session), (code, body)
    with steering_of(three, three.b) as control:
        control.session.message(steering.GRANTED, peer.leb(1) + peer.leb(600) + bytes(32))
        assert b"unexpected message granted" in ended_by(control.session)
    make_file(three.b.root / "file", 1000)
    three.cp(three.b.url("file"), three.c.url("file"))


def test_a_second_copy_beside_the_first_is_misbehaviour(three):
    make_file(three.b.root / "file", 64 * MIB)
    token = grant_at(three, three.c, "file")
    with steering_of(three, three.b) as control:
        asked = document(["file"], three.c, "file", token, network={"rate_bps": 8_000_000})
        control.begin(asked)
        control.begin(asked)
        assert b"unexpected message begin" in ended_by(control.session)


def test_strangers_are_as_strange_as_before(three):
    """A grant for one key lets no other key in."""
    grant_at(three, three.c, "file")
    three.c.keys.write_text(three.key + public_key_line(9))
    stranger = three.folder("stranger") / "key"
    three.beta.run(["farhaul", "keygen", "-f", stranger], check=True)
    with pytest.raises(peer.Closed):
        with three.session(three.c, peer.request("push", "file"), key=stranger, host=three.beta,
                           grant=base64.b64encode(bytes(32)).decode()):
            pass
