"""The lab: the emulated link does what its options say, servers are ready, nothing is left behind.

Measurements here are short, and their bounds are wide enough for a busy machine; bench/fidelity.py measures
well.
"""

import hashlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time

import pytest

from harness import hooks, lab, product
from harness.hosts import USER_ID, require_root, wait_until

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def as_root():
    require_root()


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(random.Random(7).randbytes(2 * MIB))
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def shell(link, script, **options):
    return lab.run(link, ["sh", "-ec", script], **options)


def test_round_trip():
    figures = lab.probe(["--rtt", "100ms"], "rtt", 30)
    # The smallest one is that of the link; a busy machine only adds to it.
    assert 100 <= figures["min_ms"] <= 101.3, figures


def test_loss_of_single_datagrams_of_trains(tmp_path):
    stats = tmp_path / "stats"
    figures = lab.probe(["--loss", "2%", "--rtt", "10ms", "--stats", stats], "loss", 100_000, 4e8)
    assert figures["sent"] == 100_000
    lost = figures["sent"] - figures["received"] - figures["receiver_dropped"]
    # Five standard deviations: a figure outside them is a bug, not bad luck.
    assert abs(lost - 2000) <= 5 * (100_000 * 0.02 * 0.98) ** 0.5, figures
    total = json.loads(stats.read_text().splitlines()[-1])
    assert total["kind"] == "total"
    forward = total["links"][0]["forward"]
    faults = sum(forward["faults"].values())
    assert abs(forward["dropped"]["loss"] + faults - lost) <= 50, (forward, lost)


def test_rate():
    figures = lab.probe(["--rate", "200m", "--queue", "100ms"], "udp", 2, 2.5e8)
    assert 0.98 <= figures["received_bps"] / 2e8 <= 1.02, figures


def delays(*changes, count=1000, every_ms=1, seed=7):
    """Sends datagrams from A to B: their numbers in the order of arrival, delays and times of arrival in
    ms."""
    return lab.probe(["--rtt", "20ms", "--seed", seed], "delays", count, every_ms, *changes)


def test_a_delay_that_walks_goes_the_way_of_its_seed_and_keeps_the_order():
    once, again, other = (delays("--jitter", "walk:40:100", seed=seed) for seed in (7, 7, 8))
    assert once["numbers"] == again["numbers"] == other["numbers"] == list(range(1000))

    def apart(one, two):
        return statistics.median(abs(a - b) for a, b in zip(one["delays_ms"], two["delays_ms"], strict=True))
    # In this time the walk has ten targets, and moves by at most 0.4 ms from one packet to the next. A busy
    # machine delays only a few packets more.
    assert apart(once, again) < 2 < 5 < apart(once, other)
    walk = sorted(once["delays_ms"])
    assert 10 <= walk[0] and walk[900] <= 52 and walk[900] - walk[100] >= 10, (walk[0], walk[100], walk[900])


@pytest.mark.parametrize("jitter, ordered, least, most", [
    ("10ms", True, 0, 20), ("10ms:reorder", False, 0, 20), ("white:20", True, 10, 30), ("white:20:reorder", False, 10, 30)])
def test_white_jitter_keeps_the_order_or_not(jitter, ordered, least, most):
    figures = delays("--jitter", jitter)
    assert sorted(figures["numbers"]) == list(range(1000))
    assert (figures["numbers"] == sorted(figures["numbers"])) == ordered
    delay = sorted(figures["delays_ms"])
    # A busy machine makes packets later than drawn, never earlier.
    assert delay[0] >= least and delay[900] <= most + 5, (delay[0], delay[900])
    # Delays are drawn evenly. If order is kept, a packet waits for those before it, so most delays are near
    # the maximum.
    assert (delay[500] < (least + most) / 2 + 2) != ordered, delay[500]


def test_steps_of_the_delay_have_gaps_and_bursts_come_together():
    with lab.Up("--rtt", "20ms") as up:
        def probe(*words):
            return json.loads(up.execute("a", sys.executable, lab.PROBE, "delays", *words).stdout)
        steps = probe("1000", "1", "--jitter", "steps:20:200:50/still")
        gap = up.stats()["links"][0]["forward"]["dropped"]["gap"]
        lost = 1000 - len(steps["numbers"])
        # There are five gaps; packets of ssh may fall into them, too.
        assert 200 <= lost <= 260 and lost <= gap <= lost + 20, (lost, gap)
        bursts = probe("1000", "1", "--jitter", "bursts:50")
        came = bursts["came_ms"]
        heads = [late for before, late in zip(came, came[1:]) if late - before > 20]
        assert 12 <= len(heads) <= 21 and len(bursts["numbers"]) == 1000, len(heads)


