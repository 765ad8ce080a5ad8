"""What passes by itself: jobs try it again, and the command line says so."""

import datetime
import pathlib
import types

import pytest

from harness.hosts import Pair, wait_until
from harness.product import EXIT_CONNECT, EXIT_FILES, EXIT_USAGE, Daemon, binary, cp, keygen
from harness.service import Service
from harness.trees import make_file, sha256


@pytest.fixture(scope="module")
def net():
    pair = Pair(binary())
    try:
        yield pair
    finally:
        pair.close()


@pytest.fixture(scope="module")
def service(net):
    # Names are asked of a name server, too. There is none: no way leads to where it would be.
    switch = pathlib.Path(f"/etc/netns/{net.alpha.netns}/nsswitch.conf")
    switch.write_text(switch.read_text().replace("hosts: files", "hosts: files dns"))
    beta = Daemon(net, net.beta, [keygen(net.alpha)])
    env = {"FARHAUL_JOBS_RETRY_FIRST": "1s", "FARHAUL_JOBS_RETRY_LONGEST": "1s", "FARHAUL_JOBS_RETRY_ATTEMPTS": "60"}
    return Service(types.SimpleNamespace(pair=net), net.alpha, env=env, far=beta)


def test_a_name_server_that_is_away_is_no_unknown_host_and_a_job_waits_for_it(net, service):
    source = make_file(net.folder("source") / "file", 1000)
    outcome = cp(net.alpha, source, "fh://dtn.example/x", expect=EXIT_CONNECT)
    detail = outcome.report["error_detail"]
    assert (detail["code"], detail["retryable"]) == ("FH-NAME-SERVER-AWAY", True), outcome
    assert "hint: this may pass by itself: try again later" in outcome.stderr, outcome
    id = service.submit(source, f"fh://dtn.example:{service.far.port}/x", "--fingerprint", service.far.fingerprint)
    wait_until(lambda: service.job(id)["state"] == "retrying", what="the first attempt has failed")
    assert service.job(id)["error"]["code"] == "FH-NAME-SERVER-AWAY"
    names = pathlib.Path(f"/etc/netns/{net.alpha.netns}/hosts")
    names.write_text(names.read_text() + f"{net.beta.v4} dtn.example\n")
    service.run("wait", id, timeout=40)
    assert sha256(service.far.root / "x") == sha256(source)


def test_a_file_that_another_transfer_writes_is_written_when_that_one_has_ended(net, service):
    source = make_file(net.folder("source") / "file", 8 << 20)
    first = service.submit(source, *service.to_far("target"), "--rate", "1M")
    wait_until(lambda: any(service.far.root.glob(".*.fhpart")), what="the first job writes")
    second = service.submit(source, *service.to_far("target"))
    wait_until(lambda: service.job(second)["state"] == "retrying", seconds=40, what="the second one has failed for now")
    error = service.job(second)["error"]
    assert error["code"] == "FH-BEING-WRITTEN" and error["exit_code"] == EXIT_FILES and error["retryable"], error
    service.run("cancel", first)
    service.run("wait", second, timeout=60)
    assert sha256(service.far.root / "target") == sha256(source)


def test_a_promise_reckons_with_the_cap_of_the_network_in_which_a_peer_of_that_name_is(net, service):
    service.run("cap", "set", "lan", "--network", "10.0.0.0/8", "--rate", "1M")
    soon = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=10)).isoformat()
    # 1 GB at 1 Mbit/s takes more than two hours, by the name as by the address.
    for host in ("beta", net.beta.v4):
        far = [f"fh://{host}:{service.far.port}/null:", "--fingerprint", service.far.fingerprint]
        service.submit("zero:1G", *far, "--finish-by", soon, expect=EXIT_USAGE)
        assert "cannot be done by" in service.stderr, (host, service.stderr)
    # A name that nobody knows is in no network, and keeps nobody waiting for long.
    service.run("cancel", service.submit("zero:1G", "fh://unknown.example/null:", "--finish-by", soon))
    service.run("cap", "remove", "lan")
