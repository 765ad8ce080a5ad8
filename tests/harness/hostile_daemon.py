"""A daemon that a test plays, on a host of a trio: it speaks the TLS of a daemon over TCP, and lies as the test says.

Always true: it is written from docs/reference/wire.md and not from the product's sources.
"""

import contextlib
import json
import subprocess
import threading
import traceback

from . import peer
from .peer import counted, leb, take_leb
from .play import SECONDS_MAX, program
from .product import tls_pipe
from .steering import BEGIN, ENDED, EVENT, SNAPSHOT

ENTRIES = 100


def report(**changes):
    """The report of a copy of one small file, and the changes of a test."""
    honest = {"schema": 1, "ok": True, "error": None, "complete": True, "files": 1, "directories": 0, "links": 0, "skipped": 0,
              "deleted": 0, "bytes_resumed": 0, "failed": [], "failed_count": 0, "bytes": 7, "seconds": 1.5, "goodput_bps": 1.0,
              "wire_bytes_sent": 1, "segments_sent": 1, "segments_retransmitted": 0, "segments_proactive": 0,
              "segments_duplicate": 0, "content_bytes_resent": 0, "content_bytes_sent": 0, "rtt_min_ms": 0.1, "rtt_mean_ms": 0.1,
              "loss_fraction": 0.0, "flows": 1, "cipher": "aes-128-gcm", "transport": "udp", "cpu_seconds_local": 0.1,
              "cpu_seconds_remote": 0.1, "peak_rss_bytes_local": 1, "peak_rss_bytes_remote": 1, "bottleneck": "", "stages": [],
              "warnings": []}
    return {**honest, **changes}


def snapshot(**changes):
    """How such a copy stands, and the changes of a test."""
    honest = {"id": "x", "state": "running", "seconds": 1.0, "bytes_total": 7, "files_total": 1, "totals_known": True,
              "bytes_done": 0, "bytes_skipped": 0, "files_done": 0, "failed": 0, "vanished": 0, "goodput_bps": 0.0,
              "goodput_mean_bps": 0.0, "peer": "gamma", "transport": "udp", "rate_target_bps": None, "rtt_ms": 0.0,
              "loss_fraction": 0.0, "wire_bytes_sent": 0, "paths": [], "stages": [], "limit": ""}
    return {**honest, **changes}


def answer(stream, **changes):
    """The daemon's part of the hello over TCP; returns the hello and the session."""
    secret = peer.read_exactly(stream, 32)
    hello = peer.read_hello(stream)
    ids = [1000 + number for number in range(len(hello["flow_ids"]))]
    reply = peer.greeting("reply", features=peer.FEATURES, refusal=None, flow_ids=ids, udp_ports=[])
    reply.update(changes)
    peer.write_hello(stream, reply)
    key_len = 16 if hello["network"].get("cipher", "aes-128-gcm") == "aes-128-gcm" else 32
    return hello, peer.Peer(stream, secret, 1, hello["flow_ids"][-1], ids[-1], len(ids) - 1, key_len)


class Carrier:
    """The daemon's words to a client that lets it make a copy."""

    def __init__(self, session, op):
        self.session, self.op = session, op

    def event(self, **fields):
        self.session.message(EVENT, counted(json.dumps(fields).encode()))

    def snapshot(self, document):
        self.session.message(SNAPSHOT, leb(0) + counted(document if isinstance(document, bytes) else json.dumps(document).encode()))

    def entries(self, content):
        for at in range(0, len(content), 32 << 10):
            self.session.message(ENTRIES, leb(self.op) + counted(content[at:at + (32 << 10)]))

    def ended(self, document, op=None):
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        for at in range(0, max(len(content), 1), 32 << 10):
            is_last = at + (32 << 10) >= len(content)
            self.session.message(ENDED, leb(self.op if op is None else op) + leb(int(is_last)) + counted(content[at:at + (32 << 10)]))


class HostileDaemon:
    """Listens on a port of `host` for as many connections as it has scripts, one after the other. A script gets the hello
    and the session."""

    def __init__(self, host, identity, port, *scripts):
        self.host, self.identity, self.port, self.scripts = host, identity, port, scripts
        self.failed = []
        self.is_over = threading.Event()

    def url(self, path=""):
        return f"fh://{self.host.name}:{self.port}/{path}"

    def __enter__(self):
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.ready.wait(SECONDS_MAX)
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join(SECONDS_MAX)
        assert not self.failed, self.failed[0]

    def _run(self):
        for script in self.scripts:
            if self.is_over.is_set():
                return
            argv = [tls_pipe(), "listen", f"{self.host.v4}:{self.port}", self.identity]
            with program(self.host, argv, stderr=subprocess.PIPE) as (stream, process):
                try:
                    assert process.stderr.readline() == b"listening\n"
                    self.ready.set()
                    self._serve(script, stream)
                except peer.Closed:
                    pass
                except Exception:
                    self.failed.append(traceback.format_exc())
                finally:
                    self.ready.set()
                    process.kill()

    def _serve(self, script, stream):
        while not self.is_over.is_set():
            stream.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                stream.recv(1, 2)  # MSG_PEEK
                break
        if self.is_over.is_set():
            return
        stream.settimeout(SECONDS_MAX)
        hello, session = answer(stream)
        session.message(peer.START)
        script(hello, session)
        with contextlib.suppress(TimeoutError):
            session.drain()

    def carries(self, script):
        """A script that takes a client's commission, and then does what `script` does with a `Carrier`."""
        def carry(_hello, session):
            is_last = False
            while not is_last:
                _code, body = session.next(BEGIN)
                op, at = take_leb(body, 0)
                is_last, at = take_leb(body, at)
            script(Carrier(session, op))
        return carry

