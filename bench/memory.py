"""Memory over time: a sparse file of 1 TiB, and a generated tree of ten million entries. `./x bench memory`.

The tree lies on file systems of its own in image files, so that the machine does not need ten million free
inodes. Saves bench/results/memory.json; with --docs also writes the curves to docs/design/memory.md.
"""

import contextlib
import os
import pathlib
import subprocess
import time

from ground import MIB, ROOT, Results, arguments, ground, remove
from harness import product
from harness.hosts import call
from harness.sampling import MemoryWatch

PER_FOLDER = 1000
LIMIT = 512 * MIB


def make_tree(root, entries):
    """Makes empty files with their folders, `entries` in all."""
    root.mkdir()
    top = os.open(root, os.O_RDONLY)
    made = number = 0
    while made < entries:
        name = f"d{number}"
        os.mkdir(name, dir_fd=top)
        folder = os.open(name, os.O_RDONLY, dir_fd=top)
        count = min(PER_FOLDER, entries - made - 1) if entries - made > 1 else 0
        for file in range(count):
            os.mknod(f"f{file}", 0o100644, dir_fd=folder)
        os.close(folder)
        made += count + 1
        number += 1
    os.close(top)
    return root


@contextlib.contextmanager
def roomy_disk(pair, inodes):
    """Mounts a file system with enough inodes, in a sparse image file."""
    image = pair.folder("image") / "disk"
    with open(image, "wb") as out:
        out.truncate(max(inodes * 1024, 256 * MIB))
    call("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "nodiscard", "-N", str(inodes + 1000), str(image))
    target = pair.folder("mounted")
    call("mount", "-o", "loop,noatime", str(image), str(target))
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", target], check=False)
        remove(image)


def watched(net, *ends, timeout):
    process = product.start_cp(net.alpha, "--accept-new", *ends)
    begin = time.monotonic()
    sides = lambda: net.alpha.pids("farhaul") + net.beta.pids("farhaul")  # noqa: E731
    with MemoryWatch(sides, every=0.25) as watch:
        outcome = product.finish(process, timeout=timeout)
    if outcome.code != 0:
        raise SystemExit(f"the transfer failed: {outcome}")
    return outcome.report, watch, time.monotonic() - begin


def curve(title, watch):
    """The memory of the larger of both ends over time, as a table with bars."""
    lines = [f"### {title}", "", "```", "seconds   MiB"]
    series = watch.series(40)
    top = max((largest for _, largest, _ in series), default=1)
    for at, largest, _ in series:
        lines.append(f"{at:7.1f} {largest / MIB:5.0f} {'#' * round(40 * largest / max(top, 1))}")
    return "\n".join(lines + ["```", ""])


def main():
    parser = arguments(__doc__, runs=1)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--docs", action="store_true", help="write docs/design/memory.md")
    chosen = parser.parse_args()
    results = Results("memory")
    results.notes = {"entries": chosen.entries, "directory": chosen.dir}
    pages = ["# Memory over time\n\nWritten by `./x bench memory --docs`: resident memory of the larger of the two ends.\n"]
    with ground(chosen.dir) as net, contextlib.ExitStack() as disks:
        near = net.pair.folder("near")
        hole = near / "hole"
        with open(hole, "wb") as out:
            out.truncate(1 << 40)
            out.write(os.urandom(MIB))
        report, watch, seconds = watched(net, hole, f"beta:{net.daemon.root}/hole", timeout=300)
        results.row("sparse file of 1 TiB", watch.peak < LIMIT, f"{watch.peak / MIB:.0f} MiB, {seconds:.1f} s",
                    f"below {LIMIT // MIB} MiB", series=watch.series(), report=report)
        pages.append(curve("A sparse file of 1 TiB", watch))
        source, target = (disks.enter_context(roomy_disk(net.pair, chosen.entries)) for _ in range(2))
        begin = time.monotonic()
        tree = make_tree(source / "tree", chosen.entries)
        results.note(f"made {chosen.entries} entries in {time.monotonic() - begin:.0f} s")
        report, watch, seconds = watched(net, tree, f"beta:{target}/tree", timeout=7200)
        count = int(subprocess.run(f"find {pathlib.Path(target) / 'tree'} -mindepth 1 | wc -l", shell=True, check=True,
                                   stdout=subprocess.PIPE).stdout)
        results.row(f"tree of {chosen.entries} entries", watch.peak < LIMIT and count == chosen.entries,
                    f"{watch.peak / MIB:.0f} MiB, {seconds:.0f} s, {chosen.entries / seconds:.0f} entries/s",
                    f"below {LIMIT // MIB} MiB, all there", arrived=count, series=watch.series(), report=report)
        pages.append(curve(f"A tree of {chosen.entries:,} entries", watch))
    results.save()
    if chosen.docs:
        (ROOT / "docs/design/memory.md").write_text("\n".join(pages))


if __name__ == "__main__":
    main()
