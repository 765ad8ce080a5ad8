"""A client cannot make a far end use the switches that only tests need, nor go beyond the limits of the
host."""

import signal
import subprocess

import pytest

from harness import peer
from harness.hosts import wait_until
from harness.play import daemon_session
from harness.product import EXIT_OK, EXIT_SOME_FAILED, Daemon, cp, finish, start_cp
from harness.trees import make_file, sha256


def threads(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


#: Fields that a hello once had for tests, and others that a client might try.
TESTING = {
    "stands still": {"fault": "stall_us=1000000000000"},
    "hears nothing": {"fault": "loss=1"},
    "other keys": {"epoch_bits": 4},
    "all of it": {"testing": {"fault": {"stall_us": 1 << 40}, "epoch_bits": 4}},
}


@pytest.mark.parametrize("case", TESTING)
def test_no_client_says_what_goes_wrong_at_a_daemon(net, case):
    before = threads(net.daemon.process)
    target = f"testing-{case.replace(' ', '-')}"
    with daemon_session(net, peer.request("push", target, **TESTING[case])) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        # More packets than an epoch of 2^4 has.
        for _ in range(100):
            session.datagram(peer.frame(peer.PING))
        session.file(target, b"content")
        session.message(peer.ENTRIES_END)
        session.drain()
    assert (net.daemon.root / target).read_bytes() == b"content"
    wait_until(lambda: threads(net.daemon.process) <= before, what="the session's threads are gone")


@pytest.mark.parametrize("options", [{"files": {"follow_growth_secs": 1 << 63}}, {"udp_ports": [0, 1]}, {"flows": 17}, {"memory_bytes": 1}])
def test_what_makes_no_sense_is_refused_before_a_session_begins(net, options):
    with pytest.raises(peer.Closed):
        with daemon_session(net, peer.request("pull", "x", **options)) as (reply, _session):
            assert reply["refusal"]["code"] in ("FH-BAD-OPTION", "FH-BAD-REQUEST") and reply["refusal"]["exit"] == 2, reply
            raise peer.Closed("as it should be")
    assert net.daemon.process.poll() is None and "panicked" not in net.daemon.log_text()


MIB = 1 << 20
#: The limit on the size of files that the process may write.
FSIZE = f"--fsize={4 * MIB}"


def test_a_limit_on_the_size_of_files_fails_those_files_and_nothing_else(net):
    """`ulimit -f` and LimitFSIZE= kill a process that does not handle their signal: a daemon would end for
    all clients because of one file."""
    daemon = Daemon(net.pair, net.beta, [net.key], port=33620)
    subprocess.run(["prlimit", f"--pid={daemon.process.pid}", FSIZE], check=True)
    near = net.folder("near")
    other = make_file(near / "other", 3 * MIB)
    running = start_cp(net.alpha, "--accept-new", "--rate", "20M", other, daemon.url("other"))
    tree = near / "tree"
    tree.mkdir()
    for name, size in (("tree/large", 6 * MIB), ("tree/small", 1000), ("tree/stream", 0)):
        make_file(near / name, size)
    outcome = cp(net.alpha, "--accept-new", tree, daemon.url("tree"), expect=EXIT_SOME_FAILED)
    assert [entry["path"] for entry in outcome.report["failed"]] == ["tree/large"], outcome
    assert "too large" in outcome.report["failed"][0]["reason"].lower(), outcome
    assert sha256(daemon.root / "tree/small") == sha256(tree / "small") and not (daemon.root / "tree/large").exists()
    assert finish(running).code == EXIT_OK and sha256(daemon.root / "other") == sha256(other)
    assert daemon.process.poll() is None
    daemon.kill()


@pytest.mark.parametrize("how", ["here", "pulled", "the far end"])
def test_a_limit_on_the_size_of_files_over_ssh_and_here(net, how):
    near, far = net.folder("near"), net.folder("far")
    source = (far if how == "pulled" else near) / "source"
    source.mkdir()
    make_file(source / "large", 6 * MIB)
    make_file(source / "small", 1000)
    ends = {"here": (source, near / "copy"), "pulled": (f"beta:{source}", near / "copy"),
            "the far end": ("--remote-program", f"prlimit {FSIZE} farhaul", source, f"beta:{near}/copy")}[how]
    limit = [] if how == "the far end" else ["prlimit", FSIZE]
    done = net.alpha.run([*limit, "farhaul", "cp", "--json", *map(str, ends)])
    assert done.returncode == EXIT_SOME_FAILED, done
    assert (near / "copy/small").exists() and not (near / "copy/large").exists()


def test_what_it_starts_has_the_usual_signals(net):
    """ssh and its children get the default for SIGPIPE and SIGXFSZ: they end when nobody reads from them, and
    obey limits."""
    near = net.folder("near")
    fake = near / "ssh"
    fake.write_text(f"#!/bin/sh\ngrep SigIgn /proc/$$/status > {near}/$$\nexit 255\n")
    fake.chmod(0o755)
    cp(net.alpha, "-S", fake, near, "beta:x", check=False)
    ignored = [int(path.read_text().split()[1], 16) for path in near.iterdir() if path.name.isdigit()]
    assert ignored and not any(mask >> number - 1 & 1 for mask in ignored for number in (signal.SIGPIPE, signal.SIGXFSZ))
