"""Addresses and ports change while data flow; what a path carries is remembered."""

import contextlib
import json
import os
import struct
import time

import pytest

from harness import lab
from harness.hosts import call, wait_until
from harness.packets import Udp, repeat, start_capture
from harness.product import EXIT_USAGE, finish
from harness.trees import make_file, sha256

MIB = 1 << 20


def link_local(host):
    """The link-local address of a host, once the kernel has made sure that no other host has it."""
    show = ["ip", "-6", "-o", "addr", "show", "dev", host.interface, "scope", "link"]
    wait_until(lambda: b"tentative" not in host.run(show, check=True).stdout, what="the address is usable")
    shown = host.run(show, check=True).stdout.decode()
    return shown.split()[3].split("/")[0]


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("options", [[], ["--flows", "2"]], ids=["one flow", "two flows"])
def test_a_daemon_is_reached_by_an_address_of_one_link_only(daemon_road, near, direction, options):
    alpha, beta = daemon_road.net.pair.hosts
    host = f"[{link_local(beta)}%{alpha.interface}]"
    make_file((near if direction == "push" else daemon_road.far) / "file", 20 * MIB)
    ends = [near / "file", daemon_road.url("file", host)]
    report = daemon_road.cp(*options, *(ends if direction == "push" else ends[::-1])).report
    assert report["transport"] == "udp" and report["files"] == 1, report
    assert sha256(near / "file") == sha256(daemon_road.far / "file")
    with beta.dropping("meta l4proto udp"):
        report = daemon_road.cp("--overwrite", "always", *(ends if direction == "push" else ends[::-1])).report
    assert report["transport"] == "tcp" and report["files"] == 1, report


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_over_ssh_a_host_is_reached_by_an_address_of_one_link_only(ssh_road, near, direction):
    alpha, beta = ssh_road.net.pair.hosts
    host = f"[{link_local(beta)}%{alpha.interface}]"
    make_file((near if direction == "push" else ssh_road.far) / "file", 20 * MIB)
    ends = [near / "file", ssh_road.url("file", host)]
    # The host's key is known under its names only, not under this address.
    trusting = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    report = ssh_road.cp(*trusting, "--udp-only", *(ends if direction == "push" else ends[::-1])).report
    assert report["transport"] == "udp" and report["files"] == 1, report
    assert sha256(near / "file") == sha256(ssh_road.far / "file")


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("named", ["both", "local", "none"])
def test_a_path_has_addresses_of_one_link_only(road, near, direction, named):
    alpha, beta = road.net.pair.hosts
    here, there = link_local(alpha), link_local(beta)
    path = {
        "both": f"{here}%{alpha.interface}=[{there}%{alpha.interface}]",
        "local": f"{here}%{alpha.interface}={there}",
        "none": f"{here}={there}",
    }[named]
    make_file((near if direction == "push" else road.far) / "file", 20 * MIB)
    ends = [near / "file", road.url("file")]
    report = road.cp("--path", path, "--udp-only", *(ends if direction == "push" else ends[::-1])).report
    assert report["transport"] == "udp" and report["paths"] == [{"local": here, "remote": there, "answered": True}], report
    assert sha256(near / "file") == sha256(road.far / "file")


def test_an_interface_that_is_not_there_is_named(road, near):
    here, there = map(link_local, road.net.pair.hosts)
    (near / "file").touch()
    outcome = road.cp("--path", f"{here}%nowhere=" + there, near / "file", road.url("file"), expect=EXIT_USAGE)
    assert "nowhere" in outcome.error_line, outcome


@contextlib.contextmanager
def other_port(host, port, seen_as):
    """While it lasts, others see the host's UDP port as another one, and nothing reaches the old one: like a
    NAT that has forgotten its mapping."""
    host.nft(f"""table inet nat{seen_as} {{
        chain out {{ type filter hook output priority -300; udp sport {port} udp sport set {seen_as}; }}
        chain in {{ type filter hook prerouting priority -300; udp dport {seen_as} udp dport set {port} return; udp dport {port} drop; }}
    }}""")
    try:
        yield
    finally:
        host.nft(f"delete table inet nat{seen_as}")


