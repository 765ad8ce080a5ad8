"""Ten transfers that come and go through a cap whose rate changes twice, in the lab: IP bytes against the cap.
`./x bench caps`; one PASS or MISS line a row.

`jobs` are those of a `farhaul serve`, through a named cap with a schedule; the bench sets the service's clock. `keys` are
clients' own transfers at a daemon, through the max-rate of their key.

Always true: bytes are those of the daemon's network device, both ways, without link headers, so that no end
reports its own figure; the device gets each packet by itself, as a cable would.
"""

import argparse
import bisect
import contextlib
import datetime
import itertools
import os
import pathlib
import random
import statistics
import sys
import threading
import time

from ground import Results, parts
from link import LabLink, Profile

from harness import hooks, product
from harness.hosts import call, install_signal_handlers
from harness.service import Service

PARTS = ("jobs", "keys")
PORT, FAR_PORT = 33701, 33702
LINK_RATE = 1_000_000_000
SECONDS = 60
SLOTS = 10
#: (seconds of the mean, the share by which that mean may exceed the cap).
WINDOWS = ((1, 0.10), (5, 0.02))
USED_FROM, USED_OVER, USED = 3, 5, 0.95
SAMPLES = 4
#: The smallest and the largest transfer in bytes: one to ten seconds at a tenth of the cap.
SIZES = (2_000_000, 25_000_000)

#: The cap of the jobs: its rate, its rate from nine to six, and the seconds at which the clock reaches these
#: hours.
CAP, CAP_BY_DAY = 200e6, 100e6
MORNING, EVENING = 20, 40
#: How long a lower rate takes to hold: the sender at the far end hears of it half a round trip later, packets
#: in flight still arrive, and a session looks at its share every 50 ms.
HEARD_WITHIN = 0.1

#: The most that the daemon may move in all, and (second, the rate of its one key from then on).
DAEMON_RATE = 200e6
KEY_STEPS = ((0, 100e6), (20, 200e6), (40, 120e6))
#: A key whose rate was lowered loses its sessions within a second; until then they keep the old rate.
KEY_LESS_WITHIN = 1.0


class Device:
    """The bytes that a network device has moved, sampled by a thread."""

    def __init__(self, host, pid):
        self.path = pathlib.Path(f"/proc/{pid}/net/dev")
        self.name = host.interface
        kind = int(host.run(["cat", f"/sys/class/net/{self.name}/type"], check=True).stdout)
        # Ethernet has a header of 14 bytes, a tun device has none.
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
        """The windows of this length between two times: (begin, end, bits a second) of each."""
        times = [at for at, _ in self.samples]
        for first in range(bisect.bisect_left(times, begin), len(times)):
            last = first + seconds * SAMPLES
            if last >= len(times) or times[last] > end:
                return
            (since, before), (until, after) = self.samples[first], self.samples[last]
            yield 8 * (after - before) / (until - since), since, until


class Cap:
    """The cap over time. A lower rate counts from `less_within` seconds after it was set."""

    def __init__(self, less_within):
        self.less_within = less_within
        self.changes = []

    def set(self, rate, at=None):
        at = at or time.monotonic()
        is_less = self.changes and rate < self.changes[-1][1]
        self.changes.append((at + (self.less_within if is_less else 0), rate))

    def mean(self, since, until):
        total = 0.0
        for (at, rate), (end, _) in itertools.pairwise([*self.changes, (float("inf"), 0)]):
            total += rate * max(0.0, min(end, until) - max(at, since))
        return total / (until - since)


class Clock:
    """The clock of a service, which reads it from a file."""

    DAY = datetime.datetime(2026, 11, 27, tzinfo=datetime.timezone.utc).timestamp()

    def __init__(self, file):
        self.file = file

    def set(self, seconds_before, hour):
        """Sets the clock so that it shows this hour in `seconds_before` seconds; returns that time."""
        at = time.time() + seconds_before
        # A rename: a reader sees the old file or the new one.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(self.DAY + 3600 * hour - at))
        fresh.rename(self.file)
        return time.monotonic() + seconds_before


@contextlib.contextmanager
def lab(chosen, rtt_ms):
    link = LabLink(chosen.dir)
    try:
        link.set(Profile("campus", rtt_ms=rtt_ms, rate_bps=LINK_RATE, loss=chosen.loss / 100))
        for host in (link.a, link.b):
            call("ip", "netns", "exec", host.netns, "ethtool", "-K", host.interface, "tx", "off", "gso", "off", "tso", "off",
                 "gro", "off", "tx-udp-segmentation", "off")
        yield link
    finally:
        link.close()


def transfers(numbers):
    """An endless sequence of (size, whether it is sent)."""
    while True:
        yield numbers.randint(*SIZES), numbers.random() < 0.5


