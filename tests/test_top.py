"""`farhaul top` on a terminal: what it draws, what keys do, and that it restores the terminal however it
ends."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_CONNECT, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from harness.screen import Screen
from harness.service import Service

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def service(own_net):
    return Service(own_net, own_net.alpha)


class Terminal:
    """A terminal of 80 by 24 on which `farhaul top` runs."""

    def __init__(self, service, **env):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.ours)
        env = {"FARHAUL_API": os.fspath(service.socket), "TERM": "xterm-256color", "LANG": "C.UTF-8", **env}
        self.process = service.host.start(["farhaul", "top"], env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.screen = Screen()

    def until(self, *texts, seconds=20):
        """Waits until all of these texts are on the screen; returns the bytes that were written until
        then."""
        written = b""
        end = time.monotonic() + seconds
        while not all(text in self.screen.text for text in texts):
            assert time.monotonic() < end, f"no {texts} on\n{self.screen.text}"
            written += self.read()
        return written

    def until_written(self, sequence, seconds=20):
        written = b""
        end = time.monotonic() + seconds
        while sequence not in written:
            assert time.monotonic() < end, written[-500:]
            written += self.read()

    def read(self):
        ready, _, _ = select.select([self.ours], [], [], 0.1)
        data = b""
        if ready:
            with contextlib.suppress(OSError):
                data = os.read(self.ours, 1 << 16)
        self.screen.feed(data)
        return data

    def type(self, keys):
        os.write(self.ours, keys.encode())

    @property
    def is_as_before(self):
        return termios.tcgetattr(self.ours) == self.before

    def end(self):
        """Waits for the end; returns the exit code. Asserts that the terminal is restored."""
        end = time.monotonic() + 10
        written = b""
        while self.process.poll() is None and time.monotonic() < end:
            written += self.read()
        written += self.read()
        assert LEAVE in written and b"\x1b[?25h" in written, written[-500:]
        assert self.is_as_before
        os.close(self.ours)
        return self.process.wait(timeout=5)


def killed_by(signal_number):
    return lambda terminal: terminal.process.send_signal(signal_number)


@pytest.mark.parametrize(("how", "code"), [
    (lambda terminal: terminal.type("q"), EXIT_OK),
    (lambda terminal: terminal.type("\x03"), EXIT_INTERRUPTED),
    (killed_by(signal.SIGTERM), EXIT_INTERRUPTED),
    (killed_by(signal.SIGINT), EXIT_INTERRUPTED),
    (killed_by(signal.SIGHUP), EXIT_INTERRUPTED),
], ids=["q", "ctrl-c", "SIGTERM", "SIGINT", "SIGHUP"])
def test_the_terminal_is_as_before_on_every_way_out(service, how, code):
    terminal = Terminal(service)
    terminal.until_written(ENTER)
    terminal.until("live", "no jobs")
    assert not terminal.is_as_before
    how(terminal)
    assert terminal.end() == code


def test_keys_steer_jobs(service):
    id = service.submit("random:8G", "null:", "--rate", "20M")
    terminal = Terminal(service)
    terminal.until("running", id)
    terminal.type("+")
    terminal.until("has priority 6")
    terminal.type("p")
    terminal.until("is paused")
    wait_until(lambda: service.job(id)["state"] == "paused", what="both ends have stopped")
    assert service.job(id)["priority"] == 6
    terminal.type("r")
    terminal.until("is resumed")
    terminal.type("cn")
    terminal.until("goes on")
    assert service.job(id)["state"] == "running"
    terminal.type("cy")
    service.wait(id, expect=EXIT_INTERRUPTED)
    terminal.until("cancelled")
    terminal.type("q")
    assert terminal.end() == EXIT_OK


def test_it_follows_the_size_of_the_terminal(service):
    id = service.submit("random:8G", "null:", "--rate", "20M")
    terminal = Terminal(service)
    terminal.until(id, "LEFT")
    for lines, columns, there, gone in [(45, 160, "TARGET", "nothing"), (10, 40, "RATE", "LEFT")]:
        fcntl.ioctl(terminal.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        terminal.screen = Screen(columns, lines)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.until(id, there, "q quit")
        assert gone not in terminal.screen.text, terminal.screen.text
    terminal.type("q")
    assert terminal.end() == EXIT_OK


def test_it_stops_for_a_while_and_comes_back(service):
    terminal = Terminal(service)
    terminal.until("live")
    for stop in (lambda: terminal.type("\x1a"), lambda: terminal.process.send_signal(signal.SIGTSTP)):
        stop()
        terminal.until_written(LEAVE)
        # waitid with WSTOPPED alone does not reap the process.
        stopped = os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        assert stopped.si_status == signal.SIGSTOP and terminal.is_as_before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until_written(ENTER)
        terminal.until("farhaul top", "live")
    terminal.type("q")
    assert terminal.end() == EXIT_OK


def test_it_follows_a_service_that_is_started_again(service):
    id = service.submit("random:8G", "null:", "--rate", "20M")
    terminal = Terminal(service, NO_COLOR="1")
    shown = terminal.until("live", id)
    service.daemon.stop()
    shown += terminal.until("ANSWER")
    service.daemon.start()
    shown += terminal.until("answers again")
    # No colour is set: without colours only bold, reverse and their ends are used.
    assert b"\x1b[38;" not in shown and b"\x1b[31m" not in shown and b"\x1b[32m" not in shown
    terminal.type("q")
    assert terminal.end() == EXIT_OK


def test_without_a_terminal_it_says_so_and_prints_one_screen_when_asked(service):
    service.run("top", expect=EXIT_USAGE)
    assert "terminal" in service.stderr and "--once" in service.stderr
    id = service.submit("random:8G", "null:", "--rate", "20M")
    screen = service.run("top", "--once")
    assert id in screen and "random:8G -> null:" in screen and "\x1b" not in screen
    service.daemon.stop()
    service.run("top", "--once", expect=EXIT_CONNECT)


def test_a_terminal_that_is_dumb_is_told_so(service):
    ours, theirs = pty.openpty()
    env = {"FARHAUL_API": os.fspath(service.socket), "TERM": "dumb"}
    done = service.host.start(["farhaul", "top"], env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    _, stderr = done.communicate(timeout=10)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == EXIT_USAGE and b"TERM is dumb" in stderr
