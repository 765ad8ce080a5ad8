"""What a key may do: options before it in the list of keys. They are judged before anything is opened, and
again while sessions run."""

import base64
import contextlib
import time

import pytest

from harness import peer
from harness.hosts import USER, wait_until
from harness.play import daemon_session
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_LOST, EXIT_OK, Daemon, cp, finish, keygen, public_key_line, start_cp
from harness.trees import make_file, sha256

MIB = 1 << 20


class Served:
    """A daemon that knows alpha's key, with options that the test chooses."""

    def __init__(self, net):
        self.net, self.alpha, self.daemon, self.root = net, net.alpha, net.daemon, net.daemon.root
        self.near = net.folder("near")

    def allow(self, options, *more):
        self.daemon.keys.write_text(f"{options} {self.net.key.strip()}\n" + "".join(more))

    def cp(self, *arguments, **options):
        return cp(self.alpha, "--accept-new", *arguments, **options)

    def start(self, *arguments, **options):
        return start_cp(self.alpha, "--accept-new", *arguments, **options)

    def url(self, path=""):
        return self.daemon.url(path)

    def log(self):
        return self.daemon.log_text()


@pytest.fixture
def served(own_net):
    return Served(own_net)


def test_a_read_only_key_reads_and_does_not_write(served):
    served.allow("read-only")
    make_file(served.root / "there", 1000)
    served.cp(served.url("there"), served.near / "got")
    outcome = served.cp(served.near / "got", served.url("new"), expect=EXIT_AUTH)
    assert "you may only read here" in outcome.error_line and "hint" in outcome.stderr, outcome
    for arguments in (["--delete"], ["--delete", "--dry-run"]):
        served.cp(*arguments, f"{served.near}/", served.url(), verb="sync", expect=EXIT_AUTH)
    assert [path.name for path in served.root.iterdir()] == ["there"]


def test_each_request_of_a_session_is_judged(served):
    """A refused request has its line in the log, and the session goes on with the next one."""
    served.allow("read-only")
    make_file(served.root / "there", 1000)

    def begin(session, number, *wish):
        session.further[number] = bytearray()
        session.message(peer.OPEN, peer.leb(number) + base64.b64decode(peer.request(*wish)["request"]))

    def refusal(session):
        _code, body = session.next(peer.FAIL)
        number, at = peer.take_leb(body, 0)
        return number, body[at:]

    with daemon_session(served.net, {**peer.request("pull", "there"), "many": True}) as (reply, session):
        assert reply["refusal"] is None, reply
        session.message(peer.START)
        begin(session, 3, "push", "new")
        number, reason = refusal(session)
        assert number == 3 and b"you may only read here" in reason, reason
        begin(session, 5, "pull", "there")
        session.wait(lambda: b"there" in session.further[5])
        begin(session, 7, "push", "new")
        assert refusal(session)[0] == 7 and session.further[3] == session.further[7] == b""
    assert [path.name for path in served.root.iterdir()] == ["there"]
    further = [line for line in served.log().splitlines() if "further request" in line]
    assert sum("you may only read here" in line for line in further) == 2, further


def test_a_write_only_key_writes_and_does_not_read(served):
    served.allow("write-only")
    source = make_file(served.near / "file", 1000)
    served.cp(source, served.url("in"))
    outcome = served.cp(served.url("in"), served.near / "back", expect=EXIT_AUTH)
    assert "you may only write here" in outcome.error_line, outcome
    assert sha256(served.root / "in") == sha256(source) and not (served.near / "back").exists()


