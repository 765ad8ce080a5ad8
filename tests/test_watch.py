"""Watched folders and hooks through the command line, also when the service is killed meanwhile."""

import json
import os
import random
import sqlite3
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_USAGE
from harness.service import Service
from harness.trees import make_file, sha256
from test_metrics import Metrics

KIB = 1 << 10


@pytest.fixture
def service(own_net):
    return Service(own_net, own_net.alpha, far=own_net.daemon)


def watch(service, folder, place, *arguments):
    place, *trust = service.to_far(place)
    return service.run("watch", "add", folder, "--to", place, *trust, "--settle", "1s", *arguments).strip()


def files(service, id):
    return {file["path"]: file for file in service.json("watch", "files", id, "-n", "10000")}


def all_are(service, id, count, *states):
    there = files(service, id)
    return len(there) == count and {file["state"] for file in there.values()} <= set(states)


def test_a_folder_is_watched_and_shown(service):
    folder = service.net.folder("instrument")
    id = watch(service, folder, "in", "--include", "*.h5", "--after", "mark", "--label", "team=xray")
    (folder / "run7").mkdir()
    make_file(folder / "run7/a.h5", 100 * KIB)
    make_file(folder / "notes.txt", 10)
    wait_until(lambda: all_are(service, id, 1, "done"), 60, 0.2, "the file has arrived")
    assert sha256(service.far.root / "in/run7/a.h5") == sha256(folder / "run7/a.h5")
    assert not (service.far.root / "in/notes.txt").exists()
    (job,) = service.json("jobs", "--label", "team=xray", "--label", f"watch={id}")
    assert json.loads((folder / "run7/a.h5.farhaul-done").read_text())["job"] == job["id"]
    assert job["id"] in service.run("watch", "files", id)
    listed = service.run("watch", "list")
    assert id in listed and "mark" in listed and str(folder) in listed
    service.run("watch", "add", folder, "--to", "/x", "--after", "burn", expect=EXIT_USAGE)
    service.run("watch", "add", folder, "--to", folder / "sent", expect=EXIT_USAGE)
    assert "taken again" in service.stderr
    service.run("watch", "remove", id)
    assert service.json("watch", "list") == []


