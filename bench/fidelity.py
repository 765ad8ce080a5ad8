"""Whether the lab's links do what they claim: round trip, loss, rate, TCP as theory predicts it, and how fast
the emulator is. `./x bench fidelity`; one PASS or MISS line a row.

A measurement is repeated if the emulator itself was the bottleneck, as its statistics say. If that does not
help, the row is marked and is a MISS, whatever its figure.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from ground import Results, gbit, ground, parts

from harness import lab

#: The packets of a loss row, and the width of the 99 % confidence interval in standard deviations.
LOSS_PACKETS = 1_000_000
SIGMAS_99 = 2.576
#: How often a measurement is tried until the emulator is not the bottleneck.
TRIES = 3
PARTS = ("rtt", "loss", "rate", "moving", "tcp", "speed")


class Fidelity:
    def __init__(self, results, runs, quick):
        self.results = results
        self.runs = runs
        self.quick = quick
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="farhaul-fidelity-"))

    def probe(self, link, what, *arguments):
        """The figures of a probe, with those of the emulator. A probe that does not count is made again."""
        for tries in range(1, TRIES + 1):
            figures = self.probe_once(link, what, *arguments)
            figures["tries"] = tries
            if not figures["emulator"]["overloaded"]:
                break
        return figures

    def probe_once(self, link, what, *arguments):
        stats = self.folder / "stats"
        figures = lab.probe(["-q", "--stats", stats, *link], what, *arguments, timeout=300)
        lines = [json.loads(line) for line in stats.read_text().splitlines()]
        total = lines[-1]["links"][0]
        forward = total["forward"]
        # The worker's processor time is that of its busiest second, so that set-up and end do not count.
        busiest = max(line["links"][0]["forward"]["cpu_share"] for line in lines)
        figures["emulator"] = {"overloaded": forward["overloaded"] + total["backward"]["overloaded"],
                               "cpu_share": busiest, "faults": forward["faults"], "dropped": forward["dropped"],
                               "late_mean_us": forward["late_mean_us"], "late_p99_us": forward["late_p99_us"]}
        return figures

    def offered(self, link, seconds, bps):
        """Offers a quarter more than the link's rate. A sender that offered less was stalled, so the probe is
        made again."""
        for _ in range(TRIES):
            figures = self.probe(link, "udp", seconds, 1.25 * bps)
            if figures["sent_bps"] >= 1.2 * bps:
                break
        return figures

    def row(self, case, passed, figure, goal, runs, figures, spread=""):
        overloaded = sorted({reason for run in runs for reason in run["emulator"]["overloaded"]})
        if overloaded:
            figure += " (overloaded)"
        self.results.row(case, passed and not overloaded, figure, goal, spread, overloaded=overloaded, runs=runs,
                         figures=figures)
        for reason in overloaded:
            self.results.note(f"does not count: {reason}")

    def rtt(self):
        """The round trip that the link adds. The hosts' own time, to send and to wake up, is measured over a
        plain pair of devices and taken off."""
        count = 20 if self.quick else 100
        with ground(self.folder) as net:
            done = net.alpha.run([sys.executable, lab.PROBE, "rtt", str(count)], env={"FARHAUL_LAB_B": "beta"}, check=True)
        hosts = json.loads(done.stdout)["median_ms"]
        self.results.note(f"over a plain pair of devices: {hosts:.3f} ms, taken off the round trips")
        for ms in (0, 1, 10, 50, 100, 500):
            runs = [self.probe(["--rtt", f"{ms}ms"], "rtt", 20 if ms == 500 else count)]
            added = runs[0]["median_ms"] - hosts
            self.row(f"round trip {ms} ms", abs(added - ms) <= 0.01 * ms + 0.3, f"{added:.3f} ms",
                     "within 1 % + 0.3 ms", runs, {"median_ms": runs[0]["median_ms"], "hosts_ms": hosts})

    def loss(self):
        packets = LOSS_PACKETS // (10 if self.quick else 1)
        for percent in (0.1, 1, 5, 10, 30):
            share = percent / 100
            runs = [self.probe(["--loss", f"{percent}%", "--rtt", "10ms"], "loss", packets, 2e9)]
            lost = runs[0]["sent"] - runs[0]["received"] - runs[0]["receiver_dropped"]
            bound = SIGMAS_99 * (packets * share * (1 - share)) ** 0.5
            self.row(f"loss {percent:g} % of {packets} packets", abs(lost - packets * share) <= bound,
                     f"{lost / packets:.4%}", f"99 % interval, +-{bound / packets:.4%}", runs, {"lost": lost})

    def rate(self):
        for name, bps in (("10m", 1e7), ("100m", 1e8), ("1g", 1e9), ("5g", 5e9), ("10g", 1e10)):
            seconds = 2 if self.quick else 5
            runs = [self.offered(["--rate", name, "--rtt", "10ms", "--queue", "100ms"], seconds, bps)
                    for _ in range(self.runs)]
            # Datagrams that the receiver's socket dropped came through the link, so they count.
            got = statistics.median(run["received_bps"] * (1 + run["receiver_dropped"] / max(run["received"], 1))
                                    for run in runs)
            self.row(f"rate {name}", abs(got / bps - 1) <= 0.01, f"{got / 1e6:.2f} Mbit/s", "within 1 %", runs,
                     {"bps": got, "share": got / bps}, spread(run["received_bps"] for run in runs))

    def moving(self):
        """Delays and rates that move by themselves: they depend on the seed only, not on the load of the
        machine."""
        count = 1000 if self.quick else 5000
        once, again = (self.probe(["--rtt", "20ms"], "delays", count, 1, "--jitter", "walk:20:50") for _ in range(2))
        apart = statistics.median(abs(one - other) for one, other in zip(once["delays_ms"], again["delays_ms"]))
        self.row("walk:20:50, the same seed twice", len(once["delays_ms"]) == len(again["delays_ms"]) and apart <= 0.5,
                 f"{apart:.3f} ms apart", "within 0.5 ms, none lost", without_lists([once, again]), {"apart_ms": apart})
        for jitter, least, most in (("10ms:reorder", 0, 20), ("white:10:reorder", 10, 20)):
            run = self.probe(["--rtt", "20ms"], "delays", count, 1, "--jitter", jitter)
            mean, middle = statistics.fmean(run["delays_ms"]), (least + most) / 2
            # Three standard deviations of the mean, and what the hosts add.
            bound = 3 * (most - least) / (12 * count) ** 0.5 + 0.4
            self.row(f"mean delay under {jitter} over 10 ms", abs(mean - middle) <= bound, f"{mean:.3f} ms",
                     f"{middle:g} within {bound:.2f} ms", without_lists([run]), {"mean_ms": mean})
        run = self.probe(["--rtt", "20ms"], "delays", count, 1, "--jitter", "bursts:20")
        came = run["came_ms"]
        heads = [late for before, late in zip(came, came[1:]) if late - before > 5]
        steps = [late - before for before, late in zip(heads, heads[1:])]
        even = sum(abs(step - 20) <= 1 for step in steps) / len(steps)
        self.row("bursts:20, time between bursts", even >= 0.95, f"{even:.1%} as asked", "95 % within 1 ms of 20", without_lists([run]),
                 {"even": even})
        times = self.folder / "times"
        times.write_text("".join(f"{3 * number // 2}\n" for number in range(1000)))
        bps = 1000 * 1500 * 8 / 1.499
        runs = [self.offered(["--rate-motion", f"trace:{times}", "--rtt", "10ms", "--queue", "100ms"], 3, bps)]
        got = runs[0]["received_bps"]
        self.row("rate by a file of delivery times", abs(got / bps - 1) <= 0.01, f"{got / 1e6:.3f} Mbit/s",
                 f"{bps / 1e6:.3f} within 1 %", runs, {"bps": got})

    def tcp(self):
        cases = [("cubic", 50, 0.1, 9e6, 6e6, 14e6), ("cubic", 100, 1, 1.3e6, 0.9e6, 2.0e6),
                 ("bbr", 50, 0.1, None, 9e8, 1e9)]
        for control, rtt, percent, theory, least, most in cases:
            seconds = 20 if self.quick else {"cubic": 60, "bbr": 25}[control]
            runs = [self.probe(["--rtt", f"{rtt}ms", "--loss", f"{percent}%", "--rate", "1g"], "tcp", seconds, control)
                    for _ in range(self.runs)]
            got = statistics.median(run["bps_after_5s"] for run in runs)
            goal = f"theory {theory / 1e6:g} Mbit/s, {least / 1e6:g} to {most / 1e6:g}" if theory else "above 900 Mbit/s"
            self.row(f"TCP {control}, {rtt} ms, {percent} %, 1 Gbit/s", least <= got <= most, f"{got / 1e6:.2f} Mbit/s", goal,
                     runs, {"bps": got}, spread(run["bps_after_5s"] for run in runs))

    def speed(self):
        for percent, goal in ((1, 16e9), (10, 8e9)):
            # The sender offers a little more than the goal after loss. Without a limit it would take the
            # processor from the rest.
            runs = [self.probe(["--loss", f"{percent}%"], "udp", 5, 1.1 * goal / (1 - percent / 100))
                    for _ in range(self.runs)]
            got = statistics.median(run["received_bps"] for run in runs)
            cpu = statistics.median(run["emulator"]["cpu_share"] for run in runs)
            self.row(f"speed, datagrams of 1472 bytes, {percent} % loss", got >= goal, f"{gbit(got)}, {cpu:.2f} cores",
                     f"at least {gbit(goal)}", runs, {"bps": got, "cpu_share": cpu}, spread(run["received_bps"] for run in runs))
        runs = [self.probe(["--rate", "10g", "--loss", "1%", "--queue", "100ms"], "udp", 5, 1.05e10) for _ in range(self.runs)]
        cpu = statistics.median(run["emulator"]["cpu_share"] for run in runs)
        got = statistics.median(run["received_bps"] for run in runs)
        self.row("processor time at 10 Gbit/s", cpu <= 1 and got >= 9.5e9, f"{cpu:.2f} cores, {gbit(got)}", "at most one core",
                 runs, {"cpu_share": cpu, "bps": got})


def without_lists(runs):
    return [{name: value for name, value in run.items() if not isinstance(value, list)} for run in runs]


def spread(values):
    values = list(values)
    return f"{(max(values) - min(values)) / statistics.median(values):.1%}" if len(values) > 1 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each rate, TCP and speed row (default 3)")
    parser.add_argument("--quick", action="store_true", help="little data, one run: only tries the measurement")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"comma-separated: {', '.join(PARTS)}")
    chosen = parser.parse_args()
    results = Results("fidelity")
    results.notes = {"runs": 1 if chosen.quick else chosen.runs}
    fidelity = Fidelity(results, 1 if chosen.quick else chosen.runs, chosen.quick)
    for part in chosen.only:
        getattr(fidelity, part)()
    if not chosen.quick:
        results.save(keep_others=chosen.only != PARTS)


if __name__ == "__main__":
    main()
