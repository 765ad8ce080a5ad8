"""Links on which UDP is blocked or policed: rows of `./x bench sharing --only blocked`.

All figures are rates at the receiving host's interface from the tenth second on. The TCP of the peers has the
same congestion control as ours, as the route fixes it (`congctl lock`). Peers run in turns with us over the
same link.
"""

import contextlib
import dataclasses
import subprocess
import time

from ground import GIB, end
from link import Profile
from peers.gridftp import Tuned
from peers.http import Aria2
from peers.peer import Job, Site

from harness.hosts import HarnessError, call
from harness.ssh import SshServer

RTT_MS = 100
RATE = 1e9
SETTLE_SECONDS = 10
#: The longest run: the rate of TCP has settled by then.
SECONDS_MAX = 30
POLICED_BYTES = 2_500_000
RULES = {
    "blocked": "meta l4proto udp counter drop",
    "policed": f"meta l4proto udp limit rate over {POLICED_BYTES // 1000} kbytes/second burst 100 kbytes counter drop",
    "both policed": f"meta l4proto {{ tcp, udp }} limit rate over {POLICED_BYTES // 1000} kbytes/second burst 100 kbytes counter drop",
}


@contextlib.contextmanager
def ruled(hosts, name):
    for host in hosts:
        host.nft(f"table inet firewall {{ chain c {{ type filter hook prerouting priority -350; policy accept; {RULES[name]}; }}; }}")
    try:
        yield
    finally:
        for host in hosts:
            host.nft("delete table inet firewall")


@dataclasses.dataclass
class Runner:
    """Something that fills the link until it is stopped. `into` is the host that receives."""

    name: str
    argv: list
    into: object
    env: dict


