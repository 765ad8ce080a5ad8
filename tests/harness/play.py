"""A test plays one end of a session and the real binary the other, over ssh and at a daemon."""

import contextlib
import socket
import subprocess
import sys
import threading
import traceback

from . import peer
from .product import ROOT, cp, tls_pipe

RELAY = ROOT / "tests/harness/relay.py"
SECONDS_MAX = 45


class FarEnd:
    """A far end that `--remote-program` starts. `script` gets the hello and the session; an exception of it
    fails the test."""

    def __init__(self, net, script, **reply):
        self.path = net.folder("far-end") / "socket"
        self.program = f"{sys.executable} {RELAY} {self.path}"
        self.script, self.reply = script, reply
        self.error = None
        self.closed_with = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(1)
        self.listener.settimeout(SECONDS_MAX)
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self):
        try:
            with self.listener.accept()[0] as stream:
                stream.settimeout(SECONDS_MAX)
                hello, session = peer.answer(stream, **self.reply)
                with contextlib.suppress(peer.Closed):
                    self.script(hello, session)
                self.closed_with = session.closed_with or session.drain()
        except peer.Closed:
            pass
        except Exception:
            self.error = traceback.format_exc()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.thread.join(SECONDS_MAX)
        assert self.error is None, self.error


def with_far_end(net, script, *arguments, **reply):
    """Runs `farhaul cp` on alpha with `script` as the far end of `beta:`. Arguments and outcome are those of
    `cp`."""
    with FarEnd(net, script, **reply) as far:
        outcome = cp(net.alpha, "--cipher", "chacha20-poly1305", "--remote-program", far.program, *arguments,
                     check=False, timeout=SECONDS_MAX)
    outcome.closed_with = far.closed_with
    return outcome


@contextlib.contextmanager
def program(host, argv, **options):
    """A stream to the standard input and output of a process."""
    ours, theirs = socket.socketpair()
    with ours:
        process = host.start(argv, stdin=theirs, stdout=theirs, **options)
        theirs.close()
        ours.settimeout(SECONDS_MAX)
        try:
            yield ours, process
            # A process that still writes would wait for a reader.
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
                while ours.recv(1 << 20):
                    pass
            process.wait(SECONDS_MAX)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def endpoint(host, wish, cwd=None, **hello):
    """A session with `farhaul endpoint` on `host`: (reply, session or None, process)."""
    with program(host, ["farhaul", "endpoint"], cwd=cwd, stderr=subprocess.PIPE) as (stream, process):
        reply, session = peer.ask(stream, wish, **hello)
        yield reply, session, process


@contextlib.contextmanager
def session_with(host, daemon, key, wish, **hello):
    """A session from `host` with a daemon, under the key in this file: (reply, session or None)."""
    argv = [tls_pipe(), "connect", f"{daemon.host.v4}:{daemon.port}", key]
    with program(host, argv, stderr=subprocess.DEVNULL) as (stream, _process):
        yield peer.ask_daemon(stream, wish, **hello)


def daemon_session(net, wish, **hello):
    """A session with the daemon on beta as alpha's user: (reply, session or None)."""
    return session_with(net.alpha, net.daemon, net.alpha.home / ".config/farhaul/id_ed25519", wish, **hello)


@contextlib.contextmanager
def attach(net, ticket, index):
    """The daemon's answer to a further carrier of a session. The carrier lasts as long as this context."""
    argv = [tls_pipe(), "connect", f"{net.beta.v4}:{net.daemon.port}", net.alpha.home / ".config/farhaul/id_ed25519"]
    with program(net.alpha, argv, stderr=subprocess.DEVNULL) as (stream, _process):
        yield peer.attach(stream, ticket, index)


@contextlib.contextmanager
def other_daemon(net, port, script=None, alpn="farhaul"):
    """A program on a TCP port of beta that speaks the TLS of a daemon. `script` gets the stream behind the
    exported secret."""
    key = net.folder("identity") / "key"
    net.beta.run(["farhaul", "keygen", "-f", key], check=True)
    argv = [tls_pipe(), "listen", f"{net.beta.v4}:{port}", key, alpn]
    with program(net.beta, argv, stderr=subprocess.PIPE) as (stream, process):
        assert process.stderr.readline() == b"listening\n"
        failed = []

        def serve():
            try:
                peer.read_exactly(stream, 32)
                script(stream)
            except peer.Closed:
                pass
            except Exception:
                failed.append(traceback.format_exc())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        process.kill()
        thread.join(SECONDS_MAX)
        assert not failed, failed
