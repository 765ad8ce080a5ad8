"""How a node is operated: it is told to end, gets its sockets from the service manager, keeps a limited
history, and shares places and rates among its peers."""

import contextlib
import json
import os
import signal
import socket
import subprocess

import pytest

from harness.hosts import USER, wait_until
from harness.product import EXIT_CONNECT, EXIT_INTERRUPTED, EXIT_LOST, EXIT_OK, EXIT_TERMINATED, EXIT_USAGE, ROOT, Daemon, cp, finish, start_cp
from harness.service import Service
from harness.trees import make_file, sha256

MIB = 1 << 20
ACTIVATION = ROOT / "tests/harness/activation.py"


class Manager:
    """The service manager's end of $NOTIFY_SOCKET."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(os.fspath(self.path))
        self.socket.settimeout(20)

    def hear(self, word):
        """The next message that has this word."""
        while True:
            message = self.socket.recv(4096).decode()
            if word in message:
                return message


def ready(service):
    """The status and the document of /health/ready."""
    asked = ["curl", "-sS", "-w", "\n%{http_code}", "--unix-socket", service.socket, "http://localhost/api/v1/health/ready"]
    body, _, status = subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout.decode().rpartition("\n")
    return int(status), json.loads(body)


def draining(service):
    service.daemon.process.terminate()
    wait_until(lambda: ready(service)[0] == 503, 20, 0.05, "the service says that it is ending")


def client(service, *arguments, **options):
    """`farhaul cp` of the other host, whose key the service knows."""
    service.daemon.keys.write_text(service.net.key)
    identity = ["-i", service.net.alpha.home / ".config/farhaul/id_ed25519"]
    trust = ["--fingerprint", service.daemon.fingerprint]
    return start_cp(service.net.beta, *trust, *identity, *arguments, **options)


def moves(service, id):
    wait_until(lambda: (service.job(id).get("progress") or {}).get("bytes_done", 0) > 0, 30, 0.1, "the job moves")


def test_what_runs_ends_by_itself_when_the_service_is_told_to_end(own_net):
    manager = Manager(own_net.folder("manager"))
    env = {"FARHAUL_SERVE_DRAIN": "1h", "FARHAUL_JOBS_RUNNING_MAX": "1", "NOTIFY_SOCKET": str(manager.path)}
    service = Service(own_net, own_net.alpha, far=own_net.daemon, env=env)
    source = make_file(own_net.folder("source") / "a", 6 * MIB)
    running = service.submit(source, *service.to_far("a"), "--rate", "12M")
    waiting = service.submit("zero:10", "null:")
    pushing = client(service, "--rate", "12M", source, service.daemon.url("in", host="alpha"))
    moves(service, running)
    wait_until(lambda: "session begins" in service.daemon.log_text(), what="the client is there")
    draining(service)
    status, problem = ready(service)
    assert (status, problem["code"]) == (503, "FH-BUSY") and "shutting down" in problem["detail"], problem
    told = manager.hear("STOPPING=1")
    assert "EXTEND_TIMEOUT_USEC=60000000" in told and "waiting for 1 job and 1 session of a client" in told, told
    late = finish(client(service, "--busy-wait", "0", source, service.daemon.url("late", host="alpha")))
    assert late.code == EXIT_CONNECT and "is busy: the daemon is ending" in late.stderr, late
    # A job that is submitted now is kept for later, like one that waited.
    after = service.submit("zero:10", "null:")
    assert [service.job(id)["state"] for id in (running, waiting, after)] == ["running", "queued", "queued"]
    assert finish(pushing).code == EXIT_OK
    assert service.daemon.process.wait(timeout=60) == 0
    assert sha256(service.daemon.root / "in") == sha256(source)
    service.daemon.start()
    service.wait(running, waiting, after)
    record = next(record for record in service.json("history") if record["job"] == running)
    assert (record["state"], record["attempts"]) == ("done", 1), record
    assert "was restarted" not in service.run("logs", running)


@pytest.mark.parametrize("drain, again", [("0s", False), ("1s", False), ("1h", True)])
def test_what_does_not_end_in_time_stops_and_goes_on_later(own_net, drain, again):
    """Either the time is over, or a second signal ends the wait."""
    service = Service(own_net, own_net.alpha, far=own_net.daemon, env={"FARHAUL_SERVE_DRAIN": drain})
    id = service.submit("random:8G", service.far.url("null:"), *service.to_far("null:")[1:], "--rate", "12M")
    pushing = client(service, "--rate", "12M", "random:8G", service.daemon.url("in", host="alpha"))
    moves(service, id)
    wait_until(lambda: "session begins" in service.daemon.log_text(), what="the client is there")
    if again:
        draining(service)
    service.daemon.process.send_signal(signal.SIGINT)
    assert service.daemon.process.wait(timeout=30) == 0
    assert finish(pushing).code in (EXIT_LOST, EXIT_INTERRUPTED, EXIT_TERMINATED)
    service.daemon.start()
    wait_until(lambda: service.job(id)["state"] == "running", 30, 0.1, "the job goes on")
    assert service.job(id)["attempt"] == 1, service.run("logs", id)
    service.run("cancel", id)


def test_a_job_that_is_held_does_not_keep_a_service_from_ending(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon, env={"FARHAUL_SERVE_DRAIN": "1h"})
    id = service.submit("random:8G", *service.to_far("null"), "--rate", "12M")
    moves(service, id)
    service.run("pause", id)
    service.daemon.process.terminate()
    assert service.daemon.process.wait(timeout=30) == 0
    service.daemon.start()
    assert service.job(id)["state"] == "paused"
    service.run("cancel", id)


def test_a_history_that_is_too_large_loses_its_oldest_records(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    source = own_net.folder("source")
    for number in range(4000):
        (source / f"{number}-{'x' * 150}").touch()
    jobs = [service.submit(f"{source}/", service.net.folder("near") / "in", "--wait", "-q") for _ in range(3)]
    manifests = lambda: sorted(path.name for path in (service.state / "manifests").iterdir())
    records = lambda: [record["job"] for record in service.json("history")]
    assert records() == jobs[::-1] and len(manifests()) == 3
    of_one = max(path.stat().st_size for path in (service.state / "manifests").iterdir())
    # There is room for two records, but not for three.
    service.daemon.env = {"FARHAUL_HISTORY_SIZE_MAX": str(int(2.5 * of_one))}
    service.daemon.restart()
    wait_until(lambda: records() == [jobs[2], jobs[1]], 20, 0.1, "the oldest record goes")
    assert manifests() == sorted(f"{job}-1.jsonl" for job in jobs[1:])
    assert service.job(jobs[0])["state"] == "done"


def configured(service, text):
    """Gives the running service this configuration, and waits until it has read it."""
    service.config.write_text(text)
    lines = service.daemon.log_text().count("the configuration was reloaded")
    service.daemon.process.send_signal(signal.SIGHUP)
    read = lambda: service.daemon.log_text().count("the configuration was reloaded") > lines
    wait_until(read, 20, 0.05, "the configuration is read")


@pytest.fixture
def configurable(own_net):
    config = own_net.folder("config") / "farhaul.toml"
    config.touch()
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=["--config", config])
    service.config = config
    return service


def test_a_peer_has_as_many_places_as_its_table_says(configurable):
    service = configurable
    peer = '[peers.far]\nhost = "be*"\nrunning_max = {}\n'
    configured(service, peer.format(1))
    endless = [service.submit("random:8G", *service.to_far(f"null{n}"), "--rate", "8M") for n in range(3)]
    states = lambda: sorted(service.job(id)["state"] for id in endless)
    wait_until(lambda: states() == ["queued", "queued", "running"], 20, 0.1, "one job runs")
    # Another peer has places of its own, and a copy within the host needs no place.
    service.submit("zero:5", "null:", "--wait")
    assert states() == ["queued", "queued", "running"]
    configured(service, peer.format(2))
    wait_until(lambda: states() == ["queued", "running", "running"], 20, 0.1, "two jobs run")
    configured(service, "")
    wait_until(lambda: states() == ["running"] * 3, 20, 0.1, "all three jobs run")
    service.run("cancel", *endless)


def test_a_peer_is_in_its_cap_for_jobs_and_as_a_client(configurable):
    service = configurable
    far = service.far
    configured(service, '[caps.uplink]\nrate = "40M"\n'
               f'[peers.far]\nhost = "beta"\nfingerprint = "{far.fingerprint}"\ncap = "uplink"\n')
    job = service.submit("random:8G", far.url("in"))
    sessions = lambda: {cap["name"]: cap["sessions"] for cap in service.json("cap", "list")}["uplink"]
    wait_until(lambda: sessions() == 1, 20, 0.1, "the job is in the cap")
    service.daemon.keys.write_text(far.identity.with_suffix(".pub").read_text())
    client = start_cp(service.net.beta, "-i", far.identity, "--fingerprint", service.daemon.fingerprint, "random:8G",
                      service.daemon.url("in", host="alpha"))
    wait_until(lambda: sessions() == 2, 20, 0.1, "the client is in the cap")
    client.terminate()
    assert finish(client).code == EXIT_TERMINATED
    # The peer stays in the cap when somebody sets another rate.
    service.run("cancel", job)
    subprocess.run(["curl", "-sS", "--fail-with-body", "-X", "PUT", "--unix-socket", service.socket, "-H", "Content-Type: application/json",
                    "-d", '{"rate_bps": 30000000}', "http://localhost/api/v1/caps/uplink"], check=True)
    job = service.submit("random:8G", far.url("in"))
    wait_until(lambda: sessions() == 1, 20, 0.1, "the next job is in the cap")
    service.run("cancel", job)
    service.config.write_text('[peers.far]\nhost = "beta"\ncap = "uplnk"\n[caps.uplink]\nrate = "40M"\n')
    checked = service.host.run(["farhaul", "config", "check", "--config", service.config])
    assert checked.returncode == EXIT_USAGE and b"there is no [caps.uplnk]; did you mean" in checked.stdout, checked


def test_metrics_have_addresses_of_their_own_with_the_rules_of_the_api(own_net):
    folder = own_net.folder("config")
    config, certificate, key = folder / "farhaul.toml", folder / "tls.crt", folder / "tls.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=alpha",
            "-addext", "subjectAltName=DNS:alpha", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    listen = '[metrics]\nlisten = ["[::]:34050"]\n'
    config.write_text(listen)
    checked = own_net.alpha.run(["farhaul", "config", "check", "--config", config])
    assert checked.returncode == EXIT_USAGE and b"set tls_cert and tls_key of api" in checked.stdout, checked
    config.write_text(f'{listen}[api]\nhosts = ["alpha"]\ntls_cert = "{certificate}"\ntls_key = "{key}"\nmax_connections = 3\n')
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=["--config", config])
    token = service.run("token", "create", "--scope", "read").strip()

    def ask(path, *headers, to="https://alpha:34050"):
        argv = ["curl", "-s", "--cacert", certificate, "-o", "/dev/null", "-w", "%{http_code}"]
        argv += [word for header in headers for word in ("-H", header)]
        return own_net.beta.run([*map(str, argv), to + path]).stdout.decode()

    bearer = f"Authorization: Bearer {token}"
    assert ask("/metrics", bearer) == "200"
    assert ask("/metrics") == "401"
    assert ask("/metrics", bearer, "Host: elsewhere.example") == "421"
    assert ask("/metrics?token=x", bearer) == "400"
    assert [ask(path, bearer) for path in ("/api/v1/jobs", "/api/v1/health/live", "/")] == ["404"] * 3
    assert ask("/metrics", bearer, to="http://alpha:34050") == "000", "nothing is said in the clear"
    # The Unix socket has places of its own: who takes all of them keeps no collector out.
    with contextlib.ExitStack() as held:
        for _ in range(3):
            one = held.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
            one.connect(os.fspath(service.socket))
            one.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(1)
        assert ask("/metrics", bearer) == "200"
        service.run("jobs", expect=EXIT_CONNECT)


def test_a_hook_is_told_of_as_many_files_as_it_wants(configurable):
    service = configurable
    folder = service.config.parent
    told, hook = folder / "told", folder / "hook"
    told.touch()
    hook.write_text(f"#!/bin/sh\ncat >>{told}\n")
    hook.chmod(0o755)
    source = service.net.folder("source")
    for number in range(5):
        make_file(source / f"{number}", 10)
    configured(service, f'[hooks.each]\non = ["file"]\nprogram = "{hook}"\nbatch_files = 2\nbatch_wait = "1h"\n')
    service.submit(f"{source}/", service.net.folder("near") / "in", "--wait")
    batches = lambda: [len(json.loads(line)["files"]) for line in told.read_text().splitlines()]
    wait_until(lambda: sum(batches()) == 5, 20, 0.1, "all were told")
    assert batches() == [2, 2, 1]
    service.config.write_text(service.config.read_text().replace("= 2", "= 20000").replace("1h", "2h"))
    checked = service.host.run(["farhaul", "config", "check", "--config", service.config])
    for part in (b"hooks.each.batch_files: must be at most 10000", b"hooks.each.batch_wait: must be at most 1h"):
        assert part in checked.stdout, checked


def at(address, *kinds):
    return [f"farhaul.socket={kind}:{address}" for kind in kinds]


@pytest.mark.parametrize("user", [None, USER], ids=["of its own user", "of root"])
def test_sockets_of_the_service_manager_are_taken(own_net, user):
    """Sockets are recognized by name or by kind: UDP and TCP for sessions, a Unix socket and TCP for the API,
    and metrics."""
    folder = own_net.folder("run")
    os.chmod(folder, 0o755)
    api = folder / "api.sock"
    sockets = [*at("[::]:34001", "udp", "tcp"), f"farhaul.socket=unix:{api}", "api=tcp:[::1]:34002", "metrics=tcp:[::1]:34003"]
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=34001, user=user, listen="[::]:34009", sockets=sockets)
    wait_until(lambda: " serving " in daemon.log_text(), what="the daemon serves")
    assert "[::]:34001" in daemon.log_text() and "34009" not in daemon.log_text()
    source = make_file(own_net.folder("source") / "a", 3 * MIB)
    trust = ["--fingerprint", daemon.fingerprint]
    by_udp = cp(own_net.alpha, *trust, "--flows", "4", source, daemon.url("udp"))
    with own_net.beta.dropping("meta l4proto udp"):
        by_tcp = cp(own_net.alpha, *trust, source, daemon.url("tcp"))
    assert (by_udp.report["transport"], by_tcp.report["transport"]) == ("udp", "tcp")
    assert sha256(daemon.root / "udp") == sha256(daemon.root / "tcp") == sha256(source)
    run = lambda *argv: own_net.beta.run(argv, user=user, env={"FARHAUL_API": str(api)}, check=True).stdout.decode()
    assert run("farhaul", "jobs") == "no jobs\n"
    token = run("farhaul", "token", "create", "--scope", "read").strip()
    ask = lambda port, path: run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {token}",
                                 f"http://[::1]:{port}{path}")
    assert [ask(34002, path) for path in ("/metrics", "/api/v1/jobs")] == ["200", "200"]
    assert [ask(34003, path) for path in ("/metrics", "/api/v1/jobs")] == ["200", "404"]
    assert daemon.stop() == 0
    assert api.exists(), "the socket belongs to the manager"


@pytest.mark.parametrize("sockets, part", [
    (["farhaul.socket=file:/dev/null"], "passes a socket farhaul.socket, which is not of the kind for that name"),
    (["web=tcp:[::]:34001"], "passes a socket web, which is not of the kind for that name"),
    (at("[::]:34001", "udp"), "UDP [::]:34001 was handed over without TCP"),
    ([*at("[::]:34001", "udp", "tcp"), *at("[::]:34002", "tcp")], "TCP [::]:34002 was handed over without UDP"),
    ([*at("[::]:34001", "udp", "tcp"), "metrics=tcp:[::]:34003"], "at [::]:34003 without TLS"),
])
def test_sockets_that_are_for_nothing_are_refused_in_one_line(own_net, sockets, part):
    known = own_net.daemon
    argv = ["python3", ACTIVATION, *sockets, "--", "farhaul", "serve", "--root", known.root, "--authorized-keys", known.keys,
            "--identity", known.identity, "--state", own_net.folder("other") / "state"]
    done = own_net.beta.run(list(map(str, argv)), timeout=20)
    (line,) = [line for line in done.stderr.decode().splitlines() if line.startswith("error")]
    assert done.returncode != 0 and part in line and b"hint:" in done.stderr, done