@pytest.mark.parametrize("count, kills", [(60, 5), pytest.param(400, 20, marks=pytest.mark.slow)])
def test_files_of_a_folder_go_once_though_the_service_is_killed(service, count, kills):
    choose = random.Random(count)
    folder = service.net.folder("instrument")
    id = watch(service, folder, "in", "--after", "delete")
    expected = {}
    for number in range(count):
        name = f"{number % 7}/f{number}"
        (folder / name).parent.mkdir(exist_ok=True)
        make_file(folder / name, choose.randrange(0, 400 * KIB), seed=number)
        expected[name] = sha256(folder / name)
        if number % (count // kills) == 0:
            time.sleep(choose.uniform(0.0, 2.0))
            service.daemon.restart()
    for name in expected:
        # A file that is deleted at its source has arrived at the other end.
        assert (folder / name).exists() or sha256(service.far.root / "in" / name) == expected[name], name
    for _ in range(kills):
        time.sleep(choose.uniform(0.5, 1.5))
        service.daemon.restart()
    wait_until(lambda: all_are(service, id, count, "gone"), 120, 0.5, "all have arrived")
    for name, digest in expected.items():
        assert sha256(service.far.root / "in" / name) == digest and not (folder / name).exists(), name
    assert sum(len(names) for _, _, names in os.walk(service.far.root / "in")) == count
    # Each file was in one job only; all jobs are done, and each has ended once.
    jobs = service.json("jobs", "--label", f"watch={id}", "-n", "1000")
    assert {job["state"] for job in jobs} == {"done"}, jobs
    records = [record["job"] for record in service.json("history", "-n", "1000")]
    assert sorted(records) == sorted(job["id"] for job in jobs)
    with sqlite3.connect(f"file:{service.state}/jobs.sqlite?mode=ro", uri=True) as store:
        specs = [json.loads(spec) for (spec,) in store.execute("SELECT spec FROM documents")]
    taken = [name for spec in specs for name in spec["options"]["select"]["names"]]
    assert sorted(taken) == sorted(expected)
    assert service.run("store", "check") == ""


@pytest.mark.parametrize("after, in_place", [("delete", False), ("move:sent", False), ("mark", True)])
def test_a_second_version_with_size_and_time_of_the_first_arrives(service, after, in_place):
    folder, there = service.net.folder("instrument"), service.far.root / "in/a.h5"
    file, new = folder / "a.h5", service.net.folder("new") / "a.h5"
    watch(service, folder, "in", "--after", after)

    def put(seed):
        make_file(new, 3000 * KIB, seed=seed)
        os.utime(new, (1_700_000_000, 1_700_000_000))
        wanted = sha256(new)
        if in_place:
            # As `cp -p` does: the inode of the first version stays.
            file.write_bytes(new.read_bytes())
            os.utime(file, (1_700_000_000, 1_700_000_000))
        else:
            new.rename(file)
        return wanted

    ended = lambda count: len(service.json("history")) >= count and (after == "mark" or not file.exists())
    for count, seed in enumerate((1, 2, 2), 1):
        wanted = put(seed)
        wait_until(lambda count=count: ended(count), 60, 0.2, f"version {count} has left")
        assert sha256(there) == wanted, f"version {count} is nowhere"
    records = service.json("history")
    # What was there already is compared, and not sent.
    assert [record["files"] for record in reversed(records)] == [1, 1, 0]
    assert {record["state"] for record in records} == {"done"}


def test_no_name_in_a_folder_holds_a_watch_or_is_overwritten(service):
    folder, precious = service.net.folder("instrument"), service.net.folder("mine") / "precious"
    precious.write_text("precious")
    id = watch(service, folder, "in", "--after", "mark", "--hidden")
    for name, what in (("a", "pipe"), ("b", "hard link"), ("c", "link"), ("d", "none")):
        for lies in (f".{name}.fhtmp", f".{name}.fhpart", f".{name}.fhjournal", f".{name}.fhdone", f"{name}.farhaul-done"):
            if what == "pipe":
                os.mkfifo(folder / lies)
            elif what == "hard link":
                os.link(precious, folder / lies)
            elif what == "link":
                os.symlink(precious, folder / lies)
        make_file(folder / name, 10 * KIB)
    wait_until(lambda: all_are(service, id, 4, "done"), 60, 0.2, "all have arrived")
    assert precious.read_text() == "precious"
    for name in "abcd":
        assert "job" in json.loads((folder / f"{name}.farhaul-done").read_text()), name
    service.run("watch", "remove", id)
    watch(service, folder, "again", "--after", "delete")
    wait_until(lambda: not any((folder / name).exists() for name in "abcd"), 60, 0.2, "all are deleted")
    assert precious.read_text() == "precious"
    service.daemon.stop()


def told_of(place):
    """The messages that the hook of `service_that_tells` got, about files that fail or failed jobs."""
    heard = place / "heard"
    return [json.loads(line) for line in heard.read_text().splitlines()] if heard.exists() else []


def service_that_tells(net):
    """A service that tries no job twice by itself, and whose hook hears what fails."""
    place = net.folder("hooks")
    program, settings = place / "listen", place / "farhaul.toml"
    program.write_text(f"#!/bin/sh\nexec cat >>{place}/heard\n")
    program.chmod(0o700)
    settings.write_text(
        f'[jobs]\nretry_attempts = 0\n[hooks.listen]\non = ["fail", "failing", "recovered"]\nprogram = "{program}"\n'
    )
    settings.chmod(0o600)
    return Service(net, net.alpha, far=net.daemon, arguments=("--config", settings)), place


def failing(service, id):
    (listed,) = [watch for watch in service.json("watch", "list") if watch["id"] == id]
    watch = service.json("watch", "show", id)
    assert listed.keys() == watch.keys()
    return watch["failing"]


@pytest.mark.slow
def test_files_arrive_by_themselves_when_the_far_end_is_back(own_net):
    service, place = service_that_tells(own_net)
    folder = service.net.folder("instrument")
    id = watch(service, folder, "in", "--after", "delete")
    make_file(folder / "early", 10 * KIB)
    wait_until(lambda: not (folder / "early").exists(), 60, 0.2, "the first file has arrived")
    assert failing(service, id) is None
    service.far.stop()
    for name in ("a.h5", "b.h5"):
        make_file(folder / name, 100 * KIB)
    wait_until(lambda: (failing(service, id) or {"files": 0})["files"] == 2, 60, 0.2, "both files fail")
    before = failing(service, id)
    (reason,) = before["reasons"]
    assert (reason["code"], reason["files"], reason["retryable"]) == ("FH-NOT-LISTENING", 2, True), before
    assert before["retried"] == 2 and before["next_try"] > before["since"], before
    shown = service.run("watch", "show", id)
    assert "FH-NOT-LISTENING" in shown and before["next_try"] in shown and "2 since" in shown, shown
    assert "FH-NOT-LISTENING" in service.run("watch", "list") and "FH-NOT-LISTENING" in service.daemon.log_text()
    file = files(service, id)["a.h5"]
    assert (file["state"], file["code"], file["tries"]) == ("failed", "FH-NOT-LISTENING", 1), file
    # A restart forgets none of it, and tells nobody again.
    service.daemon.restart()
    assert failing(service, id) == before
    metrics = Metrics(service)
    assert metrics.sum("farhaul_watches") == metrics.sum("farhaul_watches_failing") == 1
    assert metrics.sum("farhaul_watch_files_failing", retryable="true") == 2
    assert metrics.sum("farhaul_watch_files_failing", retryable="false") == 0
    # Whoever asks has them tried at once. The far end is still away, so they fail once more, which is no news.
    service.run("watch", "retry", id)
    jobs = lambda: len(service.json("history", "--label", f"watch={id}"))
    wait_until(lambda: jobs() >= 3 and files(service, id)["a.h5"]["state"] == "failed", 60, 0.2, "they fail again")
    assert failing(service, id)["since"] == before["since"]
    service.far.start()
    wait_until(lambda: not any((folder / name).exists() for name in ("a.h5", "b.h5")), 120, 0.5, "they have arrived")
    assert (service.far.root / "in/a.h5").stat().st_size == 100 * KIB
    wait_until(lambda: failing(service, id) is None, 30, 0.2, "nothing fails any more")
    wait_until(lambda: told_of(place)[-1]["event"] == "recovered", 30, 0.2, "the hook hears of it")
    told = told_of(place)
    of_watch = [one for one in told if one["event"] in ("failing", "recovered")]
    assert [one["event"] for one in of_watch] == ["failing", "recovered"], told
    assert [one["watch"]["failing"] > 0 for one in of_watch] == [True, False]
    assert of_watch[0]["error"]["code"] == "FH-NOT-LISTENING" and of_watch[0]["watch"]["id"] == id
    assert of_watch[0]["watch"]["next_try_ms"] > of_watch[0]["at_ms"]
    # The first job that failed is told, and those of later tries are not. The two files may have had a job each.
    assert len([one for one in told if one["event"] == "fail"]) in (1, 2), told
    assert Metrics(service).sum("farhaul_watches_failing") == 0
    assert service.run("store", "check") == ""


def test_a_job_that_is_run_again_by_hand_is_the_only_one_that_has_its_files(own_net):
    service, _ = service_that_tells(own_net)
    folder = service.net.folder("instrument")
    service.far.stop()
    id = watch(service, folder, "in", "--after", "mark")
    make_file(folder / "a", KIB)
    wait_until(lambda: all_are(service, id, 1, "failed"), 60, 0.2, "the file has failed")
    service.far.start()
    (job,) = service.json("jobs", "--label", f"watch={id}")
    service.run("retry", job["id"])
    service.wait(job["id"])
    wait_until(lambda: all_are(service, id, 1, "done"), 60, 0.2, "the file has arrived")
    assert failing(service, id) is None and len(service.json("jobs", "--label", f"watch={id}")) == 1


def test_what_is_not_allowed_waits_for_somebody_or_for_a_change(own_net):
    service, place = service_that_tells(own_net)
    folder, keys = service.net.folder("instrument"), service.far.keys.read_text()
    service.far.keys.write_text(keys.replace(service.key, ""))
    id = watch(service, folder, "in")
    make_file(folder / "a", KIB)
    wait_until(lambda: failing(service, id), 60, 0.2, "the file fails")
    found = failing(service, id)
    assert (found["files"], found["retried"], found["next_try"]) == (1, 0, None), found
    (reason,) = found["reasons"]
    assert not reason["retryable"] and "farhaul watch retry" in service.run("watch", "show", id)
    assert Metrics(service).sum("farhaul_watch_files_failing", retryable="false") == 1
    # Another file, which changes once the key is allowed again, and with it nothing else.
    make_file(folder / "b", KIB)
    wait_until(lambda: failing(service, id)["files"] == 2, 60, 0.2, "the other file fails")
    service.far.keys.write_text(keys)
    make_file(folder / "b", 2 * KIB)
    wait_until(lambda: files(service, id)["b"]["state"] == "done", 60, 0.2, "what has changed is taken again")
    service.daemon.restart()
    assert failing(service, id)["files"] == 1 and files(service, id)["a"]["state"] == "failed"
    service.run("watch", "retry", id)
    wait_until(lambda: all_are(service, id, 2, "done"), 60, 0.2, "both have arrived")
    wait_until(lambda: [one for one in told_of(place) if one["event"] == "recovered"], 30, 0.2, "the hook hears of it")
    events = [one["event"] for one in told_of(place)]
    # A job that nobody runs again is told each time.
    assert (events.count("fail"), events.count("failing"), events.count("recovered")) == (2, 1, 1), events


def test_a_dry_run_is_told_to_hooks_that_ask_for_it(own_net):
    place = own_net.folder("hooks")
    program, settings = place / "listen", place / "farhaul.toml"
    program.write_text(f"#!/bin/sh\nexec cat >>{place}/$1\n")
    program.chmod(0o700)
    moments = 'on = ["pre", "file", "post", "fail"]'
    settings.write_text(
        f'[hooks.unasked]\n{moments}\nprogram = "{program}"\nargs = ["unasked"]\n'
        f'[hooks.asks]\n{moments}\nprogram = "{program}"\nargs = ["asks"]\ndry_run = true\n'
    )
    settings.chmod(0o600)
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=("--config", settings))
    source = own_net.folder("source")
    make_file(source / "f", 10 * KIB)
    id = service.submit(f"{source}/", *service.to_far("in"), "--dry-run")
    service.wait(id)
    messages = lambda name: [json.loads(line) for line in (place / name).read_text().splitlines()] if (place / name).exists() else []
    wait_until(lambda: any(one["event"] == "post" for one in messages("asks")), 60, 0.2, "the hook hears of the end")
    for one in messages("asks"):
        assert one["job"]["dry_run"] is True and (one["job"]["files"], one["job"]["bytes"]) == (0, 0), one
    (files,) = [one["files"] for one in messages("asks") if one["event"] == "file"]
    assert [(file["path"], file["result"]) for file in files] == [("f", "would_arrive")]
    assert messages("unasked") == [] and not (service.far.root / "in/f").exists()
    (record,) = service.json("history")
    assert record["dry_run"] and (record["files"], record["bytes"]) == (0, 0)
    assert "dry run" in service.run("history") and service.job(id)["dry_run"] is True
    assert "this was a dry run" in service.run("logs", id)
    # A second run, which is none, is told to both.
    service.wait(service.submit(f"{source}/", *service.to_far("in")))
    wait_until(lambda: any(one["event"] == "post" for one in messages("unasked")), 60, 0.2, "the hook hears of the end")
    assert not any(one["job"]["dry_run"] for one in messages("unasked"))


