"""Transfers and the kernel's TCP on one bottleneck of the lab, whole files over long links, starts, and paths whose delay
moves. `./x bench sharing`; one PASS or MISS line a row. Real sockets, real Cubic and BBR (iperf3, curl).

Shares are bytes that arrive at host B between the tenth second and the last, counted by nftables, so that no
side reports its own figure. A measurement is repeated once if the emulator itself was the bottleneck, and
does not count if it was again.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import time

from blocked import Blocked
from ground import GIB, MIB, Results, end, parts, remove
from link import LabLink, Profile, set_congestion, tune
from scenarios import COUNTRY, OCEAN, SATELLITE, WORSE
from starts import Starts

from harness import product, trees
from harness.hosts import call, install_signal_handlers, wait_until

IPERF_PORTS = (5201, 5202)
SHORT_TRANSFERS = pathlib.Path(__file__).with_name("short_transfers.py")
#: The share of content in a packet of 1500 bytes: without IP, UDP, header, tag and the segment's frame.
PAYLOAD_SHARE = (1500 - 28 - 34) / 1500
#: How long senders take to find their rates; the measurement begins after that.
SETTLE_SECONDS = 10
CONTROLS = ("cubic", "bbr")
#: The ports at which host A serves zeros over HTTP, by congestion control.
HTTP_PORTS = {"cubic": 8081, "bbr": 8082}
#: The motions of the delay on a path of 1 Gbit/s and 100 ms with a queue of 50 ms; the bytes to send, the
#: number of runs, and the longest time of a run.
MOTIONS = ("walk:5:10", "walk:10:10", "5ms")
MOVING_SIZE = 256 * MIB
MOVING_RUNS = 3
MOVING_SECONDS_MAX = 30
#: (rate, round trip in ms, queue in BDP) for a transfer that joins a Cubic, and for a Cubic that joins a
#: transfer.
NEWCOMER_CASES = [(200e6, 20, 1), (200e6, 20, 2), (200e6, 40, 0.5), (200e6, 40, 1), (200e6, 40, 2), (200e6, 100, 1), (500e6, 40, 1)]
#: (rate, round trip in ms) of the path with short transfers, and the shares of the rate that these offer.
CROSS_PATH = (200e6, 50)
CROSS_SHARES = (0.3, 0.5)
#: (label, (rate, round trip in ms, queue in BDP, loss), the senders).
MODEL_CASES = [
    ("Cubic alone, 20 ms, 1 BDP", (100e6, 20, 1, 0), ("cubic",)),
    ("Cubic alone, 100 ms, 0.25 BDP", (100e6, 100, 0.25, 0), ("cubic",)),
    ("Cubic alone, 50 ms, 0.1 %", (200e6, 50, 1, 0.001), ("cubic",)),
    ("Cubic alone, 100 ms, 1 %", (200e6, 100, 1, 0.01), ("cubic",)),
    ("BBR alone, 20 ms, 1 BDP", (100e6, 20, 1, 0), ("bbr",)),
    ("BBR alone, 50 ms, 0.1 %", (200e6, 50, 1, 0.001), ("bbr",)),
    ("BBR alone, 100 ms, 1 %", (200e6, 100, 1, 0.01), ("bbr",)),
    ("two Cubic, 20 ms, 1 BDP", (100e6, 20, 1, 0), ("cubic", "cubic")),
    ("two BBR, 20 ms, 2 BDP", (100e6, 20, 2, 0), ("bbr", "bbr")),
    ("Cubic beside BBR, 20 ms, 1 BDP", (100e6, 20, 1, 0), ("cubic", "bbr")),
    ("Cubic beside BBR, 20 ms, 4 BDP", (100e6, 20, 4, 0), ("cubic", "bbr")),
    ("Cubic beside BBR, 100 ms, 2 BDP", (100e6, 100, 2, 0), ("cubic", "bbr")),
]


@dataclasses.dataclass
class Sender:
    """Something that sends as fast as it may until it is stopped. `port` tells its packets at host B."""

    name: str
    protocol: str
    port: int
    argv: list
    process: subprocess.Popen | None = None


class Lab:
    """The link, with two daemons and two iperf3 servers at host B."""

    def __init__(self, link):
        self.link = link
        self.a, self.b = self.link.a, self.link.b
        for host in (self.a, self.b):
            tune(host)
        self.root = self.link.pair.folder("served")
        self.key = key = product.keygen(self.a)
        self.daemons = [product.Daemon(self.link.pair, self.b, [key], port, root=self.root) for port in (33010, 33020)]
        self.servers = [self.b.start(["iperf3", "-s", "-p", str(port)], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for port in IPERF_PORTS]
        self.zeros = None
        rules = "".join(f"counter {sender}_{port} {{}}\n" for sender, port in self.ports())
        match = "".join(f"{sender} dport {port} counter name {sender}_{port}\n" for sender, port in self.ports())
        for host, hook in ((self.b, "prerouting"), (self.a, "output")):
            host.nft(f"table inet shares {{ {rules} chain c {{ type filter hook {hook} priority -350; {match} }}\n }}\n")

    def ports(self):
        return [("udp", daemon.port) for daemon in self.daemons] + [("tcp", port) for port in IPERF_PORTS]

    def serve_zeros(self):
        """Starts the server from which curl and the short transfers fetch, if it does not run yet."""
        if self.zeros is None:
            words = [f"{port}={control}" for control, port in HTTP_PORTS.items()]
            self.zeros = self.a.start([sys.executable, SHORT_TRANSFERS, "serve", *words], stdin=subprocess.DEVNULL)
            for port in HTTP_PORTS.values():
                wait_until(lambda port=port: self.b.run(["curl", "-sSf", f"http://{self.a.v4}:{port}/1"]).returncode == 0,
                           what="the server of zeros answers")

    def set(self, rate, rtt_ms, queue_bdp=1.0, loss=0.0):
        queue_ms = max(1, rtt_ms * queue_bdp)
        self.link.set(Profile("sharing", rtt_ms, loss, int(rate)))
        self.change("--queue", f"{queue_ms:g}ms")

    def change(self, *options):
        call(self.link.pair.program, "lab", "set", "--lab", self.link.pair.lab, *options)

    def passed_bits(self):
        """The bits that the link has let through from A to B since it was made."""
        stats = json.loads(call(self.link.pair.program, "lab", "stats", "--lab", self.link.pair.lab))
        return 8 * stats["links"][0]["forward"]["passed_bytes"]

    def ours(self, policy="fair", flows=1, rate=None, daemon=0, size=None):
        daemon = self.daemons[daemon]
        argv = ["farhaul", "cp", "-q", "--accept-new", "--policy", policy, "--flows", str(flows),
                *(["--rate", rate] if rate else []), f"zero:{size or ''}", daemon.url("null:")]
        return Sender(policy + (f", {flows} flows" if flows > 1 else ""), "udp", daemon.port, argv)

    def tcp(self, control, port=0):
        argv = ["iperf3", "-c", self.b.v4, "-p", str(IPERF_PORTS[port]), "-t", "600", "-C", control]
        return Sender(control, "tcp", IPERF_PORTS[port], argv)

    def start(self, sender):
        sender.process = self.a.start(sender.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE)

    def stop(self, sender):
        """Ends a sender as Ctrl-C does, and waits, as its server must be free for the next one."""
        process = sender.process
        if process.poll() is not None:
            raise SystemExit(f"{sender.argv} ended by itself: {process.stderr.read().decode(errors='replace')}")
        end(process)

    def counted(self, host):
        """Bytes so far, by (protocol, port)."""
        text = call("ip", "netns", "exec", host.netns, "nft", "-j", "list", "counters", "table", "inet", "shares")
        counters = [entry["counter"] for entry in json.loads(text)["nftables"] if "counter" in entry]
        found = {}
        for counter in counters:
            protocol, port = counter["name"].split("_")
            found[protocol, int(port)] = counter["bytes"]
        return found

    def rates(self, senders, seconds, host=None):
        """Bits a second of each sender over the next seconds, at host B if no other host is given."""
        host = host or self.b
        before, begin = self.counted(host), time.monotonic()
        time.sleep(seconds)
        after, took = self.counted(host), time.monotonic() - begin
        key = lambda sender: (sender.protocol, sender.port)  # noqa: E731
        return [8 * (after[key(sender)] - before[key(sender)]) / took for sender in senders]

    def quiet(self):
        """Waits until nothing is on the link."""
        def is_quiet():
            return sum(self.rates([Sender("", *port, []) for port in self.ports()], 0.5)) < 50_000
        wait_until(is_quiet, seconds=60, every=0.1, what="the link is empty")

    def wait_until_gone(self, sender):
        """Waits until nothing of a sender arrives any more: packets in queues and in flight leave the link
        after its end."""
        wait_until(lambda: self.rates([sender], 0.05) == [0.0], seconds=10, every=0, what=f"{sender.name} has left the link")

    def measured(self, measure):
        """The result of a measurement, and the emulator's limit, if any. If the first try was limited, the
        second one counts."""
        for _ in range(2):
            self.quiet()
            self.link.state()
            figures = measure()
            limited = self.link.state()["limited"]
            if not limited:
                break
        return figures, limited

    def together(self, senders, seconds, host=None):
        """The rates of senders that start together, and the emulator's limit, if any."""
        def measure():
            for sender in senders:
                self.start(sender)
            time.sleep(SETTLE_SECONDS)
            rates = self.rates(senders, seconds - SETTLE_SECONDS, host)
            for sender in senders:
                self.stop(sender)
            return rates
        return self.measured(measure)

    def one_after_the_other(self, first, second, seconds):
        """The rates of two senders over the last half of the time. The second one starts after a sixth of
        it."""
        def measure():
            self.start(first)
            time.sleep(seconds / 6)
            self.start(second)
            time.sleep(seconds / 3)
            rates = self.rates([first, second], seconds / 2)
            self.stop(first)
            self.stop(second)
            return rates
        return self.measured(measure)