def test_a_key_that_may_not_overwrite_adds_and_changes_nothing(served):
    served.allow("no-overwrite")
    tree = served.near / "tree"
    (tree / "sub").mkdir(parents=True)
    (served.root / "tree/sub").mkdir(parents=True)
    for name in ("small", "sub/large", "sub/new"):
        make_file(tree / name, 3 * MIB if name == "sub/large" else 1000)
    (tree / "link").symlink_to("small")
    (served.root / "tree/small").write_text("theirs")
    (served.root / "tree/sub/large").write_text("theirs")
    (served.root / "tree/link").symlink_to("theirs")
    (served.root / "tree/sub").chmod(0o711)
    (tree / "sub").chmod(0o755)
    for arguments, verb in ((["-r"], "cp"), (["-r", "--overwrite", "older"], "cp"), (["--inplace", "--overwrite", "never"], "cp"),
                            (["--backup", "--overwrite", "never"], "cp"), ([], "sync"), (["--overwrite", "never"], "sync")):
        outcome = served.cp(*arguments, tree, served.url(), verb=verb, expect=EXIT_AUTH)
        assert "you may not overwrite here" in outcome.error_line and "never" in outcome.stderr, outcome
    served.cp("-r", "--overwrite", "never", tree, served.url())
    there = served.root / "tree"
    assert (there / "small").read_text() == (there / "sub/large").read_text() == "theirs" and (there / "link").readlink().name == "theirs"
    assert sha256(there / "sub/new") == sha256(tree / "sub/new") and (there / "sub").stat().st_mode & 0o777 == 0o711
    # Pulls change nothing here.
    served.cp(served.url("tree/small"), tree / "small")


@pytest.mark.parametrize("size", [1000, 30 * MIB])
def test_what_somebody_else_puts_there_meanwhile_stays(served, size):
    """The name was free when the copy began."""
    served.allow("no-overwrite,max-rate=40M")
    source = make_file(served.near / "file", size)
    (served.root / "file").unlink(missing_ok=True)
    ahead = make_file(served.near / "ahead", 20 * MIB)
    command = [ahead, source] if size < MIB else [source]
    running = served.start("--overwrite", "never", *command, served.url())
    wait_until(lambda: any(served.root.glob(".*.fhjournal")), what="a part has arrived")
    (served.root / "file").write_text("theirs")
    outcome = finish(running)
    assert (served.root / "file").read_text() == "theirs", outcome
    assert size < MIB or outcome.code == EXIT_FILES, outcome


def test_a_key_that_may_not_delete_replaces_and_adds(served):
    served.allow("no-delete")
    make_file(served.near / "new", 1000)
    make_file(served.root / "extra", 1000)
    make_file(served.root / "new", 10)
    for arguments in (["--delete"], ["--delete", "--dry-run"], ["--detect-renames"]):
        outcome = served.cp(*arguments, f"{served.near}/", served.url(), verb="sync", expect=EXIT_AUTH)
        assert "you may not delete here" in outcome.error_line, outcome
    served.cp(f"{served.near}/", served.url(), verb="sync")
    assert (served.root / "extra").exists() and sha256(served.root / "new") == sha256(served.near / "new")


def test_a_keys_root_is_all_that_it_sees(served):
    (served.root / "a/sub").mkdir(parents=True)
    (served.root / "b").mkdir()
    make_file(served.root / "b/secret", 200)
    make_file(served.root / "a/mine", 100)
    (served.root / "a/link").symlink_to("../b")
    served.allow(f'root="{served.root}/a"')
    served.cp(served.url("mine"), served.near / "mine")
    served.cp(served.near / "mine", served.url("sub/new"))
    served.cp(served.near / "mine", served.url("/top"))
    assert {path.name for path in (served.root / "a").iterdir()} == {"sub", "mine", "link", "top"}
    for path in ("b/secret", "../b/secret", "link/secret", "/b/secret", "sub/../../b/secret"):
        outcome = served.cp(served.url(path), served.near / "got", check=False)
        assert outcome.code in (EXIT_FILES, EXIT_AUTH) and not (served.near / "got").exists(), (path, outcome)
        served.cp(served.near / "mine", served.url(path), check=False)
    assert sha256(served.root / "b/secret") != sha256(served.near / "mine")
    assert [path.name for path in (served.root / "b").iterdir()] == ["secret"]
    assert " root=a" in served.log()