def test_hooks_are_told_though_the_service_is_killed(own_net):
    place = own_net.folder("hooks")
    program, heard, settings = place / "listen", place / "heard", place / "farhaul.toml"
    program.write_text(f"#!/bin/sh\nsleep 0.2\nexec cat >>{heard}\n")
    program.chmod(0o700)
    settings.write_text(f'[hooks.listen]\non = ["pre", "file", "post", "fail"]\nprogram = "{program}"\n')
    settings.chmod(0o600)
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=("--config", settings))
    source = own_net.folder("source")
    for number in range(8):
        make_file(source / f"f{number}", 10 * KIB, seed=number)
    ids = [service.submit(f"{source}/", *service.to_far(f"in{number}")) for number in range(6)]
    for _ in range(4):
        time.sleep(0.4)
        service.daemon.restart()
    service.wait(*ids)

    def messages():
        return [json.loads(line) for line in heard.read_text().splitlines()]

    ended = lambda: {one["job"]["id"] for one in messages() if one["event"] == "post"}
    wait_until(lambda: ended() == set(ids), 60, 0.2, "each end was told")
    for id in ids:
        told = [one for one in messages() if one["job"]["id"] == id]
        posts = [one for one in told if one["event"] == "post"]
        assert len({one["delivery"] for one in posts}) == 1 and {one["job"]["state"] for one in posts} == {"done"}
        assert told[0]["event"] == "pre" and told[-1]["event"] == "post", [one["event"] for one in told]
        # Messages with the same delivery name are the same message.
        batches = {one["delivery"]: one["files"] for one in told if one["event"] == "file"}
        assert all(one["files"] == batches[one["delivery"]] for one in told if one["event"] == "file"), told
        assert {file["path"] for files in batches.values() for file in files} == {f"f{number}" for number in range(8)}