def test_a_rate_follows_a_file_of_delivery_times(tmp_path):
    # Ten packets at once every 40 ms make 3 Mbit/s. The file's name is relative and has a slash.
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "times").write_text("39\n" * 10)
    figures = lab.probe(["--rate-motion", "trace:traces/times", "--queue", "100ms"], "udp", 3, 1e7, cwd=tmp_path)
    assert 0.93 <= figures["received_bps"] / 3e6 <= 1.03, figures
    figures = lab.probe(["--rate", "10m", "--rate-motion", "walk:0.1:20/still", "--queue", "200ms"], "udp", 3, 2e7)
    assert 0.4 <= figures["received_bps"] / 1e7 <= 0.7, figures
    done = lab.run(["--rate-motion", "cellular"], ["true"], check=False)
    assert done.returncode == 2 and b"--rate" in done.stderr
    done = lab.run(["--rate-motion", "trace:no-such-file"], ["true"], check=False, cwd=tmp_path)
    assert done.returncode == 2 and b"no-such-file" in done.stderr


def test_streams_and_exit_code_pass_through():
    done = lab.run([], ["sh", "-c", "cat; echo err >&2; exit 7"], check=False, stdin=None, input=b"in and out")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in and out", b"err\n")
    assert lab.run([], ["sh", "-c", "kill -9 $$"], check=False).returncode == 128 + 9
    done = lab.run([], ["/no/such/program"], check=False)
    assert done.returncode == 127 and b"/no/such/program" in done.stderr


def test_copies_across_the_lab_arrive_and_land_in_its_folder(data):
    script = f"""
        scp -q {data} $FARHAUL_LAB_B:by-scp
        rsync -q {data} lab-b:by-rsync
        farhaul cp -q {data} $FARHAUL_LAB_B:by-ssh
        farhaul cp -q $FARHAUL_LAB_CP_OPTIONS {data} ${{FARHAUL_LAB_URL}}by-daemon
        ssh -F $FARHAUL_LAB_SSH_CONFIG lab-b hostname
        cd $FARHAUL_LAB_DIR; sha256sum by-*
    """
    out = shell(["--rtt", "20ms", "--loss", "1%"], script).stdout.decode().split()
    assert out[0] == "lab-b"
    assert out[1::2] == [digest(data)] * 4
    assert not os.path.exists("/run/farhaul-lab")


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_an_end_that_stands_still_sees_no_shorter_path(tmp_path, direction):
    """A receiver that is stalled must not date arrivals too early: paths would look shorter than they are,
    and transfers would not yield to anybody any more."""
    for fault in (None, "stall_us=8000"):
        made = hooks.prefix(fault)
        far_end = hooks.far_end(tmp_path, made) if made else "farhaul"
        way = (f"--remote-program {far_end} random:8M $FARHAUL_LAB_B:pushed" if direction == "push" else
               f"$FARHAUL_LAB_CP_OPTIONS ${{FARHAUL_LAB_URL}}random:8M {tmp_path}/pulled")
        script = f"{shlex.join(made)} farhaul cp --json {way}"
        report = json.loads(shell(["--rtt", "30ms", "--rate", "100m", "--queue", "30ms"], script).stdout)
        assert report["transport"] == "udp" and report["rtt_min_ms"] >= 30, report


def test_the_first_connection_has_the_hosts_own_address():
    """An address that is still tentative is not used: the source would be ::1, and no answer would ever
    come."""
    for _ in range(5):
        assert " src fd88" in shell([], "ip -6 route get $FARHAUL_LAB_B_V6").stdout.decode()


@pytest.mark.parametrize("address", ["$FARHAUL_LAB_B", "$FARHAUL_LAB_B_V6"])
def test_what_a_bad_link_does_to_packets_tcp_repairs(data, address):
    """Packets cut from super-packets have correct sequence numbers, lengths and checksums: else TCP could not
    repair them."""
    link = ["--rtt", "4ms", "--rate", "200m", "--loss", "2%", "--corrupt", "1%", "--duplicate", "1%",
            "--reorder", "2%:1ms", "--jitter", "200us", "--ecn", "1ms"]
    out = shell(link, f"cat {data} | ssh {address} sha256sum").stdout.decode()
    assert out.split()[0] == digest(data)


def test_a_path_takes_only_short_packets(data):
    for answer in ("answered", "silent"):
        link = ["--rtt", "2ms", "--path-mtu", "1400", "--too-big", answer]
        program = f"timeout 5 sh -c 'cat {data} | ssh lab-b sha256sum'"
        done = shell(link, program, check=False)
        arrived = digest(data).encode() in done.stdout
        assert arrived == (answer == "answered"), done


