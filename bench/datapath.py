"""Compares the data path with what its parts can do: raw datagrams, iperf3, fio, cp, scp. `./x bench
datapath`.

Prints one PASS or MISS line a row, then saves bench/results/datapath.json; `--docs` writes the table of docs/design/data-path.md from
that file and measures nothing. Exits 0 when it could measure.

Rates are those of payload. The tools that a row compares are measured in turns, in the same rounds. The CPU
time of a tool is that of all its processes at both ends, as the kernel reports it when they have ended; time
in interrupts counts for no tool.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

from fio import SHAPES, Fio, chill
from ground import GIB, MIB, RESULTS, ROOT, Results, gbit, parts, remove, settle
from link import LabLink, Profile

from harness import product, trees
from harness.hosts import HarnessError, Pair, call, install_signal_handlers, wait_until
from harness.ssh import SshServer

SEED = 20261121
#: Bytes of header, tag and frame of a sealed datagram; bytes of the header of a plain one (crates/bench).
SEALED_OVERHEAD, PLAIN_OVERHEAD = 34, 8
IPERF_PORT = 5201
#: How long a run may take: a longer one is ended, and its row fails.
RUN_SECONDS_MAX = 900
BEGIN, END = "<!-- datapath: begin, written by bench/datapath.py --docs -->", "<!-- datapath: end -->"
#: Numbers of flows to measure, if the machine has enough cores for them.
FLOWS = (2, 4, 8)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Samples:
    """One figure of the runs of one tool."""

    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def spread(self):
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


@dataclasses.dataclass
class Ran:
    """A tool that has ended: seconds, processor seconds at both ends, its output."""

    seconds: float
    cpu: float
    out: bytes


def cpu_seconds(pid):
    """Processor time of a process and of its descendants that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


