"""`farhaul gateway` beside Squid and nginx in the same place: one PASS or MISS line a row.

Always true: peers give the same files to the same clients over the same link in the same run, in turns with us.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from ground import GIB, MIB, ROOT, Results, parts
from read import HTTP_PORT, Lab, spread, steady

from harness import product
from harness.hosts import Pair
from harness.trees import make_file

PARTS = ("far", "near", "small", "crowd")
GATEWAY_PORT, SQUID_PORT = 8090, 3128
#: The size of a file in the founding papers' measurement.
FILE = 8 * MIB
CLIENTS = (1, 4, 8)

#: Asks for files, each over a connection of its own, from several clients at a time: the seconds that all of them took.
CLIENT = """
import http.client, json, sys, threading, time
host, port, proxied, lists = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
failed = []
def one(paths):
    for path, size in paths:
        connection = http.client.HTTPConnection(host, port, timeout=300)
        connection.request("GET", proxied + path)
        answer = connection.getresponse()
        got = 0
        while piece := answer.read(1 << 20):
            got += len(piece)
        if answer.status != 200 or got != size:
            failed.append(f"{path}: {answer.status}, {got} bytes")
        connection.close()
begin = time.monotonic()
threads = [threading.Thread(target=one, args=(paths,)) for paths in lists]
for thread in threads: thread.start()
for thread in threads: thread.join()
if failed: raise SystemExit(failed[0])
print(time.monotonic() - begin)
"""


def nginx(folder, root, port, sendfile="on"):
    conf = folder / "nginx.conf"
    conf.write_text(f"daemon off; user root; worker_processes auto; pid {folder}/nginx.pid; error_log /dev/null;\nevents {{ worker_connections 4096; }}\n"
                    f"http {{ access_log off; sendfile {sendfile}; keepalive_requests 1000000;\n"
                    f"server {{ listen {port}; root {root}; }} }}\n")
    return ["nginx", "-c", str(conf)]


def squid(folder):
    """A cache of Squid with its usual settings, but for room for the files."""
    for name in ("cache", "run"):
        (folder / name).mkdir(exist_ok=True)
    conf = folder / "squid.conf"
    conf.write_text(f"http_port {SQUID_PORT}\nhttp_access allow all\nvisible_hostname here\npid_filename {folder}/run/pid\n"
                    f"cache_log /dev/null\naccess_log none\ncache_store_log none\ncache_dir aufs {folder}/cache 8000 16 256\n"
                    "maximum_object_size 5 GB\nmaximum_object_size_in_memory 512 KB\ncache_mem 256 MB\nshutdown_lifetime 1 seconds\n")
    subprocess.run(["chown", "-R", "proxy:proxy", str(folder)], check=True)
    return conf


def lists(names, clients, mode):
    """The files that each client asks for: each its own, or all of them all files, in orders of their own."""
    if mode == "one to one":
        return [[(f"/{name}", FILE) for name in names[at::clients]] for at in range(clients)]
    made = []
    for at in range(clients):
        order = list(names)
        random.Random(at).shuffle(order)
        made.append([(f"/{name}", FILE) for name in order])
    return made


class FarPlace(Lab):
    """The lab of the paper's measurement: the caches are on host A, the files on host B."""

    def __init__(self, chosen):
        super().__init__("--rtt", "100ms", "--loss", "0.1%", "--rate", "1g")
        self.names = [f"f{number}" for number in range(chosen.files)]
        for name in self.names:
            self.file(name, FILE)
        time.sleep(6)  # A file that has just changed is not kept.
        self.beta = self.up.environment["FARHAUL_LAB_B"]
        self.serve(*nginx(self.folder, self.folder, HTTP_PORT), port=HTTP_PORT)
        self.count = 0

    def tcp(self, control):
        """Sets TCP's congestion control of host B, which sends, by its routes."""
        for route in self.up.execute("b", "ip", "route").stdout.decode().splitlines():
            words = route.split()
            if "congctl" in words:
                at = words.index("congctl")
                del words[at:at + (3 if words[at + 1] == "lock" else 2)]
            self.up.execute("b", "ip", "route", "replace", *words, "congctl", "lock", control)

    @contextlib.contextmanager
    def here(self, argv, port):
        """A server on host A, until it listens and to the end."""
        process = self.start("a", *argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(400):
                if self.up.execute("a", "ss", "-Hltn", f"sport = :{port}").stdout:
                    break
                if process.poll() is not None:
                    raise SystemExit(f"{argv[0]} has ended with {process.returncode}")
                time.sleep(0.05)
            else:
                raise SystemExit(f"{argv[0]} does not listen")
            yield process
        finally:
            process.terminate()
            process.wait()

    def fresh(self):
        self.count += 1
        folder = self.folder / f"cache{self.count}"
        folder.mkdir(mode=0o700)
        return folder

    def gateway(self, *more):
        return self.here(["farhaul", "gateway", "-q", "--public", "--listen", f"127.0.0.1:{GATEWAY_PORT}", "--to", self.url + ".", *self.options,
                          "--cache", str(self.fresh()), "--cache-size", "8G", *more], GATEWAY_PORT)

    def squid(self):
        conf = squid(self.fresh())
        # Squid refuses to run as root.
        squid_here = ["setpriv", "--reuid=proxy", "--regid=proxy", "--clear-groups", "squid", "-n", f"farhaul{os.getpid()}", "-f", str(conf), "-N"]
        self.up.execute("a", *squid_here, "-z", timeout=60)
        return self.here(squid_here, SQUID_PORT)

    def seconds(self, port, proxied, clients, mode):
        out, _ = self.run("/usr/bin/python3", "-c", CLIENT, "127.0.0.1", str(port), proxied, json.dumps(lists(self.names, clients, mode)), timeout=900)
        return float(out)


def far(results, chosen):
    """Cold and warm, against Squid with Cubic and with BBR."""
    with FarPlace(chosen) as place:
        proxied = f"http://{place.beta}:{HTTP_PORT}"
        for clients in CLIENTS:
            for mode in ("one to one", "all to all") if clients > 1 else ("one to one",):
                found = {}

                def measure(case, started, port, prefix, clients=clients, mode=mode, found=found):
                    with started:
                        for state in ("cold", "warm"):
                            found.setdefault((case, state), []).append(place.seconds(port, prefix, clients, mode))

                for _ in range(chosen.runs):
                    measure("ours", place.gateway(), GATEWAY_PORT, "")
                    for control in ("cubic", "bbr"):
                        place.tcp(control)
                        measure(control, place.squid(), SQUID_PORT, proxied)
                middle = {key: statistics.median(seconds) for key, seconds in found.items()}
                for control, goal in (("cubic", 3.0), ("bbr", 1.0)):
                    ratio = middle[control, "cold"] / middle["ours", "cold"]
                    results.row(f"far, {clients} clients, {mode}, cold, {control}", ratio >= goal, f"{ratio:.2f} of Squid's rate", f"{goal:.1f}",
                                spread(found["ours", "cold"]), ours=found["ours", "cold"], squid=found[control, "cold"])
                ratio = min(middle["cubic", "warm"], middle["bbr", "warm"]) / middle["ours", "warm"]
                results.row(f"far, {clients} clients, {mode}, warm", ratio >= 1, f"{ratio:.2f} of Squid's rate", "1.0", spread(found["ours", "warm"]),
                            ours=found["ours", "warm"], squid=found["bbr", "warm"])
        if (os.cpu_count() or 1) > 1:
            with place.gateway("--cpus", "0") as _:
                cold, warm = (place.seconds(GATEWAY_PORT, "", 4, "all to all") for _ in range(2))
            results.note(f"on one named core, 4 clients, all to all: cold {cold:.2f} s, warm {warm:.2f} s")


def near(results, chosen):
    """One large file over a veth pair, from the page cache and from the disk, beside nginx."""
    with contextlib.closing(Pair(product.binary())) as pair, tempfile.TemporaryDirectory(prefix="farhaul-gateway-", dir=chosen.dir) as home:
        home = pathlib.Path(home)
        os.chmod(home, 0o755)
        size = chosen.large * GIB
        (home / "files").mkdir()
        make_file(home / "files" / "large", size)
        time.sleep(6)
        cache = home / "cache"
        cache.mkdir(mode=0o700)
        address = pair.alpha.v4
        servers = {
            "ours": (["farhaul", "gateway", "-q", "--public", "--listen", f"0.0.0.0:{GATEWAY_PORT}", "--to", str(home / "files"), "--cache", str(cache),
                      "--cache-size", "64G"], GATEWAY_PORT),
            "nginx": (nginx(home, home / "files", HTTP_PORT), HTTP_PORT),
        }
        running = [pair.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for argv, _ in servers.values()]

        def seconds(case, clients):
            port = servers[case][1]
            wanted = json.dumps([[("/large", size)]] * clients)
            done = pair.beta.run(["/usr/bin/python3", "-c", CLIENT, address, str(port), "", wanted], timeout=900)
            if done.returncode != 0:
                raise SystemExit(done.stderr.decode())
            return float(done.stdout)

        try:
            for _ in range(100):
                ready = pair.alpha.run(["ss", "-Hltn", f"sport = :{GATEWAY_PORT} or sport = :{HTTP_PORT}"]).stdout.count(b"\n")
                if ready == 2:
                    break
                time.sleep(0.1)
            seconds("ours", 1)
            os.sync()
            for clients in (1, 8):
                for state, goal in (("warm", 0.9), ("from disk", 0.6)):
                    found = {case: [] for case in servers}
                    for _ in range(chosen.runs):
                        for case in servers:
                            if state == "from disk":
                                pathlib.Path("/proc/sys/vm/drop_caches").write_text("1\n")
                            else:
                                seconds(case, 1)
                            found[case].append(seconds(case, clients))
                    ratio = statistics.median(found["nginx"]) / statistics.median(found["ours"])
                    results.row(f"near, {clients} clients, {chosen.large} GiB, {state}", ratio >= goal, f"{ratio:.2f} of nginx", str(goal), spread(found["ours"]), **found)
        finally:
            for process in running:
                process.terminate()
                process.wait()


def small(results, chosen):
    """4 KiB at random over 100 ms, 64 at a time."""
    with Lab("--rtt", "100ms", "--rate", "1g") as place:
        size = GIB
        place.file("file", size)
        process = place.start("a", "farhaul", "gateway", "-q", "--public", "--listen", f"127.0.0.1:{GATEWAY_PORT}", "--name", "b", "--to", place.url + ".", *place.options,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = {"gateway": [], "bench read": []}
        try:
            for _ in range(200):
                if place.up.execute("a", "ss", "-Hltn", f"sport = :{GATEWAY_PORT}").stdout:
                    break
                time.sleep(0.05)
            place.run("curl", "-sf", "-o", "/dev/null", "-r", "0-9", f"http://127.0.0.1:{GATEWAY_PORT}/file")
            for _ in range(chosen.runs):
                out, _ = place.run("/usr/bin/python3", str(ROOT / "bench/ranges.py"), "http", "127.0.0.1", str(GATEWAY_PORT), "file", str(size), "64", "4096",
                                   str(chosen.seconds))
                found["gateway"].append(steady(json.loads(out)))
                row = place.bench("file", "--at-once", "64", "--size", "4K", "--reads", "10000000", "--seconds", str(chosen.seconds))
                found["bench read"].append(steady(row["bytes_by_second"]))
        finally:
            process.terminate()
            process.wait()
        ratio = statistics.median(found["gateway"]) / statistics.median(found["bench read"])
        results.row("4 KiB at random over 100 ms, 64 at a time", ratio >= 0.9, f"{ratio:.2f} of bench read", "0.9", spread(found["gateway"]), **found)


#: Keeps connections open, from several addresses, and asks for 4 KiB over some of them: percentiles of the waits in ms.
CROWD = """
import asyncio, json, random, resource, sys, time
port, size, count, active, each, token, seconds = int(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:6]), sys.argv[6], float(sys.argv[7])
login = f"Authorization: Bearer {token}\\r\\n".encode() if token else b""
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
async def ask(stream, at):
    reader, writer = stream
    writer.write(b"GET /file HTTP/1.1\\r\\nHost: localhost\\r\\n%sRange: bytes=%d-%d\\r\\n\\r\\n" % (login, at, at + 4095))
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    if b" 206 " not in head[:20]: raise SystemExit(head.decode())
    await reader.readexactly(4096)
async def main():
    # The gateway ends a connection that asks nothing for a minute, so they are made quickly.
    streams, gate = [], asyncio.Semaphore(100)
    async def hold(number):
        at = number // each
        own = f"127.{1 + at // 62500}.{at // 250 % 250}.{1 + at % 250}" if each < count else "127.0.0.1"
        async with gate:
            stream = await asyncio.open_connection("127.0.0.1", port, local_addr=(own, 0), limit=1 << 16)
            await ask(stream, random.randrange(size - 4096))
        streams.append(stream)
    await asyncio.gather(*(hold(number) for number in range(count)))
    print("held", flush=True)
    sys.stdin.readline()
    waits, end = [], time.monotonic() + seconds
    async def one(stream):
        while time.monotonic() < end:
            begin = time.monotonic()
            await ask(stream, random.randrange(size - 4096))
            waits.append(1000 * (time.monotonic() - begin))
            await asyncio.sleep(random.random() * 0.4)
    await asyncio.gather(*(one(stream) for stream in random.sample(streams, active)))
    waits.sort()
    print(json.dumps({"median": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100], "reads": len(waits)}), flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""


def crowd(results, chosen):
    """Many connections that are kept open, and some that ask for little."""
    with contextlib.closing(Pair(product.binary())) as pair, tempfile.TemporaryDirectory(prefix="farhaul-gateway-", dir=chosen.dir) as home:
        home = pathlib.Path(home)
        (home / "files").mkdir()
        size = 256 * MIB
        make_file(home / "files/file", size)
        time.sleep(6)
        token = "0123456789abcdef0123456789"
        (home / "tokens").write_text(f"ann:{token}\n")
        (home / "tokens").chmod(0o600)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        chosen.connections = min(chosen.connections, most - 1000)
        for number, (name, each, words) in enumerate((("40 an address", 40, ["--public"]), ("one address and a token", chosen.connections, ["--tokens", str(home / "tokens")]))):
            cache = home / f"cache{number}"
            cache.mkdir(mode=0o700)
            argv = ["farhaul", "gateway", "-q", "--listen", f"127.0.0.1:{GATEWAY_PORT}", "--to", str(home / "files"), "--cache", str(cache), *words]
            process = pair.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                for _ in range(100):
                    if pair.alpha.run(["ss", "-Hltn", f"sport = :{GATEWAY_PORT}"]).stdout:
                        break
                    time.sleep(0.1)
                login = [] if number == 0 else ["-H", f"Authorization: Bearer {token}"]
                pair.alpha.run(["curl", "-sf", "-o", "/dev/null", *login, f"http://127.0.0.1:{GATEWAY_PORT}/file"], check=True)
                client = pair.alpha.start(["/usr/bin/python3", "-c", CROWD, str(GATEWAY_PORT), str(size), str(chosen.connections), "200", str(each),
                                           token if number else "", str(chosen.seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                if client.stdout.readline() != b"held\n":
                    results.row(f"{chosen.connections} connections, {name}", False, client.communicate()[1].decode()[-80:], "400 MB, 20 ms")
                    continue
                client.stdin.write(b"\n")
                client.stdin.flush()
                found = json.loads(client.stdout.readline() or "{}")
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                resident = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1000
                client.communicate()
                if not found:
                    raise SystemExit("the clients have failed")
                results.row(f"{chosen.connections} connections, {name}", resident < 400 and found["p99"] < 20,
                            f"{resident:.0f} MB, 99 % in {found['p99']:.1f} ms", "400 MB, 20 ms", megabytes=resident, **found)
            finally:
                process.terminate()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--seconds", type=int, default=12, help="seconds of each run of small reads (default 12)")
    parser.add_argument("--files", type=int, default=64, help="files of 8 MB that the far clients ask for (default 64)")
    parser.add_argument("--large", type=int, default=4, help="GiB of the file that the near clients ask for (default 4)")
    parser.add_argument("--connections", type=int, default=10_000, help="connections that are kept open (default 10000)")
    parser.add_argument("--dir", default="/var/tmp", help="where the near files lie (default /var/tmp)")
    parser.add_argument("--short", action="store_true", help="every row once and small, in minutes")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    if chosen.short:
        chosen.runs, chosen.seconds, chosen.files, chosen.large, chosen.connections = 1, 5, 8, 1, 2000
    os.environ["PATH"] = f"{product.binary().parent}:{os.environ['PATH']}"
    results = Results("gateway")
    measures = {"far": far, "near": near, "small": small, "crowd": crowd}
    with results.saved(chosen.only == PARTS and not chosen.short):
        for part in chosen.only:
            measures[part](results, chosen)


if __name__ == "__main__":
    sys.exit(main())
