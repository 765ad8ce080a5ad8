"""The parts of the API that the page uses, through the real binary: log-in with a browser, the page's files,
curves, the host, the queue, the history with manifests and receipts."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import time

import pytest

from harness.hosts import wait_until
from harness.node import OWN_PAGE, Node
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_USAGE, binary
from harness.service import Service
from harness.trees import make_file

MIB = 1 << 20


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stop()


def test_a_log_in_outlives_the_service_and_ends_with_its_token(node):
    token = node.run("token", "create", "--scope", "read,control", "--everything", "--name", "Ada", "-q").strip()
    browser, other = node.browser(), node.browser()
    assert browser.api("GET", "/me", expect=401)["code"] == "FH-NO-TOKEN"
    me = browser.log_in(token)
    assert (me["name"], me["scopes"], me["known_by"]) == ("Ada", ["read", "control"], "login"), me
    other.log_in(token)
    assert token[4:] not in browser.cookie and browser.cookie != other.cookie
    node.stop()
    node.start()
    assert browser.api("GET", "/me") == me
    assert browser.api("GET", "/jobs") == {"jobs": [], "next_cursor": None, "counts": None, "counts_are_cut": False}
    # A cookie changes nothing in requests of other sites, or in requests that do not name their origin.
    path = "/api/v1/jobs/0000000000000000/cancel"
    for headers, status in [(OWN_PAGE, 404), ({"Origin": f"http://127.0.0.1:{node.port}"}, 404), ({}, 403),
                            ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Origin": "http://evil.example"}, 403)]:
        assert browser.ask("POST", path, headers=headers)[0] == status, headers
    browser.api("POST", "/tokens", {"scopes": ["admin"], "reach": {"everything": True}}, expect=403)
    other.api("POST", "/logout", expect=204)
    assert other.cookie is None
    other.api("GET", "/me", expect=401)
    node.run("token", "revoke", node.json("token", "list")[0]["id"])
    assert "revoked" in browser.api("GET", "/me", expect=401)["detail"]
    # A caller who guesses tokens is shut out, and the audit log has all attempts.
    codes = [other.ask("POST", "/api/v1/login", {"token": f"fhp_{number:047d}"})[0] for number in range(30)]
    assert codes[0] == 401 and codes[-1] == 429, codes
    done = {(line["action"], line["target"], line["outcome"]) for line in node.audit()}
    assert {("log in", "by token", "ok"), ("log in", "by token", "refused"), ("log out", "", "ok")} <= done, done


def test_open_prints_and_shows_a_link_that_works_once(node, tmp_path):
    address = node.run("open", "--print", "--scope", "read").strip()
    page, code = address.split("#code=")
    assert page == f"http://127.0.0.1:{node.port}/"
    browser = node.browser()
    me = browser.api("POST", "/login", {"code": code})
    assert (me["subject"], me["scopes"]) == ("local", ["read"]), me
    browser.api("GET", "/jobs")
    browser.api("GET", "/store/check", expect=403)
    node.browser().api("POST", "/login", {"code": code}, expect=401)
    # With a screen, a browser gets the link in a file that only this user can read: other users could see it
    # among the arguments of programs.
    programs, runtime = tmp_path / "bin", tmp_path / "run"
    programs.mkdir()
    runtime.mkdir(mode=0o700)
    (programs / "xdg-open").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments.new; mv {tmp_path}/arguments.new {tmp_path}/arguments\n')
    (programs / "xdg-open").chmod(0o755)
    screen = {"DISPLAY": ":0", "XDG_RUNTIME_DIR": os.fspath(runtime), "PATH": f"{programs}:{os.environ['PATH']}"}
    address = node.run("open", env=screen).strip()
    wait_until(lambda: (tmp_path / "arguments").exists(), what="a browser is opened")
    shown = pathlib.Path((tmp_path / "arguments").read_text().strip())
    assert address in shown.read_text() and shown.stat().st_mode & 0o777 == 0o600
    assert node.browser().api("POST", "/login", {"code": address.split("=")[1]})["scopes"] == ["admin"]
    # A token cannot make a code: its owner logs in with the token itself.
    token = node.run("token", "create", "--scope", "admin", "--everything", "-q").strip()
    (tmp_path / "token").write_text(token)
    over_tcp = {"FARHAUL_API": f"http://127.0.0.1:{node.port}", "FARHAUL_TOKEN_FILE": os.fspath(tmp_path / "token")}
    node.run("open", "--print", env=over_tcp, expect=EXIT_AUTH)
    log = (node.folder / "log").read_text() + (node.state / "audit.log").read_text()
    assert code not in log


def test_open_says_how_where_no_browser_reaches_the_service(tmp_path):
    node = Node(tmp_path, listens=False)
    try:
        assert node.run("open", "--print", expect=EXIT_USAGE) == ""
        assert "--api-listen 127.0.0.1:33080" in node.stderr
    finally:
        node.stop()


def test_the_page_needs_no_token_and_is_guarded(node):
    browser = node.browser()
    status, headers, content = browser.ask("GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert status == 200 and b"<!doctype html>" in content.lower() and b"Farhaul" in content
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';") and "unsafe" not in policy
    expected = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"}
    assert {name: headers[name] for name in expected} == expected
    status, headers, empty = browser.ask("HEAD", "/")
    assert status == 200 and empty == b"" and headers["Content-Type"].startswith("text/html")
    for path in ("/nothing", "/assets/none.js", "/a/b/c", "/assets/..%2findex.html"):
        status, headers, content = browser.ask("GET", path)
        assert (status, headers["Content-Type"]) == (404, "text/html; charset=utf-8"), path
    for path in ("/api/v1/nothing", "/api", "/api/v2/jobs"):
        status, headers, _ = browser.ask("GET", path)
        assert (status, headers["Content-Type"]) == (404, "application/problem+json"), path
    assert browser.ask("GET", "/", headers={"Host": "evil.example"})[0] == 421
    status, headers, _ = browser.ask("GET", "/api/v1/jobs")
    assert (status, headers["Cache-Control"], headers["X-Content-Type-Options"]) == (401, "no-store", "nosniff")
    assert browser.ask("POST", "/")[0] == 405


def test_what_runs_has_a_curve_and_is_steered_from_a_browser(node):
    browser = node.browser()
    browser.api("POST", "/login", {"code": node.run("open", "--print").strip().split("=")[1]})
    job = browser.api("POST", "/jobs", {"schema": 1, "sources": ["zero:"], "destination": "null:"}, expect=201)["id"]
    curve = lambda: browser.api("GET", f"/jobs/{job}/curve")
    wait_until(lambda: len(curve()["at_s"]) >= 3, 30, 0.2, "the job has a curve")
    seen = curve()
    assert {len(seen[name]) for name in seen if name != "paths"} == {len(seen["at_s"])}
    assert seen["at_s"] == sorted(seen["at_s"]) and max(seen["goodput_bps"]) > 1e6, seen
    (one,) = browser.api("GET", "/curves")["curves"]
    assert one["job"] == job and one["begin_s"] <= one["end_s"] and all(isinstance(rate, int) for rate in one["goodput_bps"])
    detail = browser.api("GET", f"/jobs/{job}")
    assert {"in_flight_bytes", "retransmitted_fraction", "loss_now_fraction", "paths"} <= set(detail["progress"])
    before = browser.api("GET", "/host")
    time.sleep(1)
    after = browser.api("GET", "/host")
    assert after["at_s"] > before["at_s"] and after["moved"]["local_bytes"] > before["moved"]["local_bytes"]
    busy = lambda host: sum(core["busy_s"] for core in host["cores"])
    assert busy(after) > busy(before) and after["memory"]["bytes"] > after["memory"]["available_bytes"] > 0
    browser.api("POST", f"/jobs/{job}/pause")
    wait_until(lambda: browser.api("GET", f"/jobs/{job}")["state"] == "paused", what="the job is paused")
    browser.api("POST", f"/jobs/{job}/cancel")
    wait_until(lambda: browser.api("GET", f"/jobs/{job}")["state"] == "cancelled", what="the job is cancelled")
    assert curve()["at_s"] == []


def over_socket(path, request):
    """The answer of the API at this Unix socket. Unix sockets can be reached from outside of the host's
    namespace."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.fspath(path))
    with contextlib.closing(connection):
        connection.request("GET", f"/api/v1{request}")
        answer = connection.getresponse()
        content = answer.read()
    assert answer.status == 200, content
    return json.loads(content)


