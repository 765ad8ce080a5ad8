"""A job that somebody has paused: in whatever phase it is, nothing changes any more at either end once it is said to be
paused, and it goes on from there. The same for one that is cancelled."""

import contextlib
import datetime
import http.client
import itertools
import json
import os
import signal
import shutil
import socket
import threading
import time

import pytest

from conftest import make_net
from harness.hosts import wait_until
from harness.product import EXIT_INTERRUPTED, EXIT_USAGE
from harness.service import FINAL, Service
from harness.three import ThreeNet
from harness.trees import differences

MIB = 1 << 20
NUMBERS = itertools.count()
MANY = 5000


@pytest.fixture(scope="module")
def service():
    net = make_net()
    made = Service(net, net.alpha, far=net.daemon)
    # Many small files belong in memory; what is about disks stays outside of these.
    for host, folder in ((net.alpha, net.folder("near")), (net.beta, net.daemon.root / "memory")):
        folder.mkdir(exist_ok=True)
        net.pair.mount_memory(folder, 1400)
        setattr(made, f"memory_{host.name}", folder)
    yield made
    net.pair.close()


def ask(service, *request):
    """Asks the API as a program does, which takes less time than the command line."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.fspath(service.socket))
    with contextlib.closing(connection):
        connection.request(*request, headers={"Host": "localhost"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status == 409:
            raise TooLate(told)
        return told


class TooLate(Exception):
    """The job was over before the deed."""


def state(service, id):
    return ask(service, "GET", f"/api/v1/jobs/{id}")["state"]


def act(service, id, deed, passing=("pausing", "running")):
    """Pauses or cancels a job; returns what is said of its state until that is settled."""
    states = [ask(service, "POST", f"/api/v1/jobs/{id}/{deed}")["state"]]
    while states[-1] in passing:
        time.sleep(0.02)
        states.append(state(service, id))
    return states


def cancel(service, id):
    return act(service, id, "cancel", passing=("pausing", "running", "paused"))


def go_on(service, *ids):
    """Resumes jobs, without the rate that has made them slow, and waits for their ends."""
    for id in ids:
        service.run("set", id, "--rate", "1G")
    service.run("resume", *ids)
    service.wait(*ids)


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


def has_chunks(folder):
    """Whether chunks of a large file have arrived: its journal has grown."""
    return any(journal.stat().st_size > 200 for journal in folder.glob(".*.fhjournal"))


def read_by(process):
    """The bytes that a process has read from files so far."""
    lines = dict(line.split(": ") for line in open(f"/proc/{process.pid}/io").read().splitlines())
    return int(lines["rchar"])


class Phase:
    """A job in which one phase takes long: its trees, its command line, and whether the phase has begun."""

    #: The names of many entries go over the link slowly, so that the phase takes long, whatever the disk.
    options = ("--rate", "1M")
    #: Where the trees lie: in memory, or on the disk.
    in_memory = True

    def __init__(self, service, name):
        near, far = service.memory_alpha, service.memory_beta
        if not self.in_memory:
            near, far = service.net.folder("near"), service.far.root
        # A test that is repeated finds what it left behind.
        name = f"{name}-{next(NUMBERS)}"
        self.source, self.far = near / f"source-{name}", far / name
        self.source.mkdir()
        self.prepare()
        self.far_process = service.far.process
        self.read_before = read_by(self.far_process)

    def arrive(self, service):
        to = self.far.relative_to(service.far.root)
        return service.submit("--sync", f"{self.source}/", *service.to_far(to), *self.options)

    def has_begun(self):
        return entries(self.far) > 50

    def has_read(self, bytes):
        return read_by(self.far_process) - self.read_before > bytes


class Directories(Phase):
    def prepare(self):
        fill(self.source, every(), os.mkdir)


class EmptyFiles(Phase):
    def prepare(self):
        fill(self.source, every(), empty)


class SmallFiles(Phase):
    in_memory = False

    def prepare(self):
        fill(self.source, every(2000), small)


class Content(Phase):
    options = ("--rate", "30M")
    in_memory = False

    def prepare(self):
        (self.source / "file").write_bytes(os.urandom(MIB) * 16)

    def has_begun(self):
        return has_chunks(self.far)


class Deleting(Phase):
    options = ("--delete", "--no-delete-guard")

    def prepare(self):
        (self.source / "file").write_bytes(b"stays")
        fill(self.far, every(20_000), empty)

    def has_begun(self):
        return entries(self.far) < 19_980


class Modes(Phase):
    options = ("--rate", "1M")

    def prepare(self):
        for folder, mode in ((self.source, 0o600), (self.far, 0o644)):
            fill(folder, every(20_000), lambda path: empty(path, mode))
            for name in every(20_000):
                os.utime(folder / name, (1, 1))

    def has_begun(self):
        # A file system lists names in an order of its own.
        return any((self.far / name).stat().st_mode & 0o777 == 0o600 for name in ("00050", "19950"))


class Links(Phase):
    def prepare(self):
        fill(self.source, every(), lambda path: os.symlink("nowhere", path))


class HardLinks(Phase):
    options = ("--rate", "1M")

    def prepare(self):
        small(os.fspath(self.source / "first"))
        fill(self.source, every(8000), lambda path: os.link(self.source / "first", path))


class Renames(Phase):
    options = ("--delete", "--no-delete-guard", "--detect-renames", "--rate", "1M")

    def prepare(self):
        fill(self.source / "new", every(2000), small)
        fill(self.far / "old", every(2000), lambda path: None)
        for name in every(2000):
            there = self.source / "new" / name
            (self.far / "old" / name).write_bytes(there.read_bytes())
            os.utime(self.far / "old" / name, ns=(there.stat().st_mtime_ns,) * 2)

    def has_begun(self):
        return entries(self.far / "new") > 100


class Comparing(Phase):
    options = ("--checksum", "--rate", "1M")

    def prepare(self):
        for folder in (self.source, self.far):
            fill(folder, every(2000), lambda path: open(path, "wb").write(b"x" * 20_000))

    def has_begun(self):
        return self.has_read(30 * 20_000)


class ComparingOne(Phase):
    """One file takes long to read."""

    options = ("--checksum",)

    def prepare(self):
        for folder in (self.source, self.far):
            folder.mkdir(exist_ok=True)
            (folder / "file").write_bytes(b"x" * 300 * MIB)

    def has_begun(self):
        return self.has_read(2 * MIB)


class Readback(Phase):
    """Content is read again before its file has its name."""

    options = ("--verify", "readback")
    in_memory = False

    def prepare(self):
        (self.source / "file").write_bytes(os.urandom(MIB) * 160)

    def has_begun(self):
        return self.has_read(2 * MIB)


class Patching(Phase):
    """The old version of a file is read, and copied into the new one."""

    in_memory = False

    def prepare(self):
        bytes = os.urandom(MIB) * 96
        self.far.mkdir(mode=0o755)
        (self.far / "file").write_bytes(bytes)
        (self.source / "file").write_bytes(bytes[:-1] + b"!")

    def has_begun(self):
        return self.has_read(2 * MIB)


class Scanning(Phase):
    """The names of a tree are read faster than they are told."""

    options = ("--rate", "1M")

    def prepare(self):
        small(os.fspath(self.source / "first"))
        for number in range(20):
            fill(self.source / f"d{number}", every(2000), lambda path: os.link(self.source / "first", path))

    def has_begun(self):
        return entries(self.far) > 0


PHASES = [Directories, EmptyFiles, SmallFiles, Content, Deleting, Modes, Links, HardLinks, Renames, Comparing, ComparingOne,
          Readback, Patching, Scanning]


class PausedJob:
    """What was seen of a job that was paused in a phase, and went on."""

    def __init__(self, service, kind):
        # On a busy machine, a phase may be over before anybody has seen that it has begun.
        for attempt in range(5):
            self.phase = kind(service, f"{kind.__name__}{attempt}")
            self.id = self.phase.arrive(service)
            wait_until(self.phase.has_begun, 60, 0.002, f"{kind.__name__} has begun")
            with contextlib.suppress(TooLate):
                self.said = act(service, self.id, "pause")
                self.before = self.look()
                if self.said[-1] not in FINAL:
                    return
            shutil.rmtree(self.phase.source)
            shutil.rmtree(self.phase.far)
        raise AssertionError(f"{kind.__name__} is too short a phase")

    def look(self):
        return look(self.phase.far), look(self.phase.source)

    def found(self, service):
        """How much of the source is known."""
        return service.job(self.id)["progress"]["files_total"]


@pytest.fixture(scope="module")
def paused(service):
    """Jobs, each paused in its phase, so that all of them are watched at the same time."""
    jobs = {kind: PausedJob(service, kind) for kind in PHASES}
    ends = [service.far.process, service.daemon.process]
    reads = [read_by(end) for end in ends]
    # What is known of a job is noted once a second.
    time.sleep(1.1)
    found = [job.found(service) for job in jobs.values()]
    time.sleep(1.1)
    # What the processes read besides are wake-ups of their threads.
    reads = [read_by(end) - before for end, before in zip(ends, reads)]
    for job, before in zip(jobs.values(), found):
        job.state, job.after, job.news = state(service, job.id), job.look(), job.found(service) - before
    go_on(service, *(job.id for job in jobs.values()))
    return jobs, reads


@pytest.mark.parametrize("kind", PHASES, ids=lambda kind: kind.__name__)
def test_nothing_changes_while_a_job_is_paused(paused, kind):
    job = paused[0][kind]
    assert job.said[-1] == "paused" and set(job.said) <= {"pausing", "paused"}, job.said
    assert job.after == job.before
    assert job.news == 0, "it scans"
    assert job.state == "paused"
    assert differences(job.phase.source, job.phase.far) == []


def test_nothing_is_read_while_jobs_are_paused(paused):
    assert max(paused[1]) < 20_000, paused[1]


def test_a_job_is_pausing_until_the_far_end_has_said_that_it_has_stopped(service):
    phase = Content(service, "pausing")
    id = phase.arrive(service)
    # As early as its first directory is there: the far end has begun, and no more is known of it.
    wait_until(phase.far.exists, 60, 0.0005, "the far end has begun")
    far = service.far.process
    far.send_signal(signal.SIGSTOP)
    try:
        said = []
        waiting = threading.Thread(target=lambda: said.extend(act(service, id, "pause")))
        waiting.start()
        wait_until(lambda: state(service, id) == "pausing", 5, 0.1, "the job is pausing")
        time.sleep(1)
        assert state(service, id) == "pausing"
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


def test_a_job_that_is_paused_while_it_connects_asks_the_far_end_for_nothing(service):
    """A far end that does not answer has not begun, so that the job is paused at once; and it stays so when the far end
    can be reached again."""
    phase = Content(service, "connecting")
    far = service.far.process
    far.send_signal(signal.SIGSTOP)
    try:
        id = phase.arrive(service)
        wait_until(lambda: state(service, id) == "running", 10, 0.02, "the job runs")
        time.sleep(0.3)
        assert act(service, id, "pause") == ["pausing", "paused"] or state(service, id) == "paused"
        far.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert not phase.far.exists() and state(service, id) == "paused"
        go_on(service, id)
    finally:
        far.send_signal(signal.SIGCONT)
    assert differences(phase.source, phase.far) == []


def test_the_command_line_returns_when_both_ends_have_stopped_and_a_paused_job_can_be_cancelled(service):
    # As in `PausedJob`: on a busy machine both ends may have nothing left to do when they are told to pause.
    for attempt in range(5):
        phase = HardLinks(service, f"by-hand{attempt}")
        id = phase.arrive(service)
        wait_until(phase.has_begun, 60, 0.002, "the phase has begun")
        service.run("pause", id)
        before = look(phase.far)
        assert service.stderr in (f"{id}: paused\n", f"{id}: done\n")
        service.run("pause", id, expect=EXIT_USAGE)
        with contextlib.suppress(TooLate):
            assert cancel(service, id)[-1] == "cancelled"
            break
    else:
        pytest.fail("the job was done before it could be paused and cancelled, five times")
    after = look(phase.far)
    assert after.keys() == before.keys() and len(before) > 100
    time.sleep(0.5)
    assert look(phase.far) == after
    service.run("resume", id, expect=EXIT_USAGE)
    assert "is over: it is cancelled" in service.stderr, service.stderr


def test_nothing_changes_after_a_job_is_said_to_be_cancelled(service):
    # As in `PausedJob`: on a busy machine everything may be deleted before anybody has seen that it has begun.
    for attempt in range(5):
        phase = Deleting(service, f"cancelled{attempt}")
        id = phase.arrive(service)
        wait_until(phase.has_begun, 60, 0.005, "the phase has begun")
        with contextlib.suppress(TooLate):
            said = cancel(service, id)
            break
    else:
        pytest.fail("everything was deleted before the job could be cancelled, five times")
    before = look(phase.far)
    assert said[-1] == "cancelled", said
    time.sleep(1)
    assert look(phase.far) == before and len(before) > 100


def test_a_job_stays_paused_while_its_service_is_away_and_goes_on_from_there(service):
    phase = Content(service, "restarted")
    phase.far.mkdir(mode=0o755)
    id = phase.arrive(service)
    wait_until(phase.has_begun, 60, 0.005, "content arrives")
    assert act(service, id, "pause")[-1] == "paused"
    began = time.monotonic()
    assert service.daemon.stop() == 0
    assert time.monotonic() - began < 8, "a paused job holds up no end of the service"
    there = {path: facts[3] for path, facts in look(phase.far).items()}
    service.daemon.start()
    time.sleep(1)
    assert state(service, id) == "paused"
    assert {path: facts[3] for path, facts in look(phase.far).items()} == there
    go_on(service, id)
    assert differences(phase.source, phase.far) == []
    (record,) = (one for one in service.json("history") if one["job"] == id)
    assert record["wire_bytes"] < 20 * MIB, record


def test_a_job_that_waits_for_its_time_waits_on_when_it_is_resumed(service):
    id = service.submit("zero:1000", "null:", "--not-before", "2099-01-01T00:00:00Z")
    due = service.job(id)["due"]
    service.run("pause", id)
    assert service.stderr == f"{id}: paused\n"
    service.run("resume", id)
    assert service.stderr == f"{id}: waiting\n"
    assert service.job(id)["due"] == due
    service.run("cancel", id)


# ---- between two daemons ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three():
    net = ThreeNet()
    yield net
    net.pair.close()


def test_a_copy_between_two_daemons_is_paused_when_both_of_them_have_stopped(three):
    service = Service(three, three.alpha)
    for daemon in (three.b, three.c):
        daemon.keys.write_text(daemon.keys.read_text() + service.key)
        service.host.run(["farhaul", "ls", "--accept-new", "-i", service.daemon.identity, daemon.url()], check=True)
    (three.b.root / "tree").mkdir()
    (three.b.root / "tree/file").write_bytes(os.urandom(MIB) * 16)
    there = three.c.root / "tree"
    id = service.submit(three.b.url("tree"), three.c.url(""), "--rate", "60M")
    # Before its first snapshot has come, and when it runs.
    assert act(service, id, "pause")[-1] == "paused"
    before = look(three.c.root)
    time.sleep(1)
    assert look(three.c.root) == before
    service.run("resume", id)
    wait_until(lambda: has_chunks(there), 30, 0.01, "content arrives")
    for _ in range(3):
        # What was said of the last pause says nothing of the next one.
        assert act(service, id, "pause")[-1] == "paused"
        before = look(three.c.root)
        time.sleep(0.3)
        assert look(three.c.root) == before
        ask(service, "POST", f"/api/v1/jobs/{id}/resume")
    service.wait(id)
    assert differences(three.b.root / "tree", there) == []


# ---- in real time ----------------------------------------------------------------------------------------------------


@pytest.fixture
def own(own_net):
    return Service(own_net, own_net.alpha, far=own_net.daemon)


class DeletingVeryMany(Phase):
    """Takes longer than any limit: hard links, as these are soon made."""

    options = ("--delete", "--no-delete-guard")
    count = 600_000

    def prepare(self):
        (self.source / "file").write_bytes(b"stays")
        for number in range(self.count // 30_000):
            small(os.fspath(self.far.parent / f"first{number}"))
            fill(self.far / f"d{number}", every(30_000), lambda path: os.link(self.far.parent / f"first{number}", path))

    def left(self):
        return sum(entries(folder) for folder in self.far.iterdir() if folder.is_dir())

    def has_begun(self):
        return self.left() < self.count - 1000


@pytest.mark.slow
def test_an_end_that_is_not_heard_stops_by_itself_and_goes_on_when_it_is_heard_again(own):
    """8 s without a word stop an end, 10 s make its peer sure of that."""
    own.memory_alpha, own.memory_beta = own.net.folder("near"), own.far.root / "memory"
    own.memory_beta.mkdir()
    own.net.pair.mount_memory(own.memory_beta, 1024)
    phase = DeletingVeryMany(own, "silence")
    id = phase.arrive(own)
    wait_until(phase.has_begun, 60, 0.01, "it deletes")
    with own.net.beta.dropping("meta l4proto { tcp, udp }"), own.net.alpha.dropping("meta l4proto { tcp, udp }"):
        cut = time.monotonic()
        time.sleep(2)
        assert ask(own, "POST", f"/api/v1/jobs/{id}/pause")["state"] == "pausing"
        while time.monotonic() < cut + 7:
            time.sleep(0.1)
        still_deletes = phase.left()
        time.sleep(0.3)
        assert phase.left() < still_deletes, "it was not heard for less than 8 s"
        wait_until(lambda: time.monotonic() > cut + 9, 5)
        left = phase.left()
        assert left > 1000, "the phase takes too short a time for this test"
        while (said := state(own, id)) == "pausing":
            time.sleep(0.05)
        took = time.monotonic() - cut
        assert said == "paused" and 9 < took < 12, (said, took)
        assert phase.left() == left
    time.sleep(3)
    assert phase.left() == left and state(own, id) == "paused"
    own.run("resume", id)
    own.wait(id)
    assert entries(phase.far) == 1


@contextlib.contextmanager
def nat(host, ports):
    """While it lasts, the host is behind a NAT that forgets a mapping of UDP after 5 s without a packet. Yields a function
    that makes it forget all of them at once."""
    settings = {"nf_conntrack_udp_timeout": 5, "nf_conntrack_udp_timeout_stream": 5}
    for name, value in settings.items():
        host.run(["sysctl", "-q", "-w", f"net.netfilter.{name}={value}"], check=True)

    def rules(first):
        return f"""table ip nat {{
            chain out {{ type nat hook postrouting priority srcnat; meta l4proto udp snat to {host.v4}:{first}-{first + 999}; }}
            chain in {{ type filter hook input priority 0; meta l4proto udp ct state new drop; }}
        }}"""

    host.nft(rules(ports))
    try:
        yield
    finally:
        host.nft("delete table ip nat")


@pytest.mark.slow
def test_a_paused_job_goes_on_behind_a_nat_that_soon_forgets(own):
    """What keeps the session alive keeps the mapping, too, and costs next to nothing."""
    with nat(own.net.alpha, 40_000):
        own.memory_alpha, own.memory_beta = own.net.folder("near"), own.far.root
        phase = Content(own, "nat")
        phase.far.mkdir(mode=0o755)
        id = phase.arrive(own)
        wait_until(phase.has_begun, 60, 0.01, "content arrives")
        assert act(own, id, "pause")[-1] == "paused"
        time.sleep(2)
        before = own.net.alpha.device_bytes()
        time.sleep(20)
        bytes = own.net.alpha.device_bytes() - before
        assert bytes * 180 < 6_000_000, f"{bytes * 180} bytes an hour"
        assert own.job(id)["progress"]["transport"] == "udp"
        own.run("resume", id)
        own.wait(id)
        assert differences(phase.source, phase.far) == []
        (record,) = own.json("history")
        assert record["attempts"] == 1, record


@pytest.mark.slow
def test_a_job_that_is_paused_for_long_gives_back_its_session_and_goes_on_by_another_one(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon, env={"FARHAUL_JOBS_PAUSED_RELEASE": "3s"})
    service.memory_alpha, service.memory_beta = own_net.folder("near"), service.far.root
    phase = Content(service, "released")
    phase.far.mkdir(mode=0o755)
    id = phase.arrive(service)
    wait_until(phase.has_begun, 60, 0.01, "content arrives")
    assert act(service, id, "pause")[-1] == "paused"
    there = {path: facts[3] for path, facts in look(phase.far).items()}
    wait_until(lambda: service.job(id)["progress"] is None, 20, 0.1, "the session is given back")
    assert state(service, id) == "paused"
    assert {path: facts[3] for path, facts in look(phase.far).items()} == there
    go_on(service, id)
    assert differences(phase.source, phase.far) == []


@pytest.mark.slow
def test_a_deadline_that_a_pause_makes_impossible_is_told_while_the_job_is_paused(own):
    own.run("cap", "set", "host", "--rate", "40M")
    by = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=25)
    id = own.submit("zero:40M", *own.to_far("null:"), "--finish-by", by.isoformat())
    wait_until(lambda: (own.job(id)["progress"] or {}).get("bytes_done", 0) > MIB, 30, what="content moves")
    assert act(own, id, "pause")[-1] == "paused"
    assert own.job(id)["promise"]["state"] == "kept", own.job(id)["promise"]
    wait_until(lambda: own.job(id)["promise"]["state"] == "late", 30, what="the promise is broken")
    assert datetime.datetime.now(datetime.timezone.utc) < by, "it is told before the deadline"
    assert "not done by" in own.run("logs", id), own.run("logs", id)
    assert state(own, id) == "paused"
    own.run("cancel", id)
