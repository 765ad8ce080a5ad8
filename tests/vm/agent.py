"""Commands in a guest, by qemu's guest agent: JSON lines over a socket that leads to a port of the guest.

Always true: an answer belongs to the question that was asked last. What a connection that ended left behind is read and thrown
away first.
"""

import base64
import dataclasses
import json
import random
import socket
import time

#: A guest that boots, or that is busy, answers late; the question is asked again meanwhile.
ASK_AGAIN_SECONDS = 3.0
POLL_SECONDS = 0.1


class AgentError(Exception):
    """The guest did not answer, or refused the question."""


@dataclasses.dataclass
class Done:
    """How a command in a guest ended."""

    code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.stdout[-6000:]}{self.stderr[-6000:]}"


class Agent:
    def __init__(self, path: str) -> None:
        self.path = path
        self.socket: socket.socket | None = None
        self.received = b""

    def connect(self, seconds: float) -> None:
        """Waits until the guest's agent answers."""
        end = time.monotonic() + seconds
        self.close()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.path)
        while time.monotonic() < end:
            number = random.randrange(1 << 30)
            self.send({"execute": "guest-sync", "arguments": {"id": number}})
            again = time.monotonic() + ASK_AGAIN_SECONDS
            while (left := again - time.monotonic()) > 0:
                answer = self.receive(left)
                if answer is not None and answer.get("return") == number:
                    return
        raise AgentError(f"the guest has not answered within {seconds} s")

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        self.socket, self.received = None, b""

    def send(self, question: dict) -> None:
        assert self.socket, "connect comes first"
        self.socket.sendall(json.dumps(question).encode() + b"\n")

    def receive(self, seconds: float) -> dict | None:
        """The next answer, or None if none comes in that time. A line that is no JSON is skipped."""
        assert self.socket, "connect comes first"
        end = time.monotonic() + seconds
        while True:
            line, newline, rest = self.received.partition(b"\n")
            if newline:
                self.received = rest
                try:
                    answer = json.loads(line.lstrip(b"\xff"))
                except ValueError:
                    continue
                if isinstance(answer, dict):
                    return answer
                continue
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                part = self.socket.recv(1 << 16)
            except TimeoutError:
                return None
            if not part:
                raise AgentError("the guest has ended")
            self.received += part

    def ask(self, what: str, seconds: float = 60.0, **arguments):
        self.send({"execute": what, "arguments": arguments})
        answer = self.receive(seconds)
        if answer is None:
            raise AgentError(f"{what}: no answer within {seconds} s")
        if "error" in answer:
            raise AgentError(f"{what}: {answer['error'].get('desc')}")
        return answer["return"]

    def start(self, script: str) -> int:
        """Starts a script of sh and returns the number of its process."""
        environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"]
        given = {"path": "/bin/sh", "arg": ["-c", f"cd\n{script}"], "env": environment, "capture-output": True}
        return self.ask("guest-exec", **given)["pid"]

    def wait(self, pid: int, seconds: float) -> Done:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = self.ask("guest-exec-status", pid=pid)
            if status["exited"]:
                texts = [base64.b64decode(status.get(name, "")).decode(errors="replace") for name in ("out-data", "err-data")]
                return Done(status.get("exitcode", 128 + status.get("signal", 0)), *texts)
            time.sleep(POLL_SECONDS)
        raise AgentError(f"no end within {seconds} s")
