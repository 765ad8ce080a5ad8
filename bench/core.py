"""What a segment costs the transport's core at 10 Gbit/s, 100 ms and 1 % loss, without keys and sockets: nanoseconds (criterion)
and instructions (callgrind), which are the same on every run. `./x bench core`; one PASS or MISS line a row.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from ground import ROOT, Results

#: The most nanoseconds for a segment, at either end.
GOAL_NS = 50
ENDS = ("sender", "receiver")


def cargo(*arguments):
    subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def bench_binary():
    """Builds the benchmark; returns the binary, which can run by itself."""
    done = subprocess.run(["cargo", "bench", "-q", "--locked", "-p", "farhaul-proto", "--bench", "core", "--no-run",
                           "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    messages = (json.loads(line) for line in done.stdout.splitlines())
    return next(message["executable"] for message in messages
                if message.get("executable") and message["target"]["name"] == "core")


def nanoseconds(results):
    cargo("bench", "-q", "--locked", "-p", "farhaul-proto", "--bench", "core")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for end in ENDS:
        estimates = json.loads((target / "criterion" / "a segment" / end / "new/estimates.json").read_text())
        median = estimates["median"]["point_estimate"]
        low, high = (estimates["median"]["confidence_interval"][bound] for bound in ("lower_bound", "upper_bound"))
        results.row(f"{end}, a segment", median < GOAL_NS, f"{median:.1f} ns", f"below {GOAL_NS} ns", f"{low:.1f} to {high:.1f}",
                    ns=median)


def instructions(results):
    if shutil.which("valgrind") is None:
        results.note("no valgrind: no instruction counts")
        return
    binary = bench_binary()
    for end in ENDS:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                                   f"--toggle-collect=*{end}_turn*", binary, "--count", "100000"],
                                  check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        segments = int(re.search(r"(\d+) segments", done.stdout)[1])
        collected = int(re.search(r"Collected : (\d+)", done.stderr)[1])
        count = collected / segments
        results.row(f"{end}, instructions a segment", True, f"{count:.0f}", "none: to compare with later", instructions=count)


def main():
    argparse.ArgumentParser(prog="./x bench core", description=__doc__).parse_args()
    results = Results("core")
    nanoseconds(results)
    instructions(results)
    results.save()


if __name__ == "__main__":
    main()
