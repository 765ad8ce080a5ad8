"""Jobs whose other host does not answer: they fail for now after a while, and hold up no other job meanwhile."""

import datetime
import json
import os
import stat
import types

import pytest

from harness.hosts import Pair, wait_until
from harness.product import Daemon, binary
from harness.service import Service
from harness.trees import make_file

#: Longer than a job may be unanswered before it leaves its place to others (5 s), with room for a loaded host.
CONNECT_SECONDS = 12
#: At one of these ports of beta every packet is lost, at the other one a program accepts and says nothing.
LOST, MUTE = 34301, 34302


@pytest.fixture(scope="module")
def net():
    pair = Pair(binary())
    try:
        yield pair
    finally:
        pair.close()


@pytest.fixture(scope="module")
def service(net):
    """Its ssh never ends, whatever it is asked."""
    programs = net.folder("programs")
    ssh = programs / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $$ >> {programs}/pids\nexec sleep 1000\n")
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    beta = Daemon(net, net.beta, [])
    rules = "".join(f"{kind} dport {LOST} drop;" for kind in ("tcp", "udp"))
    net.beta.nft(f"table inet lost {{ chain c {{ type filter hook input priority 0; policy accept; {rules} }}; }}")
    env = {"PATH": f"{programs}:{net.alpha.environment(None)['PATH']}", "FARHAUL_JOBS_CONNECT_TIMEOUT": f"{CONNECT_SECONDS}s",
           "FARHAUL_JOBS_RETRY_ATTEMPTS": "1", "FARHAUL_JOBS_RETRY_FIRST": "1h", "FARHAUL_JOBS_RETRY_LONGEST": "1h"}
    made = Service(types.SimpleNamespace(pair=net), net.alpha, env=env, far=beta)
    made.programs = programs
    return made


def test_jobs_to_hosts_that_do_not_answer_hold_up_no_other_and_fail_for_now(net, service):
    """An ssh that never ends, lost packets, and a program that accepts and says nothing: eight such jobs take all places of
    their owner."""
    source = make_file(net.folder("source") / "file", 1000)
    mute = "import socket, time; it = socket.create_server(('0.0.0.0', %d)); kept = [it.accept() for _ in range(1000)]" % MUTE
    program = net.beta.start(["python3", "-c", mute])
    places = ["silent1:data"] * 4 + [f"fh://beta:{LOST}/data"] * 2 + [f"fh://beta:{MUTE}/data"] * 2
    silent = [service.submit(source, f"{place}{number}") for number, place in enumerate(places)]
    wait_until(lambda: all(service.job(id)["state"] == "running" for id in silent), what="they have all places")
    late = service.submit(source, "silent1:late")
    good = service.submit(source, *service.to_far("arrived"))
    service.run("wait", good, timeout=60)
    arrived = service.job(good)
    # A host that does not answer gets no further job meanwhile.
    assert service.job(late)["attempt"] == 0, service.job(late)
    wait_until(lambda: all(service.job(id)["error"] for id in silent), seconds=60, what="they have failed for now")
    for id in silent:
        job = service.job(id)
        error = job["error"]
        assert job["state"] == "retrying" and job["due"] and error["code"] == "FH-UNREACHABLE" and error["retryable"], job
        assert "no session with ssh://silent1 has begun within" in error["text"] or "beta" in error["text"], job
        assert datetime.datetime.fromisoformat(arrived["ended"]) < error_time(service, id), "it did not wait for them"
    pids = (service.programs / "pids").read_text().split()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids[:16]), seconds=30, what="no ssh is left")
    for id in [*silent, late]:
        service.run("cancel", id)
    program.kill()
    program.wait()


def error_time(service, id):
    """When the log says that the attempt has failed."""
    log = [json.loads(line) for line in service.run("logs", id, "--json").splitlines()]
    lines = [line for line in log if "attempt 1 failed" in line["text"]]
    assert lines, log
    return datetime.datetime.fromtimestamp(lines[0]["at_ms"] / 1000, datetime.UTC)
