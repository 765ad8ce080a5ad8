"""Options of the data path: loss, key epochs, ciphers, flows, MTU, memory, policies, verification."""

import json
import os
import time

import pytest

from harness.product import EXIT_OK, Daemon, cp, finish
from harness.sampling import MemoryWatch
from harness.trees import differences, make_file, make_tree, sha256

MIB = 1 << 20


@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_random_loss_both_ways(road, near, loss):
    source = make_file(near / "file", 100 * MIB)
    with road.failing(f"loss={loss},seed=7") as bad:
        report = bad.cp(source, bad.url("file"), timeout=120).report
    assert sha256(road.far / "file") == sha256(source)
    assert report["transport"] == "udp"
    assert report["segments_retransmitted"] > 0
    assert loss * 0.5 < report["loss_fraction"] < loss * 1.6
    unique = report["segments_sent"] - report["segments_retransmitted"] - report["segments_proactive"]
    # If a busy machine makes the path look long, segments that are outstanding at the end are repeated before
    # feedback comes. These do not count as duplicates here.
    assert report["segments_duplicate"] - report["segments_proactive"] < 0.01 * unique, report


def test_loss_on_a_pull_of_a_tree(road, near):
    tree = make_tree(road.far / "tree", seed=31, files=300)
    with road.failing("loss=0.1,seed=9") as bad:
        bad.cp(bad.url("tree"), near / "back")
    assert differences(tree, near / "back") == []


def test_tiny_key_epochs_roll_while_data_flow(road, near):
    source = make_file(near / "file", 100 * MIB)
    with road.failing(epoch_bits=6) as quick:
        report = quick.cp(source, quick.url("file")).report
    assert sha256(road.far / "file") == sha256(source)
    assert report["segments_sent"] > 40_000
    with road.failing("loss=0.05,seed=3", epoch_bits=6) as bad:
        bad.cp(bad.url("file"), near / "back")
    assert sha256(near / "back") == sha256(source)


@pytest.mark.parametrize("cipher", ["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"])
def test_ciphers(road, near, cipher):
    source = make_file(near / "file", 30 * MIB)
    report = road.cp("--cipher", cipher, source, road.url("file")).report
    assert report["cipher"] == cipher
    assert sha256(road.far / "file") == sha256(source)


def test_cipher_none_needs_both_sides(own_net):
    """The daemon must allow it. Then the bytes of blocks are readable on the wire, but names are not."""
    near = own_net.folder("near")
    marker = b"FARHAUL-PLAIN-MARKER-" * 50
    source = near / "secret-name-of-this-file"
    source.write_bytes(marker * 20_000)
    refused = cp(own_net.alpha, "--accept-new", "--cipher", "none", source, own_net.daemon.url("x"), check=False)
    assert refused.code != EXIT_OK and "cipher" in refused.stderr
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33070, arguments=["--allow-cipher-none"])
    from harness.packets import start_capture
    frames = start_capture(own_net.beta, 4, count=4000, port=33070)
    report = cp(own_net.alpha, "--accept-new", "--cipher", "none", source, daemon.url("x")).report
    assert report["cipher"] == "none"
    assert sha256(daemon.root / "x") == sha256(source)
    wire = b"".join(frames())
    assert b"FARHAUL-PLAIN-MARKER" in wire
    assert b"secret-name" not in wire


@pytest.mark.parametrize("cipher", ["aes-128-gcm", "none"])
def test_damage_on_the_way_without_digests(ssh_road, near, cipher):
    """A damaged packet counts as lost. Without a cipher only its checksum finds damage in the content."""
    source = make_file(near / "file", 30 * MIB)
    options = ("--cipher", cipher, "--verify", "transit", "--udp-only")
    with ssh_road.failing("damage=0.05,seed=11") as bad:
        report = bad.cp(*options, source, bad.url("file")).report
    assert report["cipher"] == cipher
    assert 0.02 < report["loss_fraction"] < 0.1
    assert sha256(ssh_road.far / "file") == sha256(source)


def test_digests_are_sealed_without_a_cipher(own_net):
    """An attacker who can change content on its way must not be able to change its digest as well."""
    near = own_net.folder("near")
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33070, arguments=["--allow-cipher-none"])
    source = make_file(near / "file", 100_000)
    from harness.packets import start_capture
    frames = start_capture(own_net.beta, 4, count=4000, port=33070)
    cp(own_net.alpha, "--accept-new", "--cipher", "none", "--manifest", near / "manifest", source, daemon.url("x"))
    [digest] = [line["digest"] for line in map(json.loads, open(near / "manifest")) if line.get("path")]
    wire = b"".join(frames())
    assert source.read_bytes()[100:200] in wire and bytes.fromhex(digest) not in wire


def test_sealed_bytes_are_not_readable_on_the_wire(road, near):
    from harness.packets import start_capture
    source = near / "secret-name-of-this-file"
    source.write_bytes(b"FARHAUL-PLAIN-MARKER-" * 1_000_000)
    frames = start_capture(road.net.beta, 4, count=4000)
    road.cp(source, road.url("x"))
    wire = b"".join(frames())
    assert len(wire) > MIB
    assert b"FARHAUL-PLAIN-MARKER" not in wire and b"secret-name" not in wire


