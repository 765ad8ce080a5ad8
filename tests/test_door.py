"""The API's door, through the real binary: strangers who hold connections, callers with tokens behind the same
address, far ends that never answer."""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import threading
import time

import pytest

from harness.hosts import wait_until
from harness.node import Node

#: More than the service had places for all callers together.
CROWD = 1100
READERS = 500
LOG_IN = b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 400\r\n"
#: What strangers send before they fall silent.
SILENCES = {
    "nothing": b"",
    "half a head": LOG_IN,
    "half a body": LOG_IN + b'\r\n{"token": "',
    "a body without end": LOG_IN.replace(b"Content-Length: 400", b"Transfer-Encoding: chunked") + b"\r\n1\r\n{\r\n",
    "a body that waits to be asked for": LOG_IN + b"Expect: 100-continue\r\n\r\n",
    "a page that is not read": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3,
}


@pytest.fixture(autouse=True)
def many_descriptors():
    """Room for both ends of the crowd."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 4 * CROWD:
        pytest.skip(f"this process may have only {before[1]} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * CROWD, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stop()


class Strangers(contextlib.ExitStack):
    """Connections from this host that say `words` and no more."""

    def __init__(self, port, count, words):
        super().__init__()
        self.held = []
        for _ in range(count):
            one = self.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            self.held.append(one)
            # Some have lost their places by then.
            with contextlib.suppress(OSError):
                one.sendall(words)


def token(node, *options):
    return node.run("token", "create", *(options or ("--scope", "read", "--everything")), "-q").strip()


def ask(node, path, token, method="GET", body=None):
    """Status and body of the answer to a request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    with contextlib.closing(connection):
        connection.request(method, f"/api/v1{path}", body=json.dumps(body) if body is not None else None, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or "null")


def follow(node, token):
    """A reader of events whose stream has begun."""
    one = socket.create_connection(("127.0.0.1", node.port), timeout=60)
    one.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    said = b""
    while b"event: begin" not in said:
        piece = one.recv(4096)
        assert piece, said
        said += piece
    return one


@pytest.mark.parametrize("words", SILENCES.values(), ids=SILENCES)
def test_silent_strangers_close_the_api_to_nobody(node, words):
    reader = token(node)
    with Strangers(node.port, CROWD, words):
        assert node.json("jobs") == [], "over the Unix socket"
        for _ in range(20):
            assert ask(node, "/jobs", reader)[0] == 200, "with a token, from the address of the strangers"
        assert ask(node, "/login", None, "POST", {"token": reader})[0] == 200
        with contextlib.closing(follow(node, reader)):
            pass


def test_handshakes_that_do_not_end_close_the_api_to_nobody(tmp_path):
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=node",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    node = Node(tmp_path, arguments=["--tls-cert", certificate, "--tls-key", key])
    try:
        reader = token(node)
        hello = ssl.MemoryBIO(), ssl.MemoryBIO()
        begun = ssl.create_default_context().wrap_bio(*hello, server_hostname="127.0.0.1")
        with contextlib.suppress(ssl.SSLWantReadError):
            begun.do_handshake()
        words = hello[1].read()
        with Strangers(node.port, CROWD // 2, b""), Strangers(node.port, CROWD // 2, words[:100]), Strangers(node.port, CROWD // 2, words):
            trusts = ssl.create_default_context(cafile=os.fspath(certificate))
            for _ in range(5):
                connection = http.client.HTTPSConnection("127.0.0.1", node.port, timeout=60, context=trusts)
                with contextlib.closing(connection):
                    connection.request("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {reader}"})
                    assert connection.getresponse().status == 200
            assert node.json("jobs") == []
    finally:
        node.stop()


def test_readers_behind_one_address_stay_whatever_strangers_of_it_do(node):
    """A farm behind one address has many readers with few tokens."""
    tokens = [token(node) for _ in range(4)]
    with contextlib.ExitStack() as all:
        readers = [all.enter_context(follow(node, tokens[number % 4])) for number in range(READERS)]
        all.enter_context(Strangers(node.port, CROWD, LOG_IN))
        assert ask(node, "/jobs", tokens[0])[0] == 200
        node.run("submit", "zero:1000", "null:", "--wait", "-q")
        for reader in readers:
            said = b""
            while b"event: job" not in said:
                piece = reader.recv(1 << 16)
                assert piece, "a reader has lost its connection"
                said += piece


def test_a_crowd_with_tokens_gets_in_at_the_same_moment(node):
    """All connections are there before the first of them says who it is."""
    reader = token(node)
    words = f"GET /api/v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {reader}\r\n\r\n".encode()
    with Strangers(node.port, 400, b"") as crowd:
        for one in crowd.held[:150]:
            one.sendall(words)
        answers = [one.recv(4096).split(b" ", 2)[1] for one in crowd.held[:150]]
        assert set(answers) == {b"200"}, answers


