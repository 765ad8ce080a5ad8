"""What all sessions of a daemon share: its rate, its memory, and the descriptors that the system gives it."""

import contextlib
import dataclasses
import subprocess

import pytest

from harness import peer
from harness.hosts import USER, wait_until
from harness.play import daemon_session
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_OK, EXIT_USAGE, Daemon, cp, finish, keygen, start_cp
from harness.trees import differences, make_file, sha256

MIB = 1 << 20
MAX_RATE = 40_000_000


def serving(net, port, *arguments):
    """A daemon that lets in alpha's key, and that of another user there."""
    other = keygen(net.alpha, user=USER)
    return dataclasses.replace(net, daemon=Daemon(net.pair, net.beta, [net.key, other], port=port, arguments=arguments))


def near(net):
    folder = net.folder("near")
    folder.chmod(0o777)
    return folder


def soft_limit(process):
    """The most descriptors that a process may have now."""
    done = subprocess.run(["prlimit", f"--pid={process}", "--nofile", "--output=SOFT", "--noheadings"], check=True, stdout=subprocess.PIPE)
    return int(done.stdout)


def rate(outcome):
    return 8 * outcome.report["bytes"] / outcome.report["seconds"]


def copy(net, *arguments, **options):
    return start_cp(net.alpha, "--accept-new", *arguments, **options)


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_daemons_rate_is_for_all_keys_together_both_ways(own_net, transport):
    net = serving(own_net, 33091, "--max-rate", "40M")
    folder = near(net)
    source = make_file(folder / "file", 15 * MIB)
    make_file(net.daemon.root / "file", 15 * MIB)
    blocked = net.beta.dropping(f"udp dport {net.daemon.port}") if transport == "tcp" else contextlib.nullcontext()
    with blocked:
        running = [copy(net, source, net.daemon.url("pushed")), copy(net, net.daemon.url("file"), folder / "pulled", user=USER)]
        outcomes = [finish(process) for process in running]
    assert all(outcome.code == EXIT_OK and outcome.report["transport"] == transport for outcome in outcomes), outcomes
    assert sha256(source) == sha256(net.daemon.root / "pushed") and sha256(folder / "pulled") == sha256(net.daemon.root / "file")
    # The bytes of both transfers, over the time of the longer one.
    seconds = max(outcome.report["seconds"] for outcome in outcomes)
    bits = 8 * sum(outcome.report["bytes"] for outcome in outcomes)
    assert 0.5 * MAX_RATE < bits / seconds < 1.25 * MAX_RATE, [*map(str, outcomes)]


def test_keys_have_even_parts_however_many_transfers_they_have(own_net):
    net = serving(own_net, 33092, "--max-rate", "40M")
    source, small = (make_file(near(net) / name, size * MIB) for name, size in (("large", 25), ("small", 10)))
    running = [copy(net, source, net.daemon.url(f"copy{number}")) for number in range(3)]
    wait_until(lambda: net.daemon.log_text().count("session begins") == 3, what="three transfers of one key begin")
    alone = cp(net.alpha, "--accept-new", small, net.daemon.url("alone"), user=USER)
    outcomes = [finish(process) for process in running]
    assert all(outcome.code == EXIT_OK for outcome in outcomes), outcomes
    # If sessions shared alike, this one would have a fourth.
    assert 0.33 * MAX_RATE < rate(alone) < 0.8 * MAX_RATE, str(alone)


def test_a_keys_own_rate_lies_within_the_daemons(own_net):
    net = serving(own_net, 33093, "--max-rate", "40M")
    net.daemon.keys.write_text(f"max-rate=10M {own_net.key}" + net.daemon.keys.read_text().splitlines()[-1] + "\n")
    folder = near(net)
    source = make_file(folder / "file", 5 * MIB)
    make_file(net.daemon.root / "file", 20 * MIB)
    slow = copy(net, source, net.daemon.url("slow"))
    fast = cp(net.alpha, "--accept-new", net.daemon.url("file"), folder / "fast", user=USER)
    slow = finish(slow)
    assert slow.code == EXIT_OK, slow
    # A burst of 4 MiB at the beginning is most of this file, so its rate may exceed 10 Mbit/s.
    assert rate(slow) < 30_000_000 and 0.5 * MAX_RATE < rate(fast) < 1.25 * MAX_RATE, (str(slow), str(fast))


def test_a_rate_next_to_none_is_refused(own_net):
    argv = ["farhaul", "serve", "--root", own_net.folder("root"), "--max-rate", "7k"]
    done = own_net.beta.run(argv, check=False)
    assert done.returncode == EXIT_USAGE and b"--max-rate: must be at least 8k" in done.stderr, done
    net = serving(own_net, 33094, "--max-rate", "15k")
    source = make_file(near(net) / "file", 1000)
    with daemon_session(net, peer.request("push", "idle")) as (reply, _session):
        assert reply["refusal"] is None, reply
        outcome = cp(net.alpha, "--accept-new", "--busy-wait", "1s", source, net.daemon.url("x"), user=USER, expect=EXIT_CONNECT)
        assert "the rate of this daemon is used up (15000 bit/s)" in outcome.error_line, outcome
    wait_until(lambda: cp(net.alpha, "--accept-new", source, net.daemon.url("x"), user=USER, check=False).code == EXIT_OK, what="the daemon serves")