def test_a_keys_root_that_is_missing_or_a_link_leads_nowhere(served):
    """A link is not followed: whoever may write in the directory above could decide where it leads."""
    (served.root / "b").mkdir()
    make_file(served.root / "b/file", 100)
    (served.root / "link").symlink_to("b")
    for name in ("link", "none"):
        served.allow(f"root={served.root}/{name}")
        outcome = served.cp(served.url("file"), served.near / "got", expect=EXIT_FILES)
        assert "directory that you may use here cannot be opened" in outcome.error_line, outcome
        assert not (served.near / "got").exists() and not (served.root / "none").exists()
    assert f"{served.daemon.keys}:1: there is no directory {served.root}/none now" in served.log()


def test_cipher_none_for_who_may(own_net):
    """The daemon allows it, but the line of one key does not."""
    other = keygen(own_net.alpha, user=USER)
    daemon = Daemon(own_net.pair, own_net.beta, [f"no-cipher-none {own_net.key}", other], port=33081,
                    arguments=["--allow-cipher-none"])
    near = own_net.folder("near")
    near.chmod(0o755)
    source = make_file(near / "file", 100_000)
    arguments = ["--accept-new", "--cipher", "none", source]
    outcome = cp(own_net.alpha, *arguments, daemon.url("mine"), expect=EXIT_AUTH)
    assert "you may not use --cipher none here" in outcome.error_line, outcome
    cp(own_net.alpha, "--accept-new", source, daemon.url("mine"))
    report = cp(own_net.alpha, *arguments, daemon.url("others"), user=USER).report
    assert report["cipher"] == "none" and (daemon.root / "others").exists()


def test_no_line_allows_what_the_daemon_does_not(own_net):
    """A line with a root outside of the daemon's root lets nobody in."""
    lines = [f"max-rate=1G {own_net.key}", f"root=/etc {public_key_line(1)}"]
    daemon = Daemon(own_net.pair, own_net.beta, lines, port=33082, arguments=["--read-only"])
    source = make_file(own_net.folder("near") / "file", 100)
    cp(own_net.alpha, "--accept-new", source, daemon.url("x"), expect=EXIT_AUTH)
    cp(own_net.alpha, "--accept-new", "--cipher", "none", daemon.url("x"), source, expect=EXIT_AUTH)
    assert f"{daemon.keys}:2: root=/etc does not lie in {daemon.root}" in daemon.log_text()


def test_an_option_that_is_not_understood_refuses_its_line(served):
    """This holds when the daemon starts and while it runs. Other lines stay good."""
    source = make_file(served.near / "file", 100)
    keys = served.daemon.keys
    bad = f"read-olny {served.net.key}"
    keys.write_text(f"# ours\n{bad}")
    served.daemon.restart()
    served.cp(source, served.url("x"), expect=EXIT_AUTH)
    warning = f"{keys}:2: there is no option 'read-olny'"
    assert [line for line in served.log().splitlines() if warning in line and "WARN" in line], served.log()
    served.allow("read-only", f"max-rate=fast {public_key_line(3)}")
    served.cp(source, served.url("x"), expect=EXIT_AUTH)
    served.allow("max-rate=1G", f"max-rate=fast {public_key_line(3)}")
    served.cp(source, served.url("x"))
    assert f"{keys}:2: max-rate=fast: write bits a second" in served.log()
    for options, reason in ((f"root={served.root}/a,root={served.root}/b", "root= stands twice: a key has one root"),
                            ("read-only,write-only", "leave nothing"), ('root="/a', "a quote is not closed")):
        served.allow(options)
        served.cp(source, served.url("y"), expect=EXIT_AUTH)
        assert f"{keys}:1: {reason}" in served.log() or reason in served.log(), (options, served.log())
    assert not (served.root / "y").exists()


MAX_RATE = 40_000_000


def bits_per_second(outcomes, seconds=None):
    return 8 * sum(outcome.report["bytes"] for outcome in outcomes) / (seconds or outcomes[0].report["seconds"])


