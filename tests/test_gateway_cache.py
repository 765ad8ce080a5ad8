"""The cache of `farhaul gateway`: bytes that were read once come from this host, and are never wrong.

Always true: a test's cache is its own. The far files are made once, as the cache keeps no file that has just changed.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import time
import zlib

import pytest

from conftest import FAILING_PORTS
from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, Daemon
from harness.trees import make_file
from test_gateway import MIB, PORTS, Gateway, running


class Far:
    """A daemon on beta with files that are old enough to be kept."""

    def __init__(self, net, daemon):
        self.net, self.daemon, self.root = net, daemon, daemon.root
        self.file = make_file(self.root / "file", 9 * MIB + 5)
        self.other = make_file(self.root / "other", 3 * MIB, seed=2)
        self.moves = make_file(self.root / "moves", 2 * MIB, seed=3)
        self.fresh = make_file(self.root / "fresh", 5 * MIB, seed=8)
        self.many = [make_file(self.root / f"many{number}", 300_000, seed=number) for number in range(10)]
        newest = max(path.stat().st_ctime for path in self.root.iterdir())
        wait_until(lambda: time.time() > newest + 6.5, what="the files are old enough")

    def url(self):
        return self.daemon.url("")


@pytest.fixture(scope="module")
def far(shared_net):
    daemon = Daemon(shared_net.pair, shared_net.beta, [shared_net.key], port=next(FAILING_PORTS),
                    root=shared_net.folder("served-to-caches"))
    yield Far(shared_net, daemon)
    daemon.kill()


class Cached(Gateway):
    """A gateway with a cache, and what its metrics say."""

    def __init__(self, far, cache, *arguments):
        self.metrics_port = next(PORTS)
        self.cache = cache
        super().__init__(far.net, far.root, far.url(), "--cache", cache, "--metrics", f"127.0.0.1:{self.metrics_port}", *arguments)

    def metric(self, name, **labels):
        text = self.net.alpha.run(["curl", "-sS", f"http://127.0.0.1:{self.metrics_port}/metrics"], timeout=30, check=True).stdout.decode()
        want = ",".join(f'{key}="{value}"' for key, value in labels.items())
        total = 0
        for found, value in re.findall(rf"^farhaul_gateway_{name}(?:\{{([^}}]*)\}})? ([0-9.]+)$", text, re.M):
            total += float(value) if all(part in found for part in want.split(",")) else 0
        return int(total)

    def fetched(self):
        return self.metric("chunks_total", source="FarEnd")

    def settle(self):
        """Waits until what was fetched is on the disk, or is not kept."""
        wait_until(lambda: self.metric("chunks_put_total") == self.fetched() + self.metric("chunks_total", source="Sibling"),
                   what="all chunks are put")


@contextlib.contextmanager
def cached(far, cache, *arguments):
    made = Cached(far, cache, *arguments)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def cache(net):
    path = net.folder("cache")
    os.chmod(path, 0o700)
    return path


def chunks(cache):
    return sorted(path for path in cache.rglob("v1/chunks/*/*") if path.is_file())


def farhaul(net, *arguments, expect=0):
    done = net.alpha.run(["farhaul", *arguments], timeout=60)
    assert done.returncode == expect, (arguments, done.stdout, done.stderr)
    return done.stdout.decode()


def test_what_was_read_comes_from_the_disk_and_is_verified(net, far, cache):
    data = far.file.read_bytes()
    with cached(far, cache) as gateway:
        assert gateway.ask("/file")[2] == data and gateway.fetched() == 10
        gateway.settle()
        assert len(chunks(cache)) == 10
        for wanted in ("0-0", f"{MIB - 5}-{MIB + 5}", "-7", "0-"):
            begin, end = (int(part) if part else None for part in wanted.split("-"))
            body = gateway.ask("/file", Range=f"bytes={wanted}")[2]
            assert body == (data[-end:] if begin is None else data[begin:None if end is None else end + 1]), wanted
        assert gateway.fetched() == 10 and gateway.metric("chunk_bytes_total", source="Disk") >= len(data)
        # A byte that changes while the gateway runs, and a file that loses its end, are seen.
        with open(chunks(cache)[3], "r+b") as chunk:
            chunk.seek(1000)
            old = chunk.read(1)
            chunk.seek(1000)
            chunk.write(bytes([old[0] ^ 1]))
        os.truncate(chunks(cache)[5], 100)
        assert gateway.ask("/file")[2] == data and gateway.fetched() == 12
        gateway.settle()
    with open(chunks(cache)[0], "r+b") as chunk:
        chunk.seek(99)
        chunk.write(b"\0\0\0\0\0\0\0\0\0\0")
    with cached(far, cache) as gateway:
        assert gateway.ask("/file")[2] == data and gateway.fetched() == 1


def test_one_fetch_serves_all_who_wait(net, far, cache):
    with cached(far, cache, "--rate", "60M") as gateway:
        got = net.folder("got")
        names = [f"got{number}" for number in range(8)]
        urls = [part for name in names for part in (f"http://127.0.0.1:{gateway.port}/file", "-o", name)]
        done = net.alpha.run(["curl", "-sSf", "--parallel", "--parallel-immediate", *urls], cwd=got, timeout=100)
        assert done.returncode == 0, done.stderr
        data = far.file.read_bytes()
        assert all((got / name).read_bytes() == data for name in names)
        assert gateway.fetched() == 10


def test_a_hit_is_judged_as_a_miss_would_be(net, far, cache):
    path = far.moves
    with cached(far, cache) as gateway, cached(far, cache, "--revalidate", "20s") as lazy:
        data = path.read_bytes()
        assert gateway.ask("/moves")[2] == data and lazy.ask("/moves")[2] == data
        make_file(far.root / "new", 2 * MIB, seed=4).rename(path)
        new = path.read_bytes()
        assert gateway.ask("/moves")[2] == new
        # What it has asked holds for a while; the version is one from first to last byte.
        assert lazy.ask("/moves")[2] == data
        assert lazy.metric("chunks_total", source="FarEnd") <= 2
        path.unlink()
        assert gateway.ask("/moves")[0] == 404


def test_who_jumps_moves_only_what_was_asked_for(net, far, cache):
    data = far.file.read_bytes()
    with cached(far, cache) as gateway:
        gateway.ask("/file", "HEAD")
        before = net.alpha.device_bytes()
        for at in (5, 1, 7, 3):
            begin = at * MIB + 77
            assert gateway.ask("/file", Range=f"bytes={begin}-{begin + 4095}")[2] == data[begin:begin + 4096]
        assert net.alpha.device_bytes() - before < MIB and gateway.fetched() == 0
        # Who comes back gets the chunk, which stays.
        assert gateway.ask("/file", Range=f"bytes={3 * MIB}-{3 * MIB + 9}")[2] == data[3 * MIB:3 * MIB + 10]
        assert gateway.fetched() == 1
        gateway.settle()
        assert gateway.ask("/file", Range=f"bytes={4 * MIB - 10}-{4 * MIB - 1}")[2] == data[4 * MIB - 10:4 * MIB]
        assert gateway.fetched() == 1
        # Who reads on has the next chunks fetched ahead.
        for part in range(8):
            begin = part << 17
            assert gateway.ask("/file", Range=f"bytes={begin}-{begin + (1 << 17) - 1}")[2] == data[begin:begin + (1 << 17)]
        wait_until(lambda: gateway.fetched() >= 4, what="chunks are fetched ahead")


def test_many_ranges_come_from_the_cache_as_from_the_far_end(net, far, cache):
    data = far.file.read_bytes()
    ranges = [(at * 7919 % (8 * MIB), 100 + at) for at in range(200)] + [(0, MIB + 5)]
    wanted = ",".join(f"{begin}-{begin + length - 1}" for begin, length in ranges)
    with cached(far, cache) as gateway:
        first = gateway.ask("/file", Range=f"bytes={wanted}")
        gateway.ask("/file")
        gateway.settle()
        fetched = gateway.fetched()
        second = gateway.ask("/file", Range=f"bytes={wanted}")
        assert first[0] == second[0] == 206 and first[2] == second[2] and gateway.fetched() == fetched
        assert data[ranges[9][0]:ranges[9][0] + ranges[9][1]] in second[2]


def test_a_full_disk_serves_without_keeping(net, far):
    small = net.folder("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", small], check=True)
    try:
        with cached(far, small) as gateway:
            for _again in range(2):
                assert gateway.ask("/file")[2] == far.file.read_bytes()
                gateway.settle()
            assert gateway.metric("chunks_put_total", kept="no") > 0
            assert gateway.ask("/other")[2] == far.other.read_bytes()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_the_cache_keeps_its_size_and_what_is_pinned(net, far, cache):
    with cached(far, cache, "--cache-size", "6M") as gateway:
        assert gateway.ask("/file")[2] == far.file.read_bytes()
        gateway.settle()
        assert gateway.ask("/other")[2] == far.other.read_bytes()
        gateway.settle()
        # Those that were put at the same time may lie above the limit.
        assert sum(path.stat().st_size for path in chunks(cache)) <= 9 * MIB
    listed = json.loads(farhaul(net, "cache", "ls", "--json", "--cache", cache))
    names = {re.split("[:/]", file["name"])[-1]: file for file in listed["files"]}
    assert names["other"]["bytes"] == 3 * MIB and names["other"]["size"] == 3 * MIB, listed
    name = names["other"]["name"]
    assert f"3.00 MiB of 3.00 MiB  {name}\n" in farhaul(net, "cache", "ls", "--cache", cache)
    farhaul(net, "cache", "pin", "--cache", cache, name)
    assert farhaul(net, "cache", "pin", "--cache", cache) == f"{name}\n"
    with cached(far, cache, "--cache-size", "6M") as gateway:
        for _again in range(2):
            assert gateway.ask("/file")[2] == far.file.read_bytes()
            gateway.settle()
        fetched = gateway.fetched()
        assert gateway.ask("/other")[2] == far.other.read_bytes() and gateway.fetched() == fetched
    farhaul(net, "cache", "pin", "--remove", "--cache", cache, name)
    farhaul(net, "cache", "pin", "--remove", "--cache", cache, name, expect=EXIT_SOME_FAILED)
    assert "1 pin" not in farhaul(net, "cache", "stat", "--cache", cache)
    assert f"removed: {name}: 3.00 MiB" in farhaul(net, "cache", "drop", "--cache", cache, name)
    assert name not in farhaul(net, "cache", "ls", "--cache", cache)
    farhaul(net, "cache", "verify", "--cache", cache)
    with open(chunks(cache)[0], "r+b") as chunk:
        chunk.write(b"\0\0\0\0\0\0\0\0")
    assert "not whole: v1/chunks/" in farhaul(net, "cache", "verify", "-n", "--cache", cache, expect=EXIT_SOME_FAILED)
    farhaul(net, "cache", "verify", "--cache", cache, expect=EXIT_SOME_FAILED)
    farhaul(net, "cache", "verify", "--cache", cache)
    farhaul(net, "cache", "ls", "--cache", cache / "none", expect=EXIT_FILES)


def test_digests_are_computed_once(net, far, cache):
    adler = f"adler32={zlib.adler32(far.file.read_bytes()):08x}"
    with cached(far, cache) as gateway:
        for _again in range(2):
            assert gateway.ask("/file", "HEAD", Want_Digest="adler32")[1]["digest"] == adler
        assert gateway.fetched() == 10, "the content passes through the cache once"
        gateway.settle()
        assert gateway.ask("/file")[2] == far.file.read_bytes() and gateway.fetched() == 10
    for path in chunks(cache):
        path.unlink()
    with cached(far, cache) as gateway:
        assert gateway.ask("/file", "HEAD", Want_Digest="adler32")[1]["digest"] == adler
        assert gateway.fetched() == 0


def test_siblings_fetch_each_chunk_from_afar_once(net, far):
    ports = [next(PORTS), next(PORTS)]
    names = [f"http://127.0.0.1:{port}" for port in ports]
    with contextlib.ExitStack() as stack:
        gateways = []
        for own in range(2):
            cache = net.folder("cache")
            os.chmod(cache, 0o700)
            gateways.append(stack.enter_context(cached(far, cache, "--listen", f"127.0.0.1:{ports[own]}", "--own-url", names[own],
                                                       "--sibling", names[1 - own])))
        files = [far.file, far.other, *far.many]
        for gateway in gateways:
            for path in files:
                assert gateway.ask(f"/{path.name}")[2] == path.read_bytes(), path
            gateway.settle()
        count = sum(-(-path.stat().st_size // MIB) for path in files)
        assert sum(gateway.fetched() for gateway in gateways) == count
        assert all(gateway.metric("chunks_total", source="Sibling") > 0 for gateway in gateways)
        # A sibling that is gone costs nothing but time.
        gateways[1].process.kill()
        assert gateways[0].ask("/fresh")[2] == far.fresh.read_bytes()


def test_what_is_done_is_counted_and_logged(net, far, cache):
    log = net.folder("log") / "access.log"
    with cached(far, cache, "--access-log", log) as gateway:
        gateway.ask("/other", Range="bytes=0-9")
        gateway.ask("/none%20here")
        lines = lambda: [json.loads(line) for line in log.read_text().splitlines()]
        wait_until(lambda: len(lines()) == 2, what="both lines are written")
        first, second = lines()
        assert (first["client"], first["reader"], first["method"], first["address"]) == ("unix", "own", "GET", "/other")
        assert (first["status"], first["bytes"], first["range"], first["whole"]) == (206, 10, "bytes=0-9", True)
        assert (second["status"], second["address"]) == (404, "/none%20here")
        assert gateway.metric("answers_total", method="GET", status="206") == 1
        # It goes on in a new file when somebody has taken the old one away.
        log.rename(log.with_name("old"))
        wait_until(lambda: gateway.ask("/other", "HEAD")[0] == 200 and log.exists() and lines(), what="a new file is begun")
        status, _, _ = gateway.ask("/metrics")
        assert status == 404, "metrics are not where files are"


def test_many_requests_share_a_connection_of_http2(net, far, cache):
    made = net.folder("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-keyout", made / "key.pem", "-out", made / "cert.pem"], check=True, capture_output=True)
    with cached(far, cache, "--tls-cert", made / "cert.pem", "--tls-key", made / "key.pem") as gateway:
        got, files = net.folder("got"), [far.file, *far.many]
        root = f"https://127.0.0.1:{gateway.port}"
        curl = ["curl", "-sS", "-k", "--http2", "--max-time", "60"]
        urls = [part for path in files for part in (f"{root}/{path.name}", "-o", path.name)]
        done = net.alpha.run([*curl, "--parallel", "-w", "%{http_version} %{num_connects}\n", *urls], cwd=got, timeout=100)
        assert done.returncode == 0, done.stderr
        versions = [line.split() for line in done.stdout.decode().splitlines()]
        assert {version for version, _ in versions} == {"2"} and sum(int(made) for _, made in versions) == 1, versions
        for path in files:
            assert (got / path.name).read_bytes() == path.read_bytes(), path

        def status(path, *headers):
            wanted = [part for header in headers for part in ("-H", header)]
            return net.alpha.run([*curl, "--path-as-is", "-o", os.devnull, "-w", "%{http_code}", *wanted, root + path]).stdout.decode()

        assert (status("/../x"), status("/none")) == ("400", "404")
        assert status("/other", "Host: evil.example") == "421"
        assert status("/other", "Origin: https://evil.example") == "403"
        assert status("/other", f"Origin: {root}") == "200"


READ = """
import hashlib, http.client, json, random, sys
port, files, seed = int(sys.argv[1]), json.load(sys.stdin), int(sys.argv[2])
random.seed(seed)
while True:
    name = random.choice(sorted(files))
    size, digests = files[name]
    index = random.randrange(len(digests))
    begin, end = index << 18, min(size, (index + 1) << 18)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/" + name, headers={"Range": f"bytes={begin}-{end - 1}"})
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        continue
    if answer.status == 206 and len(body) == end - begin and hashlib.sha256(body).hexdigest() != digests[index]:
        print("a wrong byte in", name, index, flush=True)
        sys.exit(3)
    if answer.status == 206:
        print("read", flush=True)