def test_a_link_changes_while_it_runs():
    with lab.Up("--rtt", "10ms") as up:
        def rtt():
            return json.loads(up.execute("a", sys.executable, lab.PROBE, "rtt", "20").stdout)["min_ms"]
        before = rtt()
        up.set("--rtt", "40ms")
        after = rtt()
        up.execute("a", "farhaul", "lab", "set", "--rtt", "20ms")
        inside = rtt()
        assert 10 <= before <= 13 and 40 <= after <= 43 and 20 <= inside <= 23
        up.set("--cut", "1500ms")
        begin = time.monotonic()
        up.execute("a", "ssh", "lab-b", "true")
        assert time.monotonic() - begin >= 1


def test_a_timeline_and_its_statistics(tmp_path):
    timeline, stats = tmp_path / "timeline", tmp_path / "stats"
    timeline.write_text('[{"at": "200ms", "cut": "300ms"}, {"at": "2s", "loss": "100%/0"}, {"at": "2500ms", "loss": "0"}]')
    figures = lab.probe(["--timeline", timeline, "--stats", stats], "udp", 4, 1e7)
    lines = [json.loads(line) for line in stats.read_text().splitlines()]
    assert [line["kind"] for line in lines].count("interval") >= 3
    dropped = lines[-1]["links"][0]["forward"]["dropped"]
    lost = figures["sent"] - figures["received"] - figures["receiver_dropped"]
    assert 300 <= dropped["loss"] and lost >= 300, (dropped, figures)


def test_several_links_and_hosts():
    with lab.Up("--hosts", "2", "--rtt", "10ms", "--link", "rtt=30ms") as up:
        variables = up.environment
        assert variables["FARHAUL_LAB_B_LINK2"] != variables["FARHAUL_LAB_B"] != variables["FARHAUL_LAB_B2"]
        begin = time.monotonic()
        assert up.execute("a2", "ssh", variables["FARHAUL_LAB_B2"], "hostname").stdout == b"lab-b2\n"
        assert up.execute("a", "ssh", variables["FARHAUL_LAB_B_LINK2"], "hostname").stdout == b"lab-b\n"
        assert time.monotonic() - begin > 0.04
        assert up.execute("b", "sh", "-c", "echo $HOME").stdout.decode().strip() == variables["FARHAUL_LAB_DIR"]


def test_the_hosts_tcp_is_what_was_asked_for():
    for control in ("cubic", "reno"):
        script = "import os, socket; s = socket.create_connection((os.environ['FARHAUL_LAB_B'], 22)); " \
                 "print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b'\\0').decode())"
        done = lab.run(["--tcp", control], [sys.executable, "-c", script])
        assert done.stdout.decode().strip() == control
    done = lab.run(["--tcp", "nonsense"], ["true"], check=False)
    assert done.returncode == 9 and b"nonsense" in done.stderr


def traces(name):
    """The processes of the lab with this name, whatever their parents are now."""
    found = []
    for pid in lab.all_pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if name.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_kill_9_leaves_nothing_behind():
    sysctls = lab.sysctls()
    own = lab.namespaces([os.getpid()])
    up = lab.Up("--rtt", "10ms")
    with up:
        subprocess.run(lab.command("exec", "--lab", up.name, "a", "--", "sh", "-c", "setsid sleep 1000 & setsid sleep 1000 &"),
                       check=True)
        pids = lab.children(up.process.pid)
        spaces = lab.namespaces(pids) - own
        assert len(pids) >= 5 and len(spaces) >= 6
        before = {pid: lab.namespaces([pid]) & spaces for pid in lab.all_pids()}
        up.kill()
        lab.wait_gone(pids)
    # A process counts only if it was in the namespace before: a new namespace may have got a number that is free again.
    still = set().union(*(lab.namespaces([pid]) & was_in for pid, was_in in before.items() if was_in))
    assert not still
    assert lab.sysctls() == sysctls
    assert "farhaul-lab" not in open("/proc/self/mounts").read() and not os.path.exists("/run/farhaul-lab")


def test_kill_9_while_it_is_being_built():
    chance = random.Random(3)
    for turn in range(8):
        name = f"killed-{os.getpid()}-{turn}"
        process = subprocess.Popen(lab.command("up", "--lab", name, "--rtt", "1ms"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3 * chance.random())
        pids = lab.children(process.pid)
        process.kill()
        process.wait()
        lab.wait_gone(pids)
        # A process that was just being started is not in the list of children yet.
        wait_until(lambda: traces(name) == [], what="the last process of the lab has ended")


def test_an_ordinary_user_gets_a_lab_or_hears_what_is_missing(tmp_path):
    os.chmod(tmp_path, 0o755)
    binary = tmp_path / "farhaul"
    binary.write_bytes(product.binary().read_bytes())
    binary.chmod(0o755)
    argv = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "--", binary, "lab", "run", "-q",
            "--", "true"]
    done = subprocess.run(argv, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    error = done.stderr.decode()
    assert done.returncode == 0 or (done.returncode == 9 and error.startswith("error: ")), error
    if "/dev/net/tun" in error or "namespaces" in error:
        assert "hint: " in error
