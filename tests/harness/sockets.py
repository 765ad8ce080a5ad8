"""Sockets of a host, used by the test's own process: a socket stays in the network namespace in which it was made."""

import contextlib
import ctypes
import os
import socket
import threading

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
WAIT = 60


def within(host, make):
    """The value of `make()`, called by a thread that is in the host's network."""
    made = []

    def enter():
        with open(f"/run/netns/{host.netns}") as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                made.append((None, OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))))
                return
        try:
            made.append((make(), None))
        except OSError as error:
            made.append((None, error))

    # The thread ends, so that nothing else is ever in that namespace.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    value, error = made[0]
    if error is not None:
        raise error
    return value


def connect(host, port, address="127.0.0.1"):
    """A connection from the host to a port, its own by default."""
    stream = within(host, lambda: socket.create_connection((str(address), port), WAIT))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def listen(host, address="127.0.0.1", port=0):
    """A socket that listens on the host."""
    def make():
        family = socket.AF_INET6 if ":" in str(address) else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(256)
        listener.settimeout(WAIT)
        return listener
    return within(host, make)


def read_all(stream):
    """What comes up to the end."""
    parts = []
    while data := stream.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


class Server:
    """Serves each connection to a port of a host in a thread of its own, by `talk(stream)`; by default it sends back what
    comes, and ends when the other side does."""

    def __init__(self, host, talk=None, address="127.0.0.1"):
        self.listener = listen(host, address)
        self.port = self.listener.getsockname()[1]
        self.talk = talk or self.echo
        self.count = 0
        self.streams = []
        threading.Thread(target=self._run, daemon=True).start()

    @staticmethod
    def echo(stream):
        while data := stream.recv(1 << 16):
            stream.sendall(data)

    def _run(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.count += 1
            self.streams.append(stream)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        with stream:
            stream.settimeout(WAIT)
            try:
                self.talk(stream)
            except OSError:
                pass

    def close(self):
        # A thread that waits in a socket keeps it open, and with it the host's network, unless it is woken.
        for waiting in (self.listener, *self.streams):
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
