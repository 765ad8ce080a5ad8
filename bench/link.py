"""Links: what joins the two hosts of a measurement.

A `Link` is anything with these: `a` and `b` (harness hosts, each with `v4`, `run`, `start` and `interface`),
`pair` (for folders and clean-up), `set(profile)`, `state()` and `close()`. `state()` describes what carried
the packets. Its `limited` says in words if the link itself was the bottleneck since the last `state`: such a
figure says nothing about the tool and never counts.

Always true: the hosts stay the same for the life of a link; only what lies between them changes.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True

from harness import product  # noqa: E402
from harness.hosts import NETNS_ETC, HarnessError, Pair, call, wait_until  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Profile:
    """The path between the hosts. `rate_bps` is the rate of the bottleneck; None means as fast as it goes."""

    name: str
    rtt_ms: float = 0.0
    loss: float = 0.0
    rate_bps: int | None = None
    mtu: int = 1500

    def __str__(self):
        rate = "as fast as it goes" if self.rate_bps is None else f"{self.rate_bps / 1e9:g} Gbit/s"
        jumbo = "" if self.mtu == 1500 else f", MTU {self.mtu}"
        return f"{self.rtt_ms:g} ms, {self.loss * 100:g} % loss, {rate}{jumbo}"


class VethLink:
    """A veth pair without delay and loss, as fast as the machine. It serves to try the tools."""

    kind = "veth"
    ssh_port = 22
    daemon_port = product.PORT

    def __init__(self, base, mtu=1500):
        self.mtu = mtu
        self.pair = Pair(product.binary(), base=base, mtu=mtu)
        self.a, self.b = self.pair.hosts
        name_themselves(self.pair.hosts)

    def can(self, profile):
        """Why this link cannot have the profile, in words; None if it can."""
        if profile.rtt_ms or profile.loss or profile.rate_bps:
            return "a plain veth pair has no delay, loss or rate"
        return None if profile.mtu == self.mtu else f"its MTU is {self.mtu}"

    def set(self, profile):
        assert self.can(profile) is None, self.can(profile)

    def state(self):
        return {"kind": self.kind, "limited": None}

    def close(self):
        self.pair.close()


class LabPair(Pair):
    """The two hosts of `farhaul lab up`, with names, homes and keys of our own.

    The lab's network namespaces get names, so that a command starts in them as in any other; its own sshd and daemon
    stay where they are and keep their ports.
    """

    def _join(self, mtu):
        self.lab = f"bench-{os.getpid()}-{Pair.serial}"
        self.statistics = self.directory / "statistics"
        self.program = product.binary()
        with open(self.directory / "lab.log", "wb") as log:
            # The lab ends with this process, however that ends.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", self.program, "lab", "up", "--json", "-q", "--lab", self.lab,
                 "--mtu", str(mtu), "--stats", self.statistics],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.on_close(self._end)
        line = self.process.stdout.readline()
        if not line:
            said = (self.directory / "lab.log").read_text().strip()
            raise HarnessError(f"farhaul lab up ended with {self.process.wait()}: {said}")
        environment = json.loads(line)["environment"]
        for host, letter in ((self.alpha, "a"), (self.beta, "b")):
            variable = f"FARHAUL_LAB_{letter.upper()}"
            host.v4, host.v6 = environment[variable], environment[f"{variable}_V6"]
            self._adopt(host, letter)

    def _adopt(self, host, letter):
        """Names the namespace of a host of the lab, so that ip(8) finds it."""
        holder = subprocess.Popen([self.program, "lab", "exec", "--lab", self.lab, letter, "sleep", "60"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            inside = wait_until(lambda: child_in_other_network(holder.pid), what=f"a process on host {letter} of the lab")
            call("ip", "netns", "attach", host.netns, str(inside))
            os.kill(inside, signal.SIGKILL)
        finally:
            holder.terminate()
            holder.wait()
        for interface in json.loads(call("ip", "-j", "-n", host.netns, "-4", "addr")):
            if any(address["local"] == host.v4 for address in interface["addr_info"]):
                host.interface = interface["ifname"]

    def _end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def child_in_other_network(parent):
    """A child of the process that is in another network namespace than the process itself, or None."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            own, mine = (os.stat(f"/proc/{number}/ns/net").st_ino for number in (pid, os.getpid()))
            if int(fields[1]) == parent and own != mine:
                return int(pid)
    return None


