"""Where the processor time of sender and receiver goes: a flame graph of each, memory to memory over a veth pair. `./x bench flame`.

Writes docs/design/plots/flame-sender.svg and flame-receiver.svg, and prints the share of each thread and its
most expensive functions. The lowest row is the thread. Stacks of the kernel are complete; of the program they
have only the innermost function, as it is built without frame pointers.
"""

import argparse
import collections
import html
import subprocess
import tempfile
import time

from ground import ROOT

from harness import product
from harness.hosts import Pair, install_signal_handlers, wait_until
from harness.ssh import SshServer

#: Frames that every system call and interrupt has; they are left out.
DOORS = ("[unknown]", "entry_", "do_syscall_64", "asm_", "x64_sys_call")
WIDTH, ROW, SHARE_MIN = 1200, 17, 0.001


def record(hosts, source, options, seconds):
    """Samples both ends in the middle of a transfer: end -> list of stacks, the outermost frame first."""
    sender, receiver = hosts
    process = product.start_cp(sender, "--udp-only", *options, source, "beta:null:")
    far = wait_until(lambda: receiver.pids("farhaul"), what="the far end runs")[0]
    time.sleep(1)
    try:
        with tempfile.NamedTemporaryFile(prefix="farhaul-perf-") as data:
            subprocess.run(["perf", "record", "-q", "-g", "-F", "999", "-o", data.name, "-p", f"{process.pid},{far}", "--",
                            "sleep", str(seconds)], check=True)
            text = subprocess.run(["perf", "script", "-i", data.name, "-F", "comm,pid,ip,sym"], check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    finally:
        process.terminate()
        process.communicate(timeout=30)
    ends = {process.pid: "sender", far: "receiver"}
    found = {"sender": [], "receiver": []}
    for sample in text.strip().split("\n\n"):
        head, *frames = sample.splitlines()
        thread, pid = head.rsplit(maxsplit=1)
        symbols = [frame.split(maxsplit=1)[1] for frame in frames if len(frame.split()) > 1]
        stack = [symbol for symbol in reversed(symbols) if not symbol.startswith(DOORS)]
        found[ends[int(pid)]].append([thread.strip(), *stack])
    return found


def tree(stacks):
    """Nested frames: name -> [samples, frames above it]."""
    root = {}
    for stack in stacks:
        level = root
        for name in stack:
            entry = level.setdefault(name, [0, {}])
            entry[0] += 1
            level = entry[1]
    return root


def svg(title, stacks):
    boxes, depth_max = [], 0

    def place(level, left, depth):
        nonlocal depth_max
        for name, (count, above) in sorted(level.items()):
            width = WIDTH * count / len(stacks)
            if count / len(stacks) >= SHARE_MIN:
                depth_max = max(depth_max, depth)
                boxes.append((name, count / len(stacks), left, depth, width))
                place(above, left, depth + 1)
            left += width
    place(tree(stacks), 0.0, 0)
    height = (depth_max + 2) * ROW + 10
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
             f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="13">{html.escape(title)}</text>']
    for name, share, left, depth, width in boxes:
        top = height - (depth + 1) * ROW - 4
        hue = sum(name.encode()) * 37 % 55
        fits = name if len(name) * 6.2 < width else name[:max(0, int(width / 6.2) - 1)]
        lines.append(f'<g><title>{html.escape(name)}: {share:.1%}</title><rect x="{left:.1f}" y="{top}" width="{max(width - 0.4, 0.2):.1f}" '
                     f'height="{ROW - 1}" fill="hsl({hue},80%,70%)"/>'
                     + (f'<text x="{left + 2:.1f}" y="{top + 12}">{html.escape(fits)}</text>' if len(fits) > 1 else "") + "</g>")
    return "\n".join([*lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="time that is sampled (default 10)")
    parser.add_argument("--verify", default="digest", help="as in cp: transit is without digests (default digest)")
    parser.add_argument("--cipher", default="aes-128-gcm", help="as in cp (default aes-128-gcm)")
    parser.add_argument("--source", default="random:", help="zero: takes less to fill (default random:)")
    parser.add_argument("--out", default=ROOT / "docs/design/plots", help="folder of the graphs (default docs/design/plots)")
    chosen = parser.parse_args()
    install_signal_handlers()
    with Pair(product.binary(), base="/var/tmp") as pair:
        SshServer(pair, (22,))
        found = record(pair.hosts, chosen.source, ["--verify", chosen.verify, "--cipher", chosen.cipher], chosen.seconds)
    for end, stacks in found.items():
        with open(f"{chosen.out}/flame-{end}.svg", "w") as file:
            file.write(svg(f"{end}, memory to memory, --verify {chosen.verify} --cipher {chosen.cipher}: {len(stacks)} samples", stacks))
        print(f"{end}: {len(stacks) / 999 / chosen.seconds:.2f} cores busy")
        for thread, count in collections.Counter(stack[0] for stack in stacks).most_common(6):
            print(f"  {count / len(stacks):6.1%}  {thread}")
            inner = collections.Counter(stack[-1] for stack in stacks if stack[0] == thread and len(stack) > 1)
            for name, times in inner.most_common(8):
                if times / len(stacks) >= 0.01:
                    print(f"          {times / len(stacks):6.1%}  {name}")


if __name__ == "__main__":
    main()