def start(road, direction, size, rate):
    """Starts a copy, and waits until it moves; returns its process, the source and the target."""
    near = road.net.folder("near")
    if direction == "push":
        source, target = make_file(near / "file", size), road.far / "file"
        process = road.start("--rate", rate, source, road.url("file"))
    else:
        source, target = make_file(road.far / "file", size), near / "file"
        process = road.start("--rate", rate, road.url("file"), near / "file")
    begin = road.net.beta.counter("rx_bytes") + road.net.beta.counter("tx_bytes")
    wait_until(lambda: road.net.beta.counter("rx_bytes") + road.net.beta.counter("tx_bytes") > begin + 5 * MIB,
               seconds=30, what="data flow")
    return process, source, target


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_nat_forgets_its_mapping(own_road, direction):
    road = own_road
    process, source, target = start(road, direction, 60 * MIB, "200M")
    [port] = road.alpha.udp_ports(process.pid)
    with other_port(road.alpha, port, 40001):
        time.sleep(1)
    with other_port(road.alpha, port, 40002):
        at_client = start_capture(road.alpha, 20, count=1, port=40002)
        assert at_client(), "datagrams come to the new port"
        outcome = finish(process, timeout=60)
    assert outcome.code == 0 and outcome.report["transport"] == "udp", outcome
    assert outcome.report["warnings"] == [] and outcome.report["seconds"] < 30, outcome.report
    assert sha256(target) == sha256(source)


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_the_client_moves_to_another_network(own_net, direction):
    """The client loses its address and gets a new one."""
    from conftest import road_to
    road = road_to(own_net, "daemon")
    process, source, target = start(road, direction, 60 * MIB, "200M")
    inside = ("ip", "-n", road.alpha.netns, "addr")
    call(*inside, "del", f"{road.alpha.v4}/24", "dev", road.alpha.interface)
    call(*inside, "add", "10.77.0.99/24", "dev", road.alpha.interface)
    outcome = finish(process, timeout=60)
    assert outcome.code == 0 and outcome.report["transport"] == "udp", outcome
    assert sha256(target) == sha256(source)


def from_port(frame, port):
    """The frame as if sent from another UDP port, without a checksum."""
    at = 14 + (frame[14] & 15) * 4
    return frame[:at] + struct.pack(">H", port) + frame[at + 2:at + 6] + b"\0\0" + frame[at + 8:]


def test_a_copied_packet_from_elsewhere_moves_nothing(own_net):
    """An attacker on the path holds back authentic packets and sends one of them from a port of its own. It
    gets a challenge of a few bytes, at most three times what it sent, and the transfer stays on its old
    path."""
    from conftest import road_to
    road = road_to(own_net, "daemon")
    alpha, beta = road.alpha, road.net.beta
    process, source, target = start(road, "pull", 60 * MIB, "60M")
    [port] = alpha.udp_ports(process.pid)
    at_spoofer = start_capture(alpha, 20, port=45454, quiet=0.5)
    with beta.dropping(f"udp sport {port}"):
        at_daemon = start_capture(beta, 20, count=10, port=port, quiet=0.4)
        held = [frame for frame in at_daemon() if len(frame) < 1500]
        assert held, "the client gives feedback"
        repeat(alpha, [from_port(held[-1], 45454)])
        challenges = [Udp(frame).payload for frame in at_spoofer()]
    assert challenges, "a challenge was sent"
    assert sum(map(len, challenges)) <= 3 * len(Udp(held[-1]).payload)
    outcome = finish(process, timeout=60)
    assert outcome.code == 0 and outcome.report["transport"] == "udp", outcome
    assert sha256(target) == sha256(source)


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_the_sender_remembers_the_path(own_road, direction):
    """The sending end notes what a path has carried, and the next copy uses this. A note with nonsense does
    no harm."""
    road = own_road
    near = road.net.folder("near")
    sender, peer = (road.alpha, road.net.beta) if direction == "push" else (road.net.beta, road.alpha)
    source = make_file((near if direction == "push" else road.far) / "file", 700 * MIB)
    ends = (source, road.url("copy")) if direction == "push" else (road.url("file"), near / "copy")
    road.cp(*ends)
    notes = sender.home / ".local/state/farhaul/paths.json"
    # A daemon's session ends a moment after its client.
    wait_until(notes.exists, what="the path is noted")
    [(address, note)] = json.loads(notes.read_text()).items()
    assert address == peer.v4
    assert 50e6 < note["rate_bps"] < 100e9 and 0 < note["rtt_us"] < 1e6 and abs(note["unix_s"] - time.time()) < 600
    make_file(source, 20 * MIB)
    for text in (notes.read_text(), "nonsense", json.dumps({address: {**note, "rate_bps": 2**63}})):
        notes.write_text(text)
        os.utime(source)
        road.cp("--overwrite", "always", *ends)
    assert sha256(near / "copy" if direction == "pull" else road.far / "copy") == sha256(source)


def test_marks_are_obeyed(tmp_path):
    """A sender that ignored the ECN marks would keep a queue of some milliseconds, and every packet would be
    marked."""
    stats = tmp_path / "stats"
    link = ["-q", "--stats", stats, "--rtt", "20ms", "--rate", "200m", "--queue", "100ms", "--ecn", "500us"]
    script = "farhaul cp --json -q $FARHAUL_LAB_CP_OPTIONS zero:200M ${FARHAUL_LAB_URL}null:"
    report = json.loads(lab.run(link, ["sh", "-ec", script]).stdout)
    forward = json.loads(stats.read_text().splitlines()[-1])["links"][0]["forward"]
    assert 0 < forward["marked"] < 0.9 * forward["packets"], forward
    assert report["ok"] and report["transport"] == "udp", report