@pytest.mark.parametrize("arguments", [["--policy", "fixed", "--rate", "800M"], ["--flows", "4"], ["--rate", "10M"]],
                         ids=["fixed", "flows", "less"])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_max_rate_holds(served, direction, arguments):
    served.allow("max-rate=40M")
    size = 5 * MIB if "10M" in arguments else 20 * MIB
    here, there = served.near / "file", served.root / "file"
    make_file(here if direction == "push" else there, size)
    ends = (here, served.url("file")) if direction == "push" else (served.url("file"), here)
    outcome = served.cp(*arguments, *ends)
    assert outcome.report["transport"] == "udp" and sha256(here) == sha256(there)
    most = 10_000_000 if "10M" in arguments else MAX_RATE
    assert 0.5 * most < bits_per_second([outcome]) < 1.15 * most, outcome


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_max_rate_holds_over_tcp(served, direction):
    served.allow("max-rate=40M")
    here, there = served.near / "file", served.root / "file"
    make_file(here if direction == "push" else there, 20 * MIB)
    ends = (here, served.url("file")) if direction == "push" else (served.url("file"), here)
    with served.net.beta.dropping(f"udp dport {served.daemon.port}"):
        outcome = served.cp(*ends)
    assert outcome.report["transport"] == "tcp" and sha256(here) == sha256(there), outcome
    assert bits_per_second([outcome]) < 1.15 * MAX_RATE, outcome


def test_a_max_rate_is_for_all_transfers_of_a_key_together(served):
    """The limit counts both directions, while transfers come and go. A transfer of another key has its own
    limit."""
    other = keygen(served.alpha, user=USER)
    served.allow("max-rate=40M", other)
    served.near.chmod(0o777)
    source = make_file(served.near / "file", 10 * MIB)
    make_file(served.root / "file", 10 * MIB)
    begin = time.monotonic()
    running = [served.start(source, served.url("one")), served.start(source, served.url("two")),
               served.start(served.url("file"), served.near / "back")]
    free = cp(served.alpha, "--accept-new", source, served.url("other"), user=USER)
    outcomes = [finish(process) for process in running]
    seconds = time.monotonic() - begin
    assert all(outcome.code == EXIT_OK for outcome in outcomes), outcomes
    # The last transfer is alone at the end and gets the whole rate.
    assert 0.5 * MAX_RATE < bits_per_second(outcomes, seconds) < 1.15 * MAX_RATE, (seconds, *map(str, outcomes))
    assert free.report["seconds"] < min(outcome.report["seconds"] for outcome in outcomes)


def test_what_one_transfer_does_not_use_is_anothers(served):
    served.allow("max-rate=40M")
    source = make_file(served.near / "file", 30 * MIB)
    with daemon_session(served.net, peer.request("push", "idle")) as (reply, _session):
        assert reply["refusal"] is None, reply
        outcome = served.cp(source, served.url("file"))
    assert 0.6 * MAX_RATE < bits_per_second([outcome]) < 1.15 * MAX_RATE, outcome


def test_a_key_has_no_more_memory_than_its_line_says(served):
    """The key gets more memory as soon as its line says so, also while it has sessions."""
    served.allow("memory=64M")
    with contextlib.ExitStack() as sessions:
        def refusal():
            reply, _session = sessions.enter_context(daemon_session(served.net, peer.request("push", "")))
            return reply["refusal"]

        # Each session takes at least 14 MiB.
        replies = [refusal() for _ in range(5)]
        assert replies[:4] == [None] * 4 and "memory of this key is used up (64 MiB)" in replies[4]["text"], replies
        served.allow("memory=128M")
        assert refusal() is None


def test_a_sender_that_does_not_listen_gets_no_further_for_it(served):
    """The sender ignores the rate: it sends all granted blocks at once, and begins new sessions again and
    again."""
    # One block in a minute.
    served.allow(f"max-rate={8 * (MIB + (64 << 10)) // 60}")
    begin = time.monotonic()
    blocks = granted = 0
    for number in range(3):
        with daemon_session(served.net, peer.request("push", f"file{number}")) as (reply, session):
            assert reply["refusal"] is None, reply
            session.message(peer.START)
            identity = session.entry("file", size=64 * MIB)
            session.wait(lambda: session.is_answered(identity))
            session.end = time.monotonic() + 4
            # A write that waits until then looks like a stream that was cut.
            with contextlib.suppress(TimeoutError, peer.Closed):
                while time.monotonic() < session.end:
                    session.block(peer.Piece(identity, session.blocks * MIB, bytes(MIB)))
            blocks += session.blocks
            granted += session.credit
    # A key may have this many blocks at once, in one session or in three; without a limit each session would
    # get 16. Blocks that were granted to a session and not begun when it ends go to the next: one under way
    # and one ahead.
    most = 4 + (time.monotonic() - begin) / 60 + 1
    assert 1 <= blocks <= most and blocks <= granted <= most + 3 * 2, (blocks, granted)


