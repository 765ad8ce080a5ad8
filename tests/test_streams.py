"""TCP in place of UDP, or beside it: as many connections as help, any of which may die; notes that UDP was
blocked; UDP that is policed.

Open connections are read from the kernel's table. No test looks at the clock.
"""

import contextlib
import re
import signal
import subprocess

import pytest

from harness import lab, trees
from harness.hosts import wait_until
from harness.product import EXIT_INTERRUPTED, cp, finish, start_cp

MB = 1_000_000
TARGETS = {"ssh": "$FARHAUL_LAB_B:", "daemon": "$FARHAUL_LAB_CP_OPTIONS ${FARHAUL_LAB_URL}"}
#: On this link one connection with Cubic reaches less than a tenth of the rate.
LINK = ("--rtt", "40ms", "--rate", "100m", "--loss", "1%")
DROP = "meta l4proto udp counter drop"
POLICE = "meta l4proto udp limit rate over 250 kbytes/second burst 30 kbytes counter drop"


def nft(up, rule):
    """Sets a rule on both hosts for packets that arrive."""
    chain = "type filter hook prerouting priority -350; policy accept;"
    for host in "ab":
        up.execute(host, "nft", f"table inet streams {{ chain c {{ {chain} {rule}; }}; }}")


def keep_to(up, control):
    """Fixes TCP's congestion control between the hosts, whatever a program asks for."""
    for here, there in (("a", "b"), ("b", "a")):
        route = up.execute(here, "sh", "-c", f"ip route get $FARHAUL_LAB_{there.upper()}").stdout.decode().split()
        device, source = (route[route.index(word) + 1] for word in ("dev", "src"))
        up.execute(here, "ip", "route", "replace", f"{route[0]}/32", "dev", device, "src", source,
                   "congctl", "lock", control)


@pytest.fixture
def link(tmp_path):
    with lab.Up("--home", str(tmp_path), *LINK) as up:
        yield up


def start(up, script):
    """Starts a shell script on host A."""
    argv = lab.command("exec", "--lab", up.name, "a", "--", "sh", "-c", f"exec {script}")
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def connections(up):
    """Local ports of host A's TCP connections to a daemon, or directly to a far end that ssh has started."""
    lines = up.execute("a", "ss", "-tnH", "state", "established").stdout.decode().splitlines()
    ends = [line.split()[2:4] for line in lines]
    return sorted(int(near.rpartition(":")[2]) for near, far in ends if re.fullmatch("33[0-9]{3}", far.rpartition(":")[2]))


def until(process, condition, what):
    """Waits for a condition that must become true while the transfer runs."""
    wait_until(lambda: process.poll() is not None or condition(), seconds=60, every=0.1, what=what)
    assert process.poll() is None, (what, process.communicate())


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("road", TARGETS)
def test_several_connections_carry_and_one_that_dies_costs_its_share(link, tmp_path, road, direction):
    keep_to(link, "cubic")
    nft(link, DROP)
    source = trees.make_file(tmp_path / "source", 30 * MB)
    ends = f"{source} {TARGETS[road]}copy"
    if direction == "pull":
        link.execute("a", "sh", "-c", f"farhaul cp -q {ends}", timeout=120)
        ends = f"{TARGETS[road]}copy {tmp_path}/back"
    process = start(link, f"farhaul cp --json {ends}")
    until(process, lambda: len(connections(link)) >= 6, "six connections")
    for port in connections(link)[:2]:
        link.execute("a", "ss", "-K", "sport", "=", f":{port}")
    outcome = finish(process)
    assert outcome.code == 0 and outcome.report["transport"] == "tcp", outcome
    said = [warning for warning in outcome.report["warnings"] if "the sender's TCP uses cubic" in warning]
    assert len(said) == 1 and "bbr" in said[0], outcome
    copy = next(tmp_path.rglob("copy")) if direction == "push" else tmp_path / "back"
    assert trees.sha256(copy) == trees.sha256(source)


def test_few_connections_are_opened_where_one_fills_the_link(tmp_path):
    with lab.Up("--home", str(tmp_path), "--rtt", "10ms", "--rate", "50m") as up:
        nft(up, DROP)
        process = start(up, f"farhaul cp --json random:{60 * MB} {TARGETS['daemon']}null:")
        seen = []

        def has_ended():
            seen.append(len(connections(up)))
            return process.poll() is not None
        wait_until(has_ended, seconds=60, every=0.2, what="the transfer ends")
        outcome = finish(process)
    assert outcome.code == 0 and outcome.report["transport"] == "tcp", outcome
    assert 1 <= max(seen) <= 4, (seen, outcome)


