"""How long very short transfers take: a part of `./x bench sharing`.

Over the lab's link figures are round trips, less the time of `farhaul --version`. On loopback they are the
times of whole processes; files lie in memory, since only one of these tools waits for a disk. In turns with
each: curl over TLS 1.3, which fetches the same file from OpenSSL's server, and rsync, which sends it to its
daemon without encryption.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from harness import product
from harness.hosts import wait_until

CLOCK = pathlib.Path(__file__).with_name("clock.py")
RTT_MS = 100
TLS_PORT, RSYNC_PORT = 8443, 8730
DAEMON_PORT = 33030
MIB = 1 << 20
#: (case, bytes, whether a note has the path's rate, the goal in round trips).
CASES = (
    ("1 kB", 1000, False, 4),
    ("10 MiB, cold", 10 * MIB, False, 8),
    ("10 MiB, path remembered", 10 * MIB, True, 5),
)
LOOPBACK_BYTES, LOOPBACK_GOAL = 100_000, 0.015


class Starts:
    """A daemon, OpenSSL's server and rsync's daemon on host B, and files in memory on both hosts."""

    def __init__(self, lab, results):
        self.lab, self.results = lab, results
        self.a, self.b = lab.a, lab.b
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="farhaul-starts-", dir="/dev/shm"))
        self.served = self.folder / "served"
        self.served.mkdir()
        pair = lab.link.pair
        pair.on_close(lambda: shutil.rmtree(self.folder, ignore_errors=True))
        keys = [lab.key, product.keygen(self.b)]
        self.daemon = product.Daemon(pair, self.b, keys, DAEMON_PORT, root=self.served)
        self.serve_tls()
        self.serve_rsync()

    def serve_tls(self):
        key, certificate = self.folder / "key", self.folder / "certificate"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=beta", "-days", "2",
                        "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
        argv = ["openssl", "s_server", "-accept", str(TLS_PORT), "-key", key, "-cert", certificate, "-quiet", "-WWW"]
        self.b.start(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.listens(TLS_PORT)

    def serve_rsync(self):
        config = self.folder / "rsyncd.conf"
        config.write_text(f"port = {RSYNC_PORT}\nuse chroot = no\nreverse lookup = no\npid file = {self.folder}/pid\nlog file = {self.folder}/log\n"
                          f"uid = 0\ngid = 0\n[served]\npath = {self.served}\nread only = no\n")
        self.b.start(["rsync", "--daemon", "--no-detach", f"--config={config}"], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.listens(RSYNC_PORT)

    def listens(self, port):
        listens = lambda: b"LISTEN" in self.b.run(["ss", "-Htln", f"sport = :{port}"]).stdout  # noqa: E731
        wait_until(listens, what=f"a server listens on port {port}")

    def file(self, size):
        path = self.folder / f"file{size}"
        path.write_bytes(os.urandom(size))
        return path

    def commands(self, source, address, options):
        """The commands that a user would type to copy this file, each to a new name."""
        url = f"fh://{address}:{DAEMON_PORT}"
        return {
            "farhaul": ["farhaul", "cp", "-q", "--accept-new", *options, source, f"{url}/farhaul{source.name}-{{run}}"],
            "curl": ["curl", "-sSfk", "--tlsv1.3", "-o", f"{self.folder}/curl{source.name}-{{run}}",
                     f"https://{address}:{TLS_PORT}/{source.name}"],
            "rsync": ["rsync", "-W", source, f"rsync://{address}:{RSYNC_PORT}/served/rsync{source.name}-{{run}}"],
            "start": ["farhaul", "--version"],
        }

    def seconds(self, host, commands, runs, state):
        """The seconds of each run of each command. `state` is the folder with the notes of paths."""
        words = {name: [str(word) for word in argv] for name, argv in commands.items()}
        plan = {"runs": runs, "commands": words, "env": {"XDG_STATE_HOME": str(state)}}
        done = host.run([sys.executable, CLOCK], input=json.dumps(plan).encode(), timeout=600)
        if done.returncode:
            raise SystemExit(done.stderr.decode(errors="replace"))
        for path in [*self.served.iterdir(), *self.folder.glob("curl*")]:
            path.unlink()
        return json.loads(done.stdout)

    def remembered(self):
        """A folder in which a transfer has noted what the path carries."""
        state = self.folder / "remembered"
        product.cp(self.a, "-q", "--accept-new", "zero:1G", f"fh://{self.b.v4}:{DAEMON_PORT}/null:",
                   env={"XDG_STATE_HOME": str(state)})
        if not (state / "farhaul/paths.json").exists():
            raise SystemExit("nothing was noted of the path")
        return state

    def far(self, runs):
        self.lab.set(1e9, RTT_MS)
        for case, size, is_remembered, goal in CASES:
            state = self.remembered() if is_remembered else self.folder / f"unknown-{size}-{{run}}"
            # As at first use: the daemon's key is not known, and there is no note of the path.
            options = [] if is_remembered else ["--known-hosts", f"{self.folder}/known-{size}-{{run}}"]
            self.lab.link.state()
            seconds = self.seconds(self.a, self.commands(self.file(size), self.b.v4, options), runs, state)
            limited = self.lab.link.state()["limited"]
            start = statistics.median(seconds["start"])
            trips = {name: (statistics.median(taken) - start) / (RTT_MS / 1000) for name, taken in seconds.items()}
            self.report(f"{case}, to a daemon, {RTT_MS} ms", trips["farhaul"] <= goal and not limited,
                        f"{trips['farhaul']:.1f} RTT" + (" (emulator full)" if limited else ""), f"at most {goal} RTT",
                        seconds, f"curl {trips['curl']:.1f}, rsync {trips['rsync']:.1f} RTT")

    def loopback(self, runs):
        source = self.file(LOOPBACK_BYTES)
        seconds = self.seconds(self.b, self.commands(source, "127.0.0.1", []), runs, self.folder / "near")
        median = {name: statistics.median(taken) for name, taken in seconds.items()}
        self.report(f"{LOOPBACK_BYTES // 1000} kB, to a daemon, loopback", median["farhaul"] <= LOOPBACK_GOAL,
                    f"{1000 * median['farhaul']:.1f} ms", f"at most {1000 * LOOPBACK_GOAL:g} ms", seconds,
                    f"curl {1000 * median['curl']:.1f}, rsync {1000 * median['rsync']:.1f} ms")

    def report(self, case, passed, figure, goal, seconds, beside):
        ours = seconds["farhaul"]
        spread = f"{(max(ours) - min(ours)) / statistics.median(ours):.0%}"
        self.results.row(f"start: {case}", passed, figure, goal, spread, seconds=seconds)
        self.results.note(f"beside it: {beside}")