def test_one_caller_takes_no_places_of_another(tmp_path):
    config = tmp_path / "farhaul.toml"
    config.write_text("[api]\nmax_connections = 20\n")
    config.chmod(0o600)
    node = Node(tmp_path, arguments=["--config", config])
    try:
        greedy, other = token(node), token(node)
        with contextlib.ExitStack() as all:
            readers = [all.enter_context(follow(node, greedy)) for _ in range(20)]
            status, problem = ask(node, "/jobs", greedy)
            assert (status, problem["code"]) == (429, "FH-TOO-MANY"), problem
            assert ask(node, "/jobs", other)[0] == 200
            readers[0].settimeout(60)
            assert readers[0].recv(1 << 16) == b"", "the greedy one's oldest makes room"
            assert node.json("jobs") == []
    finally:
        node.stop()


def test_a_right_token_is_let_in_whatever_others_of_its_address_have_shown(node):
    gone = token(node)
    (listed,) = node.json("token", "list")
    node.run("token", "revoke", listed["id"])
    right = token(node)
    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
    for shown in (wrong, gone):
        for refused in (lambda: ask(node, "/login", None, "POST", {"token": shown}), lambda: ask(node, "/me", shown)):
            answers = [refused() for _ in range(30)]
            assert answers[-1][0] == 429 and {status for status, _ in answers} <= {401, 429}, answers
    assert ask(node, "/me", wrong)[0] == 429
    assert ask(node, "/me", right)[0] == 200
    assert ask(node, "/login", None, "POST", {"token": right})[0] == 200
    code = node.run("open", "--print").strip().partition("#code=")[2]
    assert ask(node, "/login", None, "POST", {"code": code})[0] == 200
    refused = [line for line in node.audit() if (line["action"], line["outcome"]) == ("log in", "refused")]
    assert 1 <= len(refused) <= 50, "the audit log does not grow with every attempt"


def test_far_ends_that_are_silent_keep_nobody_else_waiting(node):
    """Connections to the far end come about, and nothing is ever said there."""
    curious, other = [token(node) for _ in range(4)], token(node)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as silent, contextlib.ExitStack() as all:
        place = f"fh://127.0.0.1:{silent.getsockname()[1]}/x"

        def question(token):
            one = all.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=120))
            one.sendall(f"GET /api/v1/files?location={place} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            return one

        asked = [question(token) for _ in range(150) for token in curious]
        for _ in range(20):
            assert ask(node, "/jobs", other)[0] == 200
            assert ask(node, "/me", other)[0] == 200
        assert node.json("jobs") == []
        over_socket = node.over_socket()
        over_socket.request("GET", "/api/v1/files?location=/")
        assert over_socket.getresponse().status == 200
        answers = [answer_now(one) for one in asked]
        # Some are still asked, so what was seen above was seen meanwhile.
        assert answers.count(None) == 16 and set(answers) == {None, b"429"}, answers
        assert resident_mib(node) < 300
        # Who goes gives up its questions.
        all.close()
        wait_until(lambda: ask(node, "/files?location=/", curious[0])[0] == 200, 30, 0.2, "there is room for further questions")


@pytest.mark.slow
def test_who_keeps_the_service_waiting_is_cut_off_or_told(node):
    """Everything of this kind takes its limit of ten to twenty seconds, at the same time."""
    reader = token(node)
    with socket.create_server(("127.0.0.1", 0), backlog=10) as silent, contextlib.ExitStack() as all:
        place = f"fh://127.0.0.1:{silent.getsockname()[1]}/x"
        question = all.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=60))
        question.sendall(f"GET /api/v1/files?location={place} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {reader}\r\n\r\n".encode())
        known = all.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=60))
        known.sendall(f"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {reader}\r\n\r\n".encode())
        assert b" 200 " in known.recv(1 << 16)
        held = {name: all.enter_context(Strangers(node.port, 1, words)).held[0] for name, words in SILENCES.items()}
        ends = {name: everything(one) for name, one in held.items()}
        for name in ("half a body", "a body without end", "a body that waits to be asked for"):
            assert b" 408 " in ends[name], ends[name]
        assert ends["nothing"] == ends["half a head"] == b""
        answer = everything(question)
        assert b" 504 " in answer and b"FH-PEER-SILENT" in answer, answer
        # Who has shown a token may rest for longer.
        known.setblocking(False)
        with pytest.raises(BlockingIOError):
            known.recv(1)


def answer_now(one):
    """The status that has come; None if none has."""
    one.settimeout(0.01)
    try:
        return one.recv(1 << 16).split(b" ", 2)[1]
    except TimeoutError:
        return None


def everything(one):
    """All that comes until the service ends the connection, or for an answer until it pauses."""
    said = b""
    while piece := one.recv(1 << 16):
        said += piece
        if b"\r\n\r\n" in said and b" 100 " not in said and said.endswith(b"}"):
            return said
    return said


