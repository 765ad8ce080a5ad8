"""The main job against scp and rsync: large file, small files, a real tree, loss, kills. `./x bench main`.

Prints one PASS or MISS line a row, then saves bench/results/main.json. Exits 0 when it could measure.
"""

import contextlib
import os
import pathlib
import random
import signal
import time

from ground import GIB, MIB, Results, Series, arguments, gbit, ground, real_tree, remove, run_peer, settle
from harness import hooks, product, trees
from harness.packets import Udp, build_flooder, flood, start_capture

SEED = 20261121


def race(runs, tools, clean, settle_first=True):
    """Runs the tools in turns: one round that is not measured, then `runs` rounds. Returns name -> (Series,
    last value)."""
    seconds = {name: [] for name in tools}
    last = {}
    for round_number in range(runs + 1):
        for name, tool in tools.items():
            clean()
            if settle_first:
                settle()
            begin = time.monotonic()
            last[name] = tool()
            if round_number:
                seconds[name].append(time.monotonic() - begin)
    return {name: (Series(seconds[name]), last[name]) for name in tools}


class MainJob:
    def __init__(self, net, runs, results):
        self.net = net
        self.runs = runs
        self.results = results
        self.near = net.pair.folder("near")
        self.far = net.daemon.root
        self.aside = net.pair.folder("aside")
        self.retired = 0

    def farhaul(self, *ends, **options):
        return lambda: product.cp(self.net.alpha, "--accept-new", *ends, timeout=1800, **options).report

    def peer(self, *argv):
        return lambda: run_peer(self.net.alpha, argv)

    def retire(self, folder):
        """Puts a folder aside until the end: for minutes after many files were deleted, ext4 makes new ones
        slowly, and the next run would pay for that."""
        if folder.exists():
            self.retired += 1
            folder.rename(self.aside / str(self.retired))

    def compare(self, case, size, tools, clean, factor):
        """One race and its rows: at least `factor` times as fast as scp, and faster than rsync."""
        outcome = race(self.runs, tools, clean)
        ours = {name: series for name, (series, _) in outcome.items() if name.startswith("farhaul")}
        for name, series in ours.items():
            report = outcome[name][1]
            road = name.removeprefix("farhaul ")
            for other, goal in (("scp", factor), ("rsync", 1.0)):
                if other not in outcome or goal is None:
                    continue
                theirs = outcome[other][0]
                ratio = theirs.median / series.median
                sign = "at least" if other == "scp" else "above"
                self.results.row(
                    f"{case}, {road}, vs {other}", ratio >= goal if other == "scp" else ratio > goal,
                    f"{ratio:.2f} x ({gbit(series.rate(size))} : {gbit(theirs.rate(size))})", f"{sign} {goal:g} x",
                    f"{series.spread:.0%}/{theirs.spread:.0%}", ratio=ratio, seconds=series.seconds,
                    peer_seconds=theirs.seconds, bytes=size, report=report)
            stages = ", ".join(f"{stage['end']} {stage['name']} {stage['busy']:.0%}" for stage in report.get("stages", []))
            self.results.note(f"{case}, {road}: limited by {report['bottleneck']} ({stages})")
        for name, (series, _) in outcome.items():
            if name not in ours and name not in ("scp", "rsync"):
                self.results.note(f"{case}, {name}: {gbit(series.rate(size))}, for information")

    def large_file(self, size):
        source = trees.make_file(self.near / "large", size, SEED)
        copy, back = self.far / "copy", self.near / "back"
        expected = trees.sha256(source)
        clean = lambda: (remove(copy), remove(back))  # noqa: E731
        label = f"{size / GIB:g} GiB file"
        self.compare(f"{label} push", size, {
            "farhaul ssh": self.farhaul(source, f"beta:{copy}"),
            "scp": self.peer("scp", "-q", source, f"beta:{copy}"),
            "farhaul daemon": self.farhaul(source, self.net.daemon.url("copy")),
            "rsync": self.peer("rsync", "-e", "ssh", source, f"beta:{copy}"),
            "scp -c aes128-gcm": self.peer("scp", "-q", "-c", "aes128-gcm@openssh.com", source, f"beta:{copy}"),
        }, clean, 3.0)
        self.farhaul(source, f"beta:{copy}")()
        stored = self.far / "stored"
        copy.rename(stored)
        assert trees.sha256(stored) == expected, "the pushed file differs"
        self.compare(f"{label} pull", size, {
            "farhaul ssh": self.farhaul(f"beta:{stored}", back),
            "scp": self.peer("scp", "-q", f"beta:{stored}", back),
            "farhaul daemon": self.farhaul(self.net.daemon.url("stored"), back),
            "rsync": self.peer("rsync", "-e", "ssh", f"beta:{stored}", back),
        }, clean, 3.0)
        self.farhaul(f"beta:{stored}", back)()
        assert trees.sha256(back) == expected, "the pulled file differs"
        clean()
        remove(stored)
        remove(source)

    def small_files(self, count, size):
        folder = self.near / "small"
        folder.mkdir()
        content = trees.make_file(self.near / "content", count * size, SEED)
        with open(content, "rb") as data:
            for number in range(count):
                (folder / f"f{number:05}").write_bytes(data.read(size))
        remove(content)
        copy = self.far / "small"
        self.compare(f"{count} files of {size >> 10} KiB push", count * size, {
            "farhaul ssh": self.farhaul(folder, f"beta:{self.far}/"),
            "scp": self.peer("scp", "-q", "-r", folder, f"beta:{self.far}/"),
            "rsync": self.peer("rsync", "-r", "-e", "ssh", folder, f"beta:{self.far}/"),
        }, lambda: self.retire(copy), 3.0)
        self.retire(copy)
        self.farhaul(folder, f"beta:{self.far}/")()
        assert trees.differences(folder, copy) == [], "the small files differ"
        self.retire(copy)

    def real_tree(self):
        tree, files, size = real_tree(self.net.pair)
        copy = self.far / "tree"
        self.compare(f"real tree {tree}, {files} files", size, {
            "farhaul ssh": self.farhaul(f"{tree}/", f"beta:{copy}/"),
            "rsync": self.peer("rsync", "-aH", "-e", "ssh", f"{tree}/", f"beta:{copy}/"),
        }, lambda: self.retire(copy), None)
        self.retire(copy)
        self.farhaul(f"{tree}/", f"beta:{copy}/")()
        found = trees.differences(tree, copy)
        self.results.row("real tree: diff, modes, times", not found, f"{len(found)} differences", "none", found=found)
        self.retire(copy)

    def loss(self, size):
        source = trees.make_file(self.near / "lossy", size, SEED)
        copy = self.far / "lossy"
        shares, seconds, exact = [], [], True
        for run in range(self.runs):
            remove(copy)
            settle()
            bad = hooks.prefix(f"loss=0.1,seed={7 + run}")
            far_end = hooks.far_end(self.net.folder("far-end"), bad)
            report = self.farhaul("--remote-program", far_end, source, f"beta:{copy}", hooks=bad)()
            unique = report["segments_sent"] - report["segments_retransmitted"] - report["segments_proactive"]
            shares.append(report["segments_duplicate"] / unique)
            seconds.append(report["seconds"])
            exact = exact and trees.sha256(copy) == trees.sha256(source) and report["transport"] == "udp"
        series = Series(seconds)
        self.results.row(f"{size / GIB:g} GiB with 10 % lost both ways", exact and max(shares) < 0.01,
                         f"{max(shares):.3%} duplicates, {gbit(series.rate(size))}", "byte-exact, below 1 %",
                         f"{series.spread:.0%}", shares=shares, seconds=seconds, report=report)
        remove(source)
        remove(copy)

    def flood(self, size, rate):
        """Every other run is attacked with 100,000 forged packets a second, with the right addresses, ports
        and flow."""
        pair = self.net.pair
        pair.plain_link()
        tool = build_flooder(pair.folder("tool"))
        source = trees.make_file(self.near / "flooded", size, SEED)
        copy = self.far / "flooded"
        seconds = {True: [], False: []}
        forged = []
        exact = True
        for attacked in [False, True] * self.runs:
            remove(copy)
            settle()
            captured = start_capture(self.net.beta, 2, count=300)
            process = product.start_cp(self.net.alpha, "--accept-new", "--rate", str(rate), source, self.net.daemon.url("flooded"))
            frames = [frame for frame in captured() if Udp(frame).payload[:1] == b"\x05" and len(frame) > 1000]
            with contextlib.ExitStack() as stack:
                flooding = attacked and stack.enter_context(flood(self.net.alpha, frames[-1], 100_000, 30, tool))
                outcome = product.finish(process, timeout=120)
            seconds[attacked].append(outcome.report["seconds"])
            exact = exact and trees.sha256(copy) == trees.sha256(source)
            if flooding:
                forged.append(flooding["sent"])
        quiet, attacked = Series(seconds[False]), Series(seconds[True])
        kept = quiet.median / attacked.median
        self.results.row(f"100,000 forged packets/s beside {rate / 1e9:g} Gbit/s", exact and kept >= 0.95,
                         f"{kept:.3f} of the rate without them", "at least 0.95, byte-exact",
                         f"{attacked.spread:.0%}/{quiet.spread:.0%}", kept=kept, forged=forged, seconds=seconds[True],
                         quiet_seconds=seconds[False])
        remove(source)
        remove(copy)

    def kills(self, end, size, rate, kills=10):
        """kill -9 at random moments of one transfer. The link's own byte counter shows how much is sent
        twice."""
        source = trees.make_file(self.near / "killed", size, SEED)
        copy = self.far / "killed"
        beta = self.net.beta
        run = ["--rate", str(rate), source, f"beta:{copy}"]
        begin = beta.counter("rx_bytes")
        self.farhaul(*run)()
        overhead = (beta.counter("rx_bytes") - begin) / size
        remove(copy)
        chance = random.Random(f"{SEED}{end}")
        begin = beta.counter("rx_bytes")
        longest = 1.6 * 8 * size / rate / (kills + 1)
        early = 0
        for _ in range(kills):
            process = product.start_cp(self.net.alpha, *run)
            time.sleep(0.4 + chance.random() * longest)
            early += process.poll() is not None
            self.kill(process, end)
            product.finish(process, timeout=600)
        report = self.farhaul(*run)()
        twice = (beta.counter("rx_bytes") - begin) / overhead - size
        exact = trees.sha256(copy) == trees.sha256(source)
        self.results.row(f"kill -9 of the {end}, {kills} times, {size / GIB:g} GiB",
                         exact and not early and twice <= kills * 32 * MIB and report["bytes_resumed"] > 0,
                         f"{max(0.0, twice) / MIB / kills:.1f} MiB a kill sent twice", "at most 32 MiB a kill, byte-exact",
                         exact=exact, ended_early=early, resumed_at_last=report["bytes_resumed"], overhead=overhead)
        remove(source)
        remove(copy)

    def kill(self, process, end):
        victims = [process.pid]
        if end == "receiver":
            victims = [pid for pid in self.net.beta.pids("farhaul") if pid != self.net.daemon.process.pid]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    parser = arguments(__doc__, runs=5)
    parser.add_argument("--quick", action="store_true", help="little data, one run: only tries the measurement")
    parser.add_argument("--only", help="comma-separated: file, loss, kill, small, tree, flood")
    chosen = parser.parse_args()
    runs, shrink = (1, 16) if chosen.quick else (chosen.runs, 1)
    results = Results("main")
    results.notes = {"runs": runs, "directory": chosen.dir, "peers": "over the same veth link, in turns"}
    wanted = set(chosen.only.split(",")) if chosen.only else {"file", "loss", "kill", "small", "tree", "flood"}
    pathlib.Path(chosen.dir).mkdir(parents=True, exist_ok=True)
    saved = contextlib.nullcontext() if chosen.quick else results.saved(not chosen.only)
    with saved, ground(chosen.dir) as net:
        job = MainJob(net, runs, results)
        if "file" in wanted:
            job.large_file(4 * GIB // shrink)
        if "loss" in wanted:
            job.loss(GIB // shrink)
        if "kill" in wanted:
            for end in ("sender", "receiver"):
                job.kills(end, 4 * GIB // shrink, 1_500_000_000 // (4 if chosen.quick else 1), 3 if chosen.quick else 10)
        if "small" in wanted:
            job.small_files(10_000 // shrink, 64 << 10)
        if "tree" in wanted:
            job.real_tree()
        if "flood" in wanted:
            # This comes last, as it turns off the link's offloads, which the others use.
            job.flood(GIB // shrink, 1_000_000_000)


if __name__ == "__main__":
    main()
