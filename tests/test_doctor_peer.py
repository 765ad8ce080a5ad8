"""`farhaul doctor --peer` across links with faults, over SSH and at a daemon: what is wrong is found and named first."""

import contextlib
import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import lab, product
from harness.hosts import wait_until
from harness.product import EXIT_AUTH, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE

MBIT = 1e6
EXAMINED = (EXIT_OK, EXIT_SOME_FAILED)


def examined(net, peer, *arguments, expect=EXAMINED):
    done = net.alpha.run(["farhaul", "doctor", "--peer", peer, "--json", *arguments], timeout=120)
    assert done.returncode in expect, done
    return json.loads(done.stdout)


def at_daemon(net, *arguments, options="diagnose", **expect):
    net.daemon.keys.write_text(f"{options} {net.key}")
    return examined(net, f"fh://beta:{net.daemon.port}", "--accept-new", *arguments, **expect)


def in_lab(link, where, *arguments, time="60s"):
    """Examines host B of a lab from host A."""
    peer = {"ssh": "$FARHAUL_LAB_B", "daemon": "$FARHAUL_LAB_URL $FARHAUL_LAB_CP_OPTIONS"}[where]
    script = f"exec {product.binary().resolve()} doctor --json --peer-time {time} --peer {peer} {' '.join(arguments)}"
    done = lab.run(["-q", *link], ["bash", "-c", script], check=False, timeout=200)
    assert done.returncode in EXAMINED, done.stderr.decode()
    return json.loads(done.stdout)


def of_way(report, way):
    return [finding["id"] for finding in report["path"] if finding["way"] == way]


def way(report, direction):
    return next(one for one in report["ways"] if one["direction"] == direction)


def test_both_ends_and_the_way_between_them(net):
    report = examined(net, "beta")
    assert [one["direction"] for one in report["ways"]] == ["to", "from"]
    for one in report["ways"]:
        assert one["bps"] > 0 and one["tcp_bps"] > 0 and one["transport"] == "udp" and 0 < one["rtt_min_ms"], one
        assert len(one["steps"]) > 3 and one["rtt_loaded_ms"] >= one["rtt_mean_ms"], one
    # Both hosts are namespaces of one machine, so that what is the machine's is found at both.
    ours = {finding["id"] for finding in report["here"]["findings"]}
    theirs = {finding["id"] for finding in report["there"]["findings"]}
    assert {"virtual-machine", "udp-buffer"} & ours == {"virtual-machine", "udp-buffer"} & theirs
    for verdict, one in zip(report["verdicts"], report["ways"], strict=True):
        assert verdict["limit_id"] == one["limit_id"] and verdict["end"] in ("here", "there", "path")
        assert verdict["explain"] in (None, f"farhaul doctor explain {one['limit_id']}") and len(verdict["behind"]) <= 2
    assert report["refused"] == []


def test_a_daemon_answers_a_key_that_may_ask(own_net):
    report = at_daemon(own_net)
    assert report["there"]["findings"] and len(report["ways"]) == 2 and report["refused"] == []
    # What leaves the host names nothing of it.
    told = json.dumps(report["there"])
    assert not re.search(r"\b10\.\d+\.\d+\.\d+\b|([0-9a-f]{2}:){5}", told), told
    # The last line comes after the client has gone.
    wait_until(lambda: own_net.daemon.log_text().count("direction=\"diagnose\"") == 7, 30, what="the daemon tells of each session")
    log = own_net.daemon.log_text()
    assert "is_test=true" in log and "is_test=false" in log, log


def test_a_daemon_tells_other_keys_only_what_transfers_show(own_net):
    report = at_daemon(own_net, options="read-only")
    assert report["there"] is None and report["path"] == []
    assert [one["direction"] for one in report["ways"]] == ["from"], "it may not write"
    refused = " ".join(report["refused"])
    assert "may not ask the doctor" in refused and "the way to beta" in refused and "FH-" not in refused, refused
    assert not own_net.daemon.root.exists() or list(own_net.daemon.root.iterdir()) == []
    # A key that is not known at all learns nothing.
    own_net.daemon.keys.write_text("")
    done = own_net.alpha.run(["farhaul", "doctor", "--peer", f"fh://beta:{own_net.daemon.port}", "--accept-new"], timeout=60)
    assert done.returncode == EXIT_AUTH and done.stdout == b"", done


def test_tests_keep_to_the_rate_of_the_key(own_net):
    report = at_daemon(own_net, options="diagnose,max-rate=40M")
    for one in report["ways"]:
        assert 5 * MBIT < one["bps"] < 48 * MBIT, one
        assert all(step["sent_bps"] * (1 - step["lost"]) < 60 * MBIT for step in one["steps"]), one


