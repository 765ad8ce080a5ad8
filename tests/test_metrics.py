"""What the service tells collectors over its socket: jobs and clients are counted, and clients have records
in the history."""

import json
import re
import subprocess

import pytest

from harness import product
from harness.hosts import wait_until
from harness.service import Service
from harness.three import ThreeNet
from harness.trees import make_file

MIB = 1 << 20
SERIES = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([-+.eE0-9]+)")


@pytest.fixture
def service(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    service.daemon.keys.write_text(own_net.key)
    return service


class Metrics:
    """One answer of /metrics."""

    def __init__(self, service, accept="application/openmetrics-text"):
        answer = subprocess.run(["curl", "-sS", "-D", "-", "--unix-socket", service.socket, "-H", f"Accept: {accept}",
                                 "http://localhost/metrics"], check=True, stdout=subprocess.PIPE).stdout.decode()
        self.head, self.text = answer.split("\r\n\r\n", 1)
        self.series = {}
        for line in self.text.splitlines():
            if not line.startswith("#"):
                name, labels, value = SERIES.fullmatch(line).groups()
                self.series[name, labels or ""] = float(value)

    def sum(self, name, **labels):
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(value for (one, has), value in self.series.items()
                   if one == name and all(label in has.split(",") for label in wanted))


def test_a_job_is_counted_as_it_moves_and_stays_counted(service):
    source = make_file(service.net.folder("source") / "a", 3 * MIB)
    id = service.submit(source, *service.to_far("a"))
    slow = service.submit("random:1G", *service.to_far("null"), "--rate", "20M")
    service.wait(id)
    wait_until(lambda: Metrics(service).sum("farhaul_bytes_total", direction="sent") > 4 * MIB, what="the slow job moves")
    during = Metrics(service)
    assert during.sum("farhaul_transfers", origin="job", direction="sent") == 1
    assert during.sum("farhaul_goodput_bytes_per_second", direction="sent") > 1e5
    assert during.sum("farhaul_target_rate_bytes_per_second") > 1e6
    assert during.sum("farhaul_rtt_seconds", statistic="max") > 0
    assert during.sum("farhaul_stage_busy_ratio", end="sender") > 0
    assert during.sum("farhaul_jobs", state="running") == 1
    assert during.text.endswith("# EOF\n") and "openmetrics" in during.head
    service.run("cancel", slow)
    wait_until(lambda: Metrics(service).sum("farhaul_transfers") == 0, what="nothing runs")
    after = Metrics(service)
    back = [key for key, value in during.series.items() if key[0].endswith("_total") and after.series[key] < value]
    assert not back
    assert after.sum("farhaul_transfers_ended_total", origin="job", state="done") == 1
    assert after.sum("farhaul_transfers_ended_total", origin="job", state="cancelled") == 1
    assert after.sum("farhaul_files_total", direction="sent", outcome="arrived") == 1
    older = Metrics(service, "text/plain")
    assert "version=0.0.4" in older.head and {name for name, _ in older.series} == {name for name, _ in after.series}


def test_what_clients_do_is_counted_and_recorded(service):
    host, near = service.net.beta, service.net.folder("near")
    source = make_file(near / "a", 2 * MIB)
    there = service.daemon.url("a", host="alpha")
    trust = ["--fingerprint", service.daemon.fingerprint]
    identity = ["-i", service.net.alpha.home / ".config/farhaul/id_ed25519"]

    def client(*arguments, code=0):
        done = host.run(["farhaul", *map(str, (*arguments, *trust, *identity))])
        assert done.returncode == code, done.stderr.decode()

    client("cp", source, there)
    client("cp", there, near / "back")
    client("sum", there)
    client("cp", service.daemon.url("none", host="alpha"), near / "none", code=product.EXIT_FILES)
    wait_until(lambda: len(service.json("history")) == 4, what="four records")
    failed, read, pull, push = service.json("history")
    assert [record["direction"] for record in (push, pull, read, failed)] == ["push", "pull", "read", "pull"]
    assert {record["state"] for record in (push, pull, read)} == {"done"}
    assert (failed["state"], failed["error_code"]) == ("failed", "FH-NOT-FOUND")
    assert (push["destination"], pull["source"], push["bytes"], pull["bytes"]) == ("a", "a", 2 * MIB, 2 * MIB)
    assert len({record["owner"] for record in (push, pull, read, failed)}) == 1 and push["owner"].startswith("SHA256:")
    assert push["job"] is None and re.fullmatch(r"[0-9a-f.:]+", push["peer"]) and not push["peer"].endswith(":33001")
    metrics = Metrics(service)
    assert metrics.sum("farhaul_bytes_total", direction="received") == 2 * MIB
    assert 2 * MIB <= metrics.sum("farhaul_bytes_total", direction="sent") < 3 * MIB
    assert metrics.sum("farhaul_transfers_ended_total", origin="client", state="done") == 3
    assert metrics.sum("farhaul_errors_total", code="FH-NOT-FOUND") == 1
    assert metrics.sum("farhaul_transfers") == 0
    for secret in (str(source), push["peer"], push["owner"]):
        assert secret not in metrics.text


def test_what_two_daemons_do_for_a_client_is_recorded_at_both():
    net = ThreeNet()
    try:
        make_file(net.b.root / "a", 2 * MIB)
        net.cp(net.b.url("a"), net.c.url("b"))

        def records(daemon):
            env = {"FARHAUL_API": str(daemon.directory / "state/api.sock")}
            return json.loads(daemon.host.run(["farhaul", "history", "--json"], env=env, check=True).stdout)

        wait_until(lambda: records(net.b) and records(net.c), what="both daemons have a record")
        (sent,), (received,) = records(net.b), records(net.c)
        assert (sent["direction"], sent["source"], sent["bytes"], sent["state"]) == ("third", "a", 2 * MIB, "done")
        assert sent["destination"].startswith("fh://") and sent["destination"].endswith(f":{net.c.port}/b")
        assert (received["direction"], received["destination"], received["bytes"]) == ("push", "b", 2 * MIB)
        # Both records are for the same client.
        assert sent["owner"] == received["owner"]
    finally:
        net.pair.close()
