"""A service whose host's clock is wrong at one start, or is set while the service runs."""

import contextlib
import datetime
import json
import sqlite3

import pytest

from harness import hooks
from harness.hosts import wait_until
from harness.node import Node

DAY = 86_400
WRONG = {"400 days ahead": 400 * DAY, "20 years behind": -20 * 365 * DAY}


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, listens=False, hooks=hooks.prefix(clock=tmp_path / "clock"))
    yield node
    node.stop()


def set_clock(node, wall, boot=0):
    """Sets the wall clock ahead; `boot` seconds have gone by since the host was started."""
    (node.folder / "new").write_text(f"{wall} {boot}")
    (node.folder / "new").rename(node.folder / "clock")


def due_in(node, job, wall=0):
    """In how many seconds the job is due, by the service's clock."""
    due = node.json("job", job).get("due")
    if due is None:
        return float("inf")
    return datetime.datetime.fromisoformat(due).timestamp() - datetime.datetime.now(datetime.UTC).timestamp() - wall


@pytest.mark.parametrize("wrong", WRONG)
def test_one_start_with_a_wrong_clock_deletes_nothing_and_moves_no_time_of_a_job(node, wrong):
    set_clock(node, 0)
    done = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    hourly = node.run("submit", "zero:10", "null:", "--every", "1h").strip()
    daily = node.run("submit", "zero:10", "null:", "--cron", "0 3 * * *", "--time-zone", "UTC").strip()
    wait_until(lambda: node.json("job", hourly)["run"] == 2, what="the hourly job has run")
    # Another start of the host, so that only the wall clock says what time has gone by.
    node.stop()
    with sqlite3.connect(node.state / "jobs.sqlite") as store:
        store.execute("UPDATE clock SET boot = 'another'")
    store.close()
    set_clock(node, WRONG[wrong])
    node.start()
    assert "the clock has jumped" in (node.folder / "log").read_text()
    assert len(node.json("history")) >= 2 and node.json("job", done)["state"] == "done"
    assert node.run("job", done, "--files", "--json").strip()
    # The clock is set right while the service runs.
    set_clock(node, 0)
    node.run("set", daily, "--priority", "6")
    wait_until(lambda: due_in(node, daily) <= DAY + 60, what="the daily job has its next day")
    wait_until(lambda: 0 < due_in(node, hourly) <= 3660, what="the hourly job has its next hour")
    # A clock that is ahead makes each of them due once, as if the host had been off; setting it right makes none due.
    runs = (node.json("job", hourly)["run"], node.json("job", daily)["run"])
    assert runs == ((3, 2) if WRONG[wrong] > 0 else (2, 1))
    later = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    assert node.json("jobs")[0]["id"] == later, "the newest job stands first"
    assert node.json("history")[0]["job"] == later


def test_a_token_and_a_log_in_last_no_longer_than_was_said_when_the_clock_is_set_back(tmp_path):
    node = Node(tmp_path, hooks=hooks.prefix(clock=tmp_path / "clock"))
    try:
        set_clock(node, 400 * DAY)
        token = node.run("token", "create", "--scope", "read", "--everything", "--expires", "30d").strip()
        browser = node.browser()
        browser.log_in(token)
        set_clock(node, 0)
        browser.api("GET", "/me")
        set_clock(node, 0, 13 * 3600)
        browser.api("GET", "/me", expect=401)
        node.browser().log_in(token)
        set_clock(node, 0, 31 * DAY)
        node.browser().api("POST", "/login", {"token": token}, expect=401)
    finally:
        node.stop()


def test_what_changed_by_a_clock_that_was_ahead_is_not_new_for_ever(node):
    set_clock(node, 30 * DAY)
    old = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    set_clock(node, 0)

    def listed(seconds):
        """The jobs that have changed within the last seconds."""
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
        with contextlib.closing(node.over_socket()) as connection:
            connection.request("GET", f"/api/v1/jobs?since={since.strftime('%Y-%m-%dT%H:%M:%SZ')}")
            return {job["id"] for job in json.loads(connection.getresponse().read())["jobs"]}

    ended = lambda: {record["job"] for record in node.json("history", "--since", "1s")}
    # A second later the old job has not changed within the last one.
    wait_until(lambda: old not in listed(1) and old not in ended(), 30, 0.2, "the old job is old")
    new = node.run("submit", "zero:10", "null:", "--wait").split()[0]
    assert listed(3600) == {record["job"] for record in node.json("history", "--since", "1h")} == {old, new}