def test_who_comes_when_there_is_no_memory_is_refused_or_waits(own_net):
    """A session takes at least 14 MiB."""
    net = serving(own_net, 33095, "--memory", "24M", "--memory-per-key", "24M")
    source = make_file(near(net) / "file", 100_000)
    command = ["--accept-new", source, net.daemon.url("x")]
    with daemon_session(net, peer.request("push", "idle")) as (reply, _session):
        assert reply["refusal"] is None, reply
        outcome = cp(net.alpha, "--busy-wait", "1s", *command, user=USER, expect=EXIT_CONNECT)
        assert "the memory of this daemon is used up (24 MiB)" in outcome.error_line and "hint" in outcome.stderr, outcome
        refused = net.daemon.log_text().count("memory of this daemon is used up")
        waiting = start_cp(net.alpha, *command, user=USER)
        wait_until(lambda: net.daemon.log_text().count("memory of this daemon is used up") > refused, what="another client is turned away")
    assert finish(waiting).code == EXIT_OK and sha256(net.daemon.root / "x") == sha256(source)


def test_sessions_are_as_many_as_there_are_descriptors_for(own_net):
    """Half of the descriptors are for sessions, 8 for each; the other half suffices for the work of these
    sessions."""
    net = serving(own_net, 33096)
    source = make_file(near(net) / "file", 5 * MIB)
    cp(net.alpha, "--accept-new", source, net.daemon.url("before"))
    subprocess.run(["prlimit", f"--pid={net.daemon.process.pid}", "--nofile=96:96"], check=True)
    with contextlib.ExitStack() as sessions:
        replies = [sessions.enter_context(daemon_session(net, peer.request("push", "")))[0]["refusal"] for _ in range(7)]
        assert replies[:6] == [None] * 6 and replies[6]["code"] == "FH-BUSY", replies
        assert "the open files and sockets of this process are used up (48)" in replies[6]["text"], replies
    wait_until(lambda: cp(net.alpha, "--accept-new", source, net.daemon.url("after"), check=False).code == EXIT_OK, what="the daemon serves")
    assert sha256(net.daemon.root / "after") == sha256(source)


def test_a_daemon_without_descriptors_still_knows_its_clients(own_net):
    """It reads the authorized keys again once a second; that it can open nothing says nothing about them."""
    net = serving(own_net, 33097)
    source = make_file(near(net) / "file", 8 * MIB)
    daemon = net.daemon.process.pid
    running = copy(net, "--rate", "8M", source, net.daemon.url("copy"))
    wait_until(lambda: list(net.daemon.root.glob(".*.fhpart")), what="content arrives")
    before = soft_limit(daemon)
    subprocess.run(["prlimit", f"--pid={daemon}", "--nofile=3:"], check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(4)
    subprocess.run(["prlimit", f"--pid={daemon}", f"--nofile={before}:"], check=True)
    assert finish(running).code == EXIT_OK and sha256(net.daemon.root / "copy") == sha256(source)
    assert "nobody is let in" not in net.daemon.log_text()
    # A client whose key is taken away is let in no more.
    net.daemon.keys.write_text("")
    cp(net.alpha, "--accept-new", source, net.daemon.url("copy"), expect=EXIT_AUTH)


def test_a_tree_of_more_directories_than_there_are_descriptors(own_net):
    """Directories are kept open for the files to come, but not all descriptors are taken for that."""
    net = serving(own_net, 33098)
    tree = near(net) / "tree"
    for number in range(80):
        (tree / f"{number}/a/b").mkdir(parents=True)
        make_file(tree / f"{number}/file", 2000 + number)
        make_file(tree / f"{number}/a/b/file", 100 + number)
    subprocess.run(["prlimit", f"--pid={net.daemon.process.pid}", "--nofile=160:160"], check=True)
    cp(net.alpha, "--accept-new", f"{tree}/", net.daemon.url("copy/"))
    assert differences(tree, net.daemon.root / "copy") == []
    back = net.folder("back")
    cp(net.alpha, net.daemon.url("copy/"), f"{back}/")
    assert differences(tree, back, root_too=False) == []


def test_digests_of_more_files_than_may_be_open_at_the_far_end(own_net):
    net = serving(own_net, 33099)
    folder = net.daemon.root / "many"
    folder.mkdir()
    for number in range(600):
        make_file(folder / f"{number:03}", 100 + number)
    subprocess.run(["prlimit", f"--pid={net.daemon.process.pid}", "--nofile=256:256"], check=True)
    cp(net.alpha, "--accept-new", net.daemon.url("many/000"), net.folder("one"))
    done = net.alpha.run(["farhaul", "sum", "--algorithm", "sha256", "-r", net.daemon.url("many")], check=True)
    sums = [line.split()[0].decode() for line in done.stdout.splitlines()]
    assert sums == [sha256(path) for path in sorted(folder.iterdir())] and done.stderr == b""
