"""The transfer service through the command line: jobs are accepted, done, steered, listed, and survive whatever ends the service."""

import json
import os
import random
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_FILES, EXIT_INTERRUPTED, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE
from harness.service import FINAL, Service
from harness.trees import make_file, sha256

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def service(own_net):
    return Service(own_net, own_net.alpha, far=own_net.daemon)


def test_a_job_is_done_and_everything_is_known_of_it(service):
    source = service.net.folder("source")
    for name, size in (("a", 3 * MIB), ("b", 10)):
        make_file(source / name, size)
    id = service.submit(f"{source}/", *service.to_far("in"), "--label", "run=7", "--priority", "8")
    service.wait(id)
    for name in "ab":
        assert sha256(service.far.root / "in" / name) == sha256(source / name)
    job = service.job(id)
    assert (job["state"], job["priority"], job["run"], job["attempt"]) == ("done", 8, 1, 1), job
    assert id in service.run("jobs") and "done" in service.run("jobs", "--state", "done", "--label", "run=7")
    files = [json.loads(line) for line in service.run("job", id, "--files", "--result", "sent").splitlines()]
    assert {file["path"]: file["size"] for file in files if file["kind"] == "file"} == {"a": 3 * MIB, "b": 10}
    log = service.run("logs", id)
    assert "connected with" in log and log.rstrip().endswith("ended"), log
    (record,) = service.json("history", "--label", "run=7")
    assert (record["job"], record["state"], record["files"], record["bytes"]) == (id, "done", 2, 3 * MIB + 10), record
    assert service.run("history", "--csv").splitlines()[1].split(",")[1] == id
    (sum_,) = service.json("usage", "--by", "label:run")
    assert (sum_["of"], sum_["transfers"], sum_["bytes"]) == ("7", 1, 3 * MIB + 10)


def test_a_document_says_the_same_as_a_command_line(service):
    source = service.net.folder("source")
    make_file(source / "keep", 100)
    make_file(source / "drop.tmp", 100)
    document = {
        "schema": 1, "kind": "sync", "sources": [str(source)], "destination": service.far.url("tree"),
        "fingerprint": service.far.fingerprint, "options": {"select": {"rules": ["- *.tmp"]}}, "labels": {"a": "b"},
    }
    id = service.submit("--spec", "-", "--wait", input=json.dumps(document).encode())
    assert [path.name for path in (service.far.root / "tree").iterdir()] == ["keep"], id
    for wrong, part in [("{", "line 1"), ('{"schema": 1, "sources": ["/a"], "destination": "/b", "x": 1}', "there is no 'x'"),
                        ('{"schema": 9, "sources": ["/a"], "destination": "/b"}', "schema 9")]:
        service.run("submit", "--spec", "-", input=wrong.encode(), expect=EXIT_USAGE)
        assert part in service.stderr, service.stderr


def test_what_ends_badly_ends_with_the_code_of_cp(service):
    source = service.net.folder("source")
    service.submit(source / "none", *service.to_far("x"), "--wait", expect=EXIT_FILES)
    service.submit(source, "fh://beta:9/x", "--retry", "0", "--wait", expect=EXIT_CONNECT)
    service.submit(source, service.far.url("x"), "--fingerprint", "SHA256:" + 43 * "A", "--wait", expect=EXIT_AUTH)
    make_file(source / "a", 10)
    (service.far.root / "in/a").mkdir(parents=True)
    make_file(service.far.root / "in/a/there", 1)
    id = service.submit(f"{source}/", *service.to_far("in"), "--wait", expect=EXIT_SOME_FAILED)
    assert service.job(id)["state"] == "partly_failed"
    # What was in the way is gone: the same job does it.
    (service.far.root / "in/a/there").unlink()
    (service.far.root / "in/a").rmdir()
    service.run("retry", id)
    service.wait(id)
    assert service.job(id)["run"] == 2 and (service.far.root / "in/a").is_file()


def test_a_running_job_is_steered_from_outside(service):
    id = service.submit("zero:", *service.to_far("null:")[1:], service.far.url("null:"), "--rate", "40M")
    done = lambda: (service.job(id).get("progress") or {}).get("bytes_done", 0)
    wait_until(done, 30, 0.1, "it moves")
    service.run("pause", id)
    time.sleep(2)
    before = done()
    time.sleep(1.5)
    assert done() == before and service.job(id)["state"] == "paused"
    service.run("set", id, "--rate", "400M", "--priority", "9")
    service.run("resume", id)
    wait_until(lambda: service.job(id)["progress"]["goodput_bps"] > 150e6, 30, 0.2, "it is faster")
    service.run("cancel", id)
    service.wait(id, expect=EXIT_INTERRUPTED)
    service.run("pause", id, expect=EXIT_USAGE)
    assert "is over" in service.stderr


