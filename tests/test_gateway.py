"""`farhaul gateway`: files of a far host by HTTP.

Always true: the gateway runs on alpha, the files lie on beta.
"""

import base64
import contextlib
import email
import hashlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.parse
import zlib
import xml.etree.ElementTree

import pytest

from conftest import FAILING_PORTS
from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_USAGE, Daemon
from harness.trees import make_file

MIB = 1 << 20
PORTS = itertools.count(18080)
SECRET = "0123456789abcdef0123456789"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = os.fspath(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Gateway:
    """A gateway that serves `far`, a folder of beta, which the command line names `url`."""

    def __init__(self, net, far, url, *arguments, public=True):
        self.net, self.far = net, far
        self.socket = net.alpha.home / f"gateway-{next(PORTS)}" / "fh.sock"
        self.port = next(PORTS)
        argv = ["farhaul", "gateway", "--accept-new", "--listen", f"unix:{self.socket}", "--to", url, *arguments]
        if public:
            argv += ["--listen", f"127.0.0.1:{self.port}", "--public"]
        self.process = net.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = self.process.stdout.readline().decode()
        assert said.startswith("serving "), said + self.process.stdout.read().decode()
        self.said = said

    def ask(self, path, method="GET", **headers):
        """The status, the headers and the body of an answer over the Unix socket."""
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def curl(self, *arguments, path="/"):
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.net.alpha.run(["curl", "-sS", "--max-time", "60", *arguments, url], timeout=70)

    def status(self, *arguments, path="/"):
        return self.curl("-o", os.devnull, "-w", "%{http_code}", *arguments, path=path).stdout.decode()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def running(*arguments, **options):
    made = Gateway(*arguments, **options)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(params=["ssh", "daemon"])
def gateway(request, net):
    road = request.getfixturevalue("road_of")(request.param)
    with running(net, road.far, road.url("")) as made:
        yield made


@pytest.fixture
def by_daemon(net):
    with running(net, net.daemon.root, net.daemon.url("")) as made:
        yield made


def parts_of(headers, body):
    """The ranges and the contents of an answer with several parts."""
    message = email.message_from_bytes(f"Content-Type: {headers['content-type']}\r\n\r\n".encode() + body)
    assert message.is_multipart() and not message.defects, (message.defects, body[:500])
    return [(part["content-range"], part.get_payload(decode=True)) for part in message.get_payload()]


def test_contents_and_ranges_are_those_of_the_file(gateway):
    data = make_file(gateway.far / "file.bin", 5 * MIB + 17).read_bytes()
    status, headers, body = gateway.ask("/file.bin")
    assert status == 200 and body == data and headers["content-length"] == str(len(data))
    assert headers["accept-ranges"] == "bytes" and headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert gateway.ask("/file.bin", "HEAD")[1]["content-length"] == str(len(data))
    assert gateway.ask("/file.bin", "HEAD")[2] == b""
    for wanted, begin, end in [("0-0", 0, 1), ("1048570-1048589", 1048570, 1048590), ("-17", len(data) - 17, len(data)),
                               ("5242880-", 5242880, len(data)), ("5242890-99999999", 5242890, len(data))]:
        status, headers, body = gateway.ask("/file.bin", Range=f"bytes={wanted}")
        assert status == 206 and body == data[begin:end], wanted
        assert headers["content-range"] == f"bytes {begin}-{end - 1}/{len(data)}"
    status, headers, _ = gateway.ask("/file.bin", Range=f"bytes={len(data)}-")
    assert status == 416 and headers["content-range"] == f"bytes */{len(data)}"
    (gateway.far / "empty").touch()
    assert gateway.ask("/empty")[::2] == (200, b"")


def test_an_answer_with_many_ranges_has_each_in_its_order(gateway):
    data = make_file(gateway.far / "file.bin", 3 * MIB).read_bytes()
    ranges = [(at * 7919 % (2 * MIB), 100 + at) for at in range(500)] + [(0, MIB + 5), (2 * MIB, 1)]
    wanted = ",".join(f"{begin}-{begin + length - 1}" for begin, length in ranges)
    status, headers, body = gateway.ask("/file.bin", Range=f"bytes={wanted}")
    assert status == 206 and headers["content-length"] == str(len(body))
    parts = parts_of(headers, body)
    assert [content for _range, content in parts] == [data[begin:begin + length] for begin, length in ranges]
    assert parts[0][0] == f"bytes 0-99/{len(data)}"


def test_conditions_are_judged_by_the_version(gateway):
    path = make_file(gateway.far / "file", 1000)
    _, headers, body = gateway.ask("/file")
    tag, date = headers["etag"], headers["last-modified"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    assert gateway.ask("/file", If_None_Match=tag)[::2] == (304, b"")
    assert gateway.ask("/file", If_Modified_Since=date)[0] == 304
    assert gateway.ask("/file", If_Match='"other"')[0] == 412
    assert gateway.ask("/file", Range="bytes=0-9", If_Range=tag)[::2] == (206, body[:10])
    make_file(path, 1000, seed=5)
    assert gateway.ask("/file", If_None_Match=tag)[0] == 200
    assert gateway.ask("/file", If_Match=tag)[0] == 412
    assert gateway.ask("/file", Range="bytes=0-9", If_Range=tag)[::2] == (200, path.read_bytes())


def test_digests_are_told_as_they_are_asked_for(gateway):
    data = make_file(gateway.far / "file", 3 * MIB).read_bytes()
    sha = base64.b64encode(hashlib.sha256(data).digest()).decode()
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    assert gateway.ask("/file", "HEAD", Want_Repr_Digest="sha-256=10, md5=1")[1]["repr-digest"] == f"sha-256=:{sha}:"
    assert gateway.ask("/file", "HEAD", Want_Digest="unixsum;q=1, md5;q=0.5")[1]["digest"] == f"md5={md5}"
    assert gateway.ask("/file", "HEAD", Want_Digest="adler32")[1]["digest"] == f"adler32={zlib.adler32(data):08x}"
    _, headers, body = gateway.ask("/file", Range="bytes=0-9", Want_Digest="SHA-256")
    assert headers["digest"] == f"sha-256={sha}" and body == data[:10]
    (gateway.far / "digits").write_bytes(b"123456789")
    assert gateway.ask("/digits", "HEAD", Want_Digest="crc32c")[1]["digest"] == "crc32c=e3069283"
    assert "digest" not in gateway.ask("/file", Want_Digest="unixsum")[1]


def test_names_of_any_bytes_survive(gateway):
    names = [bytes([byte]) + b"x" for byte in range(1, 256) if byte != ord("/")]
    names += [b"..x", b"a b+c%20d", "gr\u00fc\u00dfe \u4f60".encode(), b"x" * 255]
    folder = os.fsencode(gateway.far) + b"/d%:#?&\xff"
    os.mkdir(folder)
    for name in names:
        with open(folder + b"/" + name, "wb") as out:
            out.write(name)
    (there,) = [entry for entry in json.loads(gateway.ask("/", Accept="application/json")[2]) if entry["type"] == "directory"]
    listed = json.loads(gateway.ask("/" + there["href"], Accept="application/json")[2])
    assert sorted(urllib.parse.unquote_to_bytes(entry["href"]) for entry in listed) == sorted(names)
    for entry in listed[::10]:
        status, _, body = gateway.ask(f"/{there['href']}{entry['href']}")
        assert status == 200 and body == urllib.parse.unquote_to_bytes(entry["href"]), entry
    page = gateway.ask("/" + there["href"])[2].decode()
    links = re.findall(r'<a href="\./([^"]*)">', page)
    assert sorted(map(urllib.parse.unquote_to_bytes, links)) == sorted(names)
    assert "<x</a>" not in page and "&lt;x</a>" in page


def test_directories_are_listed_for_people_and_for_programs(gateway):
    (gateway.far / "sub/deeper").mkdir(parents=True)
    make_file(gateway.far / "sub/b", 10)
    make_file(gateway.far / "sub/a", 20)
    (gateway.far / "sub/to-a").symlink_to("a")
    (gateway.far / "sub/to-deeper").symlink_to("deeper")
    (gateway.far / "sub/dangling").symlink_to("nowhere")
    os.mkfifo(gateway.far / "sub/pipe")
    status, headers, body = gateway.ask("/sub")
    assert status == 301 and headers["location"] == "/sub/"
    status, headers, body = gateway.ask("/sub/")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert re.findall(r'href="([^"]*)"', body.decode()) == ["../", "./a", "./b", "./deeper/", "./to-a", "./to-deeper/"]
    listed = json.loads(gateway.ask("/sub/", Accept="application/json")[2])
    assert [(entry["name"], entry["type"], entry.get("size")) for entry in listed] == [
        ("a", "file", 20), ("b", "file", 10), ("deeper", "directory", None), ("to-a", "file", 20), ("to-deeper", "directory", None)]
    assert gateway.ask("/sub/", "HEAD")[::2] == (200, b"")
    for path in ("/sub/a/", "/sub/nothing", "/sub/nothing/", "/sub/dangling", "/sub/pipe/"):
        assert gateway.ask(path)[0] == 404, path
    assert gateway.ask("/sub/pipe")[0] in (403, 404, 502)


def test_webdav_clients_see_the_tree(gateway):
    (gateway.far / "sub").mkdir()
    make_file(gateway.far / "sub/a&b", 20)
    status, headers, _ = gateway.ask("/", "OPTIONS")
    assert status == 204 and headers["dav"] == "1" and "PROPFIND" in headers["allow"]
    status, _, body = gateway.ask("/sub", "PROPFIND", Depth="1")
    assert status == 207
    found = {}
    for one in xml.etree.ElementTree.fromstring(body):
        size = one.find(".//{DAV:}getcontentlength")
        found[one.find("{DAV:}href").text] = None if size is None else int(size.text)
    assert found == {"/sub/": None, "/sub/a%26b": 20}
    assert gateway.ask("/", "PROPFIND", Depth="infinity")[0] == 403
    assert gateway.ask("/nothing", "PROPFIND", Depth="0")[0] == 404
    assert gateway.ask("/", "PROPFIND", Depth="2")[0] == 400


def test_what_a_browser_would_run_is_saved_instead(gateway):
    for name in ("a.html", "a.svg", "a.xml", "a.xhtml", "a.js"):
        (gateway.far / name).write_text("<script>alert(1)</script>")
        headers = gateway.ask("/" + name)[1]
        assert headers["content-disposition"] == "attachment", name
        assert headers["content-security-policy"].startswith("sandbox") and "access-control-allow-origin" not in headers
    (gateway.far / "a.png").write_text("x")
    assert "content-disposition" not in gateway.ask("/a.png")[1]


def test_an_answer_is_of_one_version_or_is_cut(net):
    far = net.daemon.root
    make_file(far / "file", 60 * MIB)
    with running(net, far, net.daemon.url(""), "--rate", "40M") as gateway:
        slow = net.alpha.start(["curl", "-sS", "-o", "out", "-w", "%{http_code}", f"http://127.0.0.1:{gateway.port}/file"],
                               cwd=net.folder("got"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1.5)
        make_file(far / "file", 60 * MIB, seed=9)
        said, error = slow.communicate(timeout=60)
        assert slow.returncode in (18, 56, 92) and said == b"200", (slow.returncode, said, error)
        # The next answer is of the new version.
        status, headers, _ = gateway.ask("/file", "HEAD")
        assert status == 200
        assert gateway.ask("/file", If_Range=headers["etag"], Range="bytes=0-99")[2] == (far / "file").read_bytes()[:100]


def test_a_far_end_that_goes_away_is_said_and_comes_back(net):
    root = net.folder("root")
    make_file(root / "file", 1000)
    port = next(FAILING_PORTS)
    daemon = Daemon(net.pair, net.beta, [net.key], port=port, root=root)
    with running(net, root, daemon.url("")) as gateway:
        assert gateway.ask("/file")[0] == 200
        daemon.kill()

        def refused():
            status, headers, _ = gateway.ask("/file")
            return status == 503 and headers["retry-after"] == "5"

        wait_until(refused, what="the far end is known to be gone", seconds=60)
        daemon.start()
        wait_until(lambda: gateway.ask("/file")[::2] == (200, (root / "file").read_bytes()), what="it is back", seconds=30)
        daemon.kill()


def test_nothing_leads_out_of_the_place_that_is_served(net):
    served = net.daemon.root / "served"
    served.mkdir()
    make_file(net.daemon.root / "secret", 100)
    (served / "out").symlink_to("/etc/passwd")
    (served / "folder").symlink_to("/etc")
    with running(net, served, net.daemon.url("served")) as gateway:
        for path in ("/../secret", "/%2e%2e/secret", "/..%2fsecret", "/a/../../secret", "/.%2e/secret", "//../secret", "/%2e/x",
                     "/x%00", "/x%2f..%2f..", "/%", "/%zz"):
            assert gateway.status("--path-as-is", path=path) == "400", path
        for path in ("/out", "/folder/", "/folder/passwd"):
            assert gateway.status(path=path) in ("403", "404"), path
        assert gateway.status("-X", "DELETE", path="/x") == "405"
        assert gateway.status("-T", "/etc/hostname", path="/new") == "405"


def test_a_directory_of_this_host_is_served_and_nothing_beside_it(net):
    here = net.folder("here") / "served"
    here.mkdir()
    (here / "out").symlink_to("/etc/passwd")
    (here / "in").symlink_to("file")
    data = make_file(here / "file", 1000).read_bytes()
    with running(net, here, str(here)) as gateway:
        assert gateway.ask("/file")[::2] == gateway.ask("/in")[::2] == (200, data)
        assert gateway.ask("/out")[0] in (403, 404)
        assert [entry["name"] for entry in json.loads(gateway.ask("/", Accept="application/json")[2])] == ["file", "in"]
    for wrong in (here / "file", here / "nothing", "-", "null:"):
        done = net.alpha.run(["farhaul", "gateway", "--listen", f"unix:{net.alpha.home}/gateway-w/fh.sock", "--to", wrong])
        assert done.returncode in (EXIT_USAGE, EXIT_FILES) and done.stderr.startswith(b"error: "), (wrong, done)


def test_only_those_may_read_who_are_meant(net):
    make_file(net.daemon.root / "file", 100)
    url = net.daemon.url("")
    argv = ["farhaul", "gateway", "--accept-new", "--to", url, "--listen"]
    done = net.alpha.run([*argv, "127.0.0.1:18000"])
    assert done.returncode == EXIT_USAGE and b"--tokens" in done.stderr and b"--public" in done.stderr, done
    tokens = net.folder("tokens") / "tokens"
    tokens.write_text(f"ann:{SECRET}\n")
    tokens.chmod(0o644)
    done = net.alpha.run([*argv, "127.0.0.1:18000", "--tokens", tokens])
    assert done.returncode != 0 and b"chmod 600" in done.stderr, done
    tokens.chmod(0o600)
    done = net.alpha.run([*argv, "0.0.0.0:18000", "--tokens", tokens])
    assert done.returncode == EXIT_USAGE and b"without TLS" in done.stderr, done
    port = next(PORTS)
    with running(net, net.daemon.root, url, "--listen", f"127.0.0.1:{port}", "--tokens", tokens, public=False) as gateway:
        gateway.port = port
        assert gateway.socket.stat().st_mode & 0o777 == 0o600 and gateway.socket.parent.stat().st_mode & 0o777 == 0o700
        assert gateway.ask("/file")[0] == 200, "the socket is for this user alone"
        assert gateway.status(path="/file") == "401"
        assert "www-authenticate" in gateway.curl("-I", path="/file").stdout.decode()
        assert gateway.status("-H", f"Authorization: Bearer {SECRET}", path="/file") == "200"
        assert gateway.status("-u", f"ann:{SECRET}", path="/file") == "200"
        for wrong in (f"ann:{SECRET}x", f"bob:{SECRET}", "ann:"):
            assert gateway.status("-u", wrong, path="/file") == "401", wrong
        assert gateway.end() == 0
        assert not gateway.socket.exists()


def test_readers_over_tls(net):
    folder = net.folder("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=cache.example",
                    "-addext", "subjectAltName=DNS:cache.example", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tokens = folder / "tokens"
    tokens.write_text(f"ann:{SECRET}\n")
    tokens.chmod(0o600)
    data = make_file(net.daemon.root / "file", 2 * MIB).read_bytes()
    port = next(PORTS)
    with running(net, net.daemon.root, net.daemon.url(""), "--listen", f"0.0.0.0:{port}", "--tokens", tokens, "--tls-cert", certificate,
                 "--tls-key", key, "--name", "cache.example", public=False) as gateway:
        assert "https://" in gateway.said
        to = ["--cacert", certificate, "--resolve", f"cache.example:{port}:127.0.0.1", f"https://cache.example:{port}/file"]
        got = net.alpha.run(["curl", "-sS", "-u", f"ann:{SECRET}", *to])
        assert got.stdout == data, got.stderr


def test_other_sites_get_nothing(by_daemon):
    make_file(by_daemon.far / "file", 10)
    assert by_daemon.status(path="/file") == "200"
    assert by_daemon.status("-H", "Host: evil.example", path="/file") == "421"
    assert by_daemon.status("-H", "Origin: http://evil.example", path="/file") == "403"
    assert by_daemon.status("-H", "Origin: null", path="/file") == "403"
    headers = by_daemon.curl("-I", path="/file").stdout.decode().lower()
    assert "access-control" not in headers and "cross-origin-resource-policy: same-origin" in headers and "set-cookie" not in headers


def test_odd_ranges_are_answered_as_the_standard_says(by_daemon):
    data = make_file(by_daemon.far / "file", 1000).read_bytes()
    for wanted in ("bytes=", "bytes=x", "bytes=5-4", "lines=0-1", "bytes=0-1,x", "bytes=--1", "bytes=" + "0-1," * 6000,
                   "bytes=0-999,0-999", "b\u00fctes=0-1"):
        status, _, body = by_daemon.ask("/file", Range=wanted)
        assert (status, body) == (200, data), wanted
    for wanted in ("bytes=1000-", "bytes=-0", "bytes=2000-3000,4000-5000"):
        assert by_daemon.ask("/file", Range=wanted)[0] == 416, wanted


def test_many_readers_at_once_get_their_own(by_daemon):
    files = {f"f{number}": make_file(by_daemon.far / f"f{number}", 100_000 + number, seed=number).read_bytes() for number in range(40)}
    urls = list(itertools.chain.from_iterable((f"http://127.0.0.1:{by_daemon.port}/{name}", "-o", name) for name in files))
    got = by_daemon.net.folder("got")
    done = by_daemon.net.alpha.run(["curl", "-sS", "-f", "--parallel", "--parallel-max", "40", *urls], cwd=got)
    assert done.returncode == 0, done.stderr
    assert {name: (got / name).read_bytes() for name in files} == files


#: Asks for a file or a list over each of many connections, and takes nothing of the answers.
HOLD = """
import socket, sys, time
port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
held = []
for number in range(count):
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.connect(("127.0.0.1", port))
    stream.sendall(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
    held.append(stream)
time.sleep(1)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_readers_that_take_nothing_keep_no_thread_and_little_memory(by_daemon):
    """There are more of them than the gateway has threads."""
    data = make_file(by_daemon.far / "large", 64 * MIB).read_bytes()
    make_file(by_daemon.far / "file", 10)
    held = by_daemon.net.alpha.start(["/usr/bin/python3", "-c", HOLD, str(by_daemon.port), "/large", "700"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
    try:
        assert held.stdout.readline() == b"held\n"
        assert by_daemon.ask("/file")[0] == 200
        assert by_daemon.status(path="/file") == "200"
        assert by_daemon.ask("/large", Range="bytes=5-9")[2] == data[5:10]
        with open(f"/proc/{by_daemon.process.pid}/status") as status:
            (now,) = re.findall(r"VmRSS:\s+(\d+) kB", status.read())
        assert int(now) < 2_500_000, "two pieces for each, and what was asked for when there were few"
    finally:
        held.communicate()
