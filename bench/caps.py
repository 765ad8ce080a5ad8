"""Ten transfers that come and go through a daemon's cap whose rate changes twice, in the lab: IP bytes against the cap.
`./x bench caps`; one PASS or MISS line a row.

Always true: bytes are those of the daemon's network device, both ways, less link headers, so that no end tells its own
figure; the device gets each packet by itself, as a cable would.
"""

import argparse
import bisect
import contextlib
import itertools
import pathlib
import random
import statistics
import sys
import threading
import time

from ground import Results
from link import LabLink, Profile

from harness import product
from harness.hosts import call, install_signal_handlers

PORT = 33701
#: What the daemon may move in all, and what its one key may from these seconds on.
DAEMON_RATE = 200e6
STEPS = ((0, 100e6), (20, 200e6), (40, 120e6))
SECONDS = 60
SLOTS = 10
#: A key whose rate has become less loses its sessions within a second; until then it has what it had.
LESS_WITHIN = 1.0
#: Mean over so many seconds, and how much of the cap may be exceeded.
WINDOWS = ((1, 0.10), (5, 0.02))
USED_FROM, USED_OVER, USED = 3, 5, 0.95
SAMPLES = 4
#: Bytes of a transfer: a second to ten at a tenth of the cap.
SIZES = (2_000_000, 25_000_000)


class Device:
    """What a network device has moved, sampled by a thread."""

    def __init__(self, host, pid):
        self.path = pathlib.Path(f"/proc/{pid}/net/dev")
        self.name = host.interface
        kind = int(host.run(["cat", f"/sys/class/net/{self.name}/type"], check=True).stdout)
        # Ethernet; a tun has no header.
        self.header = 14 if kind == 1 else 0
        self.samples = []
        self.packets = 0

    def look(self):
        now = time.monotonic()
        line = next(line for line in self.path.read_text().splitlines() if line.strip().startswith(self.name + ":"))
        fields = [int(field) for field in line.split(":")[1].split()]
        packets = fields[1] + fields[9]
        self.samples.append((now, fields[0] + fields[8] - self.header * packets))
        self.packets = packets

    @contextlib.contextmanager
    def watched(self):
        stop = threading.Event()

        def watch():
            for turn in itertools.count():
                self.look()
                if stop.wait(max(0.0, begin + (turn + 1) / SAMPLES - time.monotonic())):
                    return

        begin = time.monotonic()
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def windows(self, seconds, begin, end):
        """Bits a second of each window of so many seconds between two times, with the times of each."""
        times = [at for at, _ in self.samples]
        for first in range(bisect.bisect_left(times, begin), len(times)):
            last = first + seconds * SAMPLES
            if last >= len(times) or times[last] > end:
                return
            (since, before), (until, after) = self.samples[first], self.samples[last]
            yield 8 * (after - before) / (until - since), since, until


class Cap:
    """The cap as it was set, and as it held: one that has become less holds after LESS_WITHIN at the latest."""

    def __init__(self):
        self.changes = []

    def set(self, rate):
        now = time.monotonic()
        is_less = self.changes and rate < self.changes[-1][1]
        self.changes.append((now + (LESS_WITHIN if is_less else 0), rate))

    def mean(self, since, until):
        total = 0.0
        for (at, rate), (end, _) in itertools.pairwise([*self.changes, (float("inf"), 0)]):
            total += rate * max(0.0, min(end, until) - max(at, since))
        return total / (until - since)


def client(host, daemon, numbers, until, done):
    """Transfers one after the other, either way, until then."""
    while time.monotonic() < until:
        size = numbers.randint(*SIZES)
        here, there = (f"zero:{size}", "null:") if numbers.random() < 0.5 else ("null:", f"zero:{size}")
        ends = (here, daemon.url(there)) if here != "null:" else (daemon.url(there), here)
        outcome = product.finish(product.start_cp(host, "--accept-new", *ends))
        done.append(outcome.code)


def measure(results, chosen):
    link = LabLink(chosen.dir)
    try:
        link.set(Profile("campus", rtt_ms=chosen.rtt, rate_bps=1_000_000_000, loss=chosen.loss / 100))
        for host in (link.a, link.b):
            call("ip", "netns", "exec", host.netns, "ethtool", "-K", host.interface, "tx", "off", "gso", "off", "tso", "off",
                 "gro", "off", "tx-udp-segmentation", "off")
        key = product.keygen(link.a)
        line = lambda rate: f"max-rate={int(rate)} {key}"  # noqa: E731
        daemon = product.Daemon(link.pair, link.b, [line(STEPS[0][1])], port=PORT,
                                arguments=["--max-rate", str(int(DAEMON_RATE))])
        cap, device, done = Cap(), Device(link.b, daemon.process.pid), []
        begin = time.monotonic()
        with device.watched():
            cap.set(STEPS[0][1])
            until = begin + chosen.seconds
            clients = [threading.Thread(target=client, args=(link.a, daemon, random.Random(chosen.seed * 100 + slot), until, done))
                       for slot in range(SLOTS)]
            for slot in clients:
                slot.start()
                time.sleep(0.1)
            for at, rate in STEPS[1:]:
                time.sleep(max(0.0, begin + at * chosen.seconds / SECONDS - time.monotonic()))
                # As an editor does: no reader sees half a line.
                fresh = daemon.keys.with_suffix(".new")
                fresh.write_text(line(rate))
                fresh.rename(daemon.keys)
                cap.set(rate)
            time.sleep(max(0.0, until - time.monotonic()))
        for slot in clients:
            slot.join()
        judge(results, device, cap, (begin, until), done)
    finally:
        link.close()


def judge(results, device, cap, whole, done):
    moved = device.samples[-1][1] - device.samples[0][1]
    results.note(f"{len(done)} transfers ended, {sum(code != 0 for code in done)} of them early; {moved / 1e6:.0f} MB of IP "
                 f"in packets of {moved / max(1, device.packets):.0f} bytes")
    for seconds, more in WINDOWS:
        shares = [rate / cap.mean(since, until) for rate, since, until in device.windows(seconds, *whole)]
        results.row(f"most of any {seconds} s", max(shares) <= 1 + more, f"{max(shares):.3f} of the cap", f"{1 + more:.2f}",
                    f"median {statistics.median(shares):.3f}", shares=[round(share, 4) for share in shares])
    for number, (at, rate) in enumerate(cap.changes):
        end = cap.changes[number + 1][0] if number + 1 < len(cap.changes) else whole[1]
        shares = [got / rate for got, *_ in device.windows(USED_OVER, at + USED_FROM, end - LESS_WITHIN)]
        if shares:
            results.row(f"least of 5 s, {rate / 1e6:.0f} Mbit/s, 3 s after the change", min(shares) >= USED,
                        f"{min(shares):.3f} of the cap", f"{USED}", f"median {statistics.median(shares):.3f}",
                        shares=[round(share, 4) for share in shares])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp", help="where the lab's files lie (default /var/tmp)")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"how long (default {SECONDS})")
    parser.add_argument("--rtt", type=float, default=20, help="round trip in ms (default 20)")
    parser.add_argument("--loss", type=float, default=0, help="loss in per cent each way (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and ways of the transfers")
    chosen = parser.parse_args()
    install_signal_handlers()
    results = Results("caps")
    with results.saved(all_rows=True):
        measure(results, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
