"""What all measurements share: hosts with a daemon and sshd, rows with a verdict, medians, results on disk.

Always true: peers run over the same link, on the same data, in the same run, in turns with us.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import platform
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True

from harness import product  # noqa: E402
from harness.hosts import Pair, install_signal_handlers  # noqa: E402
from harness.ssh import SshServer  # noqa: E402

RESULTS = ROOT / "bench/results"
GIB = 1 << 30
MIB = 1 << 20


@dataclasses.dataclass
class Ground:
    """Two hosts, sshd and a daemon on `beta`, a client with a key on `alpha`."""

    pair: Pair
    daemon: product.Daemon

    @property
    def alpha(self):
        return self.pair.alpha

    @property
    def beta(self):
        return self.pair.beta


@contextlib.contextmanager
def ground(base):
    """Makes the hosts. `base` is the folder for all data; what is made there is removed at the end."""
    install_signal_handlers()
    with Pair(product.binary(), base=base) as pair:
        SshServer(pair)
        key = product.keygen(pair.alpha)
        daemon = product.Daemon(pair, pair.beta, [key])
        yield Ground(pair, daemon)


def arguments(description, runs):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=runs, help=f"runs of each case (default {runs})")
    parser.add_argument("--dir", default="/var/tmp", help="where the data lie (default /var/tmp; /dev/shm is memory)")
    return parser


def parts(known):
    """Reads `--only`: a comma-separated list of a measurement's parts."""
    def read(text):
        chosen = tuple(text.split(","))
        unknown = [part for part in chosen if part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no part {unknown[0]!r}: choose from {', '.join(known)}")
        return chosen
    return read


def run_peer(host, argv, cwd=None, check=True):
    """Runs a peer tool to its end and returns the seconds."""
    begin = time.monotonic()
    done = host.run(argv, cwd=cwd, timeout=1800)
    seconds = time.monotonic() - begin
    if check and done.returncode != 0:
        raise SystemExit(f"{argv}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return seconds


def end(process):
    """Ends a process as Ctrl-C does, and kills it after 20 s."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def remove(path):
    path = pathlib.Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def settle():
    """Syncs all disks, so that one run does not pay for another's writes."""
    os.sync()
    time.sleep(0.2)


@dataclasses.dataclass
class Series:
    """The seconds of all runs of one tool on one case."""

    seconds: list

    @property
    def median(self):
        return statistics.median(self.seconds)

    @property
    def spread(self):
        return (max(self.seconds) - min(self.seconds)) / self.median

    def rate(self, size):
        """Bits of content a second, of the median run."""
        return 8 * size / self.median


def gbit(rate):
    return f"{rate / 1e9:.2f} Gbit/s"


class Results:
    """Rows of PASS or MISS, printed as they come and saved as JSON at the end."""

    def __init__(self, name):
        self.name = name
        self.rows = []
        self.notes = {}

    def row(self, case, passed, figure, goal, spread="", **detail):
        verdict = "PASS" if passed else "MISS"
        print(f"{verdict}  {case:<44} {figure:<28} goal {goal}{f'  spread {spread}' if spread else ''}", flush=True)
        self.rows.append({"case": case, "verdict": verdict, "figure": figure, "goal": goal, "spread": spread,
                          "commit": commit(), **detail})

    def note(self, text):
        print(f"      {text}", flush=True)

    @contextlib.contextmanager
    def saved(self, all_rows):
        """Saves at the end. After an interruption, or if not all rows are measured, new rows replace only the
        rows of their name."""
        try:
            yield
        except BaseException:
            if self.rows:
                self.save(keep_others=True)
            raise
        self.save(keep_others=not all_rows)

    def save(self, keep_others=False):
        """Writes the file. With `keep_others`, rows that were not measured now stay; each row names its
        commit."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        if keep_others and path.exists():
            others = {row["case"]: row for row in json.loads(path.read_text())["rows"]}
            self.rows = list((others | {row["case"]: row for row in self.rows}).values())
        path.write_text(json.dumps({"bench": self.name, "machine": machine(), **self.notes, "rows": self.rows}, indent=1)
                        + "\n")
        print(f"saved {path.relative_to(ROOT)}", flush=True)


@functools.cache
def commit():
    """The commit that is measured, with a + if the working tree has changes that are not committed."""
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE).stdout.decode().strip()  # noqa: E731
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.lock")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def machine():
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    version = lambda *argv: subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()  # noqa: E731
    return {
        "cpu": model, "cores": os.cpu_count(), "kernel": platform.release(),
        "tcp": pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "ssh": version("ssh", "-V").strip(), "rsync": version("rsync", "--version").splitlines()[0],
        "commit": commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def count_files(root):
    """The number and the total size of the regular files below a folder."""
    files = size = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                entry = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(entry.st_mode):
                    files += 1
                    size += entry.st_size
    return files, size


def real_tree(pair, least=20_000):
    """A tree of this machine with at least `least` regular files, their number and their size.

    If no single folder has so many files, as on a small machine, copies of several folders make up the tree.
    """
    for candidate in ("/usr/share", "/usr/lib"):
        files, size = count_files(candidate)
        if files >= least:
            return pathlib.Path(candidate), files, size
    copy = pair.folder("usr")
    home = pathlib.Path.home()
    for part in ("/usr/share", "/usr/lib", "/usr/include", home / ".cargo/registry/src", home / ".rustup/toolchains"):
        if os.path.isdir(part):
            subprocess.run(["cp", "-a", part, copy], check=True)
            files, size = count_files(copy)
            if files >= least:
                return copy, files, size
    raise SystemExit(f"this machine has no tree of {least} files")
