"""How much the service costs and how fast it answers: idle, with many jobs, with many readers of events.
`./x bench service`; one PASS or MISS line a row.

Always true: everything runs on this host over loopback; the service is a process of its own, and its costs
are the kernel's counters of that process.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from ground import ROOT, Results, parts

PARTS = ("idle", "list", "events", "watching")
TICKS = os.sysconf("SC_CLK_TCK")


class Service(contextlib.AbstractContextManager):
    """`farhaul serve` in a folder of its own, and requests to it."""

    def __init__(self, prepare=lambda state: None, config=""):
        self.folder = tempfile.TemporaryDirectory(prefix="farhaul-service-")
        home = pathlib.Path(self.folder.name)
        self.state = home / "state"
        self.environment = {**os.environ, "HOME": str(home), "FARHAUL_ALLOW_ROOT": "1", "FARHAUL_API": str(self.state / "api.sock"),
                            "FARHAUL_SERVE_DRAIN": "0s"}
        (home / "farhaul.toml").write_text("[api]\nrequests_per_second = 100000\nrequests_burst = 100000\nmax_connections = 4096\n" + config)
        os.chmod(home / "farhaul.toml", 0o600)
        self.argv = ["farhaul", "serve", "--listen", "127.0.0.1:0", "--state", self.state, "--config", home / "farhaul.toml", "-q"]
        self.process = None
        self.start()
        prepare(self)

    def start(self):
        self.process = subprocess.Popen(self.argv, env=self.environment, stdin=subprocess.DEVNULL)
        for _ in range(400):
            with contextlib.suppress(OSError):
                if self.get("/version")[0] == 200:
                    return
            time.sleep(0.025)
        raise SystemExit("the service does not answer")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    def run(self, *words):
        done = subprocess.run(["farhaul", *words], env=self.environment, stdout=subprocess.PIPE, check=True, text=True)
        return done.stdout.strip()

    def connect(self):
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.state / "api.sock"))
        return connection

    def get(self, path, connection=None):
        connection = connection or self.connect()
        connection.request("GET", "/api/v1" + path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


def p99(samples):
    return sorted(samples)[int(len(samples) * 0.99) - 1]


def idle(results, chosen):
    with Service() as service:
        time.sleep(3)
        before, begin = service.cpu_seconds(), time.monotonic()
        time.sleep(chosen.seconds)
        share = (service.cpu_seconds() - before) / (time.monotonic() - begin)
        resident = service.resident_mib()
    results.row(f"idle for {chosen.seconds} s: a core", share < 0.002, f"{share:.3%}", "0.2 %")
    results.row("idle: resident memory", resident < 40, f"{resident:.1f} MiB", "40 MiB")


def many_jobs(service):
    """Makes 10,000 jobs in the history, copied from one that has run, and 200 jobs that run."""
    service.run("submit", "zero:1000", "null:", "--wait", "-q")
    service.stop()
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    with sqlite3.connect(service.state / "jobs.sqlite") as store:
        columns = [row[1] for row in store.execute("PRAGMA table_info(jobs)")]
        job = dict(zip(columns, store.execute("SELECT * FROM jobs").fetchone()))
        records = [row[1] for row in store.execute("PRAGMA table_info(history)")]
        record = dict(zip(records, store.execute("SELECT * FROM history").fetchone()))
        for number in range(10_000):
            digits, rest = "", number
            for _ in range(6):
                digits, rest = alphabet[rest % 32] + digits, rest // 32
            job["id"] = record["job"] = job["id"][:10] + digits
            record["id"] = number + 10
            store.execute(f"INSERT OR IGNORE INTO jobs VALUES ({','.join('?' * len(columns))})", list(job.values()))
            store.execute(f"INSERT OR IGNORE INTO history VALUES ({','.join('?' * len(records))})", list(record.values()))
    service.start()
    for _ in range(200):
        service.run("submit", "zero:", "null:", "--rate", "80k", "-q")


LIMITS = "[jobs]\nrunning_max = 300\nrunning_per_peer = 300\nrunning_per_principal = 300\n"


def listing(results, chosen):
    with Service(many_jobs, LIMITS) as service:
        time.sleep(3)
        connection, samples = service.connect(), []
        for number in range(500):
            begin = time.perf_counter()
            status, _ = service.get("/jobs" if number % 2 else "/jobs?state=done", connection)
            samples.append(time.perf_counter() - begin)
            assert status == 200
            time.sleep(0.01)
        resident = service.resident_mib()
    results.row("GET /jobs, 10,000 in the history, 200 running: p99", p99(samples) < 0.05, f"{1e3 * p99(samples):.1f} ms", "50 ms",
                f"median {1e3 * statistics.median(samples):.1f} ms", resident_mib=resident)


def events(results, chosen):
    with Service(config=LIMITS) as service:
        for _ in range(20):
            service.run("submit", "zero:", "null:", "--rate", "800k", "-q")
        time.sleep(20)
        alone = service.resident_mib()
        readers, heard = [], [0]
        for _ in range(500):
            connection = service.connect()
            connection.request("GET", "/api/v1/events")
            readers.append(connection.sock)
            readers[-1].setblocking(False)

        def hear():
            while not over.is_set():
                for reader in readers[::2]:
                    with contextlib.suppress(BlockingIOError):
                        heard[0] += len(reader.recv(1 << 16))
                time.sleep(0.05)

        over = threading.Event()
        listener = threading.Thread(target=hear)
        listener.start()
        connection, samples, end = service.connect(), [], time.monotonic() + chosen.seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            status, _ = service.get("/jobs?limit=50", connection)
            samples.append(time.perf_counter() - begin)
            assert status == 200
            time.sleep(max(0.0, 0.02 - samples[-1]))
        resident = service.resident_mib()
        over.set()
        listener.join()
    # Every second reader never reads a byte: it may cost only its connection.
    results.row("500 readers of events, half of them asleep, 50 requests a second: p99", p99(samples) < 0.1,
                f"{1e3 * p99(samples):.1f} ms", "100 ms", f"median {1e3 * statistics.median(samples):.1f} ms", heard_bytes=heard[0])
    results.row("the same: resident memory that the readers take", resident - alone < 256, f"{resident - alone:.0f} MiB", "256 MiB",
                f"{alone:.0f} MiB before they came, of which the 20 jobs have most", before_mib=alone)


def watching(results, chosen):
    """A job that is watched over the API, against a plain copy, in turns: processor seconds for a GiB."""
    ratios = []
    for _ in range(chosen.pairs):
        with Service() as service:
            size = f"{chosen.gib}G"
            begin = os.times()
            subprocess.run(["farhaul", "cp", "-q", f"zero:{size}", "null:"], env=service.environment, check=True)
            end = os.times()
            plain = end.children_user + end.children_system - begin.children_user - begin.children_system
            connection = service.connect()
            connection.request("GET", "/api/v1/events")
            before = service.cpu_seconds()
            id = service.run("submit", f"zero:{size}", "null:", "-q")
            while json.loads(service.get(f"/jobs/{id}")[1])["state"] not in ("done", "failed"):
                service.get("/jobs")
                time.sleep(1)
            ratios.append((service.cpu_seconds() - before) / plain)
    ratio = statistics.median(ratios)
    results.row(f"a watched job against cp, {chosen.pairs} pairs of {chosen.gib} GiB: processor seconds", ratio < 1.03, f"{ratio:.3f}", "1.03",
                f"{min(ratios):.3f} to {max(ratios):.3f}", ratios=ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=60, help="seconds of the measurements idle and events (default 60)")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of a job and a copy (default 15)")
    parser.add_argument("--gib", type=int, default=4, help="GiB of each job and copy (default 4)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    os.environ["PATH"] = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
    results = Results("service")
    measures = {"idle": idle, "list": listing, "events": events, "watching": watching}
    with results.saved(chosen.only == PARTS):
        for part in chosen.only:
            measures[part](results, chosen)


if __name__ == "__main__":
    sys.exit(main())
