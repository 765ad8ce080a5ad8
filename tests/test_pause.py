"""A job that somebody has paused: in whatever phase it is, nothing changes any more at either end once it is said to be
paused, and it goes on from there."""

import http.client
import json
import os
import signal
import socket
import threading
import time

import pytest

from conftest import make_net
from harness.hosts import wait_until
from harness.product import EXIT_INTERRUPTED
from harness.service import Service
from harness.trees import differences

MIB = 1 << 20
MANY = 1000


@pytest.fixture(scope="module")
def service():
    net = make_net()
    yield Service(net, net.alpha, far=net.daemon)
    net.pair.close()


def act(service, id, deed):
    """Pauses or cancels a job as a program does, which takes less time than the command line; returns what is said of its
    state until that is settled."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.fspath(service.socket))
    states = []
    request = ("POST", f"/api/v1/jobs/{id}/{deed}")
    while not states or states[-1] in ("pausing", "running"):
        connection.request(*request, headers={"Host": "localhost"})
        states.append(json.loads(connection.getresponse().read())["state"])
        request = ("GET", f"/api/v1/jobs/{id}")
        time.sleep(0.02)
    return states


def fill(folder, names, make):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(os.fspath(folder / name))


def empty(path, mode=0o644):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))


def small(path):
    with open(path, "wb") as file:
        file.write(path.encode())


def every(count=MANY):
    return (f"{number:05}" for number in range(count))


def look(root):
    """Everything that the file system tells of a tree: whatever is changed has another ctime."""
    found = {}
    for folder, directories, files in os.walk(root):
        for name in [*directories, *files, "."]:
            path = os.path.join(folder, name)
            there = os.lstat(path)
            found[path] = (there.st_ino, there.st_mode, there.st_nlink, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
    return found


def entries(root):
    return len(os.listdir(root)) if root.exists() else 0


def read_by(process):
    """The bytes that a process has read so far."""
    lines = dict(line.split(": ") for line in open(f"/proc/{process.pid}/io").read().splitlines())
    return int(lines["rchar"])


class Phase:
    """A job in which one phase takes long: its trees, its command line, and whether the phase has begun."""

    #: The names of many entries go over the link slowly, so that the phase takes long, whatever the disk.
    options = ("--rate", "1M")

    def __init__(self, service, name):
        self.source = service.net.folder("near") / f"source-{name}"
        self.far = service.far.root / name
        self.source.mkdir()
        self.prepare()

    def arrive(self, service):
        return service.submit("--sync", f"{self.source}/", *service.to_far(self.far.name), *self.options)

    def has_begun(self):
        return entries(self.far) > 50


class Directories(Phase):
    def prepare(self):
        fill(self.source, every(), os.mkdir)


class EmptyFiles(Phase):
    def prepare(self):
        fill(self.source, every(), empty)


class SmallFiles(Phase):
    def prepare(self):
        fill(self.source, every(), small)


class Content(Phase):
    options = ("--rate", "60M")

    def prepare(self):
        (self.source / "file").write_bytes(os.urandom(MIB) * 24)

    def has_begun(self):
        parts = list(self.far.glob(".*.fhpart")) if self.far.exists() else []
        return sum(part.stat().st_blocks for part in parts) * 512 > 2 * MIB


class Deleting(Phase):
    options = ("--delete", "--no-delete-guard")

    def prepare(self):
        (self.source / "file").write_bytes(b"stays")
        fill(self.far, every(8000), empty)

    def has_begun(self):
        return entries(self.far) < 7980


class Modes(Phase):
    options = ("--rate", "400K")

    def prepare(self):
        for folder, mode in ((self.source, 0o600), (self.far, 0o644)):
            fill(folder, every(4000), lambda path: empty(path, mode))
            for name in every(4000):
                os.utime(folder / name, (1, 1))

    def has_begun(self):
        return (self.far / "00050").stat().st_mode & 0o777 == 0o600


class Links(Phase):
    def prepare(self):
        fill(self.source, every(), lambda path: os.symlink("nowhere", path))


class HardLinks(Phase):
    options = ("--rate", "400K")

    def prepare(self):
        small(os.fspath(self.source / "first"))
        fill(self.source, every(4000), lambda path: os.link(self.source / "first", path))


class Renames(Phase):
    options = ("--delete", "--no-delete-guard", "--detect-renames", "--rate", "1M")

    def prepare(self):
        fill(self.source / "new", every(), small)
        fill(self.far / "old", every(), lambda path: None)
        for name in every():
            there = self.source / "new" / name
            (self.far / "old" / name).write_bytes(there.read_bytes())
            os.utime(self.far / "old" / name, ns=(there.stat().st_mtime_ns,) * 2)

    def has_begun(self):
        return entries(self.far / "new") > 100


PHASES = [Directories, EmptyFiles, SmallFiles, Content, Deleting, Modes, Links, HardLinks, Renames]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_nothing_changes_while_a_job_is_paused(service, phase):
    phase = phase(service, phase.__name__)
    id = phase.arrive(service)
    wait_until(phase.has_begun, 60, 0.005, "the phase has begun")
    said = act(service, id, "pause")
    before = look(phase.far), look(phase.source)
    assert said[-1] == "paused" and set(said) <= {"pausing", "paused"}, said
    time.sleep(1.5)
    assert (look(phase.far), look(phase.source)) == before
    assert service.job(id)["state"] == "paused"
    service.run("resume", id)
    service.wait(id)
    assert differences(phase.source, phase.far) == []


class Comparing(Phase):
    options = ("--checksum", "--rate", "1M")

    def prepare(self):
        for folder in (self.source, self.far):
            fill(folder, every(), lambda path: open(path, "wb").write(b"x" * 20_000))


def test_the_comparing_of_contents_stops_while_a_job_is_paused(service):
    phase = Comparing(service, "Comparing")
    far = service.far.process
    begin = read_by(far)
    id = phase.arrive(service)
    wait_until(lambda: read_by(far) - begin > 30 * 20_000, 60, 0.005, "files are read")
    assert act(service, id, "pause")[-1] == "paused"
    begin = read_by(far)
    time.sleep(1.5)
    # What it reads besides are wake-ups of its threads.
    assert read_by(far) - begin < 20_000
    service.run("resume", id)
    service.wait(id)
    assert differences(phase.source, phase.far) == []


def test_a_job_is_pausing_until_the_far_end_has_said_that_it_has_stopped(service):
    phase = Content(service, "pausing")
    id = phase.arrive(service)
    wait_until(phase.has_begun, 60, 0.005, "content arrives")
    far = service.far.process
    far.send_signal(signal.SIGSTOP)
    try:
        said = []
        waiting = threading.Thread(target=lambda: said.extend(act(service, id, "pause")))
        waiting.start()
        wait_until(lambda: service.job(id)["state"] == "pausing", 5, 0.1, "the job is pausing")
        time.sleep(1)
        assert service.job(id)["state"] == "pausing"
    finally:
        far.send_signal(signal.SIGCONT)
    waiting.join(30)
    before = look(phase.far)
    assert said[0] == "pausing" and said[-1] == "paused", (said[0], said[-1])
    assert "paused" in service.run("jobs")
    time.sleep(0.5)
    assert look(phase.far) == before
    service.run("cancel", id)
    service.wait(id, expect=EXIT_INTERRUPTED)


def test_nothing_changes_after_a_job_is_said_to_be_cancelled(service):
    phase = Deleting(service, "cancelled")
    id = phase.arrive(service)
    wait_until(phase.has_begun, 60, 0.005, "the phase has begun")
    said = act(service, id, "cancel")
    before = look(phase.far)
    assert said[-1] == "cancelled", said
    time.sleep(1)
    assert look(phase.far) == before and len(before) > 100


def test_a_job_that_waits_for_its_time_waits_on_when_it_is_resumed(service):
    id = service.submit("zero:1000", "null:", "--not-before", "2099-01-01T00:00:00Z")
    due = service.job(id)["due"]
    service.run("pause", id)
    assert service.stderr == f"{id}: paused\n"
    service.run("resume", id)
    assert service.stderr == f"{id}: waiting\n"
    assert service.job(id)["due"] == due
    service.run("cancel", id)