class Site:
    """Two hosts over any link, with sshd on `b`."""

    def __init__(self, pair, stack, ports=(22,)):
        self.pair = pair
        self.a, self.b = pair.hosts
        self.sshd = SshServer(pair, ports).process
        self.stack = stack
        self.server = None

    def run(self, *argv, server=None):
        """Runs a tool on `a` to its end. `server` is the process on `b` that it talks to, unless that is
        sshd; it ends by itself."""
        # sshd's account has the time of its child processes once it has waited for them.
        before = cpu_seconds(self.sshd.pid)
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.a.start([str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            limit = threading.Timer(RUN_SECONDS_MAX, process.kill)
            limit.daemon = True
            limit.start()
            _, status, used = os.wait4(process.pid, 0)
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - begin
            said = [file.seek(0) or file.read() for file in (out, err)]
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, argv))}: exit {process.returncode}: {said[1].decode(errors='replace')[-2000:]}")
        cpu = used.ru_utime + used.ru_stime
        if server is not None:
            _, status, far = os.wait4(server.pid, 0)
            server.returncode = os.waitstatus_to_exitcode(status)
            cpu += far.ru_utime + far.ru_stime
        else:
            wait_until(lambda: not children(self.sshd.pid), seconds=60, what="sshd's sessions have ended")
            cpu += cpu_seconds(self.sshd.pid) - before
        return Ran(seconds, cpu, said[0])

    def cp(self, source, target, *options):
        """Our copy: its report, with the processor time of all processes."""
        ran = self.run("farhaul", "cp", "--json", "--udp-only", *options, source, target)
        report = json.loads(ran.out)
        return {**report, "cpu": ran.cpu}

    def raw(self, packet, seconds, rate=None, flows=1):
        """The payload rates of datagrams without a protocol, plain and sealed, and the rates at which a
        sender's core is full."""
        more = ["--rate", str(int(rate))] if rate else []
        ran = self.run("farhaul", "bench", "link", "--json", "--direction", "to", "--flows", str(flows), "--packet", str(packet),
                       "--seconds", str(seconds), *more, "beta")
        found = {}
        for row in json.loads(ran.out)["rows"]:
            overhead = SEALED_OVERHEAD if row["cipher"] else PLAIN_OVERHEAD
            share = (row["datagram_bytes"] - overhead) / row["datagram_bytes"]
            found["sealed" if row["cipher"] else "plain"] = row["bps"] * share
            found["sealed_core" if row["cipher"] else "plain_core"] = (row["sender_bps_per_core"] or 0) * share
        return found

    def iperf(self, seconds):
        """One TCP stream without encryption: bits a second at the receiver, processor seconds for a GiB."""
        server = self.b.start(["iperf3", "-s", "-1", "-p", str(IPERF_PORT)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: is_listening(self.b, IPERF_PORT), what="iperf3 listens")
        ran = self.run("iperf3", "-c", self.b.v4, "-p", str(IPERF_PORT), "-t", str(seconds), "-J", server=server)
        received = json.loads(ran.out)["end"]["sum_received"]
        return {"bps": received["bits_per_second"], "cpu": ran.cpu / (received["bytes"] / GIB)}


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_listening(host, port):
    return bool(call("ip", "netns", "exec", host.netns, "ss", "-Hltn", f"sport = :{port}").strip())


def in_turns(rounds, tools):
    """Runs every tool once in each round: name -> list of the results."""
    found = {name: [] for name in tools}
    for _ in range(rounds):
        for name, tool in tools.items():
            found[name].append(tool())
    return found


def connected(tool, tries=3):
    """Runs a tool again if ssh could not connect: at 30 % loss its TCP may need longer than sshd waits."""
    for left in reversed(range(tries)):
        try:
            return tool()
        except SystemExit as error:
            if not left or "ssh could not connect" not in str(error):
                raise


def of(runs, key):
    return Samples([run[key] for run in runs])


class Datapath:
    def __init__(self, chosen, results, stack):
        self.chosen, self.results, self.stack = chosen, results, stack
        self.rounds, self.seconds = chosen.runs, chosen.seconds
        self.size = chosen.size * MIB
        self._sites, self._labs = {}, {}

    # ---- surroundings -----------------------------------------------------------------------------------------

    def site(self, mtu=1500):
        if mtu not in self._sites:
            pair = self.stack.enter_context(Pair(product.binary(), base=self.chosen.dir, mtu=mtu))
            self._sites[mtu] = Site(pair, self.stack)
        return self._sites[mtu]

    def lab(self, rate, rtt_ms, loss):
        """Sets the lab's link, with a queue of one BDP; returns its site and the link."""
        if not self._labs:
            link = LabLink(self.chosen.dir)
            self.stack.callback(link.close)
            self._labs = {"link": link, "site": Site(link.pair, self.stack, ports=(2222,))}
        link = self._labs["link"]
        link.set(Profile("datapath", rtt_ms, loss, int(rate)))
        call(link.pair.program, "lab", "set", "--lab", link.pair.lab, "--queue", f"{rtt_ms:g}ms")
        return self._labs["site"], link

    def folder(self):
        return self.site().pair.folder("data")

    def source(self):
        """A file of bytes that do not compress, on the disk."""
        if not hasattr(self, "_source"):
            self._source = trees.make_file(self.folder() / "source", self.size, SEED)
        return self._source

    def cold(self, tool):
        """A tool that first syncs the disk and takes the source out of the page cache."""
        def run():
            settle()
            chill(self.source())
            return tool()
        return run

    def memory(self, site, *options, size=None):
        # The senders of raw datagrams and iperf3 fill no buffers, so the copy sends zeros, which cost least.
        return lambda: site.cp(f"zero:{size or self.size}", "beta:null:", *options)

    def row(self, case, passed, figure, goal, samples, **detail):
        self.results.row(case, passed, figure, goal, "/".join(f"{sample.spread:.0%}" for sample in samples), **detail)

    # ---- rows --------------------------------------------------------------------------------------------------

    def against_raw(self, case, mtu, which, goal, *options):
        site = self.site(mtu)
        # The copy takes about as long as the other tools, so that its start counts as little as theirs.
        found = in_turns(self.rounds, {
            "ours": self.memory(site, *options, size=4 * self.size),
            "raw": lambda: site.raw(mtu, self.seconds),
            "iperf3": lambda: site.iperf(self.seconds),
        })
        ours, raw, tcp = of(found["ours"], "goodput_bps"), of(found["raw"], which), of(found["iperf3"], "bps")
        ratio = ours.median / raw.median
        self.row(case, ratio >= goal, f"{ratio:.2f} ({gbit(ours.median)} : {gbit(raw.median)})",
                 f"{goal:g} of raw {which} datagrams", [ours, raw], ratio=ratio, ours_bps=ours.values, raw_bps=raw.values,
                 iperf3_bps=tcp.values, of_iperf3=ours.median / tcp.median, raw=found["raw"],
                 bottleneck=[report["bottleneck"] for report in found["ours"]])
        self.results.note(f"iperf3, one TCP stream in the clear: {gbit(tcp.median)}, so {ours.median / tcp.median:.2f} of it; "
                          f"{found['ours'][-1]['bottleneck']}")

    def memory_to_memory(self):
        self.against_raw("memory to memory, AES-128-GCM, MTU 1500, digest off", 1500, "sealed", 0.85, "--verify", "transit")

    def cipher_none(self):
        case = "memory to memory, cipher none, MTU 1500, digest off"
        self.against_raw(case, 1500, "plain", 0.70, "--cipher", "none", "--verify", "transit")

    def jumbo(self):
        self.against_raw("memory to memory, AES-128-GCM, MTU 9000, digest off", 9000, "sealed", 0.85, "--verify", "transit")

    def flows(self):
        """Several flows, as many as there are cores for at both ends. Reported without a goal, also with
        digests."""
        counts = [count for count in FLOWS if 2 * count <= len(os.sched_getaffinity(0))]
        if not counts:
            return self.results.note("flows: two flows want four cores, so there is nothing to measure here")
        for mtu in (1500, 9000):
            for count in (1, *counts):
                self.flows_at(mtu, count)

    def flows_at(self, mtu, count):
        site, flows = self.site(mtu), ("--flows", str(count))
        size = max(4, 2 * count) * self.size
        found = in_turns(self.rounds, {
            "AES-128-GCM": self.memory(site, *flows, "--verify", "transit", size=size),
            "cipher none": self.memory(site, *flows, "--verify", "transit", "--cipher", "none", size=size),
            "digest on": self.memory(site, *flows, size=size),
            "raw": lambda: site.raw(mtu, self.seconds, flows=count),
        })
        digest = of(found.pop("digest on"), "goodput_bps")
        for cipher, which in (("AES-128-GCM", "sealed"), ("cipher none", "plain")):
            ours, raw = of(found[cipher], "goodput_bps"), of(found["raw"], which)
            ratio = ours.median / raw.median
            self.row(f"{'one flow' if count == 1 else f'{count} flows'}, memory to memory, {cipher}, MTU {mtu}, digest off", True,
                     f"{ratio:.2f} ({gbit(ours.median)} : {gbit(raw.median)})", f"reported, of raw {which} datagrams",
                     [ours, raw], ratio=ratio, ours_bps=ours.values, raw_bps=raw.values, digest_on_bps=digest.values,
                     cpu_seconds=[run["cpu"] for run in found[cipher]], bottleneck=[run["bottleneck"] for run in found[cipher]])
        self.results.note(f"digest on, AES-128-GCM: {gbit(digest.median)}")

    def fio_shapes(self, tool, after=lambda: None):
        """The runs of fio for every shape, as tools for `in_turns`."""
        def once(shape):
            def run():
                settle()
                bps = tool(shape)
                after()
                return {"bps": bps}
            return run
        return {label(shape): once(shape) for shape in SHAPES}

    def beside_fio(self, case, ours, fio):
        """A row whose goal is the smaller of 0.92 of fio's best shape and 0.9 of memory to memory with
        digests."""
        site = self.site()
        found = in_turns(self.rounds, {"ours": ours, "memory": self.memory(site), **fio})
        mine, memory = of(found["ours"], "goodput_bps"), of(found["memory"], "goodput_bps")
        best, disk = max(((name, of(found[name], "bps")) for name in fio), key=lambda pair: pair[1].median)
        goal = min(0.92 * disk.median, 0.9 * memory.median)
        which = "0.92 of fio" if goal == 0.92 * disk.median else "0.9 of memory to memory"
        self.row(case, mine.median >= goal, f"{gbit(mine.median)} ({best}: {gbit(disk.median)}, memory: {gbit(memory.median)})",
                 f"{gbit(goal)}, {which}", [mine, disk, memory], ours_bps=mine.values, memory_bps=memory.values,
                 fio_bps={name: of(found[name], "bps").values for name in fio},
                 bottleneck=[report["bottleneck"] for report in found["ours"]])

    def disk_to_memory(self):
        source, site = self.source(), self.site()
        fio = Fio(source, self.size)
        self.beside_fio("disk to memory, cold cache", self.cold(lambda: site.cp(source, "beta:null:")),
                        {name: self.cold(tool) for name, tool in self.fio_shapes(fio.read).items()})

    def memory_to_disk(self):
        site = self.site()
        folder = self.folder()
        target, scratch = folder / "copy", folder / "fio"

        def ours():
            remove(target)
            settle()
            return site.cp(f"random:{self.size}", f"beta:{target}", "--durable")
        fio = Fio(scratch, self.size)
        self.beside_fio("memory to disk, synced", ours, self.fio_shapes(fio.write, lambda: remove(scratch)))
        remove(target)

    def disk_to_disk(self):
        site, source, folder = self.site(), self.source(), self.folder()
        target, scratch = folder / "copy", folder / "fio"

        def ours():
            remove(target)
            report = self.cold(lambda: site.cp(source, f"beta:{target}", "--durable"))()
            return {"bps": report["goodput_bps"], "bottleneck": report["bottleneck"]}

        def copy():
            remove(target)
            def run():
                begin = time.monotonic()
                subprocess.run(["cp", source, target], check=True)
                subprocess.run(["sync", target], check=True)
                return {"bps": 8 * self.size / (time.monotonic() - begin)}
            return self.cold(run)()

        def fio(shape):
            def run():
                remove(scratch)
                return {"bps": self.cold(lambda: Fio(source, self.size).both(scratch, shape))()}
            return run
        found = in_turns(self.rounds, {"cp": copy, "ours": ours, **{label(shape): fio(shape) for shape in SHAPES}})
        # The order of the turns makes our copy the last one before this.
        if trees.sha256(source) != trees.sha256(target):
            raise SystemExit("the copy differs from its source")
        mine, cp = of(found["ours"], "bps"), of(found["cp"], "bps")
        best, disk = max(((name, of(found[name], "bps")) for name in found if name.startswith("fio")),
                         key=lambda pair: pair[1].median)
        self.row("disk to disk, cold cache, synced, vs cp", mine.median > cp.median,
                 f"{mine.median / cp.median:.2f} x ({gbit(mine.median)} : {gbit(cp.median)})", "above 1 x", [mine, cp],
                 ours_bps=mine.values, cp_bps=cp.values)
        self.row("disk to disk, cold cache, synced, vs fio", mine.median >= 0.92 * disk.median,
                 f"{mine.median / disk.median:.2f} ({gbit(mine.median)} : {gbit(disk.median)})",
                 "0.92 of fio reading and writing at once", [mine, disk], ours_bps=mine.values, best=best, fio_bps=disk.values,
                 bottleneck=[run["bottleneck"] for run in found["ours"]])
        remove(target)
        remove(scratch)

    def digest(self):
        site, source = self.site(), self.source()
        off = ("--verify", "transit")
        found = in_turns(self.rounds, {
            "disk on": self.cold(lambda: site.cp(source, "beta:null:")),
            "disk off": self.cold(lambda: site.cp(source, "beta:null:", *off)),
            "memory on": self.memory(site), "memory off": self.memory(site, *off),
        })
        rates = {name: of(runs, "goodput_bps") for name, runs in found.items()}
        for place in ("disk", "memory"):
            on, without = rates[f"{place} on"], rates[f"{place} off"]
            ratio = on.median / without.median
            limit = found[f"{place} on"][-1]["bottleneck"]
            is_goal = place == "disk" and "read" in limit
            self.row(f"digest on, {place} to memory", ratio >= 0.95 or not is_goal,
                     f"{ratio:.2f} ({gbit(on.median)} : {gbit(without.median)})",
                     "0.95 of digest off" if is_goal else "reported: the disk does not limit", [on, without], ratio=ratio,
                     on_bps=on.values, off_bps=without.values, bottleneck=limit)
            self.results.note(f"limited by {limit}")

    def cpu(self):
        site, source = self.site(), self.source()
        folder = self.folder()
        target = folder / "copy"
        gib = self.size / GIB

        def fresh(tool):
            def run():
                remove(target)
                return self.cold(tool)()
            return run
        found = in_turns(self.rounds, {
            "file": fresh(lambda: {"cpu": site.cp(source, f"beta:{target}")["cpu"] / gib}),
            "scp": fresh(lambda: {"cpu": site.run("scp", "-q", source, f"beta:{target}").cpu / gib}),
            "memory": lambda: {"cpu": self.memory(site, "--verify", "transit")()["cpu"] / gib},
            "iperf3": lambda: site.iperf(self.seconds),
        })
        cost = {name: of(runs, "cpu") for name, runs in found.items()}
        for ours, theirs, goal, sign in (("file", "scp", 0.3, "below"), ("memory", "iperf3", 1.6, "at most")):
            ratio = cost[ours].median / cost[theirs].median
            self.row(f"CPU seconds per GiB, {ours}, vs {theirs}", ratio < goal if sign == "below" else ratio <= goal,
                     f"{ratio:.2f} ({cost[ours].median:.2f} s : {cost[theirs].median:.2f} s)", f"{sign} {goal:g} of {theirs}'s",
                     [cost[ours], cost[theirs]], ratio=ratio, ours=cost[ours].values, theirs=cost[theirs].values)
        remove(target)

    def peak(self):
        """The peak of resident memory of either process. The goals allow 64 MiB for the program itself, also
        with a budget."""
        rate, rtt = 1e9, 100
        bdp = rate / 8 * rtt / 1000
        size = int(rate / 8 * self.seconds)
        for loss, factor in ((0.01, 1.5), (0.05, 3), (0.30, 7)):
            site, _ = self.lab(rate, rtt, loss)
            for memory in (None, 32 * MIB):
                options = ["--memory", str(memory)] if memory else []
                runs = [connected(lambda: site.cp(f"random:{size}", "beta:null:", *options)) for _ in range(self.rounds)]
                peak = Samples([max(run["peak_rss_bytes_local"], run["peak_rss_bytes_remote"]) for run in runs])
                goal = 64 * MIB + (memory if memory else factor * bdp)
                what = f"--memory {memory // MIB}M" if memory else "unlimited"
                self.row(f"peak memory, {loss:.0%} loss, BDP {bdp / MIB:.0f} MiB, {what}", max(peak.values) <= goal,
                         f"{max(peak.values) / MIB:.0f} MiB", f"{goal / MIB:.0f} MiB", [peak], peak_bytes=peak.values,
                         goodput_bps=[run["goodput_bps"] for run in runs])

    def budget(self):
        """The rate with a memory budget of half a BDP."""
        rate, rtt = 4e9, 500
        size = int(rate / 8 * max(10, 3 * self.seconds))
        site, link = self.lab(rate, rtt, 0.01)
        link.state()
        found = in_turns(self.rounds, {
            "limited": lambda: site.cp(f"random:{size}", "beta:null:", "--memory", "128M"),
            "unlimited": lambda: site.cp(f"random:{size}", "beta:null:", "--memory", "2G"),
        })
        limited = link.state()["limited"]
        some, all_ = of(found["limited"], "goodput_bps"), of(found["unlimited"], "goodput_bps")
        ratio = some.median / all_.median
        peak = max(max(run["peak_rss_bytes_local"], run["peak_rss_bytes_remote"]) for run in found["limited"])
        self.row("--memory 128M, BDP 250 MB, 1 % loss", ratio >= 0.9 and not limited,
                 f"{ratio:.2f} ({gbit(some.median)} : {gbit(all_.median)}), {peak / MIB:.0f} MiB" + full(limited),
                 "0.9 of the rate with 2 GiB", [some, all_], ratio=ratio, limited_bps=some.values, unlimited_bps=all_.values,
                 peak_bytes=peak, emulator=limited)

    def emulator(self):
        """Over the emulated link. The copy lasts six times as long as the raw datagrams; its start takes
        about a second."""
        for rate, goal in ((2e9, 0.95), (5e9, 0.95), (10e9, None)):
            site, link = self.lab(rate, 100, 0.01)
            size = int(rate / 8 * 6 * self.seconds)
            link.state()
            found = in_turns(self.rounds, {
                "ours": self.memory(site, "--verify", "transit", size=size),
                "raw": lambda site=site, rate=rate: site.raw(1500, self.seconds, rate),
            })
            limited = link.state()["limited"]
            ours, raw = of(found["ours"], "goodput_bps"), of(found["raw"], "plain")
            ratio = ours.median / raw.median
            self.row(f"lab, 100 ms, 1 %, {rate / 1e9:g} Gbit/s, digest off", goal is None or ratio >= goal,
                     f"{ratio:.2f} ({gbit(ours.median)} : {gbit(raw.median)})" + full(limited),
                     f"{goal:g} of raw datagrams" if goal else "reported", [ours, raw], ratio=ratio, ours_bps=ours.values,
                     raw_bps=raw.values, emulator=limited, bottleneck=found["ours"][-1]["bottleneck"])

    def neighbour(self):
        """Beside a busy loop on one core: the rate may fall by the share of that core, and by a tenth
        more."""
        site = self.site()
        cores = len(os.sched_getaffinity(0))

        def beside(tool):
            def run():
                loop = multiprocessing.Process(target=spin, args=(min(os.sched_getaffinity(0)),), daemon=True)
                loop.start()
                try:
                    return tool()
                finally:
                    loop.kill()
                    loop.join()
            return run
        alone = self.memory(site)

        def tcp():
            return site.iperf(self.seconds)
        found = in_turns(self.rounds, {"alone": alone, "beside": beside(alone), "tcp": tcp, "tcp beside": beside(tcp)})
        quiet, busy = of(found["alone"], "goodput_bps"), of(found["beside"], "goodput_bps")
        tcp_quiet, tcp_busy = of(found["tcp"], "bps"), of(found["tcp beside"], "bps")
        ratio, goal = busy.median / quiet.median, 0.9 * (cores - 0.5) / cores
        self.row(f"a busy neighbour on one of {cores} cores", ratio >= goal,
                 f"{ratio:.2f} ({gbit(busy.median)} : {gbit(quiet.median)})", f"{goal:.2f} of the rate alone", [busy, quiet],
                 ratio=ratio, beside_bps=busy.values, alone_bps=quiet.values, iperf3_alone_bps=tcp_quiet.values,
                 iperf3_beside_bps=tcp_busy.values, bottleneck=found["beside"][-1]["bottleneck"])
        self.results.note(f"iperf3 beside him: {tcp_busy.median / tcp_quiet.median:.2f} of its rate alone")


ROWS = {
    "memory": Datapath.memory_to_memory, "none": Datapath.cipher_none, "jumbo": Datapath.jumbo, "flows": Datapath.flows,
    "read": Datapath.disk_to_memory, "write": Datapath.memory_to_disk, "copy": Datapath.disk_to_disk,
    "digest": Datapath.digest, "cpu": Datapath.cpu, "peak": Datapath.peak, "budget": Datapath.budget,
    "lab": Datapath.emulator, "neighbour": Datapath.neighbour,
}


def label(shape):
    return f"fio {shape[0]} x {shape[1]}"


def full(limited):
    return " (emulator full)" if limited else ""


def spin(core):
    os.sched_setaffinity(0, {core})
    while True:
        pass


def write_docs():
    """Writes the table of docs/design/data-path.md from the saved results."""
    saved = json.loads((RESULTS / "datapath.json").read_text())
    machine = saved["machine"]
    lines = [
        f"Last measured {machine['date'][:10]} on {machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}, medians of runs of",
        f"{saved['size_mib']} MiB (four times that beside raw datagrams), on {saved['filesystem']}. `bench/results/datapath.json` has every run.",
        "", "| | what | figure | goal | spread | runs | at |", "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in saved["rows"]:
        runs = max((len(values) for values in row.values() if isinstance(values, list)), default=0)
        cells = [row[name] for name in ("verdict", "case", "figure", "goal", "spread")]
        lines.append(f"| {' | '.join(cells)} | {runs} | {row['commit']} |")
    page = ROOT / "docs/design/data-path.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")
    print(f"wrote {page.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case (default 5)")
    parser.add_argument("--only", type=parts(ROWS), default=tuple(ROWS), metavar="ROW[,ROW]",
                        help=f"only these: {', '.join(ROWS)}")
    parser.add_argument("--size", type=int, default=4096, metavar="MIB",
                        help="content of a run in MiB, four times that beside raw datagrams (default 4096)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of raw datagrams and iperf3 (default 5)")
    parser.add_argument("--dir", default="/var/tmp", help="where the data lie (default /var/tmp)")
    parser.add_argument("--no-save", action="store_true", help="leave bench/results/datapath.json as it is")
    parser.add_argument("--docs", action="store_true", help="measure nothing, write the table of docs/design/data-path.md")
    chosen = parser.parse_args()
    if chosen.docs:
        return write_docs()
    install_signal_handlers()
    pathlib.Path(chosen.dir).mkdir(parents=True, exist_ok=True)
    results = Results("datapath")
    results.notes = {"size_mib": chosen.size, "directory": chosen.dir,
                     "filesystem": call("findmnt", "-no", "FSTYPE,SOURCE", "-T", chosen.dir).strip()}
    saved = contextlib.nullcontext() if chosen.no_save else results.saved(set(chosen.only) == set(ROWS))
    with saved, contextlib.ExitStack() as stack:
        bench = Datapath(chosen, results, stack)
        for name in chosen.only:
            try:
                ROWS[name](bench)
            except (SystemExit, HarnessError, OSError, ValueError, LookupError) as error:
                results.row(name, False, "could not be measured", str(error).strip()[-300:])


if __name__ == "__main__":
    main()
