"""What callers make a node keep: documents of jobs lie in the store, memory is judged before a job is accepted, and a row of
the store that cannot be read stops nothing."""

import json
import sqlite3

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_OK, EXIT_USAGE
from harness.sampling import resident_bytes
from harness.service import Service

MIB = 1 << 20
LATER = "2200-01-01T00:00:00Z"


@pytest.fixture
def service(own_net):
    return Service(own_net, own_net.alpha, env={"FARHAUL_API_MAX_BODY": "8M"})


def waiting(number, names=()):
    """The document of a job that waits for a day far off."""
    return json.dumps({"schema": 1, "sources": ["/nowhere/in/"], "destination": f"/nowhere/{number}", "not_before": LATER,
                       "options": {"select": {"names": list(names)} if names else {}}}).encode()


def test_jobs_that_wait_take_no_memory_at_the_next_start(service):
    service.daemon.restart()
    empty = resident_bytes(service.daemon.process.pid)
    names = [f"{number:0>60}" for number in range(60_000)]
    ids = [service.submit("--spec", "-", input=waiting(number, names)) for number in range(12)]
    assert (service.state / "jobs.sqlite").stat().st_size + sum(
        path.stat().st_size for path in service.state.glob("jobs.sqlite-wal")) > 12 * 3 * MIB
    service.daemon.restart()
    assert len(service.json("jobs")) == 12
    grown = resident_bytes(service.daemon.process.pid) - empty
    assert grown < 12 * MIB, f"{grown / MIB:.1f} MiB for 12 jobs of 3.6 MiB each"
    assert {job["state"] for job in map(service.job, ids)} == {"waiting"}


def test_more_memory_than_there_is_is_refused_in_one_line(service):
    service.submit("zero:1000", "null:", "--memory", "4T", expect=EXIT_USAGE)
    assert "--memory 4194304M is more than there is: this node has " in service.stderr, service.stderr
    done = service.host.run(["farhaul", "cp", "--memory", "4T", "zero:1000", "null:"])
    line = done.stderr.decode().splitlines()[0]
    assert done.returncode == EXIT_USAGE and "--memory 4194304M is more than there is: this process has " in line, line
    # The usual amount, and more than it, are there.
    service.submit("zero:1000", "null:", "--memory", "300M", "--wait")


def test_jobs_have_their_memory_with_the_daemon_s_clients(own_net):
    """A node with little memory runs jobs one after the other instead of failing them."""
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=["--memory", "48M", "--memory-per-key", "48M"])
    service.submit("zero:1000", "null:", "--memory", "300M", expect=EXIT_USAGE)
    assert "this node has 48M" in service.stderr, service.stderr
    ids = [service.submit("zero:20M", *service.to_far(f"copy{number}"), "--retry", "0") for number in range(6)]
    service.wait(*ids, expect=EXIT_OK)
    assert all((service.far.root / f"copy{number}").stat().st_size == 20 * MIB for number in range(6))


def test_a_row_that_cannot_be_read_stops_no_service(service):
    ids = [service.submit("--spec", "-", input=waiting(number)) for number in range(3)]
    service.daemon.stop()
    with sqlite3.connect(service.state / "jobs.sqlite") as store:
        store.execute("UPDATE jobs SET steering = 'nonsense' WHERE id = ?", [ids[0]])
        store.execute("INSERT INTO caps VALUES ('spoilt', '{', 1)")
    store.close()
    service.daemon.start()
    job = service.job(ids[0])
    assert (job["state"], job["error"]["code"]) == ("failed", "FH-STORE-BROKEN") and ids[0] in job["error"]["text"], job
    assert {service.job(id)["state"] for id in ids[1:]} == {"waiting"}
    assert ids[0] in service.daemon.log_text() and "spoilt" in service.daemon.log_text()
    service.run("store", "check", expect=EXIT_FILES)
    assert "cap spoilt: the row cannot be read" in service.stderr, service.stderr
    wait_until(lambda: service.submit("zero:10", "null:", "--wait"), what="a job is done")
