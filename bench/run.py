"""One run of one tool: the user's command, its time, its cost, and what arrived.

Always true: files that arrived are verified after the clock has stopped, against digests of the source by
sha256sum; a run ends as `ok`, `timeout`, `failed` or `wrong`, and only `ok` has a time; after a run none of
its processes still runs, and none of its packets is still on the link.
"""

import contextlib
import dataclasses
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from harness import trees
from harness.hosts import HarnessError
from link import cut_connections
from peers.peer import Job

TICKS = os.sysconf("SC_CLK_TCK")
GIB = 1 << 30


@dataclasses.dataclass
class Data:
    """The data of a run: a file, or a tree of files of one size."""

    name: str
    path: pathlib.Path
    size: int
    files: int
    list: pathlib.Path | None = None
    digest: str = ""

    @property
    def is_tree(self):
        return self.list is not None


def make_data(root, size, file_size=None, seed=20261121):
    """Makes one file of `size` bytes, or a tree with `size` bytes in files of `file_size` bytes, 1000 in each
    folder."""
    folder = root / "data"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if file_size is None or file_size >= size:
        path = folder / f"file-{size}"
        if not path.exists():
            trees.make_file(path, size, seed)
        return Data(path.name, path, size, 1, digest=trees.sha256(path))
    path, listed = folder / f"tree-{size}-{file_size}", folder / f"list-{size}-{file_size}"
    names = [f"d{number // 1000:03}/f{number:06}" for number in range(size // file_size)]
    if not path.exists():
        whole = trees.make_file(folder / "whole", size, seed)
        with open(whole, "rb") as content:
            for name in names:
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content.read(file_size))
        whole.unlink()
        listed.write_text("".join(f"{name}\n" for name in names))
    return Data(path.name, path, size, len(names), list=listed)


class Watch:
    """While it lasts, samples resident memory and processor time of the processes of both hosts, also of
    those that end."""

    def __init__(self, hosts, every=0.2):
        self._inodes = [os.stat(f"/run/netns/{host.netns}").st_ino for host in hosts]
        self._every = every
        self._stop = threading.Event()
        self.memory = [{} for _ in hosts]
        self.cpu = [{} for _ in hosts]
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def look(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                host = self._inodes.index(os.stat(f"/proc/{pid}/ns/net").st_ino)
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # The time of the process itself, and of its children that have ended and were waited for.
                self.cpu[host][int(pid)] = sum(int(fields[number]) for number in (11, 12, 13, 14)) / TICKS
                resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
                self.memory[host][int(pid)] = max(resident, self.memory[host].get(int(pid), 0))

    def _loop(self):
        while not self._stop.wait(self._every):
            self.look()

    def __enter__(self):
        self.look()
        self.begin = [dict(host) for host in self.cpu]
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.look()

    def peak(self, host):
        """The sum of the peaks of resident memory of those processes on a host that used processor time."""
        return sum(most for pid, most in self.memory[host].items()
                   if pid not in self.begin[host] or self.cpu[host][pid] > self.begin[host][pid])

    def used(self, host):
        """Processor seconds on a host since the beginning."""
        return sum(spent - self.begin[host].get(pid, 0.0) for pid, spent in self.cpu[host].items())


class Client:
    """The user's command on host A."""

    def __init__(self, site, peer, job):
        self.job = job
        self.argv = [os.fspath(part) for part in peer.command(site, job)]
        self.out = tempfile.TemporaryFile()
        self.err = tempfile.TemporaryFile()
        self.environment = peer.environment(site)
        self.host = site.a
        self.ended = None
        self.cpu = 0.0

    def start(self):
        self.process = self.host.start(self.argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                       env=self.environment)
        self.watch = os.pidfd_open(self.process.pid)

    def reap(self):
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime
        os.close(self.watch)

    def signal(self, number):
        """Sends a signal to the command and its children, which form a process group of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def text(self, file, limit=None):
        file.seek(0)
        data = file.read()
        return data if limit is None else data[-limit:].decode(errors="replace").strip()


def wait_for(clients, until):
    """Waits for the clients until `until` at most, and notes when each ended. Returns whether all have
    ended."""
    poll = select.poll()
    open_ones = {client.watch: client for client in clients if client.ended is None}
    for watch in open_ones:
        poll.register(watch, select.POLLIN)
    while open_ones:
        left = until - time.monotonic()
        if left <= 0:
            return False
        for watch, _ in poll.poll(left * 1000):
            client = open_ones.pop(watch)
            client.ended = time.monotonic()
            poll.unregister(watch)
            client.reap()
    return True


def execute(site, peer, data, limit, clients=1):
    """One run, in which `clients` clients move the data at the same time, each to a target of its own."""
    jobs = [make_job(site, data, limit) for _ in range(clients)]
    record = {"bytes": data.size * clients, "files": data.files * clients}
    try:
        return {**record, **_execute(site, peer, data, jobs, limit)}
    finally:
        for job in jobs:
            shutil.rmtree(job.into, ignore_errors=True)


def make_job(site, data, limit=20.0):
    into = pathlib.Path(tempfile.mkdtemp(prefix="in-", dir=site.root))
    into.chmod(0o777)
    return Job(data.path, into / data.path.name, data.size, data.is_tree, data.list, limit)


def _execute(site, peer, data, jobs, limit):
    strangers = set(site.b.pids())
    try:
        for job in jobs:
            peer.before(site, job)
        runs = [Client(site, peer, job) for job in jobs]
    except (HarnessError, OSError) as error:
        for job in jobs:
            if job.notes:
                peer.after(site, job)
        return {"status": "failed", "error": f"could not be set up: {error}"[-800:]}
    strangers |= {process.pid for process in site.processes}
    with Watch((site.a, site.b)) as watch:
        begin = time.monotonic()
        for run in runs:
            run.start()
        in_time = wait_for(runs, begin + limit)
        in_time = in_time and all(peer.finish(site, run.job, max(0.1, begin + limit - time.monotonic())) for run in runs
                                  if run.process.returncode == 0)
        seconds = time.monotonic() - begin
        arrived = None if in_time else _stop(peer, runs)
        time.sleep(0.05)  # servers wait for their children
    for job in jobs:
        peer.after(site, job)
    result = {"command": " ".join(runs[0].argv), "limit_seconds": limit}
    codes = [run.process.returncode for run in runs]
    if not in_time:
        result |= {"status": "timeout", "arrived": arrived, "rate_bps": None if arrived is None else 8 * arrived / limit}
    elif any(codes):
        bad = next(run for run in runs if run.process.returncode)
        result |= {"status": "failed", "exit": bad.process.returncode,
                   "arrived": sum(peer.arrived(run.job, b"") or 0 for run in runs),
                   "error": bad.text(bad.err, 600) or bad.text(bad.out, 600)}
    else:
        wrong = None if peer.yardstick else next(filter(None, (difference(data, run.job) for run in runs)), None)
        if wrong is None:
            # A yardstick itself reports the bytes that it moved and the time, without its start and end.
            moved, took = peer.measured(runs[0].text(runs[0].out)) or (data.size * len(runs), seconds)
            result |= {"status": "ok", "seconds": seconds, "rate_bps": 8 * moved / took, "moved": moved,
                       "verified": not peer.yardstick}
        else:
            result |= {"status": "wrong", "error": wrong}
    moved = (result.get("moved") or result.get("arrived") or 0) / GIB
    cost = [sum(run.cpu for run in runs), watch.used(1)]
    result |= {"cpu_seconds": cost, "cpu_per_gib": [part / moved for part in cost] if moved > 0.01 else None,
               "peak_bytes": [watch.peak(0), watch.peak(1)]}
    _clear(site, strangers, hard=not in_time)
    return result


def _stop(peer, runs):
    """Ends the clients that did not end in time. Returns the bytes that had arrived by then; None if that is
    not known."""
    arrived = [peer.arrived(run.job, b"") for run in runs]
    if peer.tells_when_interrupted:
        for run in runs:
            run.signal(signal.SIGINT)
        wait_for(runs, time.monotonic() + 3)
        arrived = [peer.arrived(run.job, run.text(run.out)) for run in runs]
    for run in runs:
        run.signal(signal.SIGKILL)
    wait_for(runs, time.monotonic() + 5)
    return None if None in arrived else sum(arrived)


def difference(data, job):
    """How the data that arrived differ from those that were sent, in words; None if they do not."""
    if not os.path.lexists(job.target):
        return "nothing has arrived under that name"
    if not data.is_tree:
        return None if trees.sha256(job.target) == data.digest else "the content differs"
    found = trees.content_differences(data.path, job.target)
    return "; ".join(found)[:400] if found else None


def _clear(site, strangers, hard):
    """Restores the state of hosts and link before the run: no process of it, no connection, no packet in
    flight."""
    for pid in set(site.b.pids()) - strangers:
        if hard:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if hard:
        cut_connections((site.a, site.b))
    end, last = time.monotonic() + (10 if hard else 2), None
    while time.monotonic() < end:
        now = [host.counter("tx_bytes") for host in (site.a, site.b)]
        if last is not None and all(new - old < 20_000 for new, old in zip(now, last)):
            return
        last = now
        time.sleep(0.2)