@pytest.mark.parametrize("flows", [2, 4, 16])
def test_several_flows(road, near, flows):
    source = make_file(near / "file", 100 * MIB)
    report = road.cp("--flows", str(flows), source, road.url("file")).report
    assert report["flows"] == flows
    assert sha256(road.far / "file") == sha256(source)
    tree = make_tree(near / "tree", seed=33, files=100)
    with road.failing("loss=0.05,seed=1") as bad:
        bad.cp("--flows", str(flows), tree, bad.url("tree"))
    assert differences(tree, road.far / "tree") == []


def test_given_mtu(road, near):
    source = make_file(near / "file", 20 * MIB)
    small = road.cp("--mtu", "1000", source, road.url("small")).report
    large = road.cp(source, road.url("large")).report
    assert small["segments_sent"] > 1.3 * large["segments_sent"]
    assert sha256(road.far / "small") == sha256(source)


def test_fixed_rate_is_held(road, near):
    source = make_file(near / "file", 100 * MIB)
    report = road.cp("--policy", "fixed", "--rate", "400M", source, road.url("file")).report
    # Only an upper bound can be tested: on a busy machine the rate may be lower.
    assert report["goodput_bps"] < 1.03 * 400e6, report["goodput_bps"]


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_what_a_fixed_rate_costs_is_said(road, near, direction):
    source = make_file((near if direction == "push" else road.far) / "file", 30 * MIB)
    for policy, is_warned in (("fixed", True), ("fair", False)):
        with road.failing("loss=0.1,seed=5") as bad:
            ends = (source, bad.url("copy")) if direction == "push" else (bad.url("file"), near / "copy")
            outcome = bad.cp("--overwrite", "always", "--policy", policy, "--rate", "200M", *ends)
        said = [warning for warning in outcome.report["warnings"] if "fixed rate of 200.0 Mbit/s" in warning]
        assert bool(said) == is_warned and ("fixed rate" in outcome.stderr) == is_warned, outcome


def test_rate_is_a_ceiling(road, near):
    source = make_file(near / "file", 60 * MIB)
    report = road.cp("--rate", "200M", source, road.url("file")).report
    assert report["goodput_bps"] < 1.03 * 200e6, report["goodput_bps"]


@pytest.mark.parametrize("verify", ["transit", "digest", "readback"])
def test_verify(road, near, verify):
    tree = make_tree(near / "tree", seed=35, files=50)
    make_file(tree / "big", 30 * MIB)
    road.cp("--verify", verify, tree, road.url("copy"))
    assert differences(tree, road.far / "copy") == []


def test_durable(road, near):
    tree = make_tree(near / "tree", seed=36, files=50)
    road.cp("--durable", tree, road.url("copy"))
    assert differences(tree, road.far / "copy") == []


def test_memory_budget_is_kept(own_road):
    """With a budget of 64 MiB and loss, so that blocks wait for repair, neither end uses much more memory
    than that."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 500 * MIB)
    with road.failing("loss=0.05,seed=5") as bad:
        process = bad.start("--memory", "64M", source, bad.url("file"))
        with MemoryWatch(lambda: road.net.alpha.pids("farhaul") + road.net.beta.pids("farhaul")) as watch:
            outcome = finish(process, timeout=120)
    assert outcome.code == 0, outcome
    assert watch.peak < 160 * MIB, f"{watch.peak / MIB:.0f} MiB"
    report = outcome.report
    assert report["peak_rss_bytes_local"] < 160 * MIB
    assert 0 < report["peak_rss_bytes_remote"] < 160 * MIB
    assert sha256(road.far / "file") == sha256(source)


def test_jumbo_link(tmp_path):
    """With an MTU of 9000 the packets grow by themselves."""
    import conftest
    from harness import product
    from harness.hosts import Pair
    from harness.ssh import SshServer
    with Pair(product.binary(), mtu=9000) as pair:
        ssh = SshServer(pair)
        key = product.keygen(pair.alpha)
        net = conftest.Net(pair, ssh, Daemon(pair, pair.beta, [key]), key)
        source = make_file(net.folder("near") / "file", 200 * MIB)
        for name in ("ssh", "daemon"):
            road = conftest.road_to(net, name)
            report = road.cp(source, road.url("file")).report
            assert report["segments_sent"] < 200 * MIB / 6000, (name, report["segments_sent"])
            assert sha256(road.far / "file") == sha256(source)


def test_receiver_that_pauses(own_road):
    """The receiving process is stopped for a while: the sender waits, and nothing is lost."""
    import signal
    road = own_road
    source = make_file(road.net.folder("near") / "file", 200 * MIB)
    process = road.start("--rate", "600M", source, road.url("file"))
    time.sleep(0.8)
    others = [pid for pid in road.net.beta.pids("farhaul") if road.name == "daemon" or pid != road.net.daemon.process.pid]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5)
    for pid in others:
        os.kill(pid, signal.SIGCONT)
    outcome = finish(process, timeout=60)
    assert outcome.code == 0, outcome
    assert sha256(road.far / "file") == sha256(source)
