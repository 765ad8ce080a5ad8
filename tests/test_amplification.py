"""How much a far end sends to an address that a client has named or forged, and to an address that has fallen
silent."""

import contextlib
import os
import signal
import socket

import pytest

from conftest import road_to
from harness.hosts import call, wait_until
from harness.packets import Udp, start_capture
from harness.product import finish
from harness.trees import make_file, sha256

MIB = 1 << 20
#: The address of another host, which has asked for nothing. It is set on the client's host, so that a client
#: can send from it like an attacker who forges the source address; datagrams to it are dropped.
VICTIM = "10.77.0.66"
NAMED_MAX = 10 * 1200


@pytest.fixture
def victims_net(own_net):
    own_net.pair.plain_link()
    alpha = own_net.alpha
    call("ip", "-n", alpha.netns, "addr", "add", f"{VICTIM}/24", "dev", alpha.interface)
    return own_net


def to_victim(frames, address=VICTIM):
    return [Udp(frame).payload for frame in frames if frame[12:14] == b"\x08\x00" and frame[30:34] == socket.inet_aton(address)]


@contextlib.contextmanager
def silent(host, address, passing=0):
    """While it lasts, only `passing` UDP datagrams from `address` get out of the host, and none to it gets
    in."""
    limit = f"limit rate over 1/day burst {passing} packets" if passing else ""
    host.nft(f"""table ip silent {{
        chain out {{ type filter hook output priority 0; ip saddr {address} udp dport != 53 {limit} counter drop; }}
        chain error {{ type filter hook output priority 0; ip saddr {address} icmp type destination-unreachable drop; }}
        chain in {{ type filter hook input priority 0; ip daddr {address} meta l4proto udp drop; }}
    }}""")
    try:
        yield
    finally:
        host.nft("delete table ip silent")


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("name", ["ssh", "daemon"])
def test_an_address_that_is_only_named_gets_little(victims_net, name, direction):
    """Over ssh the far end sends to the address that the client names. A daemon sends to the source of the
    first datagram."""
    road = road_to(victims_net, name)
    near = victims_net.folder("near")
    source = make_file((near if direction == "push" else road.far) / "file", 3 * MIB)
    ends = (source, road.url("copy")) if direction == "push" else (road.url("file"), near / "copy")
    passing = 1 if name == "daemon" else 0
    arriving = start_capture(road.alpha, 6, count=20_000)
    leaving = start_capture(road.net.beta, 6, count=20_000)
    with silent(road.alpha, VICTIM, passing):
        outcome = road.cp("--path", f"{VICTIM}={road.net.beta.v4}", *ends, timeout=60)
        assert outcome.report["transport"] == road.fallback, outcome
        got = to_victim(arriving())
    came = sum(len(Udp(frame).payload) for frame in leaving() if frame[26:30] == socket.inet_aton(VICTIM))
    sent = sum(map(len, got))
    assert got, "something arrives, so there is something to limit"
    assert (came > 0) == (passing > 0) and sent <= (3 * came if came else NAMED_MAX), (len(got), sent, came)


@pytest.mark.parametrize("name", ["ssh", "daemon"])
def test_an_address_that_falls_silent_gets_little(victims_net, name):
    """The client's network fails in the middle of a pull. Another host may have its address by then."""
    road = road_to(victims_net, name)
    near = victims_net.folder("near")
    make_file(road.far / "file", 60 * MIB)
    process = road.start("--rate", "100M", "--path", f"{VICTIM}={road.net.beta.v4}", road.url("file"), near / "copy")
    wait_until(lambda: any(near.iterdir()), what="content comes")
    # Nothing that the client sends gets out, also not over TCP and ssh, and neither do errors of its kernel.
    with road.alpha.dropping(f"ip saddr {{ {VICTIM}, {road.alpha.v4} }}", hook="output"):
        before = start_capture(road.alpha, 4, count=100_000)
        before()
        after = to_victim(start_capture(road.alpha, 10, count=20_000)())
    assert sum(map(len, after)) <= NAMED_MAX and len(after) <= 10, (len(after), sum(map(len, after)))
    # The copy goes on when the network is back.
    outcome = finish(process, timeout=90)
    assert outcome.code == 0, outcome
    assert sha256(near / "copy") == sha256(road.far / "file")


STATEFUL = """table inet stateful {
    chain in {
        type filter hook input priority 0; policy accept;
        iif lo accept
        ct state established,related accept
        tcp dport { 22, 33001 } accept
        meta l4proto { tcp, udp } counter drop
    }
    chain out { type filter hook output priority 0; policy accept; ct state new accept; }
}"""


@pytest.mark.parametrize("flows", [1, 3])
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_start_through_two_stateful_firewalls(own_net, direction, flows):
    """Each firewall drops datagrams of flows that its own host has not begun, so both ends have to send
    first."""
    road = road_to(own_net, "ssh")
    for host in own_net.pair.hosts:
        host.nft(STATEFUL)
    near = own_net.folder("near")
    source = make_file((near if direction == "push" else road.far) / "file", 20 * MIB)
    ends = (source, road.url("copy")) if direction == "push" else (road.url("file"), near / "copy")
    outcome = road.cp("--flows", str(flows), "--udp-only", *ends, timeout=60)
    assert outcome.report["transport"] == "udp", outcome