@contextlib.contextmanager
def slots(chosen, until, transfer):
    """Ten threads, each of which makes one transfer after the other until `until`; yields the list of exit
    codes."""
    done = []

    def slot(number):
        for size, is_sent in transfers(random.Random(chosen.seed * 100 + number)):
            if time.monotonic() >= until:
                return
            done.append(transfer(size, is_sent))

    threads = [threading.Thread(target=slot, args=(number,)) for number in range(SLOTS)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    try:
        yield done
    finally:
        for thread in threads:
            thread.join()


def sleep_until(at):
    time.sleep(max(0.0, at - time.monotonic()))


def jobs(results, chosen, rtt_ms):
    """Jobs of a service, to and from another daemon."""
    with lab(chosen, rtt_ms) as link:
        far = product.Daemon(link.pair, link.a, [], port=FAR_PORT)
        folder = link.pair.folder("clock")
        clock, config = Clock(folder / "clock"), folder / "farhaul.toml"
        config.write_text(f"[jobs]\nrunning_per_peer = {SLOTS}\nrunning_per_principal = {SLOTS}\n")
        os.chmod(config, 0o600)
        whole = chosen.seconds / SECONDS
        morning = clock.set(MORNING * whole, 9)
        service = Service(link, link.b, port=PORT, arguments=["--config", config], hooks=hooks.prefix(clock=clock.file), far=far)
        service.run("cap", "set", "campus-uplink", "--peer", link.a.name, "--rate", str(int(CAP)),
                    "--schedule", f"daily 09:00-18:00 {int(CAP_BY_DAY)}", "--time-zone", "UTC")

        def transfer(size, is_sent):
            ends = ([f"zero:{size}", far.url("null:")] if is_sent else [far.url(f"zero:{size}"), "null:"])
            argv = ["farhaul", "submit", *ends, "--fingerprint", far.fingerprint, "--wait", "-q"]
            return link.b.run(argv, env={"FARHAUL_API": os.fspath(service.socket)}).returncode

        cap, device = Cap(HEARD_WITHIN + rtt_ms / 1000), Device(link.b, service.daemon.process.pid)
        begin = time.monotonic()
        with device.watched():
            cap.set(CAP)
            until = begin + chosen.seconds
            with slots(chosen, until, transfer) as done:
                sleep_until(morning)
                cap.set(CAP_BY_DAY, morning)
                sleep_until((morning + begin + EVENING * whole) / 2)
                evening = clock.set(begin + EVENING * whole - time.monotonic(), 18)
                sleep_until(evening)
                cap.set(CAP, evening)
                sleep_until(until)
        judge(results, f"jobs, {rtt_ms:g} ms", device, cap, (begin, until), done)


def keys(results, chosen, rtt_ms):
    """Transfers of clients, at a daemon that knows their key."""
    with lab(chosen, rtt_ms) as link:
        key = product.keygen(link.a)
        line = lambda rate: f"max-rate={int(rate)} {key}"  # noqa: E731
        daemon = product.Daemon(link.pair, link.b, [line(KEY_STEPS[0][1])], port=PORT,
                                arguments=["--max-rate", str(int(DAEMON_RATE))])

        def transfer(size, is_sent):
            ends = (f"zero:{size}", daemon.url("null:")) if is_sent else (daemon.url(f"zero:{size}"), "null:")
            return product.finish(product.start_cp(link.a, "--accept-new", *ends)).code

        cap, device = Cap(KEY_LESS_WITHIN), Device(link.b, daemon.process.pid)
        begin = time.monotonic()
        with device.watched():
            cap.set(KEY_STEPS[0][1])
            until = begin + chosen.seconds
            with slots(chosen, until, transfer) as done:
                for at, rate in KEY_STEPS[1:]:
                    sleep_until(begin + at * chosen.seconds / SECONDS)
                    # A rename, as editors do it: a reader never sees half a line.
                    fresh = daemon.keys.with_suffix(".new")
                    fresh.write_text(line(rate))
                    fresh.rename(daemon.keys)
                    cap.set(rate)
                sleep_until(until)
        judge(results, f"keys, {rtt_ms:g} ms", device, cap, (begin, until), done)


def judge(results, case, device, cap, whole, done):
    moved = device.samples[-1][1] - device.samples[0][1]
    results.note(f"{case}: {len(done)} transfers ended, {sum(code != 0 for code in done)} of them early; {moved / 1e6:.0f} MB of IP "
                 f"in packets of {moved / max(1, device.packets):.0f} bytes; load {os.getloadavg()[0]:.1f}")
    for seconds, more in WINDOWS:
        shares = [rate / cap.mean(since, until) for rate, since, until in device.windows(seconds, *whole)]
        results.row(f"{case}: most of any {seconds} s", max(shares) <= 1 + more, f"{max(shares):.3f} of the cap", f"{1 + more:.2f}",
                    f"median {statistics.median(shares):.3f}", shares=[round(share, 4) for share in shares])
    for number, (at, rate) in enumerate(cap.changes):
        end = cap.changes[number + 1][0] - cap.less_within if number + 1 < len(cap.changes) else whole[1]
        shares = [got / rate for got, *_ in device.windows(USED_OVER, at + USED_FROM, end)]
        if shares:
            results.row(f"{case}: least of 5 s, from {at - whole[0] + USED_FROM:.0f} s on at {rate / 1e6:.0f} Mbit/s", min(shares) >= USED,
                        f"{min(shares):.3f} of the cap", f"{USED}", f"median {statistics.median(shares):.3f}",
                        shares=[round(share, 4) for share in shares])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    parser.add_argument("--dir", default="/var/tmp", help="where the lab's files lie (default /var/tmp)")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"how long each takes (default {SECONDS})")
    parser.add_argument("--rtt", type=lambda text: [float(part) for part in text.split(",")], default=[20.0, 100.0],
                        help="round trips in ms (default 20,100)")
    parser.add_argument("--loss", type=float, default=0, help="loss in per cent each way (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sizes and directions of the transfers")
    chosen = parser.parse_args()
    install_signal_handlers()
    results = Results("caps")
    with results.saved(all_rows=len(chosen.only) == len(PARTS) and len(chosen.rtt) > 1):
        for part in chosen.only:
            for rtt_ms in chosen.rtt:
                {"jobs": jobs, "keys": keys}[part](results, chosen, rtt_ms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
