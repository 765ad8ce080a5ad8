"""What users of other tools have run into: folders that are moved and made anew, schedules, and figures that lie."""

import datetime
import os
import time

import pytest

from harness import hooks
from harness.hosts import wait_until
from harness.node import Node
from harness.product import EXIT_FILES, EXIT_USAGE

DAY = 86_400


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, listens=False, hooks=hooks.prefix(clock=tmp_path / "clock"))
    yield node
    node.stop()


class Watched:
    """A watched folder that is scanned as a whole only once, so that what comes later is seen by events alone."""

    def __init__(self, node):
        self.node, self.folder, self.there = node, node.folder / "in", node.folder / "out"
        self.folder.mkdir()
        self.id = node.run("watch", "add", self.folder, "--to", self.there, "--settle", "1s", "--rescan", "1h").strip()
        self.write("first")

    def write(self, name, text="x"):
        """Writes a file, which must arrive soon."""
        (self.folder / name).write_text(text)
        self.arrives(name, text)

    def arrives(self, name, text="x"):
        path = self.there / name
        wait_until(lambda: path.exists() and path.read_text() == text, 40, 0.1, f"{name} arrives")


@pytest.fixture
def watched(node):
    return Watched(node)


def test_a_directory_that_is_deleted_and_made_anew_is_watched(watched):
    for text in "ab":
        (watched.folder / "sub/deep").mkdir(parents=True)
        watched.write("sub/deep/file", text)
        (watched.folder / "sub/deep/file").unlink()
        (watched.folder / "sub/deep").rmdir()
        (watched.folder / "sub").rmdir()
    # Long after it was made, when nothing else draws attention to it.
    (watched.folder / "sub").mkdir()
    watched.write("other")
    watched.write("sub/late")


def test_a_directory_that_is_renamed_and_gets_its_name_back_is_watched(watched):
    (watched.folder / "a").mkdir()
    watched.write("a/one")
    (watched.folder / "a").rename(watched.folder / "b")
    watched.arrives("b/one")
    watched.write("b/two")
    (watched.folder / "a").mkdir()
    watched.write("a/three")
    (watched.folder / "a/three").unlink()
    (watched.folder / "a").rmdir()
    (watched.folder / "b").rename(watched.folder / "a")
    watched.arrives("a/two")
    watched.write("a/four")


def test_a_folder_that_another_one_replaces_is_watched(watched):
    watched.folder.rename(watched.node.folder / "aside")
    watched.folder.mkdir()
    watched.write("second")
    # The earlier one comes back.
    watched.folder.rename(watched.node.folder / "later")
    time.sleep(0.5)
    (watched.node.folder / "aside").rename(watched.folder)
    watched.write("third")
    states = lambda: {file["path"]: file["state"] for file in watched.node.json("watch", "files", watched.id)}
    wait_until(lambda: states() == {"first": "done", "second": "gone", "third": "done"}, 30, 0.1, "all is known")


def test_a_folder_that_is_deleted_and_made_anew_is_watched(watched):
    (watched.folder / "first").unlink()
    watched.folder.rmdir()
    time.sleep(0.5)
    watched.folder.mkdir()
    watched.write("second")


def test_a_file_that_gets_its_name_at_the_end_is_taken_under_that_alone(watched):
    """As rsync writes it."""
    hidden = watched.folder / ".a.h5.Xy12Zz"
    with open(hidden, "w") as file:
        file.write("x")
        file.flush()
        watched.write("other")
        file.write("y")
    hidden.rename(watched.folder / "a.h5")
    watched.arrives("a.h5", "xy")
    assert sorted(os.listdir(watched.there)) == ["a.h5", "first", "other"]


def test_a_name_that_is_no_text_arrives_and_can_be_named(watched):
    name = b"a\n\xff \xe2\x80\xae.h5"
    path = os.fsencode(watched.folder) + b"/" + name
    with open(path, "w") as file:
        file.write("x")
    there = os.fsencode(watched.there) + b"/" + name
    wait_until(lambda: os.path.exists(there), 40, 0.1, "the file arrives")
    listed = watched.node.run("watch", "files", watched.id)
    assert len(listed.splitlines()) == 3 and "\u202e" not in listed, listed