def test_a_curve_has_what_the_network_does(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    id = service.submit("zero:", *service.to_far("null:")[1:], service.far.url("null:"), "--rate", "40M")
    curve = lambda: over_socket(service.socket, f"/jobs/{id}/curve")
    wait_until(lambda: len(curve()["at_s"]) >= 4, 30, 0.2, "the job has a curve")
    seen = curve()
    # On a link without delay, at some moments nothing is in flight, so only the maximum counts.
    assert seen["rtt_ms"][-1] > 0 and max(seen["in_flight_bytes"]) > 0 and seen["paths"] == [], seen
    assert 20e6 < seen["target_bps"][-1] < 60e6 and 20e6 < seen["goodput_bps"][-1] < 60e6, seen
    transfer = over_socket(service.socket, f"/jobs/{id}")["transfer"]
    assert len(transfer["traffic"]) == 1 and transfer["traffic"][0]["bytes_moved"] > MIB, transfer
    assert transfer["packets_sent"] > 0 and transfer["segments_sent"] > 0 and transfer["in_flight_bytes"] >= 0, transfer
    # The far end reports from time to time how busy its stages are.
    stages = lambda: over_socket(service.socket, f"/jobs/{id}")["transfer"]["stages_now"]
    wait_until(lambda: {stage["end"] for stage in stages()} == {"sender", "receiver"}, 30, 0.5, "the stages of both ends are known")
    assert all(0 <= stage["busy"] <= 1.5 for stage in stages()), stages()
    service.run("cancel", id)


def test_the_queue_is_reordered_in_one_request_and_keeps_its_order(node):
    browser = node.browser()
    browser.log_in(node.run("token", "create", "--scope", "read,submit,control", "--everything", "-q").strip())
    later = {"schema": 1, "sources": ["zero:1"], "destination": "null:", "not_before": "2200-01-01T00:00:00Z"}
    a, b, c, d = (browser.api("POST", "/jobs", later, expect=201)["id"] for _ in range(4))
    queue = lambda: [job["id"] for job in browser.api("GET", "/jobs?order=queue")["jobs"]]
    assert queue() == [a, b, c, d]
    browser.api("PATCH", f"/jobs/{d}", {"before": a})
    browser.api("PATCH", f"/jobs/{a}", {"after": c})
    assert queue() == [d, b, c, a]
    page = browser.api("GET", "/jobs?counts=true&limit=1&offset=2")
    assert (page["counts"], [job["id"] for job in page["jobs"]]) == ({"waiting": 4}, [b])
    node.stop()
    node.start()
    assert queue() == [d, b, c, a]


def test_history_is_searched_and_its_papers_are_saved(node, tmp_path):
    make_file(tmp_path / "Run7.h5", MIB)
    (tmp_path / "there").mkdir()
    id = node.run("submit", tmp_path / "Run7.h5", tmp_path / "there", "--label", "proposal=P-4711", "--wait").strip()
    node.run("submit", tmp_path / "none", tmp_path / "x", "--retry", "0", "--wait", expect=EXIT_FILES)
    browser = node.browser()
    browser.log_in(node.run("token", "create", "--scope", "read", "--everything", "-q").strip())
    for query, states in [("run7", ["done"]), ("p-4711", ["done"]), ("FH-NOT-FOUND", ["failed"]), ("nowhere", [])]:
        found = browser.api("GET", f"/history?count=true&text={query}")
        assert ([record["state"] for record in found["records"]], found["count"]) == (states, len(states)), query
    (record,) = browser.api("GET", f"/history?job={id}")["records"]
    status, headers, content = browser.ask("GET", f"/api/v1/history/{record['id']}/manifest")
    assert (status, headers["Content-Disposition"]) == (200, f'attachment; filename="farhaul-{id}-1.manifest.jsonl"')
    (tmp_path / "manifest").write_bytes(content)
    node.run("verify", tmp_path / "manifest", tmp_path / "there")


def test_submit_prints_the_document_that_it_would_send(node):
    arguments = ["submit", "/data/run7/", "fh://hpc/in", "--label", "run=7", "--priority", "8", "--rate", "2G", "--exclude", "*.tmp"]
    printed = node.run(*arguments, "--print", env={"FARHAUL_API": "/nonexistent/api.sock"})
    document = json.loads(printed)
    assert (document["sources"], document["priority"], document["labels"]) == (["/data/run7/"], 8, {"run": "7"}), document
    (node.folder / "spec").write_text(printed)
    assert node.run("submit", "--spec", node.folder / "spec", "--print") == printed
    assert node.json("jobs") == []
    id = node.run(*arguments, "--not-before", "2200-01-01T00:00:00Z").strip()
    browser = node.browser()
    browser.log_in(node.run("token", "create", "--scope", "read", "--everything", "-q").strip())
    kept = browser.api("GET", f"/jobs/{id}/document")
    kept.pop("not_before")
    assert kept == document