class Sharing:
    def __init__(self, chosen, lab, results):
        self.chosen, self.lab, self.results = chosen, lab, results
        self.rates = (200e6, 1e9) if chosen.full else (200e6,)
        self.baselines = {}

    def row(self, case, passed, figure, goal, limited, **detail):
        self.results.row(case, passed and not limited, figure + (" (emulator full)" if limited else ""), goal, **detail)

    def tcp(self):
        """One fair transfer beside one TCP flow, at each queue; and the same TCP flow beside a Cubic in our
        place."""
        for rate in self.rates:
            for rtt in (20, 100):
                for queue in (0.5, 1, 2, 4):
                    for control in CONTROLS:
                        self.beside(rate, rtt, queue, control, 1)
                        if self.chosen.full or (rtt == 100 and queue == 1):
                            self.beside(rate, rtt, queue, control, 4)

    def beside(self, rate, rtt, queue, control, flows):
        lab = self.lab
        lab.set(rate, rtt, queue)
        (mine, theirs), limited = lab.together([lab.ours(flows=flows), lab.tcp(control)], self.chosen.seconds)
        baseline, baseline_limited = self.baseline(rate, rtt, queue, control)
        share, ratio = mine / (mine + theirs), theirs / baseline
        self.row(f"{flows} flow{'s' if flows > 1 else ''} beside {control}, {name(rate)}, {rtt} ms, {queue:g} BDP",
                 0.35 <= share <= 0.65 and ratio >= 0.8,
                 f"share {share:.2f}, {control} {ratio:.2f} of", "0.35 to 0.65, 0.8 of what it gets beside Cubic",
                 limited or baseline_limited, share=share, theirs_bps=theirs, mine_bps=mine, beside_cubic_bps=baseline)

    def baseline(self, rate, rtt, queue, control):
        """The rate of the TCP flow beside a Cubic. Which of two Cubics is faster is chance, so then it is
        half of their sum."""
        key = (rate, rtt, queue, control)
        if key not in self.baselines:
            lab = self.lab
            (cubic, theirs), limited = lab.together([lab.tcp("cubic", 0), lab.tcp(control, 1)], self.chosen.seconds / 2)
            self.baselines[key] = ((cubic + theirs) / 2 if control == "cubic" else theirs, limited)
        return self.baselines[key]

    def low(self):
        """The policy `low` yields to TCP, and fills an idle link within 20 round trips."""
        lab = self.lab
        for rtt in (20, 100):
            for control in CONTROLS:
                lab.set(200e6, rtt, 1)
                (alone,), limited = lab.together([lab.tcp(control)], self.chosen.seconds / 2)
                lab.quiet()
                lab.link.state()
                low, tcp = lab.ours("low"), lab.tcp(control)
                lab.start(tcp)
                lab.start(low)
                time.sleep(SETTLE_SECONDS)
                (theirs,) = lab.rates([tcp], self.chosen.seconds - SETTLE_SECONDS)
                lab.stop(tcp)
                lab.wait_until_gone(tcp)
                time.sleep(20 * rtt / 1000)
                (idle,) = lab.rates([low], 5)
                lab.stop(low)
                limited = limited or lab.link.state()["limited"]
                kept, filled = theirs / alone, idle / 200e6
                self.row(f"low beside {control}, 200 Mbit/s, {rtt} ms, 1 BDP", kept >= 0.93 and filled >= 0.95,
                         f"TCP keeps {kept:.2f}, then {filled:.2f}", "0.93 of what it gets alone, then 0.95 of the link",
                         limited, kept=kept, filled=filled)

    def high(self):
        lab = self.lab
        for rtt in (20, 100):
            lab.set(200e6, rtt, 1)
            (high, fair), limited = lab.together([lab.ours("high"), lab.ours("fair", daemon=1)], self.chosen.seconds)
            self.row(f"high beside fair, 200 Mbit/s, {rtt} ms, 1 BDP", 1.6 <= high / fair <= 2.6,
                     f"{high / fair:.2f} shares", "1.6 to 2.6 shares", limited, high_bps=high, fair_bps=fair)
            (one, other), limited = lab.together([lab.ours(), lab.ours(flows=4, daemon=1)], self.chosen.seconds)
            jain = (one + other) ** 2 / (2 * (one ** 2 + other ** 2))
            self.row(f"one flow beside four of one transfer, {rtt} ms", jain > 0.97, f"Jain {jain:.3f}", "above 0.97", limited,
                     one_bps=one, four_bps=other)

    def fixed(self):
        """`--rate` is in bits of UDP payload, counted at the sending host. Its counters see a train as one
        packet with one header."""
        lab = self.lab
        lab.set(1e9, 50, 1, loss=0.10)
        sender = lab.ours("fixed", rate="800M")
        (sent,), limited = lab.together([sender], min(30, self.chosen.seconds), lab.a)
        self.row("fixed 800M on 1 Gbit/s with 10 % loss", abs(sent / 800e6 - 1) <= 0.01, f"{sent / 1e6:.1f} Mbit/s",
                 "800 within 1 %", limited, sent_bps=sent)

    def models(self):
        """Compares the simulator's Cubic and BBR with the kernel's: the rate of each on twelve paths."""
        lab = self.lab
        for label, (rate, rtt, queue, loss), controls in MODEL_CASES:
            lab.set(rate, rtt, queue, loss)
            kernel, limited = lab.together([lab.tcp(control, port) for port, control in enumerate(controls)],
                                           self.chosen.seconds)
            model = simulate(rate, rtt, queue, loss, controls, self.chosen.seconds)
            # Which of two equal senders is faster is chance, so their rates are added up.
            of = lambda rates, wanted: sum(rate for control, rate in zip(controls, rates, strict=True) if control == wanted)  # noqa: E731
            pairs = {control: (of(kernel, control), of(model, control)) for control in controls}
            worst = max(abs(ours / theirs - 1) for theirs, ours in pairs.values())
            figures = ", ".join(f"{control} {theirs / 1e6:.1f} ({ours / 1e6:.1f})" for control, (theirs, ours) in pairs.items())
            self.row(f"model: {label}", worst <= 0.15, f"{figures} Mbit/s", "kernel (model) within 15 %", limited,
                     kernel_bps=kernel, model_bps=model)

    def moving(self):
        """A transfer over a path whose delay moves by itself, in turns with curl over the kernel's BBR."""
        lab = self.lab
        lab.serve_zeros()
        lab.set(1e9, 100, 0.5)
        for motion in MOTIONS:
            def both(motion=motion):
                rates = []
                for fetch in (self.by_curl, self.by_us):
                    # A walk that is set again begins again with the next packet, so both transfers meet the
                    # same delays.
                    lab.change("--jitter", "0ms")
                    lab.quiet()
                    lab.change("--jitter", motion)
                    rates.append(fetch())
                return rates
            runs = [lab.measured(both) for _ in range(MOVING_RUNS)]
            lab.change("--jitter", "0ms")
            won = sum(ours >= curl for (curl, ours), _ in runs)
            figures = ", ".join(f"{ours / 1e6:.0f} ({curl / 1e6:.0f})" for (curl, ours), _ in runs)
            self.row(f"moving delay: 1 Gbit/s, 100 ms, --jitter {motion}", won >= 2, f"{figures} Mbit/s",
                     "at least curl over BBR (in brackets) in 2 of 3", next((limited for _, limited in runs if limited), None),
                     curl_bps=[curl for (curl, _), _ in runs], ours_bps=[ours for (_, ours), _ in runs])

    def by_curl(self):
        """Bits a second of a download from A to B over BBR. If it is not done in time, the bytes that had
        come count."""
        done = self.lab.b.run(["curl", "-sS", "-o", "/dev/null", "-m", str(MOVING_SECONDS_MAX), "-w", "%{size_download} %{time_total}",
                               f"http://{self.lab.a.v4}:{HTTP_PORTS['bbr']}/{MOVING_SIZE}"])
        size, seconds = done.stdout.decode().split()
        if done.returncode not in (0, 28):
            raise SystemExit(f"curl: {done.stderr.decode(errors='replace')}")
        return 8 * int(size) / float(seconds)

    def by_us(self):
        """The same for a transfer without a note of the path."""
        lab, sender = self.lab, self.lab.ours(size=MOVING_SIZE)
        (lab.a.home / ".local/state/farhaul/paths.json").unlink(missing_ok=True)
        before, begin = lab.counted(lab.b), time.monotonic()
        lab.start(sender)
        try:
            sender.process.wait(MOVING_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - begin
            key = (sender.protocol, sender.port)
            arrived = PAYLOAD_SHARE * (lab.counted(lab.b)[key] - before[key])
            lab.stop(sender)
            return 8 * arrived / seconds
        seconds = time.monotonic() - begin
        if sender.process.returncode != 0:
            raise SystemExit(f"{sender.argv}: {sender.process.stderr.read().decode(errors='replace')}")
        return 8 * MOVING_SIZE / seconds

    def newcomer(self):
        """A fair transfer joins a Cubic, or a Cubic joins it; and the same with a second Cubic in our
        place."""
        lab, shares = self.lab, []
        for rate, rtt, queue in NEWCOMER_CASES:
            for tcp_first in (True, False):
                lab.set(rate, rtt, queue)
                def share(mine, tcp_first=tcp_first):
                    tcp = lab.tcp("cubic")
                    pair = (tcp, mine) if tcp_first else (mine, tcp)
                    rates, limited = lab.one_after_the_other(*pair, self.chosen.seconds)
                    return rates[tcp_first] / sum(rates), limited
                ours, limited = share(lab.ours())
                cubics, cubics_limited = share(lab.tcp("cubic", 1))
                least = max(0.2, cubics - 0.05)
                shares.append(ours)
                self.row(f"newcomer: {'Cubic' if tcp_first else 'fair'} first, {name(rate)}, {rtt} ms, {queue:g} BDP", ours >= least,
                         f"share {ours:.2f}, a Cubic's {cubics:.2f}", f"at least {least:.2f}", limited or cubics_limited,
                         share=ours, cubic_share=cubics)
        middle = statistics.median(shares)
        self.row("newcomer: median over the cases", 0.35 <= middle <= 0.65, f"share {middle:.2f}", "0.35 to 0.65", None, shares=shares)

    def cross(self):
        """Short TCP transfers come and go: how long they take beside us, and beside one BBR in our place."""
        lab = self.lab
        lab.serve_zeros()
        rate, rtt = CROSS_PATH
        lab.set(rate, rtt, 1)
        for control in CONTROLS:
            for share in CROSS_SHARES:
                ours, limited = self.beside_short(lab.ours(), control, share)
                bbr, bbr_limited = self.beside_short(lab.tcp("bbr"), control, share)
                ratios = [ours[which] / bbr[which] for which in ("median", "late")]
                self.row(f"cross traffic: short {control}, {share:.0%} of {name(rate)}, {rtt} ms, 1 BDP", max(ratios) <= 1.5,
                         f"median {ours['median']:.3f} s ({bbr['median']:.3f}), 95 % {ours['late']:.3f} s ({bbr['late']:.3f}), "
                         f"link {ours['full']:.2f} ({bbr['full']:.2f})", "at most 1.5 times as long as beside one BBR (in brackets)",
                         limited or bbr_limited, ours=ours, bbr=bbr)

    def beside_short(self, sender, control, share):
        """Median and 95th percentile of the seconds that short transfers take beside a sender, and how full the link is."""
        lab, (rate, _) = self.lab, CROSS_PATH
        seconds = self.chosen.seconds / 2
        settled = min(SETTLE_SECONDS, seconds / 3)
        argv = [sys.executable, SHORT_TRANSFERS, "fetch", lab.a.v4, HTTP_PORTS[control], share, rate, seconds, 1]

        def measure():
            lab.start(sender)
            fetching = lab.b.start([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            time.sleep(settled)
            passed, began = lab.passed_bits(), time.monotonic()
            text, _ = fetching.communicate(timeout=seconds + 60)
            full = (lab.passed_bits() - passed) / (time.monotonic() - began) / rate
            lab.stop(sender)
            if fetching.returncode != 0:
                raise SystemExit(f"{argv}: exit {fetching.returncode}")
            took = sorted(transfer["seconds"] for transfer in json.loads(text) if transfer["began"] >= settled)
            return {"median": statistics.median(took), "late": took[int(0.95 * len(took))], "count": len(took), "full": full}
        return lab.measured(measure)

    def blocked(self):
        """UDP is blocked or policed: compares us with tools that open many TCP connections."""
        with contextlib.closing(Blocked(self.chosen, self.lab, self.results)) as blocked:
            blocked.run()

    def files(self):
        """One file from disk to disk over the long links, to a daemon."""
        lab, size = self.lab, self.chosen.size * MIB
        source = trees.make_file(lab.link.pair.folder("source") / "file", size)
        digest = trees.sha256(source)
        for profile in (COUNTRY, OCEAN, SATELLITE, WORSE):
            lab.link.set(profile)
            lab.change("--queue", f"{profile.rtt_ms:g}ms")
            allowed = (8 * size / (0.97 * profile.rate_bps * (1 - profile.loss) * PAYLOAD_SHARE)
                       + 12 * profile.rtt_ms / 1000 + 1)
            seconds, limits, bottlenecks = [], [], []
            for _ in range(self.chosen.runs):
                lab.link.state()
                begin = time.monotonic()
                done = product.cp(lab.a, "--accept-new", source, lab.daemons[0].url("file"), timeout=900)
                seconds.append(time.monotonic() - begin)
                limits.append(lab.link.state()["limited"])
                bottlenecks.append(done.report["bottleneck"])
                if trees.sha256(lab.root / "file") != digest:
                    raise SystemExit(f"the file arrived damaged: {done}")
                remove(lab.root / "file")
            took = statistics.median(seconds)
            limited = next(filter(None, limits), None)
            self.row(f"{size / GIB:g} GiB, {profile}", took <= allowed, f"{took:.1f} s", f"at most {allowed:.1f} s", limited,
                     seconds=seconds, bottlenecks=bottlenecks, spread=f"{(max(seconds) - min(seconds)) / took:.1%}" if len(seconds) > 1 else "")


    def start(self):
        """How long very short transfers take, on the link and on loopback."""
        starts = Starts(self.lab, self.results)
        starts.loopback(2 * self.chosen.starts + 10)
        starts.far(self.chosen.starts)


def simulate(rate, rtt, queue, loss, controls, seconds):
    """Bits a second of each sender in the simulator, counted as in the lab: a train is one packet with one
    header."""
    argv = [str(pathlib.Path(product.binary()).with_name("farhaul-sim")), "run", "--ours=false", f"--rate={int(rate)}", f"--rtt-ms={rtt}", f"--loss={loss}",
            "--loss-back=0", f"--queue-bytes={int(max(rate / 8 * max(rtt * queue, 1) / 1000, 1514))}", f"--seconds={seconds}",
            f"--warmup={SETTLE_SECONDS}", f"--rivals={','.join(f'{control}:0:1:1:none' for control in controls)}", "--seeds=5"]
    lines = [line.split("Mbit/s: ")[1].split(", ")[1:] for line in call(*argv).splitlines()]
    runs = [[1e6 * float(sender.split()[-1]) for sender in senders] for senders in lines]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def name(rate):
    return f"{rate / 1e9:g} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:g} Mbit/s"


PARTS = ("start", "files", "moving", "newcomer", "cross", "tcp", "low", "high", "fixed", "blocked", "models")


def main():
    parser = argparse.ArgumentParser(prog="./x bench sharing", description=__doc__)
    parser.add_argument("--full", action="store_true",
                        help="1 Gbit/s as well, four flows at each queue, and the simulator's TCP against the kernel's")
    parser.add_argument("--seconds", type=float, default=60, help="length of a measurement (default 60)")
    parser.add_argument("--size", type=int, default=8192, metavar="MIB", help="size of the file (default 8192)")
    parser.add_argument("--runs", type=int, default=1, help="runs of each file (default 1)")
    parser.add_argument("--starts", type=int, default=20, metavar="RUNS",
                        help="runs of each start (default 20; on loopback ten more than twice as many)")
    parser.add_argument("--only", type=parts(PARTS), help=f"comma-separated: {', '.join(PARTS)} (default all, models with --full)")
    parser.add_argument("--dir", default="/var/tmp", help="where the hosts' files lie (default /var/tmp)")
    chosen = parser.parse_args()
    install_signal_handlers()
    results = Results("sharing")
    results.notes = {"seconds": chosen.seconds, "full": chosen.full}
    default = PARTS if chosen.full else [part for part in PARTS if part != "models"]
    with contextlib.closing(LabLink(chosen.dir)) as link, results.saved(chosen.only is None and chosen.full):
        sharing = Sharing(chosen, Lab(link), results)
        for part in chosen.only or default:
            getattr(sharing, part)()


if __name__ == "__main__":
    main()
