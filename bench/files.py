"""Millions of small files, and trees that are kept in sync, compared with the tools that people use. `./x
bench files`.

Prints one PASS or MISS line a row, then saves bench/results/files.json. Exits 0 when it could measure. A tool that is not
installed is left out of its rows; `./x bench install` brings them.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import link as links
import memory
import peers
from ground import GIB, MIB, ROOT, Results, Series, arguments, ground, parts, real_tree, remove, settle
from harness import product, trees
from harness.hosts import call
from harness.sampling import MemoryWatch
from harness.ssh import SshServer
from peers.peer import GCM, Job, Site

SEED = 20261122
PER_FOLDER = 1000
PARTS = ("veth", "far", "sizes", "tree", "many", "kill", "filters")
MEMORY_MAX = 300 * MIB
GOAL_RATE = 0.95e9


@dataclasses.dataclass
class Tree:
    root: pathlib.Path
    files: int
    size: int

    @property
    def manifest(self):
        """An estimate of the manifest's bytes on the wire: the names, and 16 bytes of numbers for each
        entry."""
        return sum(len(path) + 16 for path in trees.listing(self.root))


def make_tree(root, files, size):
    """Makes files that do not compress, a thousand in each folder."""
    chance = random.Random(SEED)
    root.mkdir(parents=True)
    content = chance.randbytes(min(size, MIB) + 4096)
    for number in range(files):
        folder = root / f"{number // PER_FOLDER:05}"
        if number % PER_FOLDER == 0:
            folder.mkdir()
        at = chance.randrange(4096)
        with open(folder / f"f{number:07}", "wb") as out:
            for begin in range(0, size, MIB):
                out.write(content[at:at + min(MIB, size - begin)])
    return Tree(root, files, files * size)


class Bench:
    def __init__(self, chosen, results):
        self.chosen = chosen
        self.results = results
        self.runs = chosen.runs

    def turns(self, tools, clean):
        """Runs the tools in turns. With several runs, the first round is not measured. Returns name ->
        Series."""
        seconds = {name: [] for name in tools}
        first = 0 if self.runs > 1 else 1
        for number in range(first, self.runs + 1):
            for name, tool in tools.items():
                clean()
                settle()
                took = tool()
                if number:
                    seconds[name].append(took)
        return {name: Series(values) for name, values in seconds.items()}

    def ratio(self, case, ours, theirs, goal, **detail):
        """A row that says how many times as fast as a peer we are."""
        ratio = theirs.median / ours.median
        self.results.row(case, ratio >= goal, f"{ratio:.2f} x ({ours.median:.2f} s : {theirs.median:.2f} s)",
                         f"at least {goal:g} x", f"{ours.spread:.0%}/{theirs.spread:.0%}", ratio=ratio,
                         seconds=ours.seconds, peer_seconds=theirs.seconds, **detail)

    # ---- small files on a fast link ------------------------------------------------------------------------------

    def veth(self):
        for storage in ("tmpfs", "disk"):
            link = links.VethLink(self.chosen.dir)
            with contextlib.closing(link):
                SshServer(link.pair, (link.ssh_port,))
                room = link.pair.folder("data")
                room.chmod(0o755)
                if storage == "tmpfs":
                    link.pair.mount_memory(room, 6144)
                self.small_files(link, room, storage)

    def small_files(self, link, room, storage):
        tree = make_tree(room / "source", self.chosen.files, 4096)
        into = room / "into"
        aside = room / "aside"
        aside.mkdir()
        site = Site(link, room, None)
        turn = iter(range(10**6))

        def clean():
            # ext4 makes files slowly for minutes after many were deleted, and the next run would pay for
            # that.
            if into.exists():
                into.rename(aside / str(next(turn)))
            if storage == "tmpfs":
                for old in aside.iterdir():
                    remove(old)
            into.mkdir()
            into.chmod(0o777)

        def local(script):
            return lambda: timed(lambda: subprocess.run(["bash", "-o", "pipefail", "-c", script, "-", tree.root, into], check=True))

        with contextlib.closing(site):
            ours = "farhaul ssh"
            tools = {ours: lambda: farhaul(link.a, tree.root, f"beta:{into}/")[1],
                     "cp -r": local('cp -r "$1" "$2/"'),
                     "tar | tar": local('tar -C "$1" -cf - . | tar -C "$2" -xf -')}
            for name in ("rsync ssh", "scp"):
                tools[name] = self.peer(site, peers.by_name(name), tree, into)
            grid = PipelinedGridFtp()
            if grid.missing():
                self.results.note(f"{grid.name}: {grid.missing()}")
            else:
                grid.start(site)
                tools[grid.name] = self.peer(site, grid, tree, into)
            series = self.turns(tools, clean)
            case = f"{tree.files} files of 4 KiB, veth, {storage}"
            local_best = min(("cp -r", "tar | tar"), key=lambda name: series[name].median)
            rate = tree.files / series[ours].median
            self.results.note(f"{case}: {rate:.0f} files/s, {local_best} {tree.files / series[local_best].median:.0f} files/s")
            self.ratio(f"{case}, vs local {local_best}", series[ours], series[local_best], 0.7, files_per_second=rate)
            for name, goal in (("rsync ssh", 3.0), ("scp", 10.0), (grid.name, 3.0)):
                if name in series:
                    self.ratio(f"{case}, vs {name}", series[ours], series[name], goal)
            clean()
            farhaul(link.a, tree.root, f"beta:{into}/")
            found = trees.differences(tree.root, into / tree.root.name)
            self.results.row(f"{case}: byte-exact", not found, f"{len(found)} differences", "none", found=found)

    def peer(self, site, peer, tree, into):
        if peer.missing():
            raise SystemExit(f"{peer.name}: {peer.missing()}: run ./x bench install")

        def run():
            job = Job(tree.root, into / tree.root.name, tree.size, is_tree=True, limit=1800)
            peer.before(site, job)
            argv = [os.fspath(part) for part in peer.command(site, job)]
            return timed(lambda: checked(site.a.run(argv, env=peer.environment(site) or None, timeout=1800), argv))
        return run

    # ---- far links -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lab(self):
        """The emulated link with sshd, and a folder in memory."""
        link = links.LabLink(self.chosen.dir)
        with contextlib.closing(link):
            SshServer(link.pair, (link.ssh_port,))
            for host in (link.a, link.b):
                links.tune(host)
            room = link.pair.mount_memory(link.pair.folder("data"), 6144)
            yield link, room

    def session_seconds(self, host, tree, into):
        """The seconds of each run, from the moment at which the session is established."""
        values = []
        for _ in range(self.runs):
            remove(into) if into.exists() else None
            values.append(farhaul(host, f"{tree.root}/", f"beta:{into}/")[0]["seconds"])
        return Series(values)

    def far(self):
        with self.lab() as (link, room):
            tree = make_tree(room / "source", self.chosen.files, 4096)
            link.set(links.Profile("near"))
            near = self.session_seconds(link.a, tree, room / "into")
            least = 8 * (tree.size + tree.manifest) / GOAL_RATE
            for rtt in (0.1, 0.2):
                profile = links.Profile(f"{rtt * 1e3:.0f}ms-0.1%", rtt * 1e3, 0.001, 1_000_000_000)
                link.set(profile)
                link.state()
                series = self.session_seconds(link.a, tree, room / "into")
                limited = link.state()["limited"]
                rounds = (series.median - max(near.median, least)) / rtt
                self.results.row(f"{tree.files} files of 4 KiB, {profile}", rounds <= 10,
                                 f"{rounds:.1f} round trips over {max(near.median, least):.2f} s", "at most 10",
                                 f"{series.spread:.0%}", seconds=series.seconds, near_seconds=near.seconds,
                                 content_seconds=least, emulator=limited)

    def sizes(self):
        total = max(64 * MIB, GIB * self.chosen.files // 100_000)
        with self.lab() as (link, room):
            for size in (8 << 10, 64 << 10, MIB, 32 * MIB):
                tree = make_tree(room / "source", total // size, size)
                link.set(links.Profile("near"))
                near = self.session_seconds(link.a, tree, room / "into")
                link.set(links.Profile("100ms", 100, 0, 1_000_000_000))
                link.state()
                series = self.session_seconds(link.a, tree, room / "into")
                limited = link.state()["limited"]
                used = 8 * tree.size / 1e9 / max(1e-9, series.median - 1.0)
                by_files = 8 * tree.size / 1e9 / near.median
                goal = 0.9 if size >= 64 << 10 else min(0.9, 0.9 * by_files)
                why = "" if size >= 64 << 10 else f" (without a link in between: {by_files:.2f} Gbit/s)"
                self.results.row(f"{total >> 20} MiB in files of {size >> 10} KiB, 1 Gbit/s, 100 ms", used >= goal,
                                 f"{used:.3f} of the link{why}", f"at least {goal:.2f}", f"{series.spread:.0%}",
                                 seconds=series.seconds, near_seconds=near.seconds, emulator=limited)
                remove(room / "source")
                remove(room / "into")

    # ---- a real tree ---------------------------------------------------------------------------------------------

    def tree(self):
        with self.lab() as (link, room):
            found, files, size = real_tree(link.pair)
            source = room / "source"
            # The source is a copy in memory, as one per cent of its files will be changed.
            call("cp", "-a", f"{found}/.", str(source))
            self.results.note(f"{found}: {files} files, {size / MIB:.0f} MiB")
            lan = None
            for profile in (links.Profile("LAN"), links.Profile("100ms", 100, 0, 1_000_000_000)):
                link.set(profile)
                lan = self.stages(link, room, source, files, profile, lan)

    def stages(self, link, room, source, files, profile, lan):
        """Syncs to an empty destination, then without a change, then after a change of one per cent of the
        files. Returns our seconds of the second stage."""
        into = {name: room / name for name in ("ours", "theirs")}
        tools = {
            "ours": lambda: farhaul(link.a, f"{source}/", f"beta:{into['ours']}/", verb="sync"),
            "theirs": lambda: (None, timed(lambda: checked(link.a.run(
                ["rsync", "-aH", "-e", f"ssh -c {GCM}", f"{source}/", f"beta:{into['theirs']}/"], timeout=1800), "rsync"))),
        }
        took = {stage: {"ours": [], "theirs": []} for stage in ("empty", "unchanged", "1 % changed")}
        standing = []
        chance = random.Random(SEED)
        everything = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
        for _ in range(self.runs):
            for folder in into.values():
                remove(folder) if folder.exists() else None
            for stage in took:
                if stage == "1 % changed":
                    for path in chance.sample(everything, max(1, len(everything) // 100)):
                        with open(path, "ab") as out:
                            out.write(b"changed")
                for name, tool in tools.items():
                    report, seconds = tool()
                    took[stage][name].append(seconds)
                    if report and stage == "unchanged":
                        standing.append(report["seconds"])
        for stage, both in took.items():
            self.ratio(f"real tree, {profile.name}, {stage}, vs rsync", Series(both["ours"]), Series(both["theirs"]), 1.0,
                       files=files)
        found = trees.differences(source, into["ours"])
        self.results.row(f"real tree, {profile.name}: diff, modes, times", not found, f"{len(found)} differences", "none",
                         found=found)
        standing = Series(standing)
        if lan is not None:
            rounds = (standing.median - lan.median) / (profile.rtt_ms / 1e3)
            self.results.row(f"real tree, {profile.name}, unchanged", rounds <= 3,
                             f"{rounds:.1f} round trips over the scan's {lan.median:.2f} s", "at most 3",
                             f"{standing.spread:.0%}", seconds=standing.seconds, scan_seconds=lan.seconds)
        return standing

    # ---- ten million -----------------------------------------------------------------------------------------------

    def many(self):
        entries = self.chosen.entries
        with ground(self.chosen.dir) as net, contextlib.ExitStack() as disks:
            source, target = (disks.enter_context(memory.roomy_disk(net.pair, entries)) for _ in range(2))
            tree = memory.make_tree(source / "tree", entries)
            process = product.start_cp(net.alpha, tree, f"beta:{target}/tree")
            begin = time.monotonic()
            sides = lambda: net.alpha.pids("farhaul") + net.beta.pids("farhaul")  # noqa: E731
            with MemoryWatch(sides, every=0.25) as watch:
                outcome = product.finish(process, timeout=7200)
            seconds = time.monotonic() - begin
            count = subprocess.run(f"find {target}/tree -mindepth 1 | wc -l", shell=True, check=True, stdout=subprocess.PIPE)
            exact = outcome.code == 0 and int(count.stdout) == entries
            self.results.row(f"{entries} empty files and folders", exact and watch.peak < MEMORY_MAX,
                             f"{watch.peak / MIB:.0f} MiB, {entries / seconds:.0f} a second",
                             f"below {MEMORY_MAX // MIB} MiB, all there", seconds=[seconds], arrived=int(count.stdout))

    # ---- kills ---------------------------------------------------------------------------------------------------

    def kill(self):
        kills = self.chosen.kills
        with ground(self.chosen.dir) as net:
            room = net.pair.mount_memory(net.pair.folder("data"), 6144)
            tree = make_tree(room / "source", self.chosen.files, 4096)
            target = room / "into"
            target.mkdir()
            ends = ["--rate", "400M", f"{tree.root}/", f"beta:{target}/"]
            chance = random.Random(SEED)
            counted = lambda: net.beta.counter("rx_bytes")  # noqa: E731
            farhaul(net.alpha, *ends)
            remove(target)
            target.mkdir()
            begin = counted()
            farhaul(net.alpha, *ends)
            once = counted() - begin
            remove(target)
            target.mkdir()
            begin = counted()
            whole = 8 * tree.size / 400e6
            done = 0
            while done < kills:
                # The rate leaves a share of the files for each kill. Files that are there already take little
                # time.
                process = product.start_cp(net.alpha, *ends)
                time.sleep(0.3 + chance.random() * max(0.05, 1.5 * whole / kills))
                ended = process.poll() is not None
                victims = [process.pid] if done % 2 == 0 else [
                    pid for pid in net.beta.pids("farhaul") if pid != net.daemon.process.pid]
                for pid in victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                product.finish(process, timeout=600)
                done += 1
                if ended:
                    self.results.note(f"all had arrived before kill {done}")
                    break
            farhaul(net.alpha, *ends)
            # Each restart sends the manifest again, which does not count as content.
            received = counted() - begin
            again = max(0, received - once - done * tree.manifest)
            found = trees.differences(tree.root, target)
            self.results.row(f"kill -9 of either end, {done} times, {tree.files} files",
                             not found and again <= done * 16 * MIB,
                             f"{again / MIB / max(1, done):.1f} MiB a kill sent twice, {len(found)} differences",
                             "at most 16 MiB a kill, no difference", kills=done, found=found, bytes_received=received,
                             bytes_received_without_kills=once)

    # ---- filters -------------------------------------------------------------------------------------------------

    def filters(self):
        command = [sys.executable, "-m", "pytest", "-q", ROOT / "tests/test_filters.py"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = (ROOT / "tests/test_filters.py").read_text()
        listed = re.search(r'^CASES = r"""\n(.*?)^"""', text, re.MULTILINE | re.DOTALL)
        cases = len(listed.group(1).splitlines()) if listed else 0
        passed = re.search(r"(\d+) passed", done.stdout)
        count = int(passed.group(1)) if passed else 0
        self.results.row("filter cases with rsync's selection", done.returncode == 0 and cases >= 60,
                         f"{cases} cases, {count} tests passed", "at least 60, all the same", tail=done.stdout[-500:])


class PipelinedGridFtp(peers.gridftp.GridFtp):
    name = "gridftp -pp -cc 4"
    extra = ("-fast", "-pp", "-cc", "4")


def farhaul(host, *arguments, verb="cp"):
    """Runs a copy; returns its report and the seconds that the user waits."""
    box = []
    seconds = timed(lambda: box.append(product.cp(host, *arguments, verb=verb, timeout=1800).report))
    return box[0], seconds


def timed(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def checked(done, argv):
    if done.returncode != 0:
        raise SystemExit(f"{argv}: exit {done.returncode}: {(done.stderr or b'').decode(errors='replace')[-500:]}")


def main():
    parser = arguments(__doc__, runs=5)
    parser.add_argument("--only", "--row", type=parts(PARTS), default=PARTS, metavar="PART,...",
                        help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--files", type=int, default=100_000, help="small files in a tree (default 100,000)")
    parser.add_argument("--entries", type=int, default=10_000_000, help="empty files (default ten million)")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--no-save", action="store_true", help="save no result: only tries the measurement")
    chosen = parser.parse_args()
    pathlib.Path(chosen.dir).mkdir(parents=True, exist_ok=True)
    results = Results("files")
    results.notes = {"runs": chosen.runs, "files": chosen.files, "directory": chosen.dir, "arguments": sys.argv[1:]}
    bench = Bench(chosen, results)
    with contextlib.nullcontext() if chosen.no_save else results.saved(chosen.only == PARTS):
        for part in chosen.only:
            getattr(bench, part)()


if __name__ == "__main__":
    main()
