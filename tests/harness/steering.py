"""A client of the service `control`, written from docs/reference/wire.md and not from the product's
sources."""

import base64
import json
import os

from . import peer
from .peer import counted, leb, take_leb

GRANT, BEGIN, HOLD, RATE, CANCEL, GRANTED, REFUSED, EVENT, SNAPSHOT, ENDED = range(90, 100)
DELETES, FOLLOWS, WITHIN = 1, 2, 4
#: How many bytes of a document go into one message.
PART = 32 << 10

WISH = peer.opening("control", b"{}", {"cipher": "chacha20-poly1305"})


class Refused(Exception):
    """The daemon refuses a grant: the number of an error's code, and a reason for people."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


def text(body, at):
    length, at = take_leb(body, at)
    return body[at:at + length], at + length


class Steering:
    """One session with a daemon."""

    def __init__(self, session):
        self.session = session
        self.op = 0
        self.holds = 0
        session.message(peer.START)

    def grant(self, key, path, way="write", seconds=600, more=0, within=None):
        """Asks for a grant for the key with this fingerprint, and returns its token. `within` are directories
        that the copy may not leave."""
        self.op += 1
        listed = b""
        if within is not None:
            more |= WITHIN
            listed = leb(len(within)) + b"".join(counted(os.fsencode(one)) for one in within)
        numbers = (self.op, seconds, {"read": 0, "write": 1}[way], more)
        self.session.message(GRANT, b"".join(map(leb, numbers)) + counted(key.encode()) + counted(os.fsencode(path)) + listed)
        code, body = self.session.next(GRANTED, REFUSED)
        op, at = take_leb(body, 0)
        assert op == self.op, "the answer is to this question"
        number, at = take_leb(body, at)
        if code == REFUSED:
            raise Refused(number, text(body, at)[0].decode())
        assert len(body) == at + 32
        return body[at:]

    def begin(self, document):
        """Tells the daemon to make a copy."""
        self.op += 1
        data = json.dumps(document).encode()
        for at in range(0, len(data), PART):
            is_last = at + PART >= len(data)
            self.session.message(BEGIN, leb(self.op) + leb(int(is_last)) + counted(data[at:at + PART]))

    def hold(self, is_held):
        self.holds += 1
        self.session.message(HOLD, leb(self.holds) + leb(int(is_held)))

    def rate(self, bps, policy=0):
        self.session.message(RATE, leb(policy) + leb(bps) + leb(0))

    def cancel(self):
        self.session.message(CANCEL)

    def snapshot(self):
        """The next snapshot of the copy."""
        _code, body = self.session.next(SNAPSHOT)
        _hold, at = take_leb(body, 0)
        return json.loads(text(body, at)[0])

    def ended(self):
        """Waits for the end of the copy; returns how it ended."""
        whole = b""
        while True:
            _code, body = self.session.next(ENDED)
            op, at = take_leb(body, 0)
            is_last, at = take_leb(body, at)
            assert op == self.op
            whole += text(body, at)[0]
            if is_last:
                return json.loads(whole)


def document(paths, far, path, token, key=None, direction="pull", options=None, network=None):
    """Tells a daemon what to copy: its own `paths`, named as a client would name them, and `path` at the
    daemon `far`."""
    encoded = [base64.b64encode(os.fsencode(one)).decode() for one in paths]
    return {
        "copy": {"direction": direction, "paths": encoded, "options": options or {}},
        "network": network or {},
        "far": {"host": far.host.v4, "port": far.port, "key": key or far.fingerprint,
                "path": base64.b64encode(os.fsencode(path)).decode(), "grant": base64.b64encode(token).decode()},
    }