def test_a_peer_is_a_host(net):
    for peer in ("fh://", "beta:/path", "-x"):
        done = net.alpha.run(["farhaul", "doctor", f"--peer={peer}"], timeout=60)
        assert done.returncode == EXIT_USAGE, (peer, done)


def test_blocked_udp_is_named_first_and_the_firewall_beside_it(net):
    with net.alpha.dropping("meta l4proto udp"), net.beta.dropping("meta l4proto udp"):
        report = examined(net, "beta")
    assert "firewall" in {one["id"] for one in report["here"]["findings"]}
    # Rules of firewalls never leave a host.
    assert "firewall" not in {one["id"] for one in report["there"]["findings"]}
    causes = report["verdicts"][0]["causes"]
    assert any("[udp-blocked]" in line for line in causes) and any("[firewall]" in line for line in causes), causes
    assert report["path"][0]["id"] == "udp-blocked" and report["path"][0]["weight"] == "fail", report["path"]
    assert {one["transport"] for one in report["ways"]} <= {"tcp", "ssh"}
    # On a busy machine the two ways may differ in rate as well.
    assert of_way(report, "to")[0] == "udp-blocked" == of_way(report, "from")[0]


BLKIO = pathlib.Path("/sys/fs/cgroup/blkio")


@contextlib.contextmanager
def slow_disk(folder, bytes_a_second):
    """A file system on a disk that gives the processes of a control group this much, and the group."""
    image, mount, group = folder / "image", folder / "disk", BLKIO / f"doctor{os.getpid()}"
    with open(image, "wb") as file:
        file.truncate(96 << 20)
    device = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=True).stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        mount.mkdir()
        subprocess.run(["mount", device, mount], check=True)
        try:
            group.mkdir()
            number = (pathlib.Path("/sys/block") / pathlib.Path(device).name / "dev").read_text().strip()
            (group / "blkio.throttle.read_bps_device").write_text(f"{number} {bytes_a_second}\n")
            yield mount, group
        finally:
            subprocess.run(["umount", mount], check=True)
            if group.exists():
                group.rmdir()
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not BLKIO.is_dir(), reason="needs control groups that slow a disk down")
def test_a_slow_disk_is_what_limits_the_way_there(net):
    with slow_disk(net.folder("slow"), 4 << 20) as (disk, group):
        file = disk / "data"
        file.write_bytes(os.urandom(24 << 20))
        argv = net.alpha.command(["farhaul", "doctor", "--json", "--peer", "beta", "--peer-time", "10s", "--read", file])
        join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        done = subprocess.run(["sh", "-c", join, "sh", *argv], cwd=net.alpha.home, env=net.alpha.environment(),
                              capture_output=True, timeout=300, check=False)
        assert done.returncode in EXAMINED, done
    to = json.loads(done.stdout)["verdicts"][0]
    assert (to["limit_id"], to["end"], to["direction"]) == ("slow-sender-disk", "here", "to"), to
    assert to["disk_bps"] < 60 * MBIT and to["gain"] > 1 and to["behind"][0][0] != "disk here", to
    assert all(len(one["gain"]) > 10 for one in to["remedies"])


def test_a_policer_one_way_and_a_long_queue_the_other():
    """The rates are such that a slow machine reaches them."""
    report = in_lab(["--rtt", "20ms", "--rate", "200m/40m", "--policer", "60m:60000/off", "--queue", "auto/600ms"], "ssh")
    assert of_way(report, "to")[0] == "policer" and "bufferbloat" not in of_way(report, "to"), report["path"]
    (what,) = (one["what"] for one in report["path"] if one["id"] == "policer")
    assert 40 <= float(re.search(r"beyond (\d+) Mbit/s", what)[1]) <= 66, what
    assert "bufferbloat" in of_way(report, "from") and "policer" not in of_way(report, "from"), report["path"]
    assert way(report, "from")["rtt_loaded_ms"] > 100
    verdicts = {one["direction"]: one for one in report["verdicts"]}
    assert verdicts["to"]["limit_id"] == "slow-network" and "[policer]" in verdicts["to"]["causes"][0], verdicts


def test_large_packets_that_vanish_are_named_first():
    """Only at a daemon, as ssh hangs on such a path."""
    report = in_lab(["--rtt", "10ms", "--rate", "50m", "--path-mtu", "1300", "--too-big", "silent"], "daemon", time="30s")
    assert report["path"][0]["id"] == "mtu-black-hole", report["path"]
    assert "mtu-black-hole" in of_way(report, "to") and "mtu-black-hole" in of_way(report, "from"), report["path"]


