"""Moves real data between two hosts made on this machine, both ways, by both ways of connecting, and compares the
result with tools that are not ours; then once more across an emulated ocean. `./x demo`.
"""

import subprocess
import sys
import time

import ocean
from ground import GIB, MIB, arguments, gbit, ground, real_tree, remove, run_peer
from harness import product, trees

FIND = ["find", ".", "-printf", "%P|%y|%m|%T@|%l\\n"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def properties(root):
    """Names, types, modes, times and link targets as find(1) sees them."""
    return sorted(subprocess.run(FIND, cwd=root, check=True, stdout=subprocess.PIPE).stdout.splitlines())


def tree_is_equal(source, copy):
    """diff(1) for the contents, find(1) for the rest. setuid and setgid are not passed on."""
    strip = lambda lines: [line.replace(b"|f|4", b"|f|").replace(b"|f|2", b"|f|") for line in lines]  # noqa: E731
    return trees.content_differences(source, copy) == [] and strip(properties(source)) == strip(properties(copy))


class Demo:
    def __init__(self, net, size):
        self.net = net
        self.rows = []
        self.near = net.pair.folder("near")
        self.far = net.daemon.root
        say(f"making one file of {size / GIB:g} GiB that does not compress")
        self.file = trees.make_file(self.near / "file", size)
        self.digest = trees.sha256(self.file)
        self.size = size
        self.tree, self.tree_files, self.tree_size = real_tree(net.pair)

    def url(self, road, name):
        return f"beta:{self.far}/{name}" if road == "ssh" else self.net.daemon.url(name)

    def run(self, data, direction, road, size, ends, target, is_equal):
        remove(target)
        say(f"{data}, {direction}, {road}")
        begin = time.monotonic()
        if road == "scp":
            # scp follows symbolic links and fails on those that lead nowhere; it still copies the rest.
            run_peer(self.net.alpha, ["scp", "-q", "-r", "-p", *ends], check=False)
            verdict = "-"
        else:
            outcome = product.cp(self.net.alpha, "--accept-new", *ends, check=False, timeout=1800)
            verdict = "equal" if outcome.code == 0 and is_equal() else "DIFFERS"
            if outcome.code != 0:
                say(str(outcome))
        seconds = time.monotonic() - begin if road == "scp" else outcome.seconds
        transport = outcome.report["transport"] if road != "scp" and outcome.report else "ssh"
        self.rows.append((data, direction, road, transport, seconds, size, verdict))

    def all(self):
        file_label, tree_label = f"file of {self.size / GIB:g} GiB", f"tree of {self.tree_files} files"
        for road in ("ssh", "daemon", "scp"):
            stored = self.far / f"file-{road}"
            here = f"beta:{stored}" if road == "scp" else self.url(road, stored.name)
            self.run(file_label, "push", road, self.size, (self.file, here), stored,
                     lambda: trees.sha256(stored) == self.digest)
            back = self.near / "back"
            self.run(file_label, "pull", road, self.size, (here, back), back, lambda: trees.sha256(back) == self.digest)
            remove(back)
            remove(stored)
        # Copies of the tree stay until the end: ext4 skips inodes that were freed within the last minutes one
        # by one, so a run after the removal of tens of thousands of files would look much slower.
        for road in ("ssh", "daemon", "scp"):
            stored = self.far / f"tree-{road}"
            there = f"beta:{stored}" if road == "scp" else self.url(road, stored.name)
            self.run(tree_label, "push", road, self.tree_size, (self.tree, there), stored,
                     lambda: tree_is_equal(self.tree, stored))
            back = self.near / f"tree-{road}"
            self.run(tree_label, "pull", road, self.tree_size, (there, back), back,
                     lambda: tree_is_equal(self.tree, back))

    def ocean(self, size):
        say(f"one file of {size // MIB} MiB across an emulated link: {ocean.LINK_NAME}")
        source = trees.make_file(self.near / "cargo", size)
        crossings = ocean.cross(self.net.pair.folder("overseas"), source, trees.sha256(source))
        remove(source)
        ocean.table(crossings, size)
        return crossings

    def table(self):
        scp = {(data, direction): seconds for data, direction, road, _, seconds, _, _ in self.rows if road == "scp"}
        lines = [("data", "direction", "tool", "carrier", "time", "rate", "scp = 1", "result")]
        lines.append(tuple("-" * len(cell) for cell in lines[0]))
        for data, direction, road, transport, seconds, size, verdict in sorted(self.rows, key=lambda row: row[:2]):
            lines.append((data, direction, "scp" if road == "scp" else f"farhaul {road}", transport, f"{seconds:.2f} s",
                          gbit(8 * size / seconds), f"{scp[data, direction] / seconds:.2f}", verdict))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print(f"\nThe tree is {self.tree}. Two hosts (network namespaces) and a veth link on this machine.")
        print("equal: the file by sha256sum; the tree by diff -r --no-dereference, and by find for names, types, modes,")
        print("times to the nanosecond and link targets. scp follows links, so it moves more of the tree than its size.")


def main():
    parser = arguments(__doc__, runs=1)
    parser.add_argument("--size", type=float, default=2.0, help="GiB of the large file (default 2)")
    parser.add_argument("--ocean", type=int, default=512, metavar="MIB", help="MiB of the file for the emulated ocean "
                        "(default 512, 0 leaves it out)")
    chosen = parser.parse_args()
    with ground(chosen.dir) as net:
        demo = Demo(net, int(chosen.size * GIB))
        demo.all()
        demo.table()
        differs = any(row[-1] == "DIFFERS" for row in demo.rows)
        if chosen.ocean:
            crossings = demo.ocean(chosen.ocean * MIB)
            differs |= any(crossing.verdict == "DIFFERS" for crossing in crossings)
        return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