class LabLink:
    """`farhaul lab`: the emulated link. Its statistics, one line a second, say what it did."""

    kind = "lab"
    ssh_port = 2222
    daemon_port = product.PORT + 1

    def __init__(self, base, mtu=1500):
        self.mtu = mtu
        self.pair = LabPair(product.binary(), base=base, mtu=mtu)
        self.a, self.b = self.pair.hosts
        name_themselves(self.pair.hosts)
        self._read = 0
        self.profile = None

    def can(self, profile):
        return None if profile.mtu == self.mtu else f"its MTU is {self.mtu}"

    def set(self, profile):
        rate = "unlimited" if profile.rate_bps is None else str(profile.rate_bps)
        call(self.pair.program, "lab", "set", "--lab", self.pair.lab, "--rtt", f"{profile.rtt_ms:g}ms",
             "--loss", f"{profile.loss * 100:g}%", "--rate", rate)
        self.profile = profile

    def state(self):
        """What the emulator did since the last call. Waits for the end of its current second."""
        lines, more = self._lines(), []
        while not more:
            if self.pair.process.poll() is not None:
                raise HarnessError("the lab has ended")
            time.sleep(0.05)
            more = self._lines()
        return {"kind": self.kind, **fold([json.loads(line) for line in lines + more])}

    def _lines(self):
        """The lines that were written since the last call."""
        with open(self.pair.statistics, "rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        return whole.splitlines()

    def close(self):
        self.pair.close()


#: The largest share of late packets with which a figure counts; the lab judges by the same share.
LATE_SHARE_MAX = 0.01


def fold(records):
    """Joins intervals of the lab's statistics: counts are added up; of all other figures the largest is kept.

    The lab judges each second by itself. A second with few packets, some of them late, says little. So
    lateness is judged again over all seconds, by the same share.
    """
    folded, reasons = {}, []
    for record in records:
        for link in record["links"]:
            for direction in ("forward", "backward"):
                part = folded.setdefault(direction, {})
                for name, value in flat(link[direction]):
                    added = isinstance(value, int) and not name.endswith(("_ns", "_us"))
                    part[name] = part.get(name, 0) + value if added else max(part.get(name, 0), value)
                reasons += [f"{direction}: {reason}" for reason in link[direction]["overloaded"] if "late" not in reason]
    for direction, part in folded.items():
        share = part["late_packets"] / max(1, part["passed_packets"])
        if share > LATE_SHARE_MAX:
            reasons.append(f"{direction}: {share:.1%} of the packets were over 1 ms late")
    return {"limited": "; ".join(dict.fromkeys(reasons)) or None, "seconds": len(records), **folded}


def flat(value, path=""):
    """(name, number) of all numbers in nested objects."""
    for name, part in value.items():
        if isinstance(part, dict):
            yield from flat(part, f"{path}{name}.")
        elif isinstance(part, (int, float)) and not isinstance(part, bool):
            yield f"{path}{name}", part


#: What fasterdata.es.net (Host Tuning, Linux) recommends for long paths, as far as a namespace has such
#: settings.
BUFFERS = {
    "net.ipv4.tcp_rmem": "4096 131072 268435456",
    "net.ipv4.tcp_wmem": "4096 65536 268435456",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_mtu_probing": "1",
}


def tune(host):
    """Sets a host's TCP buffers. net.core.rmem_max and wmem_max belong to the machine, not to the namespace,
    so they stay."""
    for name, value in BUFFERS.items():
        sysctl(host, name, value)


def name_themselves(hosts):
    """Lets each host find itself under the machine's name, as servers that look up their own address
    expect."""
    for host in hosts:
        with open(NETNS_ETC / host.netns / "hosts", "a") as names:
            names.write(f"{host.v4} {socket.gethostname()}\n")


def sysctl(host, name, value=None):
    """Reads or sets one setting in the host's network namespace."""
    argv = ["sysctl", "-n", name] if value is None else ["sysctl", "-q", "-w", f"{name}={value}"]
    return call("ip", "netns", "exec", host.netns, *argv).strip()


def congestion_controls(host):
    return sysctl(host, "net.ipv4.tcp_available_congestion_control").split()


def set_congestion(hosts, name):
    """Sets TCP's congestion control between the hosts, by their routes: a namespace's own default may only be
    one that the machine allows to everybody, and to allow more would change the machine."""
    for host, other in (hosts, reversed(hosts)):
        call("ip", "-n", host.netns, "route", "replace", f"{other.v4}/32", "dev", host.interface, "src", host.v4,
             "congctl", name)


def cut_connections(hosts):
    """Ends TCP connections that outlive their processes, so that one run does not send into the next."""
    for host in hosts:
        with contextlib.suppress(Exception):
            call("ip", "netns", "exec", host.netns, "ss", "-K", "-t", "state", "connected")
