"""`farhaul lab` from outside: runs programs across an emulated link, and looks at what a lab leaves behind."""

import json
import os
import pathlib
import subprocess
import sys

from .hosts import HarnessError, wait_until
from .product import binary

PROBE = pathlib.Path(__file__).with_name("probe.py")


def command(verb, *arguments):
    return [str(binary()), "lab", verb, *(str(argument) for argument in arguments)]


def run(link, program, check=True, timeout=120, **options):
    """Runs `program` on host A of a lab with the options `link`, and returns what came out."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(command("run", *link, "--", *program), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=timeout, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{program}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done


def probe(link, what, *arguments, **options):
    """Runs one of the probes across a lab and returns its figures."""
    return json.loads(run(link, [sys.executable, PROBE, what, *map(str, arguments)], **options).stdout)


class Up:
    """A lab that stands until it is closed."""

    def __init__(self, *link):
        self.process = subprocess.Popen(command("up", "--json", *link), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        line = self.process.stdout.readline()
        if not line:
            raise HarnessError(f"lab up: {self.process.communicate()[1].decode(errors='replace')}")
        self.state = json.loads(line)
        self.name = self.state["lab"]
        self.environment = self.state["environment"]

    def execute(self, host, *program, check=True, timeout=60):
        done = subprocess.run(command("exec", "--lab", self.name, host, "--", *program), timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise AssertionError(f"{program}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done

    def set(self, *changes):
        done = subprocess.run(command("set", "--lab", self.name, *changes), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode()

    def stats(self):
        return json.loads(subprocess.run(command("stats", "--lab", self.name), check=True, stdout=subprocess.PIPE).stdout)

    def kill(self):
        """kill -9 of the process that the user started."""
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdout.close()
        self.process.stderr.close()


def children(pid):
    """All descendants of a process."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            direct = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *children(child)]
    return found


def namespaces(pids):
    """Network, mount and pid namespaces that these processes and their threads are in, as the kernel names them."""
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid", "uts", "ipc"):
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
                try:
                    found.add(os.readlink(task / "ns" / kind))
                except OSError:
                    continue
    return found


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def sysctls():
    """The network settings of this host, among them all that a lab changes in its own namespaces."""
    found = {}
    for pattern in ("core/*", "ipv4/*", "ipv6/conf/default/*"):
        for path in pathlib.Path("/proc/sys/net").glob(pattern):
            try:
                found[path] = path.read_text()
            except OSError:
                continue  # folders, and files that can only be written
    return found


def wait_gone(pids, seconds=10):
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), seconds, what="processes end")

