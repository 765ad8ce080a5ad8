"""What the service's store bears: locks of other programs, a full disk, and a service that is killed at any moment."""

import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import pytest

from harness.hosts import HarnessError, wait_until
from harness.node import Node, free_port
from harness.product import binary

#: A job that runs until somebody ends it.
ENDLESS = ("submit", "zero:100G", "null:", "--rate", "80M")


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, listens=False)
    yield node
    kill(node)


def running(node, *more):
    job = node.run(*ENDLESS, *more).strip()
    wait_until(lambda: node.json("job", job)["state"] == "running", what="the job runs")
    return job


def kill(node):
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()


def test_a_store_that_another_program_has_locked_is_read_and_the_program_is_named(node):
    job = running(node)
    store = sqlite3.connect(node.state / "jobs.sqlite", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")
    try:
        waiting = subprocess.Popen([binary(), *ENDLESS], env=node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        began = time.monotonic()
        assert node.json("job", job)["state"] == "running"
        assert job in node.run("jobs")
        # Whoever waits for the lock waits for a second, and who comes then for no time at all.
        assert time.monotonic() - began < 7
        said = waiting.communicate(timeout=20)[1]
        assert waiting.returncode != 0 and f"(process {os.getpid()}) has locked the store" in said, said
        done = node.try_run("cancel", job)
        assert done.returncode != 0 and "but that cannot be kept yet" in done.stderr and "has locked" in done.stderr, done
        assert "free space" not in done.stderr + said
        wait_until(lambda: node.json("job", job)["state"] == "cancelled", what="the transfer is stopped all the same")
        ready = node.over_socket()
        ready.request("GET", "/api/v1/health/ready", headers={"Host": "localhost"})
        answer = ready.getresponse().read().decode()
        assert "has locked the store" in answer, answer
    finally:
        store.execute("ROLLBACK")
        store.close()
    wait_until(lambda: node.try_run(*ENDLESS).returncode == 0, what="jobs are accepted again")
    kill(node)
    node.start()
    assert node.json("job", job)["state"] == "cancelled"


def test_a_full_disk_refuses_what_it_cannot_keep(tmp_path):
    disk = tmp_path / "state"
    disk.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", disk], check=True)
    node = None
    try:
        node = Node(tmp_path, listens=False)
        job = running(node)
        fill(disk / "full")
        done = node.try_run(*ENDLESS)
        assert done.returncode == 6 and "no room for a new job" in done.stderr, done
        wait_until(lambda: "cannot be kept yet" in node.try_run("set", job, "--priority", "7").stderr, what="the log is full")
        done = node.try_run("cancel", job)
        assert done.returncode == 6 and "but that cannot be kept yet" in done.stderr and "disk is full" in done.stderr, done
        wait_until(lambda: node.json("job", job)["state"] == "cancelled", what="the transfer is stopped all the same")
        (disk / "full").unlink()
        wait_until(lambda: node.try_run(*ENDLESS).returncode == 0, what="jobs are accepted again")
        kill(node)
        node.start()
        assert node.json("job", job)["state"] == "cancelled"
    finally:
        if node is not None:
            kill(node)
        subprocess.run(["umount", disk], check=True)


def test_a_job_that_was_cancelled_does_not_run_again_whenever_the_service_is_killed(node):
    job = running(node)
    # The transfer has no time to end.
    node.process.send_signal(signal.SIGSTOP)
    stopped = subprocess.Popen([binary(), "cancel", job], env=node.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    node.process.send_signal(signal.SIGCONT)
    assert stopped.wait(timeout=60) == 0, stopped.stdout.read()
    kill(node)
    node.start()
    assert node.json("job", job)["state"] == "cancelled"


def test_the_death_of_the_service_is_no_attempt_of_the_job_and_what_was_moved_is_counted(node):
    job = running(node, "--retry", "0")
    moved = lambda: node.json("job", job)["progress"]["bytes_done"]
    wait_until(lambda: moved() > 30_000_000, what="the store has heard of some content")
    for _ in range(3):
        kill(node)
        node.start()
        wait_until(lambda: node.json("job", job)["state"] == "running", what="the job runs again")
        assert node.json("job", job)["attempt"] == 1
    # A job that kills its node each time must not do so for ever.
    kill(node)
    node.start()
    ended = node.json("job", job)
    assert ended["state"] == "failed" and "has died 4 times in a row while this job ran" in ended["error"]["text"], ended
    record, = node.json("history")
    assert record["attempts"] == 1 and record["bytes"] > 10_000_000, record


def test_copies_are_for_this_user_alone_and_replace_nothing(node, tmp_path):
    node.run("store", "backup", tmp_path / "copy")
    for path in [tmp_path / "copy", *node.state.glob("jobs.sqlite*"), *node.state.glob("*.log")]:
        assert path.stat().st_mode & 0o077 == 0, path
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for there in ["copy", "link"]:
        node.run("store", "backup", tmp_path / there, expect=6)
        assert "already exists" in node.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_the_service_says_where_its_socket_is_and_the_state_directory_leads_there(node):
    said = lambda: f"socket={node.state}/api.sock" in (node.folder / "log").read_text()
    wait_until(said, 30, 0.1, "the service says where its socket is")
    assert node.run("jobs", "--api", node.state, env={"FARHAUL_API": ""}) is not None
    job = running(node)
    assert job in node.run("jobs", "--api", node.state)


@pytest.mark.parametrize("name", ["manifests", "nothing"])
def test_a_file_in_the_place_of_a_directory_is_one_line(tmp_path, name):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / name).write_text("mine")
    done = start_and_end(tmp_path, "--state", state)
    assert done.returncode == 2, done
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert f"{state / name} is not a directory" in error and "move it away" in done.stderr, done
    assert (state / name).read_text() == "mine"


def test_a_service_that_refuses_its_root_does_not_say_that_its_socket_listens(tmp_path):
    done = start_and_end(tmp_path, "--state", tmp_path / "state", "--root", tmp_path / "home")
    assert done.returncode == 2 and "the API listens" not in done.stderr, done


def start_and_end(folder, *arguments):
    """A service that does not start."""
    (folder / "home").mkdir()
    env = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "FARHAUL_ALLOW_ROOT": "1"}
    serve = [binary(), "serve", "--listen", f"127.0.0.1:{free_port()}", *map(str, arguments)]
    return subprocess.run(serve, env=env, capture_output=True, text=True, timeout=60)


def test_events_are_not_kept_back_by_a_proxy(node):
    stream = node.over_socket()
    stream.request("GET", "/api/v1/events", headers={"Host": "localhost"})
    answer = stream.getresponse()
    assert answer.headers["X-Accel-Buffering"] == "no" and "text/event-stream" in answer.headers["Content-Type"]
    stream.close()


def test_wait_ends_with_the_run_of_a_job_that_repeats(node, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    job = node.run("submit", tmp_path / "in", tmp_path / "out", "--every", "1h", "--not-before", "2200-01-01T00:00:00Z").strip()
    # It says when the run begins that it waits for, and ends as that does.
    for run, code, end in [(1, 0, "done"), (2, 6, "FH-NOT-FOUND")]:
        waiting = subprocess.Popen([binary(), "wait", job], env=node.env, stderr=subprocess.PIPE, text=True)
        first = waiting.stderr.readline()
        assert f"it repeats; waiting for the end of run {run}, which begins at 2" in first, first
        node.run("retry", job)
        said = waiting.stderr.read()
        assert waiting.wait(timeout=60) == code and end in said, (waiting.returncode, said)
        (tmp_path / "in").unlink(missing_ok=True)
    node.run("cancel", job)
    assert node.try_run("wait", job).returncode == 130


def fill(path: pathlib.Path):
    """Takes all room of the file system."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass


def test_text_looks_at_what_people_see(node):
    job = node.run(*ENDLESS, "--label", "run=Seven").strip()
    found = lambda text: [one["id"] for one in node.json("jobs", "--text", text)]
    assert [found(text) for text in ("zero:1", "NULL:", "run=seven", job)] == [[job]] * 4
    assert [found(text) for text in ("destination", "source_count", "{", "policy", '","')] == [[]] * 5


def damaged(node, damage):
    """The lines of the log, and how the service has ended, after a start with a store that was damaged like this."""
    done = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    waiting = [node.run("submit", f"zero:{number}", "null:", "--not-before", "2200-01-01T00:00:00Z").strip() for number in range(1, 61)]
    kill(node)
    before = (node.folder / "log").stat().st_size
    damage(node.state)
    try:
        node.start()
    except HarnessError:
        return (node.folder / "log").read_text()[before:], node.process.wait(timeout=10), 0
    jobs = {job["id"] for job in node.json("jobs")} & {done, *waiting}
    wait_until(lambda: "the store" in (node.folder / "log").read_text()[before:] or len(jobs) == 61, what="a line about the store")
    return (node.folder / "log").read_text()[before:], None, len(jobs)


def flip(path, places):
    content = bytearray(path.read_bytes())
    for place in places:
        content[place % len(content)] ^= 0xff
    path.write_bytes(content)


def without_log(state):
    """The store's file alone, with all that its log had."""
    sqlite3.connect(state / "jobs.sqlite").execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_an_empty_store_beside_manifests_of_earlier_jobs_is_told(node):
    def damage(state):
        for path in state.glob("jobs.sqlite*"):
            path.write_bytes(b"")
    log, code, jobs = damaged(node, damage)
    assert code is None and jobs == 0 and "its jobs, history and tokens are lost" in log, (log, code)


def test_a_damaged_store_is_told_in_a_line_or_refused_with_its_code(node):
    def damage(state):
        without_log(state)
        size = (state / "jobs.sqlite").stat().st_size
        flip(state / "jobs.sqlite", [4096 * page + 3 for page in range(8, size // 4096)])
        (state / "jobs.sqlite-wal").write_bytes(b"\0" * 64)
    log, code, jobs = damaged(node, damage)
    assert code in (None, 6), (log, code)
    assert ("the store is damaged" in log) if code is None else ("error: the store" in log), log
    assert "panicked" not in log and "fault of farhaul itself" not in log, log