def test_one_key_makes_one_job(service):
    arguments = ["zero:10", "null:", "--key", "once"]
    first = service.submit(*arguments)
    assert service.submit(*arguments) == first
    service.submit("zero:11", "null:", "--key", "once", expect=EXIT_USAGE)
    assert "another request" in service.stderr


def test_options_that_name_programs_and_keys_are_refused(service):
    for option in ("-i", "-F", "-J", "-o", "-S", "--remote-program", "--known-hosts", "--manifest", "--retry-failed"):
        service.submit(option, "x", "/a", "/b", expect=EXIT_USAGE)
        assert "is not for a job" in service.stderr, service.stderr


def test_a_second_service_does_not_take_the_first_ones_place(service):
    daemon = service.daemon
    argv = ["farhaul", "serve", "--listen", "[::]:34999", "--root", daemon.root, "--authorized-keys", daemon.keys,
            "--identity", daemon.identity, "--state", service.state]
    done = service.host.run(argv)
    assert done.returncode != 0 and b"has the state directory" in done.stderr, done
    assert service.run("jobs") == "no jobs\n"


def test_root_is_refused_without_being_asked_for(service):
    argv = ["farhaul", "serve", "--root", service.daemon.root]
    done = service.host.run(argv, env={"FARHAUL_ALLOW_ROOT": "0"})
    assert done.returncode == EXIT_USAGE and b"--allow-root" in done.stderr


def mixed_jobs(service, count, seed):
    """Jobs of all kinds, with what has to come of each: (id, check)."""
    choose = random.Random(seed)
    source, near = service.net.folder("sources"), service.net.folder("near")
    for folder in (near / "in", near / "out", service.far.root / "in", service.far.root / "out"):
        folder.mkdir()
    jobs = []
    for number in range(count):
        folder = source / str(number)
        folder.mkdir()
        kind = number % 5
        if kind == 0:
            make_file(folder / "large", choose.randrange(1, 24) * MIB, seed=number)
        else:
            for name in range(choose.randrange(1, 30)):
                make_file(folder / f"f{name}", choose.randrange(0, 40 * KIB), seed=number * 100 + name)
        names = sorted(path.name for path in folder.iterdir())
        if kind == 1:
            place = near / "in" / str(number)
            arguments = [f"{folder}/", place]
        elif kind == 2:
            # Fetched from the other host.
            os.rename(folder, service.far.root / "out" / str(number))
            folder = service.far.root / "out" / str(number)
            place = near / "out" / str(number)
            arguments = [service.far.url(f"out/{number}/"), place, "--fingerprint", service.far.fingerprint]
        else:
            place = service.far.root / "in" / str(number)
            sync = ["--sync"] if kind == 3 else []
            arguments = [*sync, f"{folder}/", *service.to_far(f"in/{number}")]
        expected = "done"
        if kind == 4 and number % 3 == 0:
            arguments, expected = [folder / "none", *service.to_far("x")], "failed"
        id = service.submit(*arguments, "--priority", str(choose.randrange(10)), "--label", f"kind={kind}")
        jobs.append((id, expected, folder, place, names))
    return jobs


@pytest.mark.parametrize("count, kills", [(40, 6), pytest.param(200, 20, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_again_and_again_loses_nothing(service, count, kills):
    choose = random.Random(count)
    jobs = mixed_jobs(service, count, seed=count)
    for _ in range(kills):
        time.sleep(choose.uniform(0.05, 0.9))
        service.daemon.restart()
    service.wait(*[id for id, *_ in jobs], expect=(EXIT_OK, EXIT_FILES))
    states = {job["id"]: job["state"] for job in service.json("jobs", "-n", "1000")}
    records = service.json("history", "-n", "1000")
    assert len(states) == count and set(states.values()) <= FINAL, states
    assert sorted(record["job"] for record in records) == sorted(states), "each job has ended once"
    for id, expected, folder, place, names in jobs:
        assert states[id] == expected, json.dumps(service.job(id)) + service.run("logs", id)
        if expected == "done":
            there = {name: sha256(place / name) for name in names}
            assert there == {name: sha256(folder / name) for name in names}, id
            assert sorted(path.name for path in place.iterdir()) == names, id
    assert service.run("store", "check") == ""


def test_a_store_of_a_later_version_is_refused(service):
    service.daemon.stop()
    import sqlite3
    with sqlite3.connect(service.state / "jobs.sqlite") as store:
        store.execute("PRAGMA user_version = 99")
    daemon = service.daemon
    argv = ["farhaul", "serve", "--listen", "[::]:34999", "--root", daemon.root, "--authorized-keys", daemon.keys,
            "--identity", daemon.identity, "--state", service.state]
    done = service.host.run(argv)
    assert done.returncode != 0 and b"of a later version" in done.stderr, done