def test_a_sender_that_gives_up_blocks_has_the_rate_of_its_key_all_the_same(served):
    """Blocks that are given up count against the rate, and others are granted in their place."""
    served.allow("max-rate=80M")
    with daemon_session(served.net, peer.request("push", "file")) as (reply, session):
        assert reply["refusal"] is None, reply
        session.message(peer.START)
        identity = session.entry("file", size=256 * MIB)
        session.wait(lambda: session.is_answered(identity))
        begin = time.monotonic()
        while session.blocks < 30:
            session.wait(lambda: session.credit > session.blocks)
            session.segment(session.blocks, 0, bytes(1000), False)
            session.give_up((session.blocks, 1))
            session.blocks += 1
        seconds = time.monotonic() - begin
    # The key gets 4 blocks at once, then one every 0.11 s.
    assert 2 < seconds < 10, seconds


@pytest.mark.parametrize("direction, narrower, lost", [
    ("push", "read-only", "it may not write any more"), ("pull", "write-only", "it may not read any more"),
    ("push", "no-delete", "it may not delete any more"), ("push", "max-rate=10M", "its rate is limited further"), ("pull", "root={}/sub", "it has another root")])
def test_narrowing_a_key_ends_its_sessions_and_the_same_command_goes_on(served, direction, narrower, lost):
    (served.root / "sub").mkdir()
    here, there = served.near / "file", served.root / "file"
    make_file(here if direction == "push" else there, 40 * MIB)
    ends = (here, served.url("file")) if direction == "push" else (served.url("file"), here)
    command = ["--rate", "80M", *ends]
    served.allow("max-rate=1G")
    running = served.start(*command)
    target = (there if direction == "push" else here).parent
    # The journal has a header, and one record for each chunk.
    booked = lambda: sum(path.stat().st_size for path in target.glob(".*.fhjournal")) > 144 + 56 * 2
    wait_until(booked, what="a part of the file has arrived")
    served.allow(narrower.format(served.root))
    outcome = finish(running, timeout=20)
    # More than two seconds of the transfer were left, so it cannot have ended before.
    assert outcome.code == EXIT_LOST and f"narrowed what this key may do: {lost}" in outcome.error_line, outcome
    wait_until(lambda: f"narrowed what this key may do: {lost}" in served.log(), what="the log says so, too")
    if narrower.endswith("only"):
        assert "you may only" in served.cp(*command, expect=EXIT_AUTH).error_line
    served.allow("max-rate=2G")
    report = served.cp(*command).report
    assert report["bytes_resumed"] >= MIB, report
    assert sha256(there) == sha256(here)


def test_a_line_that_allows_as_much_or_more_ends_nothing(served):
    source = make_file(served.near / "file", 20 * MIB)
    served.allow("max-rate=40M,no-cipher-none")
    running = served.start(source, served.url("file"))
    wait_until(lambda: "session begins" in served.log(), what="the session begins")
    other_comment = served.net.key.strip() + " at home\n"
    for line in (f"no-cipher-none,max-rate=40M {other_comment}", f"max-rate=50M {other_comment}", f"# none\n\n{other_comment}"):
        before = served.log().count("authorized keys have changed")
        served.daemon.keys.write_text(line)
        wait_until(lambda: served.log().count("authorized keys have changed") > before or running.poll() is not None,
                   what="the daemon sees the change")
    outcome = finish(running)
    assert outcome.code == EXIT_OK and sha256(served.root / "file") == sha256(source), outcome