"""


def pieces(path):
    data = path.read_bytes()
    return len(data), [hashlib.sha256(data[at:at + (1 << 18)]).hexdigest() for at in range(0, len(data), 1 << 18)]


def power_cut(cache, number):
    """Leaves of the newest files what a power cut may leave: nothing, zeros, a part, or a link that leads nowhere."""
    newest = sorted(chunks(cache), key=lambda path: path.stat().st_ctime)[-3:]
    for at, path in enumerate(newest):
        kind = (number + at) % 4
        if kind == 0:
            os.truncate(path, 0)
        elif kind == 1:
            with open(path, "r+b") as chunk:
                chunk.truncate(4096 * (number % 7))
                chunk.truncate(path.stat().st_size + MIB // 2)
        elif kind == 2:
            with open(path, "r+b") as chunk:
                chunk.seek(path.stat().st_size // 2)
                chunk.write(bytes(4096))
        else:
            path.unlink()


def kill_under_load(net, far, cache, rounds):
    files = json.dumps({path.name: pieces(path) for path in [far.file, far.other, *far.many]}).encode()
    reads = 0
    for number in range(rounds):
        # Two gateways use the disk. Its limit makes them remove chunks all the time.
        pair = [Cached(far, cache, "--cache-size", "8M") for _ in range(2)]
        readers = []
        for own, gateway in enumerate(pair):
            reader = net.alpha.start(["/usr/bin/python3", "-c", READ, str(gateway.port), str(10 * number + own)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            reader.stdin.write(files)
            reader.stdin.close()
            readers.append(reader)
        for reader in readers:
            for _ in range(3 + number % 20):
                line = reader.stdout.readline()
                assert line == b"read\n", line + reader.stdout.read()
                reads += 1
        for gateway in pair:
            gateway.process.kill()
            gateway.process.wait()
        for reader in readers:
            assert reader.poll() is None, reader.stdout.read()
            reader.kill()
            rest = reader.stdout.read()
            assert b"wrong" not in rest, rest
            reader.wait()
        if number % 2:
            power_cut(cache, number)
    with cached(far, cache) as gateway:
        for path in [far.file, far.other, *far.many]:
            assert gateway.ask(f"/{path.name}")[2] == path.read_bytes(), path
    assert reads >= 6 * rounds


def test_a_kill_or_a_power_cut_leaves_no_wrong_byte(net, far, cache):
    kill_under_load(net, far, cache, 4)


@pytest.mark.slow
def test_a_hundred_kills_and_power_cuts_leave_no_wrong_byte(net, far, cache):
    kill_under_load(net, far, cache, 100)


@pytest.mark.slow
def test_who_reads_on_after_a_lost_session_gets_the_bytes(net):
    root = net.folder("root")
    data = make_file(root / "file", 3 * MIB).read_bytes()
    make_file(root / "other", 10)
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), root=root)
    with running(net, root, daemon.url(""), "--revalidate", "30s") as gateway:
        assert gateway.ask("/file")[2] == data
        daemon.kill()
        wait_until(lambda: gateway.ask("/other")[0] == 503, what="the far end is known to be gone", seconds=60)
        daemon.start()
        wait_until(lambda: gateway.ask("/other")[0] == 200, what="it is back", seconds=30)
        # The handle that was kept belongs to the session that was lost.
        assert gateway.ask("/file")[2] == data
        assert gateway.ask("/file", Range="bytes=5-9")[2] == data[5:10]
        daemon.kill()