def test_bbr_is_asked_for_where_the_kernel_has_it(link):
    available = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    if "bbr" not in link.execute("a", "cat", available).stdout.decode():
        pytest.skip("this kernel has no BBR now")
    nft(link, DROP)
    process = start(link, f"farhaul cp --json random:{20 * MB} {TARGETS['daemon']}null:")
    table = []

    def is_there():
        table.append(link.execute("a", "ss", "-tniH", "state", "established").stdout.decode())
        return " bbr " in table[-1]
    until(process, is_there, "a connection with BBR")
    outcome = finish(process)
    assert "the sender's TCP" not in " ".join(outcome.report["warnings"]), outcome


@pytest.mark.parametrize("road", TARGETS)
def test_udp_that_is_policed_is_told_and_tcp_is_taken(link, road):
    link.set("--loss", "0%")
    nft(link, POLICE)
    process = start(link, f"farhaul cp --json random:{100 * MB} {TARGETS[road]}null:")
    outcome = finish(process)
    assert outcome.code == 0 and "tcp" in outcome.report["transport"], outcome
    words = r"; UDP is held to \d+ Mbit/s between here and .*, where TCP has \d+ Mbit/s"
    assert re.search(words, outcome.report["bottleneck"]), outcome


def test_a_policer_of_both_leaves_udp_alone(link):
    link.set("--loss", "0%")
    nft(link, POLICE.replace("udp", "{ tcp, udp }").replace("250 k", "1000 k"))
    process = start(link, f"farhaul cp --json random:{12 * MB} {TARGETS['daemon']}null:")
    outcome = finish(process)
    assert outcome.code == 0 and outcome.report["transport"] == "udp", outcome
    assert "UDP is held" not in outcome.report["bottleneck"], outcome


def without_udp(net):
    stack = contextlib.ExitStack()
    for host in (net.alpha, net.beta):
        stack.enter_context(host.dropping("meta l4proto udp"))
    return stack


def test_a_place_that_udp_does_not_reach_is_remembered_until_it_does(own_road):
    road = own_road
    source = trees.make_file(road.net.folder("near") / "file", 4 * MB)
    log = road.net.folder("near") / "stderr"

    def warned(outcome, words):
        return any(words in warning for warning in outcome.report["warnings"])
    with without_udp(road.net):
        assert warned(road.cp(source, road.url("one")), "cannot be reached")
        again = road.cp(source, road.url("two"))
        assert again.report["transport"] == "tcp" and warned(again, "could not be reached last time"), again
        far = "beta:null:" if road.name == "ssh" else road.net.daemon.url("null:")
        with log.open("wb") as stderr:
            process = road.start("--rate", "50M", "random:", far, stderr=stderr)
        until(process, lambda: "last time" in log.read_text(), "the copy goes on over TCP")
    until(process, lambda: "UDP gets through" in log.read_text(), "UDP is taken up")
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == EXIT_INTERRUPTED and outcome.report["transport"] == "udp", outcome
    after = road.cp(source, road.url("three"))
    assert after.report["transport"] == "udp" and not after.report["warnings"], after


def test_the_ssh_channel_is_left_for_a_direct_connection(own_net):
    """While the ssh channel carries the transfer, TCP to the far end's port is unblocked."""
    log = own_net.folder("near") / "stderr"
    with without_udp(own_net):
        with own_net.beta.dropping("tcp dport 33001-33100"), log.open("wb") as stderr:
            process = start_cp(own_net.alpha, "--rate", "50M", "random:", "beta:null:", stderr=stderr)
            until(process, lambda: "going on over ssh" in log.read_text(), "the channel carries")
        until(process, lambda: any(33001 <= port <= 33100 for port in own_net.beta.tcp_ports()), "a direct connection")
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert outcome.code == EXIT_INTERRUPTED, outcome


def test_udp_only_opens_no_stream(own_net):
    source = trees.make_file(own_net.folder("near") / "file", 20 * MB)
    report = cp(own_net.alpha, "--udp-only", source, f"beta:{own_net.folder('far')}/one").report
    assert report["transport"] == "udp", report
