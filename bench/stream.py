"""Streams and tunnels in the lab, beside what people use instead: one PASS or MISS line a row.

Always true: peers use the same link in the same run, in turns with us; figures are what has arrived at host B.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys

from frames import frames
from ground import ROOT, Results, parts
from read import Lab, spread

from harness.hosts import wait_until

PARTS = ("frames", "tunnel")
#: Where iperf3 listens on host B, and where the tunnels begin on host A.
SERVER, OURS, SSH = 5201, 15201, 15202
#: Seconds at the beginning that do not count, as rates are found then.
LEFT_OUT = 5
CONNECTIONS = 100


def iperf(place, seconds, *words):
    """What arrives at the server: bits a second of each connection."""
    out, _ = place.run("iperf3", "-J", "-t", str(seconds), "-O", str(LEFT_OUT), *words, timeout=seconds + 120)
    end = json.loads(out)["end"]
    return [stream["receiver"]["bits_per_second"] for stream in end["streams"]]


def jain(rates):
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


@contextlib.contextmanager
def running(place, program, is_ready):
    process = place.start("a", *program)
    try:
        is_ready(process)
        yield
    finally:
        process.terminate()
        process.wait()


def connected(process):
    for line in process.stdout:
        if json.loads(line)["event"] == "connected":
            return
    raise SystemExit(f"farhaul tunnel: {process.stderr.read().decode()}")


def listens(place, port):
    def look(_process):
        wait_until(lambda: place.up.execute("a", "ss", "-Hltn", f"sport = :{port}").stdout, seconds=60, what=f"port {port}")
    return look


def tunnel(results, chosen):
    rate = 1e9
    ours = ["farhaul", "tunnel", "--json", "-L", f"{OURS}:127.0.0.1:{SERVER}", "lab-b"]
    theirs = ["ssh", "-N", "-L", f"{SSH}:127.0.0.1:{SERVER}", "lab-b"]
    found = {"ours": [], "ssh": [], "cubic": [], "many": [], "jains": []}
    with Lab("--rtt", "100ms", "--loss", "1%", "--rate", "1g") as place:
        beta = place.up.environment["FARHAUL_LAB_B"]
        place.serve("iperf3", "-s", "-p", str(SERVER), port=SERVER)
        for _ in range(chosen.runs):
            with running(place, ours, connected):
                found["ours"].append(sum(iperf(place, chosen.seconds, "-c", "127.0.0.1", "-p", str(OURS))) / rate)
                many = iperf(place, chosen.seconds, "-c", "127.0.0.1", "-p", str(OURS), "-P", str(CONNECTIONS))
                found["many"].append(sum(many) / rate)
                found["jains"].append(jain(many))
            with running(place, theirs, listens(place, SSH)):
                found["ssh"].append(sum(iperf(place, chosen.seconds, "-c", "127.0.0.1", "-p", str(SSH))) / rate)
            found["cubic"].append(sum(iperf(place, chosen.seconds, "-c", beta, "-p", str(SERVER), "-C", "cubic")) / rate)
    middle = {case: statistics.median(shares) for case, shares in found.items()}
    results.note(f"kernel Cubic without a tunnel: {middle['cubic']:.3f} of the link; ssh -L: {middle['ssh']:.3f}")
    results.row("tunnel, iperf3 at 100 ms, 1 %", middle["ours"] >= 0.9, f"{middle['ours']:.2f} of the link", "0.9", spread(found["ours"]),
                shares=found["ours"], ssh=found["ssh"], cubic=found["cubic"])
    results.row(f"tunnel, {CONNECTIONS} connections", middle["jains"] >= 0.95, f"Jain {middle['jains']:.3f}, {middle['many']:.2f} of the link",
                "Jain 0.95", spread(found["jains"]), shares=found["many"], jains=found["jains"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--seconds", type=int, default=60, help="seconds of each run that count (default 60)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    parser.add_argument("--dir", default="/var/tmp", help="of the frames: where the data lie (default /var/tmp)")
    parser.add_argument("--first-seconds", type=int, default=600, help="of the frames: seconds of the first row (default 600)")
    parser.add_argument("--frames", type=int, default=10_000, help="of the frames: frames of each other row (default 10000)")
    parser.add_argument("--files", type=int, default=15, help="of the frames: files of the row about the disk (default 15)")
    parser.add_argument("--mib", type=int, default=256, help="of the frames: MiB of each file (default 256)")
    chosen = parser.parse_args()
    os.environ["PATH"] = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
    results = Results("stream")
    measures = {"frames": frames, "tunnel": tunnel}
    with results.saved(chosen.only == PARTS):
        for part in chosen.only:
            measures[part](results, chosen)


if __name__ == "__main__":
    sys.exit(main())
