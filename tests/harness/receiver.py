"""A receiver of webhooks on a host: it takes every POST and keeps it."""

import base64
import dataclasses
import json
import os
import subprocess

from .hosts import wait_until

#: Runs on the host: appends each request to a file, as one line of JSON, before it answers.
PROGRAM = """
import base64, http.server, json, socket, sys
address, port, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        line = {"path": self.path, "headers": headers, "body": base64.b64encode(body).decode()}
        with open(file, "a") as out:
            out.write(json.dumps(line) + "\\n")
        self.send_response(204)
        self.end_headers()
    do_CONNECT = do_GET = do_POST
    def log_message(self, *arguments):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
server = Server((address, port), Handler)
open(file, "a").close()
server.serve_forever()
"""


@dataclasses.dataclass
class Message:
    path: str
    headers: dict
    body: bytes

    @property
    def signature(self):
        return self.headers["farhaul-signature"]


class Receiver:
    def __init__(self, net, host, address, port):
        self.address, self.port = address, port
        self.file = net.folder("received") / "messages"
        argv = ["/usr/bin/python3", "-c", PROGRAM, address, str(port), os.fspath(self.file)]
        process = host.start(argv, stdin=subprocess.DEVNULL)
        net.pair.on_close(process.kill)
        wait_until(lambda: self.file.exists(), 30, what="the receiver listens")

    def url(self, path="/in"):
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.port}{path}"

    def messages(self, path=None):
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        all = [Message(one["path"], one["headers"], base64.b64decode(one["body"])) for one in lines]
        return [one for one in all if path in (None, one.path)]

    def next(self, path):
        """Waits for the first message to this path."""
        return wait_until(lambda: self.messages(path), 60, what=f"a message to {path}")[0]
