"""A service on this host that listens on loopback, and browsers that use its page."""

import contextlib
import http.client
import json
import os
import socket
import subprocess

from .hosts import HarnessError, wait_until
from .product import binary

#: The header that a browser sends with requests of a page of the same origin.
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Node:
    """A service on this host, with a home of its own, that listens on loopback."""

    def __init__(self, folder, listens=True, arguments=(), hooks=()):
        self.folder, self.state = folder, folder / "state"
        self.port = free_port()
        self.env = {"HOME": os.fspath(folder), "PATH": os.environ["PATH"], "FARHAUL_ALLOW_ROOT": "1",
                    "FARHAUL_API": os.fspath(self.state / "api.sock")}
        self.listen = ["--api-listen", f"127.0.0.1:{self.port}"] if listens else []
        self.listen += map(os.fspath, arguments)
        #: Those of `hooks.prefix`.
        self.hooks = hooks
        self.process = None
        self.start()

    def start(self):
        serve = [*self.hooks, binary(), "serve", "--listen", f"127.0.0.1:{free_port()}", "--state", self.state, *self.listen]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(serve, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.answers, what="the service answers")

    def answers(self):
        if (code := self.process.poll()) is not None:
            raise HarnessError(f"the service has ended with {code}: {(self.folder / 'log').read_text()[-2000:]}")
        return self.try_run("jobs").returncode == 0

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)

    def try_run(self, *arguments, env=None):
        command = [os.fspath(one) for one in (binary(), *arguments)]
        return subprocess.run(command, env={**self.env, **(env or {})}, capture_output=True, text=True, timeout=60)

    def run(self, *arguments, expect=0, env=None):
        done = self.try_run(*arguments, env=env)
        assert done.returncode == expect, f"{arguments}: {done}"
        self.stderr = done.stderr
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def audit(self):
        return [json.loads(line) for line in (self.state / "audit.log").read_text().splitlines()]

    def over_socket(self):
        """A connection to the Unix socket."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(os.fspath(self.state / "api.sock"))
        return connection

    def browser(self):
        return Browser(self.port)


class Browser:
    """Keeps its cookie, and says which origin its requests come from, as browsers do."""

    def __init__(self, port):
        self.port, self.cookie = port, None

    def ask(self, method, path, body=None, headers=OWN_PAGE):
        """Status, headers and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            sent = dict(headers)
            if self.cookie:
                sent["Cookie"] = self.cookie
            if body is not None:
                sent["Content-Type"] = "application/json"
                body = json.dumps(body)
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            content = answer.read()
            if set_cookie := answer.headers["Set-Cookie"]:
                self.cookie = None if "Max-Age=0" in set_cookie else set_cookie.split(";")[0]
            return answer.status, answer.headers, content

    def api(self, method, path, body=None, expect=200):
        status, _, content = self.ask(method, f"/api/v1{path}", body)
        assert status == expect, (status, content)
        return json.loads(content) if content else None

    def log_in(self, token):
        return self.api("POST", "/login", {"token": token})
