"""UDP is blocked in each way that firewalls have: the client notices within 3 s, says so, and the copy goes
on over TCP or the ssh channel."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_CONNECT, EXIT_INTERRUPTED, EXIT_LOST, cp, finish
from harness.trees import make_file, sha256

MIB = 1 << 20
#: How long the client may take to notice, beyond the time of the copy itself.
NOTICED_S = 3.0
SLACK_S = 3.0


@contextlib.contextmanager
def blocked(net, way):
    """While it lasts, UDP is blocked in one way. With `large`, probes and handshakes pass, but data do
    not."""
    rules = {
        "all": [(net.alpha, "meta l4proto udp"), (net.beta, "meta l4proto udp")],
        "large": [(net.alpha, "udp length > 600"), (net.beta, "udp length > 600")],
        "towards beta": [(net.beta, "meta l4proto udp")],
        "towards alpha": [(net.alpha, "meta l4proto udp")],
    }[way]
    with contextlib.ExitStack() as stack:
        for host, match in rules:
            stack.enter_context(host.dropping(match))
        yield


WAYS = ["all", "large", "towards beta", "towards alpha"]


@pytest.mark.parametrize("way", WAYS)
def test_push_goes_on_over_the_other_carrier(own_road, way):
    road = own_road
    source = make_file(road.net.folder("near") / "file", 20 * MIB)
    with blocked(road.net, way):
        outcome = road.cp(source, road.url("file"), timeout=60)
    assert outcome.report["transport"] == road.fallback
    assert outcome.seconds < NOTICED_S + SLACK_S, outcome
    warnings = " ".join(outcome.report["warnings"]) + outcome.stderr
    assert "UDP" in warnings and "330" in warnings, f"the port is not named: {outcome}"
    assert sha256(road.far / "file") == sha256(source)


def test_the_rate_that_was_set_holds_for_the_other_carrier(own_road):
    road = own_road
    source = make_file(road.net.folder("near") / "file", 20 * MIB)
    with blocked(road.net, "all"):
        report = road.cp("--rate", "60M", source, road.url("file"), timeout=60).report
    assert report["transport"] == road.fallback
    assert report["goodput_bps"] < 60e6
    assert report["bottleneck"].startswith("the rate that was set: "), report


@pytest.mark.parametrize("way", ["all", "large"])
def test_pull_goes_on_over_the_other_carrier(own_road, way):
    road = own_road
    near = road.net.folder("near")
    source = make_file(road.far / "file", 20 * MIB)
    with blocked(road.net, way):
        outcome = road.cp(road.url("file"), near / "file", timeout=60)
    assert outcome.report["transport"] == road.fallback
    assert outcome.seconds < NOTICED_S + SLACK_S, outcome
    assert sha256(near / "file") == sha256(source)


@pytest.mark.parametrize("way", WAYS)
def test_udp_only_fails_and_names_the_port(own_road, way):
    road = own_road
    source = make_file(road.net.folder("near") / "file", MIB)
    with blocked(road.net, way):
        outcome = road.cp("--udp-only", source, road.url("file"), check=False, timeout=60)
    assert outcome.code in (EXIT_CONNECT, EXIT_LOST), outcome
    assert outcome.seconds < 15, outcome
    assert "UDP" in outcome.error_line and "330" in outcome.error_line, outcome
    assert "neither" not in outcome.error_line, "TCP was not tried"
    assert not (road.far / "file").exists()


@pytest.mark.parametrize("way", WAYS)
def test_udp_dies_in_the_middle(own_road, way):
    road = own_road
    source = make_file(road.net.folder("near") / "file", 200 * MIB)
    process = road.start("--rate", "600M", source, road.url("file"))
    time.sleep(1.2)
    with blocked(road.net, way):
        outcome = finish(process, timeout=60)
    assert outcome.code == 0, outcome
    assert outcome.report["transport"] == road.fallback
    warnings = " ".join(outcome.report["warnings"]) + outcome.stderr
    assert "330" in warnings and "any more" in warnings and "firewall" not in warnings, outcome
    assert sha256(road.far / "file") == sha256(source)
    assert outcome.seconds < 20, outcome


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_the_ssh_channel_carries_where_nothing_else_does(own_net, direction):
    near, far = own_net.folder("near"), own_net.folder("far")
    source = make_file((near if direction == "push" else far) / "file", 20 * MIB)
    ends = (source, f"beta:{far}/copy") if direction == "push" else (f"beta:{source}", near / "copy")
    with own_net.beta.dropping("meta l4proto udp"), own_net.beta.dropping("tcp dport 33001-33100"):
        outcome = cp(own_net.alpha, *ends, timeout=60)
    assert outcome.report["transport"] == "ssh", outcome
    assert sha256((far if direction == "push" else near) / "copy") == sha256(source)


def test_udp_is_taken_up_again_when_it_gets_through(own_road):
    """A transfer without end, which Ctrl-C ends: its report names the last carrier."""
    road = own_road
    log = road.net.folder("near") / "stderr"
    far = "beta:null:" if road.name == "ssh" else road.net.daemon.url("null:")
    with log.open("wb") as stderr:
        process = road.start("--rate", "50M", "random:", far, stderr=stderr)

    def says(words):
        wait_until(lambda: process.poll() is not None or words in log.read_text(), seconds=30, what=words)
        assert process.poll() is None, log.read_text()

    # The client connects a socket when the far end has answered on it.
    wait_until(lambda: road.alpha.run(["ss", "-unH", "state", "established"]).stdout, seconds=30, what="a flow is up")
    with blocked(road.net, "all"):
        says("going on over")
    says("UDP gets through to")
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == EXIT_INTERRUPTED and outcome.report["transport"] == "udp", outcome


def test_large_packets_vanish_on_the_way(own_road):
    """A path with a smaller MTU that sends no ICMP: the transfer stays on UDP with smaller packets."""
    road = own_road
    road.net.pair.plain_link()
    source = make_file(road.net.folder("near") / "file", 50 * MIB)
    with road.net.beta.dropping("udp length > 1260"), road.net.alpha.dropping("udp length > 1260"):
        outcome = road.cp(source, road.url("file"), timeout=60)
    assert outcome.report["transport"] == "udp", outcome
    assert sha256(road.far / "file") == sha256(source)


def test_path_mtu_shrinks_in_the_middle(own_road):
    road = own_road
    road.net.pair.plain_link()
    source = make_file(road.net.folder("near") / "file", 100 * MIB)
    process = road.start("--rate", "300M", source, road.url("file"))
    time.sleep(1.2)
    with road.net.beta.dropping("udp length > 1260"):
        outcome = finish(process, timeout=60)
    assert outcome.code == 0, outcome
    assert sha256(road.far / "file") == sha256(source)


def test_a_port_of_the_range_that_somebody_has_is_passed_over(own_net):
    source = make_file(own_net.folder("near") / "file", MIB)
    far = own_net.folder("far")
    script = ("import socket, time\n"
              "held = [socket.socket(socket.AF_INET6, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]\n"
              "[one.bind(('::', 40100)) for one in held]\n"
              "print('held', flush=True)\n"
              "time.sleep(300)")
    holder = own_net.beta.start([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    report = cp(own_net.alpha, "--udp-ports", "40100-40101", source, f"beta:{far}/one").report
    assert report["transport"] == "udp"
    failed = cp(own_net.alpha, "--udp-ports", "40100-40100", "--udp-only", source, f"beta:{far}/two", check=False)
    assert failed.code != 0 and "40100" in failed.stderr, failed
    holder.kill()
    holder.wait()


def test_a_range_of_ports_that_is_blocked_leaves_the_channel_of_ssh(own_net):
    """`--udp-ports` gives the range. TCP uses it, too; if both are blocked there, the ssh channel carries the
    copy."""
    source = make_file(own_net.folder("near") / "file", MIB)
    far = own_net.folder("far")
    report = cp(own_net.alpha, "--udp-ports", "40100-40101", source, f"beta:{far}/one").report
    assert report["transport"] == "udp"
    with own_net.beta.dropping("udp dport 40100-40101"), own_net.alpha.dropping("udp sport 40100-40101"):
        outcome = cp(own_net.alpha, "--udp-ports", "40100-40101", source, f"beta:{far}/two")
        assert outcome.report["transport"] == "tcp"
        assert "40100" in " ".join(outcome.report["warnings"]) + outcome.stderr
        with own_net.beta.dropping("tcp dport 40100-40101"):
            report = cp(own_net.alpha, "--udp-ports", "40100-40101", source, f"beta:{far}/three").report
        assert report["transport"] == "ssh"
