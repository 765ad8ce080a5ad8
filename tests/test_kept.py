"""What callers make a node keep: documents of jobs lie in the store, memory is judged before a job is accepted, and a row of
the store that cannot be read stops nothing."""

import contextlib
import json
import sqlite3

import pytest

from harness.hosts import wait_until
from harness.node import Node
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


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stop()


def refusal(node, method, path, body):
    """Status, code and text of the answer to a request over the socket, which is a refusal."""
    with contextlib.closing(node.over_socket()) as connection:
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/api/v1{path}", content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        problem = json.loads(answer.read())
        assert answer.status >= 400, (answer.status, problem)
        return answer.status, problem["code"], problem["detail"]


def test_the_strings_and_lists_of_a_caller_have_limits(node):
    job = {"schema": 1, "sources": ["zero:10"], "destination": "null:"}
    watch = {"folder": "/nowhere/in", "destination": "/nowhere/out"}
    token = {"scopes": ["read"]}
    long = "x" * 20_000
    wrong = [
        ("/jobs", {**job, "sources": [f"/{long}"]}, "17 KiB"),
        ("/jobs", {**job, "destination": f"/{long}\n\x1b[31m"}, "17 KiB"),
        ("/jobs", {**job, "destination": f"fh://{long[:300]}/x"}, "no valid host name"),
        ("/jobs", {**job, "destination": f"{long[:300]}@host:/x"}, "no valid user name"),
        ("/jobs", {**job, "sources": ["zero:1"] * 1025}, "1 to 1024 sources"),
        ("/jobs", {**job, "identity": long}, "identity: at most 100 bytes"),
        ("/jobs", {**job, "fingerprint": long}, "fingerprint: at most 100 bytes"),
        ("/jobs", {**job, "webhook": f"https://h/{long}"}, "2048 bytes"),
        ("/jobs", {**job, "labels": {"a": long}}, "255 bytes"),
        ("/jobs", {**job, "labels": {f"l{number}": "" for number in range(33)}}, "32 labels"),
        ("/jobs", {**job, "repeat": {"cron": "0," * 5000 + "0 * * * *"}}, "256 bytes of cron"),
        ("/jobs", {**job, "repeat": {"cron": "0 0 * * *", "time_zone": long}}, "100 of time_zone"),
        ("/jobs", {**job, "repeat": {"cron": "0 0 * * *", "time_zone": "../../../etc/passwd"}}, "not the name of a time zone"),
        ("/watches", {**watch, "folder": f"/{long}"}, "17 KiB"),
        ("/watches", {**watch, "after": f"move:{long}"}, "cannot be moved to"),
        ("/watches", {**watch, "exclude": ["*x"] * 1025}, "too many patterns"),
        ("/watches", {**watch, "options": {"spread": [["/x" * 1000] * 200]}}, "its document has more than"),
        ("/tokens", {**token, "name": long}, "100 bytes"),
        ("/tokens", {**token, "reach": {"local": [f"/{long}"] * 10}}, "64 KiB"),
        ("/tokens", {**token, "reach": {"peers": {f"h{number}": [] for number in range(300)}}}, "256 peers"),
        ("/tokens", {**token, "reach": {"identities": [long] * 10}}, "64 KiB"),
    ]
    for path, body, part in wrong:
        status, code, text = refusal(node, "POST", path, body)
        assert status == 422 and code in ("FH-BAD-OPTION", "FH-BAD-LOCATION") and part in text, (part, status, code, text[:300])
        assert text.isprintable() and len(text) <= 1000, text
    caps = [("a" * 64, {}), ("a", {"principals": [long]}), ("a", {"peers": [long]}), ("a", {"principals": ["x"] * 257})]
    for name, body in caps:
        status, code, text = refusal(node, "PUT", f"/caps/{name}", body)
        assert status == 422 and code == "FH-BAD-OPTION" and text.isprintable() and len(text) <= 1000, text
    status, code, text = refusal(node, "GET", f"/jobs?label={','.join(['a=b'] * 100)}", None)
    assert (status, code) == (400, "FH-BAD-OPTION") and "32 labels" in text, text
