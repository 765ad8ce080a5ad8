#!/usr/bin/env python3
"""A program's own blocks by the bindings, beside `farhaul cp zero:` to `null:` over the same link: one PASS or MISS line a row.

Always true: both send generated content between the same two hosts, in turns; figures are of content.
"""

import json
import statistics
import sys

from c_blocks import CBlocks
from ground import GIB, MIB, Results, arguments, gbit, ground, parts

from harness import extension
from harness.product import cp

PORT = 34999
PARTS = ("c", "python")
#: A sender fills the first bytes of each block of 1 MiB, as whoever makes data in place does, and a receiver looks at them.
SEND = """
import sys, farhaul
target, fingerprint, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3])
sender = farhaul.connect_to_send(target, "frames", connection={"fingerprint": fingerprint}, policy="fair")
for number in range(blocks):
    block = sender.claim()
    block.data[:8] = number.to_bytes(8, "little")
    sender.put(block)
print(sender.finish()["goodput_bps"])
"""
RECEIVE = """
import sys, farhaul
with farhaul.Listener(sys.argv[1], authorized_keys=sys.argv[2], names=["frames"]) as listener:
    print(listener.fingerprint, flush=True)
    with listener.accept() as receiver:
        print(sum(int.from_bytes(block.data[:8], "little") for block in receiver))
"""


def by_cp(hosts, size):
    """Bits a second of a copy."""
    done = cp(hosts.alpha, "--fingerprint", hosts.daemon.fingerprint, f"zero:{size}", hosts.daemon.url("null:"))
    return done.report["goodput_bps"]


def by_python(hosts, size):
    """Bits a second of a stream between two programs in Python."""
    keys = hosts.daemon.keys
    receiver = extension.start(hosts.beta, RECEIVE, f"[::]:{PORT}", keys, stdout=-1, stderr=-1)
    fingerprint = receiver.stdout.readline().decode().strip()
    said = extension.run(hosts.alpha, SEND, f"fh://beta:{PORT}", fingerprint, size // MIB)
    out, error = receiver.communicate(timeout=60)
    count = size // MIB
    if int(out) != count * (count - 1) // 2:
        raise SystemExit(f"blocks are missing: {out.decode()}{error.decode()}")
    return float(said)


def compare(results, hosts, name, by_binding, goal, runs, size):
    pairs = [(by_cp(hosts, size), by_binding(hosts, size)) for _ in range(runs)]
    ratios = [binding / copy for copy, binding in pairs]
    middle = statistics.median(ratios)
    copies, bindings = zip(*pairs)
    figure = f"{middle:.2f} of cp ({gbit(statistics.median(bindings))})"
    results.row(f"{name}, blocks of 1 MiB", middle >= goal, figure, f"{goal} of cp ({gbit(statistics.median(copies))})",
                f"{min(ratios):.2f} to {max(ratios):.2f}", ratios=ratios, cp_bps=copies, binding_bps=bindings)


def main():
    parser = arguments(__doc__.splitlines()[0], 5)
    parser.add_argument("--size", type=int, default=4 * GIB, help="bytes of each run (default 4 GiB)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"parts to run, of: {', '.join(PARTS)}")
    options = parser.parse_args()
    results = Results("bindings")
    with ground(options.dir) as hosts:
        # Neither is the first to use the link.
        by_cp(hosts, 256 * MIB)
        if "c" in options.only:
            compare(results, hosts, "from C", CBlocks(), 0.95, options.runs, options.size)
        if "python" in options.only:
            compare(results, hosts, "from Python, memoryviews", by_python, 0.9, options.runs, options.size)
    results.save(keep_others=options.only != PARTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