class Blocked:
    def __init__(self, chosen, lab, results):
        self.lab, self.results = lab, results
        self.seconds = min(chosen.seconds, SECONDS_MAX)
        self.hosts = (lab.a, lab.b)
        SshServer(lab.link.pair, (lab.link.ssh_port,))
        self.site = Site(lab.link, lab.root, None)
        self.peers = []
        for peer in (Tuned(), Aria2()):
            try:
                if peer.missing():
                    raise HarnessError(peer.missing())
                peer.start(self.site)
                self.peers.append(peer)
            except HarnessError as error:
                print(f"not measured: {peer.name}: {error}")
        # More content than any tool moves. It is a hole, so reading takes no time of the disk.
        self.source = lab.root / "hole"
        with open(self.source, "wb") as file:
            file.truncate(64 * GIB)
        # Some peers run as another user than root.
        lab.root.chmod(0o755)
        (lab.root / "memory").mkdir()
        self.memory = lab.link.pair.mount_memory(lab.root / "memory", 8000)

    def close(self):
        self.site.close()

    def row(self, case, passed, figure, goal, limited, **detail):
        self.results.row(f"blocked: {case}", passed and not limited, figure + (" (emulator full)" if limited else ""), goal, measured_seconds=self.seconds, **detail)

    def set(self, loss, control):
        self.lab.link.set(Profile("blocked", RTT_MS, loss, int(RATE)))
        call(self.lab.link.pair.program, "lab", "set", "--lab", self.lab.link.pair.lab, "--queue", f"{RTT_MS}ms")
        for host, other in (self.hosts, reversed(self.hosts)):
            call("ip", "-n", host.netns, "route", "replace", f"{other.v4}/32", "dev", host.interface, "src", host.v4,
                 "congctl", "lock", control)

    def ours(self, road, *options):
        far = "beta:null:" if road == "ssh" else self.lab.daemons[0].url("null:")
        argv = ["farhaul", "cp", "-q", *([] if road == "ssh" else ["--accept-new"]), *options, "zero:", far]
        return Runner(f"farhaul {road}", argv, self.lab.b, {})

    def peer(self, peer):
        """The command of a peer; it receives into a folder in memory."""
        into = self.memory / f"into{time.monotonic_ns()}"
        into.mkdir()
        into.chmod(0o777)
        job = Job(self.source, into / "copy", 64 * GIB)
        peer.before(self.site, job)
        return Runner(peer.name, peer.command(self.site, job), self.lab.a if peer.pulls else self.lab.b, peer.environment(self.site))

    def measure(self, make):
        """Bits a second from the tenth second on, and the emulator's limit, if any. A limited measurement is
        made again, once."""
        rate, limited = self.measure_once(make())
        return self.measure_once(make()) if limited else (rate, limited)

    def measure_once(self, runner):
        self.lab.link.state()
        process = self.lab.a.start(runner.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=runner.env)
        time.sleep(SETTLE_SECONDS)
        before, begin = runner.into.counter("rx_bytes"), time.monotonic()
        time.sleep(max(1, self.seconds - SETTLE_SECONDS))
        rate = 8 * (runner.into.counter("rx_bytes") - before) / (time.monotonic() - begin)
        if process.poll() is not None:
            raise SystemExit(f"{runner.argv} ended by itself: {process.stderr.read().decode(errors='replace')}")
        end(process)
        for left in self.memory.iterdir():
            call("rm", "-rf", str(left))
        limited = self.lab.link.state()["limited"]
        self.rest()
        return rate, limited

    def rest(self):
        """Ends the TCP connections of killed peers, and waits until their packets have left the link."""
        for host in self.hosts:
            with contextlib.suppress(HarnessError):
                call("ip", "netns", "exec", host.netns, "ss", "-K", "-t", "state", "established", "sport", "!=", ":22")
        time.sleep(1)

    def run(self):
        for loss in (0.001, 0.01):
            for control in ("cubic", "bbr"):
                self.set(loss, control)
                self.link(f"{loss * 100:g} %, {control}")
        self.remembered()

    def link(self, where):
        with ruled(self.hosts, "blocked"):
            ours = {road: self.measure(lambda road=road: self.ours(road)) for road in ("daemon", "ssh")}
            theirs = {peer.name: self.measure(lambda peer=peer: self.peer(peer)) for peer in self.peers}
        best, reached = max(((rate, name) for name, (rate, _) in theirs.items()), default=(0.0, "no peer"))
        limited = next((limit for _, limit in theirs.values() if limit), None)
        for road, (rate, own_limit) in ours.items():
            beside = ", ".join(f"{name} {theirs[name][0] / 1e6:.4g}" for name in theirs)
            self.row(f"{road}, {where}", rate >= best, f"{rate / 1e6:.4g} Mbit/s; {beside}", f"at least that of {reached}",
                     own_limit or limited, rate_bps=rate, peers_bps={name: rate for name, (rate, _) in theirs.items()})
        with ruled(self.hosts, "policed"):
            for road, (alone, alone_limit) in ours.items():
                rate, own_limit = self.measure(lambda road=road: self.ours(road))
                self.row(f"UDP policed to 20 Mbit/s, {road}, {where}", rate >= 0.8 * alone, f"{rate / alone:.2f} of {alone / 1e6:.4g} Mbit/s",
                         "0.8 of what it has with UDP blocked", own_limit or alone_limit, rate_bps=rate, blocked_bps=alone)
        with ruled(self.hosts, "both policed"):
            alone, alone_limit = self.measure(lambda: self.ours("daemon", "--udp-only"))
            rate, own_limit = self.measure(lambda: self.ours("daemon"))
            # The interface counts bytes before the policer, so only what the policer lets through counts
            # here.
            self.row(f"TCP policed like UDP, {where}", min(rate, 8 * POLICED_BYTES) >= 0.95 * min(alone, 8 * POLICED_BYTES),
                     f"{rate / 1e6:.4g} Mbit/s, {alone / 1e6:.4g} without TCP", "0.95 of the same without TCP", own_limit or alone_limit,
                     rate_bps=rate, udp_only_bps=alone)

    def remembered(self):
        """Measures how soon the content of a second transfer arrives if a note says that UDP was blocked."""
        self.set(0.001, "bbr")
        with ruled(self.hosts, "blocked"):
            for road in ("daemon", "ssh"):
                first, again = self.first_content(road), self.first_content(road)
                # The log-in of ssh is not Farhaul's time, so it is taken off.
                begin = time.monotonic()
                if road == "ssh":
                    self.lab.a.run(["ssh", "beta", "true"], check=True)
                login = time.monotonic() - begin if road == "ssh" else 0.0
                self.row(f"remembered, {road}", again - login <= 1.0, f"{again - login:.2f} s, {first - login:.2f} before",
                         "content flows within 1 s", None, seconds=again, first_seconds=first, login_seconds=login)

    def first_content(self, road):
        begun = self.lab.b.counter("rx_bytes")
        process = self.lab.a.start(self.ours(road).argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        # Handshakes have fewer bytes than this.
        while self.lab.b.counter("rx_bytes") - begun < 200_000 and time.monotonic() - begin < 30:
            time.sleep(0.02)
        took = time.monotonic() - begin
        end(process)
        self.rest()
        return took
