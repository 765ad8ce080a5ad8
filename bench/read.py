"""Reads of files where they are, in the lab, compared with XRootD and HTTP: one PASS or MISS line a row.

Always true: peers read the same file over the same link in the same run, in turns with us; figures are of content.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from far_lab import HTTP_PORT, XROOTD_PORT, Lab
from ground import GIB, ROOT, Results, parts

PARTS = ("random", "latency", "clients", "list", "cat")
READ = 64 << 10


def steady(by_second):
    """Bits a second, without the first second and without the last, which is not a whole one."""
    whole = by_second[1:-1]
    return 8 * sum(whole) / max(1, len(whole))


def spread(figures):
    return f"{min(figures):.2f} to {max(figures):.2f}"


def randoms(results, chosen):
    rate = 1e9
    with Lab("--rtt", "100ms", "--loss", "0.1%", "--rate", "1g") as place:
        place.file("file", 4 * GIB)
        place.nginx()
        place.xrootd()
        seconds = str(chosen.seconds)
        ranges = ("/usr/bin/python3", str(ROOT / "bench/ranges.py"))
        size = str(4 * GIB)

        def ours(*words):
            return steady(place.bench("file", "--seconds", seconds, *words)["bytes_by_second"]) / rate

        def theirs(*words):
            return steady(json.loads(place.run(*ranges, *words, seconds)[0])) / rate

        cases = {
            "single": lambda: ours("--at-once", "512"),
            "vectors": lambda: ours("--at-once", "512", "--vector", "32"),
            "few": lambda: ours("--at-once", "32"),
            "http": lambda: theirs("http", place.beta, str(HTTP_PORT), "file", size, "32", str(READ)),
            "xrootd": lambda: theirs("xrootd", place.beta, str(XROOTD_PORT), str(place.folder / "file"), size, "16", "32", str(READ)),
        }
        found = {case: [] for case in cases}
        for _ in range(chosen.runs):
            for case, measure in cases.items():
                found[case].append(measure())
    middle = {case: statistics.median(shares) for case, shares in found.items()}
    results.note(f"HTTP, 32 connections: {middle['http']:.2f} of the link; XRootD, 16 vector reads of 32 at a time: {middle['xrootd']:.2f}")
    for case, name in (("single", "512 reads at a time"), ("vectors", "512 reads at a time, vectors of 32")):
        results.row(name, middle[case] >= 0.85, f"{middle[case]:.2f} of the link", "0.85", spread(found[case]),
                    http=found["http"], xrootd=found["xrootd"], shares=found[case])
    # The share of the link that 32 reads in each round trip would fill.
    full = 32 * READ * 8 / 0.1 / rate
    shares = [share / full for share in found["few"]]
    results.row("32 reads at a time", statistics.median(shares) >= 0.9, f"{statistics.median(shares):.2f} of 32 a round trip", "0.9",
                spread(shares), shares=shares)


def latency(results, chosen):
    with Lab("--rtt", "100ms", "--rate", "1g") as place:
        place.file("file", 2 * GIB)
        found = {"alone": [], "beside": []}
        for _ in range(chosen.runs):
            for case, words in (("alone", ()), ("beside", ("--beside",))):
                found[case].append(place.bench("file", "--at-once", "1", "--size", "4K", "--seconds", str(max(15, chosen.seconds)), *words))
    middle = lambda case, field: statistics.median(row[field] for row in found[case])  # noqa: E731
    p99s = [row["p99_ms"] for row in found["alone"]]
    results.row("4 KiB, alone", middle("alone", "p99_ms") <= 105, f"99 % in {middle('alone', 'p99_ms'):.1f} ms", "105 ms", spread(p99s))
    figure = f"{middle('beside', 'median_ms'):.1f} ms, 99 % in {middle('beside', 'p99_ms'):.1f} ms"
    results.row("4 KiB, while a reader fills the session",
                middle("beside", "median_ms") <= 110 and middle("beside", "p99_ms") <= 120, figure, "110 ms, 120 ms",
                spread([row["p99_ms"] for row in found["beside"]]),
                beside_share=[row["beside_bps"] / 1e9 for row in found["beside"]])


def clients(results, chosen):
    with Lab("--rtt", "20ms", "--rate", "2g") as place:
        for number in range(4):
            place.file(f"file{number}", GIB)
        sums, jains = [], []
        for _ in range(chosen.runs):
            running = [place.start("a", "farhaul", "bench", "read", "--json", "-q", *place.options, "--rate", "500M", "--at-once", "256",
                                   "--seconds", str(chosen.seconds), f"{place.url}file{number}") for number in range(4)]
            rows = [json.loads(process.communicate(timeout=300)[0])["rows"][0] for process in running]
            rates = [steady(row["bytes_by_second"]) for row in rows]
            sums.append(sum(rates) / 2e9)
            jains.append(sum(rates) ** 2 / (4 * sum(rate * rate for rate in rates)))
    share, jain = statistics.median(sums), statistics.median(jains)
    results.row("4 clients of 500 Mbit/s on 2 Gbit/s", share >= 0.9 and jain >= 0.95, f"{share:.2f} of the link, Jain {jain:.3f}",
                "0.9, 0.95", spread(sums), jains=jains)


def listing(results, chosen):
    with Lab("--rtt", "200ms", "--rate", "1g") as place:
        for number in range(1000):
            folder = place.folder / "names" / f"dir{number:04}"
            folder.mkdir(parents=True)
            for name in range(1000):
                os.close(os.open(folder / f"file-{name:04}.dat", os.O_CREAT | os.O_WRONLY))
        scans, lists = [], []
        for _ in range(chosen.runs):
            begin = time.monotonic()
            subprocess.run(["farhaul", "ls", "-RU", str(place.folder / "names")], stdout=subprocess.DEVNULL, check=True)
            scans.append(time.monotonic() - begin)
            out, seconds = place.run("farhaul", "ls", "-RU", *place.options, place.url + "names")
            assert out.count(b"\n") == 1_001_000
            lists.append(seconds)
    # Each name takes about 20 bytes on the wire.
    allowed = 8 * 0.2 + 1_001_000 * 20 * 8 / 1e9 + statistics.median(scans)
    seconds = statistics.median(lists)
    results.row("ls -R of a million names", seconds <= allowed, f"{seconds:.2f} s", f"{allowed:.2f} s (8 RTT, bytes, scan)", spread(lists),
                scans=scans)


def cat(results, chosen):
    with Lab("--rtt", "100ms", "--rate", "1g") as place:
        place.file("file", GIB)
        ratios = []
        for _ in range(chosen.runs):
            _, ours = place.run("sh", "-c", f"farhaul cat {' '.join(place.options)} '{place.url}file' >/dev/null")
            _, copy = place.run("sh", "-c", f"farhaul cp -q {' '.join(place.options)} '{place.url}file' - >/dev/null")
            ratios.append(copy / ours)
    ratio = statistics.median(ratios)
    results.row("cat of 1 GiB against cp to a pipe", ratio >= 0.95, f"{ratio:.2f}", "0.95", spread(ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--seconds", type=int, default=12, help="seconds of each run (default 12; 64,000 reads take 36)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    os.environ["PATH"] = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
    results = Results("read")
    measures = {"random": randoms, "latency": latency, "clients": clients, "list": listing, "cat": cat}
    with results.saved(chosen.only == PARTS):
        for part in chosen.only:
            measures[part](results, chosen)


if __name__ == "__main__":
    sys.exit(main())
