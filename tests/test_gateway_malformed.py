"""`farhaul gateway` and requests that no honest client sends: each is refused with a clean 4xx or the end of the connection,
memory stays bounded, and nothing beside the root is ever read.
"""

import base64
import json
import re
import subprocess

import pytest

from harness.trees import make_file
from test_gateway import Gateway

HOST = b"Host: localhost\r\n"
MARK = b"nobody outside may read this"


def get(path, *headers, method=b"GET", version=b"HTTP/1.1", host=HOST, body=b""):
    return method + b" " + path + b" " + version + b"\r\n" + host + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body


#: A second request that hides behind the first one.
HIDDEN = get(b"/hidden")
NAMES_OF_LENGTH = [b"Content-Length", b"content-length", b"CONTENT-LENGTH"]

#: What frames a body in two ways, or in a way that is not one.
SMUGGLED = [
    *(get(b"/", name + b": 5", b"Transfer-Encoding: chunked", method=method, body=b"0\r\n\r\n" + HIDDEN)
      for name in NAMES_OF_LENGTH for method in (b"GET", b"POST", b"PUT")),
    *(get(b"/", b"Content-Length: 5", b"Content-Length: " + other, method=b"POST", body=b"hello" + HIDDEN)
      for other in (b"6", b"0", b"05x", b"", b"-1", b"+5", b"5 5", b"5;5")),
    *(get(b"/", b"Content-Length: " + length, method=method, body=b"hello" + HIDDEN) for method in (b"GET", b"POST")
      for length in (b"-1", b"+5", b"0x5", b"5 ,6", b"5;6", b"five", b"99999999999999999999", b"18446744073709551616", b"1e3", b"5.0", b"\xb2", b"5\0")),
    *(get(b"/", b"Transfer-Encoding: " + coding, method=b"POST", body=b"0\r\n\r\n" + HIDDEN)
      for coding in (b"xchunked", b"chunkedx", b"chunked, identity", b"identity", b"gzip", b"chunked, gzip", b"\x0bchunked", b"chun\tked", b"\"chunked\"")),
    *(b"POST / HTTP/1.1\r\n" + HOST + name + b"chunked\r\n\r\n0\r\n\r\n" + HIDDEN
      for name in (b"Transfer-Encoding : ", b"Transfer-Encoding\t: ", b"Transfer Encoding: ", b"Transfer-Encoding\0: ", b" Transfer-Encoding: ",
                   b"Transfer-Encoding\r\n : ", b"Transfer_Encoding\xa0: ")),
    *(get(b"/", b"Transfer-Encoding: chunked", method=b"POST", body=body + HIDDEN)
      for body in (b"-1\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5 \0\r\nhello\r\n", b"zz\r\n", b"ffffffffffffffff1\r\n", b"5\nhello\n0\n\n",
                   b"5\r\nhello0\r\n\r\n", b";\r\n", b"\r\n", b"5;" + b"x" * 200_000 + b"\r\nhello\r\n0\r\n\r\n")),
    get(b"/", b"Transfer-Encoding: chunked", method=b"POST", version=b"HTTP/1.0", body=b"0\r\n\r\n" + HIDDEN),
    get(b"/", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", method=b"POST", body=b"0\r\n\r\n" + HIDDEN),
]

LINES = [
    b"", b"\r\n\r\n\r\n\r\n", b"\0" * 100, b"\xff" * 1000, b"GET", b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / \r\n\r\n", b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / HTTP/1.1 x\r\n" + HOST + b"\r\n",
    *(get(b"/", version=version) for version in (b"HTTP/9.9", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3", b"HTTP/1", b"HTTP/1.", b"HTTP/11", b"http/1.1",
                                                 b"HTTP/-1.1", b"HTP/1.1", b"ICAP/1.0", b"HTTP/1.1\0", b"HTTP 1.1", b"")),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500, b"\x80\x2e\x01\x00\x02", b"SSH-2.0-OpenSSH_9.2\r\n", b"EHLO localhost\r\n", b"USER anonymous\r\n",
    b"{\"jsonrpc\": \"2.0\"}\r\n\r\n", b"<?xml version='1.0'?>\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\rHost: localhost\r\r", b"GET / HTTP/1.1\nHost: evil\n\n",
    b"PRI * HTTP/1.1\r\n" + HOST + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    *(get(b"/", method=method) for method in (b"BREW", b"TRACE", b"TRACK", b"DEBUG", b"get", b"Get", b"POST", b"PUT", b"PATCH", b"DELETE", b"MKCOL", b"MOVE",
                                              b"COPY", b"LOCK", b"UNLOCK", b"PROPPATCH", b"SEARCH", b"REPORT", b"G\0T", b"G\xffT", b"G" * 5000, b"()", b"\"GET\"")),
    b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n", b"CONNECT / HTTP/1.1\r\n" + HOST + b"\r\n",
]

HEADERS = [
    get(b"/", host=b""), get(b"/", host=b"Host: a\r\nHost: b\r\n"), get(b"/", host=HOST + HOST), get(b"/", host=b"Host : localhost\r\n"), get(b"/", host=b" Host: localhost\r\n"),
    *(get(b"/file", host=b"Host: " + name + b"\r\n") for name in
      (b"evil.example", b"", b"localhost.evil", b"localhost:99999x", b"[::1", b"::1]", b"loc\0alhost", b"a:b:c", b"127.0.0.1.nip.io", b"localhost, evil", b"localhost/../x",
       b"user@evil.example", b"evil.example#localhost", b"evil.example\\localhost", b"\xfflocalhost", b"0x7f.1x", b"." * 5000, b"localhost evil", b"http://localhost")),
    *(get(b"/file", header) for header in (b"X Y: z", b": z", b"X\0: z", b"X: \0", b"X: a\0b", b"X", b"X\x7f: y", b"\xe9: y", b"(x): y", b"X: y\x01", b"X[]: y", b"\"X\": y")),
    get(b"/", b"X: " + b"x" * 200_000), get(b"/" + b"a" * 100_000), get(b"/", *[b"X: y"] * 20_000), get(b"/", *[b"X%d: y" % number for number in range(500)]),
    get(b"/", b"X" * 100_000 + b": y"), get(b"/", b"Cookie: " + b"a=b; " * 30_000), b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 60, get(b"/file", b"X: y\r\n z"),
    get(b"/file", b"Origin: null"), get(b"/file", b"Origin: http://evil.example"), get(b"/file", b"Origin: \xff"),
    *(get(b"/", b"Depth: " + depth, method=b"PROPFIND") for depth in (b"infinity", b"2", b"-1", b"x", b"\xff", b"1,1")),
]

ADDRESSES = [
    *(get(path) for path in (
        b"/../secret", b"/../../secret", b"/file/../../secret", b"/%2e%2e/secret", b"/%2e%2e%2fsecret", b"/..%2fsecret", b"/.%2e/secret", b"/%2e./secret", b"/..%2Fsecret",
        b"/%2E%2E/secret", b"/./file", b"/%2e/file", b"//../secret", b"/..", b"/../", b"/a/..", b"/a/%2e%2e", b"/..;/secret/..", b"/x%2f..%2f..%2fsecret", b"/x/../../secret", b"/%",
        b"/%z", b"/%zz", b"/%1", b"/%%35%63", b"/%u002e%u002e/secret", b"/x%00", b"/%00/../secret", b"/x%00.txt", b"/file%00/../../secret",
        b"/\xff\xfe", b"/\0", b"/a\tb", b"file", b"*", b"..", b"?x", b"//evil.example/%2e%2e", b"/..%5c..%5csecret/..", b"/%2f..%2fsecret")),
    *(get(address) for address in (
        b"http://evil.example/file", b"https://evil.example/", b"http://localhost@evil.example/", b"http://evil.example@localhost:x/", b"http:///file", b"http://", b"ftp://evil.example/x",
        b"file:///etc/passwd", b"http://localhost/../secret", b"http://localhost/%2e%2e/secret", b"javascript:alert(1)", b"gopher://evil.example/", b"http:/file", b"://x", b"http://[::1/file",
        b"http://evil.example:80/", b"HTTP://EVIL.EXAMPLE/")),
]

#: Strange, and harmless: they get what a plain request would get, or a refusal, and nothing else.
HARMLESS = [
    *(get(b"/file", b"Range: " + wanted) for wanted in (
        b"bytes=", b"bytes=x", b"bytes=5-4", b"lines=0-1", b"bytes=0-1,x", b"bytes=--1", b"bytes=-", b"bytes=0--1", b"bytes=0-0x5", b"bytes=+0-1", b"bytes=1e1-2", b"bytes=0-1;q=1",
        b"bytes=" + b"0-1," * 6000, b"bytes=0-999,0-999", b"b\xfctes=0-1", b"bytes=18446744073709551615-", b"bytes=0-18446744073709551616", b"bytes=-18446744073709551616",
        b"bytes=9223372036854775807-9223372036854775808", b"bytes= 0 - 1 ", b"bytes=\t0-1", b"bytes:0-1", b"bytes 0-1/10", b"bytes=0-1\0", b"bytes=" + b"9" * 5000 + b"-", b"none", b"",
        b"bytes=0-" + b",".join(b"%d-" % number for number in range(4000)))),
    *(get(b"/file", b"Range: bytes=0-1", b"If-Range: " + tag) for tag in (b"", b"\"", b"W/\"x\"", b"x", b"Thu, 99 Foo 2026 00:00:00 GMT", b"\"a\", \"b\"", b"\xff")),
    *(get(b"/file", name + value) for name in (b"If-None-Match: ", b"If-Match: ", b"If-Modified-Since: ") for value in (b"\"", b"W/", b"\xff", b"*" * 1000, b"0", b"-1")),
    *(get(b"/file", b"Accept-Encoding: " + value) for value in (b"gzip", b"\xff", b"identity;q=0, *;q=0")),
    *(get(b"/file", b"Want-Digest: " + value) for value in (b"\xff", b"md5;q=x", b";;;", b"," * 5000, b"sha-256;q=1e400")),
    *(get(b"/file", b"Authorization: " + value) for value in (b"Basic !", b"Bearer", b"Basic " + base64.b64encode(b"\xff\xff"), b"Digest x")),
    get(b"/file", b"Content-Length: 0"), get(b"/file", b"Expect: 100-continue"), get(b"/file", b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: x"),
    get(b"/file", b"Upgrade: websocket", b"Connection: Upgrade"), get(b"/file", b"Connection: \xff"), get(b"/file", version=b"HTTP/1.0", host=b""),
    get(b"/file?" + b"&" * 5000), get(b"/file#x"), get(b"//file"), get(b"/file/"), get(b"/file%20"), get(b"/link"), get(b"/out/passwd"),
]

REFUSED = [*SMUGGLED, *LINES, *HEADERS, *ADDRESSES]

#: Sends each request over a connection of its own, and prints the answer.
SEND = """
import base64, json, socket, sys
for request in json.load(sys.stdin):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as stream:
        answer = b""
        try:
            stream.sendall(base64.b64decode(request))
            stream.shutdown(socket.SHUT_WR)
            while piece := stream.recv(65536):
                answer += piece
        except OSError:
            pass
    print(base64.b64encode(answer[:200_000]).decode())
"""


@pytest.fixture
def gateway(net):
    root = net.daemon.root / "served"
    root.mkdir()
    (net.daemon.root / "secret").write_bytes(MARK)
    (root / "hidden").write_bytes(MARK)
    make_file(root / "file", 1000)
    (root / "link").symlink_to("/etc/passwd")
    (root / "out").symlink_to("/etc")
    made = Gateway(net, root, net.daemon.url("served"))
    yield made
    made.end()


def answers(gateway, requests):
    done = gateway.net.alpha.run(["/usr/bin/python3", "-c", SEND, str(gateway.port)], timeout=240,
                                 input=json.dumps([base64.b64encode(request).decode() for request in requests]).encode())
    found = [base64.b64decode(line) for line in done.stdout.splitlines()]
    assert len(found) == len(requests), done.stderr.decode()
    return list(zip(requests, found))


def memory(gateway):
    with open(f"/proc/{gateway.process.pid}/status") as status:
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read())
    return int(peak)


def test_three_hundred_requests_that_no_client_sends_are_refused(gateway):
    assert len(REFUSED) + len(HARMLESS) >= 300
    content = (gateway.far / "file").read_bytes()
    faults = []
    for request, answer in answers(gateway, REFUSED):
        statuses = re.findall(rb"HTTP/1\.[01] (\d\d\d) ", answer)
        # The binary frames of HTTP/2 say that the connection is over.
        is_frame = request.startswith(b"PRI") and b"HTTP/" not in answer
        if not (is_frame or all(status.startswith(b"4") or status == b"505" for status in statuses)) or MARK in answer or content in answer:
            faults.append((request[:150], answer[:150]))
        if answer and not is_frame and not re.match(rb"HTTP/1\.[01] \d\d\d ", answer):
            faults.append((request[:150], answer[:150]))
    assert not faults, "\n".join(map(str, faults))
    assert gateway.ask("/file")[2] == content
    assert memory(gateway) < 200_000


def test_strange_requests_that_do_no_harm_get_the_file_or_a_refusal(gateway):
    content = (gateway.far / "file").read_bytes()
    faults = []
    for request, answer in answers(gateway, HARMLESS):
        match = re.match(rb"HTTP/1\.[01] (\d\d\d) [^\r]*\r\n.*?\r\n\r\n(.*)", answer, re.S)
        status, body = match.groups() if match else (b"", b"")
        if status in (b"200", b"100"):
            is_fine = body.endswith(content)
        else:
            is_fine = status in (b"206", b"301", b"304", b"400", b"403", b"404", b"412", b"416", b"421", b"431", b"")
        if not is_fine or MARK in answer or b"root:" in answer:
            faults.append((request[:150], answer[:150]))
    assert not faults, "\n".join(map(str, faults))
    assert gateway.ask("/file")[2] == content
    assert memory(gateway) < 200_000


#: Sends a byte of a head now and then over each of many connections, until all of them are closed.
DRIP = """
import select, socket, sys, time
port, count = int(sys.argv[1]), int(sys.argv[2])
streams = []
for number in range(count):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(b"GET /file HTTP/1.1\\r\\nHost: localhost\\r\\nX: ")
    streams.append(stream)
print("held", flush=True)
begin = time.monotonic()
while streams and time.monotonic() - begin < 60:
    for stream in list(streams):
        try:
            stream.sendall(b"x")
            if select.select([stream], [], [], 0)[0] and not stream.recv(1000):
                streams.remove(stream)
        except OSError:
            streams.remove(stream)
    time.sleep(0.5)
print(len(streams), flush=True)
"""


@pytest.mark.slow
def test_clients_that_send_a_byte_now_and_then_are_shown_out(gateway):
    drip = gateway.net.alpha.start(["/usr/bin/python3", "-c", DRIP, str(gateway.port), "200"], stdout=subprocess.PIPE)
    try:
        assert drip.stdout.readline() == b"held\n"
        assert gateway.ask("/file")[0] == 200
        assert gateway.status(path="/file") == "200"
        assert drip.stdout.readline() == b"0\n"
        assert memory(gateway) < 200_000
    finally:
        drip.kill()
        drip.wait()


def test_planted_pages_run_nowhere_and_reach_nothing(gateway, tmp_path):
    """A page and a picture that somebody has put there try to read another file and to tell it to somebody."""
    pytest.importorskip("playwright", reason="browsers are installed by ./x web test")
    from harness.browser import Browser

    script = "fetch('/file').then(a => a.arrayBuffer()).then(b => { document.title = 'read ' + b.byteLength; window.opener && window.opener.postMessage('read', '*'); })"
    (gateway.far / "page.html").write_text(f"<!doctype html><title>no</title><script>{script}</script>")
    (gateway.far / "picture.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'><script>{script}</script></svg>")
    (gateway.far / "page.xhtml").write_text(f"<html xmlns='http://www.w3.org/1999/xhtml'><head><script>{script}</script></head></html>")
    (gateway.far / "plain.txt").write_text(f"<script>{script}</script>")
    (gateway.far / "page.html.png").write_text(f"<script>{script}</script>")
    root = f"http://127.0.0.1:{gateway.port}"
    with Browser(gateway.net.alpha, tmp_path) as browser:
        page = browser.browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("page.html", "picture.svg", "page.xhtml", "plain.txt", "page.html.png"):
            asked.clear()
            try:
                page.goto(f"{root}/{name}")
            except Exception as error:  # noqa: BLE001
                # What would run is a download, which is no page.
                assert "Download is starting" in str(error) or "ERR_ABORTED" in str(error), error
            assert not page.title().startswith("read"), name
            assert [url for url in asked if url.endswith("/file")] == [], name
        # The page of a directory has no script, and nothing of another site may show it.
        page.goto(f"{root}/")
        assert page.evaluate("document.scripts.length") == 0