def test_a_queue_that_codel_keeps_short_is_no_bufferbloat_and_packets_that_come_late_are_found():
    """CoDel on the way there, whose queue could hold half a second; two packets in a hundred come late on the way back."""
    report = in_lab(["--rtt", "20ms", "--rate", "40m", "--queue", "500ms/auto", "--codel", "on/off", "--reorder", "off/2%:15ms"], "ssh")
    to, back = of_way(report, "to"), of_way(report, "from")
    assert "managed-queue" in to and "bufferbloat" not in to and "reordering" not in to, report
    assert "reordering" in back and "path-loss" not in back and "managed-queue" not in back, report


def test_a_far_end_that_says_nothing_more_is_given_up(net):
    """Its first session answers, and the next one never does."""
    folder = net.folder("stalls")
    program = folder / "once"
    program.write_text(f"#!/bin/sh\nmkdir {folder}/asked 2>/dev/null && exec {product.binary().resolve()} \"$@\"\nexec sleep 600\n")
    program.chmod(0o755)
    report = examined(net, "beta", "--peer-time", "5s", "--remote-program", str(program))
    assert report["there"]["findings"] and report["ways"] == []
    assert report["refused"] == ["the way to: the time of 5 s was over before it was done", "the way from: the time of 5 s was over before it was done"]


def test_a_path_on_which_ssh_hangs_is_given_up():
    link = ["--rtt", "10ms", "--rate", "50m", "--path-mtu", "700", "--too-big", "silent"]
    script = f"exec {product.binary().resolve()} doctor --answer-wait 3s --peer $FARHAUL_LAB_B"
    done = lab.run(["-q", *link], ["bash", "-c", script], check=False, timeout=200)
    assert b"has not answered for 3 s" in done.stderr and b"large packets" in done.stderr, done.stderr.decode()


@contextlib.contextmanager
def two_routers(net):
    """Between alpha and beta: alpha chooses one by ports, beta answers straight."""
    routers = [f"{net.alpha.netns}r{number}" for number in (1, 2)]
    try:
        for number, router in enumerate(routers, 1):
            for argv in (
                f"netns add {router}",
                f"link add r{number} netns {net.alpha.netns} type veth peer name near netns {router}",
                f"link add r{number} netns {net.beta.netns} type veth peer name far netns {router}",
                f"-n {net.alpha.netns} addr add 10.78.{number}.1/24 dev r{number}",
                f"-n {router} addr add 10.78.{number}.2/24 dev near",
                f"-n {router} addr add 10.79.{number}.2/24 dev far",
                f"-n {net.beta.netns} addr add 10.79.{number}.1/24 dev r{number}",
                f"-n {net.alpha.netns} link set r{number} up",
                f"-n {net.beta.netns} link set r{number} up",
                f"-n {router} link set near up",
                f"-n {router} link set far up",
                f"-n {router} route add {net.alpha.v4} via 10.78.{number}.1",
                f"-n {router} route add {net.beta.v4} via 10.79.{number}.1",
                f"netns exec {router} sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0",
            ):
                subprocess.run(["ip", *argv.split()], check=True)
        net.alpha.run(["sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1"], check=True)
        hops = "nexthop via 10.78.1.2 nexthop via 10.78.2.2"
        subprocess.run(["ip", *f"-n {net.alpha.netns} route add {net.beta.v4}/32 src {net.alpha.v4} {hops}".split()], check=True)
        yield
    finally:
        for router in routers:
            subprocess.run(["ip", "netns", "delete", router], check=False)


def test_routers_that_choose_a_way_by_ports_are_found(own_net):
    with two_routers(own_net):
        report = examined(own_net, own_net.beta.v4, "--peer-time", "6s", "-o", "StrictHostKeyChecking=no")
    found = {one["id"]: one["what"] for one in report["path"]}
    assert found.get("several-paths", "").startswith("2 ways were seen behind router 1"), report["path"]


@pytest.mark.slow
@pytest.mark.parametrize(("link", "expected"), [
    (["--loss", "2%"], "path-loss"),
    (["--reorder", "2%:15ms"], "reordering"),
    (["--codel", "on", "--queue", "500ms"], None),
    (["--policer", "300m:200000", "--rate", "900m"], "policer"),
    (["--path-mtu", "1300", "--too-big", "answered"], None),
    ([], None),
])
def test_what_a_link_does_is_found_and_nothing_else(link, expected):
    base = ["--rtt", "20ms", "--rate", "100m"] if "--rate" not in link else ["--rtt", "20ms"]
    report = in_lab([*base, *link], "ssh")
    faults = [one["id"] for one in report["path"] if one["weight"] != "note"]
    assert set(faults) == ({expected} if expected else set()), report["path"]