def resident_mib(node):
    """The peak of the service's resident memory."""
    for line in pathlib.Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError("the service has no memory")


#: Sends requests one behind the other over many connections and reads the answers, until it is ended.
EAGER = """
import selectors, socket, sys
port, count, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode().decode("unicode_escape").encode() * 100
all = selectors.DefaultSelector()
def connect():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", port))
    all.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE)
for _ in range(count):
    connect()
print("begun", flush=True)
while True:
    for key, events in all.select():
        try:
            if events & selectors.EVENT_READ and not key.fileobj.recv(1 << 20):
                raise OSError
            if events & selectors.EVENT_WRITE:
                key.fileobj.send(words)
        except BlockingIOError:
            pass
        except OSError:
            all.unregister(key.fileobj)
            key.fileobj.close()
            connect()
"""
#: What strangers ask for without end.
ASKED = {
    "the page": rb"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "what is not there": rb"GET /assets/x.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "the API": rb"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "another name": rb"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "with a wrong token": rb"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n",
}


@pytest.mark.parametrize("words", ASKED.values(), ids=ASKED)
def test_strangers_who_ask_without_end_close_the_api_to_nobody(node, words):
    reader = token(node)
    with contextlib.ExitStack() as all:
        for _ in range(2):
            eager = subprocess.Popen(["/usr/bin/python3", "-c", EAGER, str(node.port), "300", words], stdout=subprocess.PIPE)
            all.callback(eager.wait)
            all.callback(eager.kill)
            assert eager.stdout.readline() == b"begun\n"
        for _ in range(10):
            begin = time.monotonic()
            assert node.json("jobs") == []
            assert ask(node, "/jobs", reader)[0] == 200
            # Each takes some milliseconds; it took some seconds.
            assert time.monotonic() - begin < 10
        assert len(os.listdir(f"/proc/{node.process.pid}/fd")) < 1300
        assert resident_mib(node) < 300


def test_a_page_has_all_its_files_at_once(node):
    """A browser that loads the page does not wait."""
    begin = time.monotonic()
    for _ in range(100):
        status, _, _ = node.browser().ask("GET", "/", headers={})
        assert status == 200
    assert time.monotonic() - begin < 30


#: Requests that are no usual ones, and the statuses that they may have; None is an end without an answer.
ODD = {
    "HTTP/2 by prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0" * 1000, {None, b"400"}),
    "an upgrade to HTTP/2": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                             b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", {b"200"}),
    "an upgrade of the API": (b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", {b"401"}),
    "a mebibyte of one header": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", {b"431"}),
    "ten thousand headers": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: a\r\n" * 10_000 + b"\r\n", {b"431"}),
    "two names": (b"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", {b"400"}),
    "another name in the address": (b"GET http://evil.example/api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"421"}),
    "no name": (b"GET / HTTP/1.0\r\n\r\n", {b"421"}),
    "a tunnel": (b"CONNECT evil.example:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"404", b"405", b"421"}),
    "an echo": (b"TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: x=y\r\n\r\n", {b"405"}),
    "two lengths": (LOG_IN.replace(b"400", b"4") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", {b"400"}),
    "a byte of zero": (b"GET /api/v1/\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"400"}),
    "a way up": (b"GET /assets/../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"404"}),
    "a way up in disguise": (b"GET /assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"404"}),
    "bytes that are no text": (b"GET /api/v1/jobs/%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {b"401", b"404"}),
}


@pytest.mark.parametrize("words, statuses", ODD.values(), ids=ODD)
def test_odd_requests_get_one_answer_and_change_nothing(node, words, statuses):
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as one:
        # The service may answer and hang up before it has read everything.
        with contextlib.suppress(OSError):
            one.sendall(words)
        try:
            said = one.recv(1 << 16)
        except ConnectionResetError:
            said = b""
    status = said.split(b" ", 2)[1] if said else None
    assert status in statuses, said
    assert b"root:" not in said and b" 101 " not in said
    assert node.json("jobs") == []


def test_bodies_of_one_caller_take_little_memory_however_small_their_pieces(node):
    submitter, reader = token(node, "--scope", "submit", "--everything"), token(node)
    node.json("jobs")
    before = resident_mib(node)
    head = (f"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {submitter}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").encode()
    crumbs = b"1\r\n \r\n" * 10_000
    with Strangers(node.port, 40, head) as held:
        def send(one):
            one.settimeout(2)
            # A body that waits for its turn is not read.
            with contextlib.suppress(OSError):
                for _ in range(30):
                    one.sendall(crumbs)
        threads = [threading.Thread(target=send, args=[one]) for one in held.held]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ask(node, "/jobs", reader)[0] == 200
        assert resident_mib(node) - before < 100
