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