def test_a_folder_is_not_watched_twice_under_two_spellings(watched):
    for spelling in (f"{watched.folder}/", f"{watched.node.folder}/./in", f"{watched.node.folder}//in"):
        tried = watched.node.try_run("watch", "add", spelling, "--to", watched.there)
        assert tried.returncode in (EXIT_USAGE, EXIT_FILES), (spelling, tried)
        assert "already takes files" in tried.stderr or "without .." in tried.stderr, (spelling, tried)
    tried = watched.node.try_run("watch", "add", watched.folder, "--to", f"{watched.there}/")
    assert tried.returncode in (EXIT_USAGE, EXIT_FILES) and "already takes files" in tried.stderr, tried


def set_clock(node, wall, boot=0):
    (node.folder / "new").write_text(f"{wall} {boot}")
    (node.folder / "new").rename(node.folder / "clock")


def due(node, job):
    """When the job is due, in seconds since 1970."""
    return datetime.datetime.fromisoformat(node.json("job", job)["due"]).timestamp()


def test_a_schedule_that_was_paused_over_some_of_its_times_runs_once_and_goes_on(node):
    set_clock(node, 0)
    job = node.run("submit", "zero:10", "null:", "--every", "1h").strip()
    wait_until(lambda: node.json("job", job)["run"] == 2, 30, 0.1, "the first run is over")
    node.run("pause", job)
    hours = 5 * 3600
    set_clock(node, hours + 60, hours + 60)
    node.run("resume", job)
    wait_until(lambda: node.json("job", job)["run"] == 3, 30, 0.1, "one run makes up for those that were missed")
    time.sleep(1)
    view = node.json("job", job)
    assert (view["run"], view["state"]) == (3, "waiting"), view
    assert 0 < due(node, job) - time.time() - hours - 60 <= 3660


def test_a_run_that_somebody_asks_for_takes_the_place_of_no_other(node):
    set_clock(node, 0)
    job = node.run("submit", "zero:10", "null:", "--cron", "0 3 * * *", "--time-zone", "UTC").strip()
    before = due(node, job)
    node.run("retry", job)
    wait_until(lambda: len(node.json("history")) == 1, 30, 0.1, "the run is over")
    wait_until(lambda: node.json("job", job)["state"] == "waiting", 30, 0.1, "the job waits again")
    assert due(node, job) == before


def test_a_paused_job_keeps_its_figures_over_a_restart(node):
    job = node.run("submit", "zero:1G", "null:", "--rate", "400M").strip()
    done = lambda: (node.json("job", job)["progress"] or {"bytes_done": 0})["bytes_done"]
    wait_until(lambda: done() > 8 << 20, 60, 0.1, "the job moves")
    node.run("pause", job)
    wait_until(lambda: node.json("job", job)["state"] == "paused", 30, 0.1, "the job is paused")
    before = node.json("job", job)
    assert before["progress"]["goodput_bps"] < 1, before
    node.stop()
    node.start()
    after = node.json("job", job)
    assert after["state"] == "paused" and after["moved_bytes"] > 8 << 20, (before, after)
    assert "in attempts that are over" in node.run("job", job)
    node.run("cancel", job)
    wait_until(lambda: node.json("history"), 30, 0.1, "the record is there")
    (record,) = node.json("history")
    assert record["bytes"] > 8 << 20, record


def test_one_job_that_cannot_be_paused_keeps_no_other_from_it(node):
    over = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    jobs = [node.run("submit", "zero:100G", "null:", "--rate", "80M").strip() for _ in range(2)]
    tried = node.try_run("pause", jobs[0], over, jobs[1])
    assert tried.returncode != 0 and over in tried.stderr, tried
    for job in jobs:
        wait_until(lambda job=job: node.json("job", job)["state"] == "paused", 30, 0.1, "the job is paused")
        node.run("cancel", job)


def test_why_a_job_failed_stays_to_be_read(node):
    job = node.run("submit", node.folder / "nothing", "null:").strip()
    node.run("wait", job, expect=6)
    error = node.json("job", job)["error"]
    assert error["code"] == "FH-NOT-FOUND"
    node.stop()
    node.start()
    assert node.json("job", job)["error"] == error and error["text"] in node.run("job", job)
    (record,) = node.json("history")
    assert (record["state"], record["error_code"]) == ("failed", "FH-NOT-FOUND"), record
