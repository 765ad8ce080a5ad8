"""The transfer service through the command line: jobs are accepted, done, steered and listed, and survive any
end of the service."""

import datetime
import json
import os
import random
import re
import subprocess
import time

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_FILES, EXIT_INTERRUPTED, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, EXIT_VANISHED
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
    assert service.run("jobs", "--state", "partly failed") == "no jobs\n"
    (sum_,) = service.json("usage", "--by", "label:run")
    assert (sum_["of"], sum_["transfers"], sum_["bytes"]) == ("7", 1, 3 * MIB + 10)
    (peer,) = service.json("peers")
    assert (peer["name"], peer["transfers"], peer["unfinished"], peer["bytes"]) == (job["peer"], 1, 0, 3 * MIB + 10), peer
    assert peer["last_reached"] and peer["cap"] == "host", peer
    assert service.run("peers").splitlines()[1].startswith(job["peer"])
    assert "last reached" in service.run("peers", job["peer"])



def test_jobs_that_end_at_once_are_waited_for(service):
    """Nothing else happens on the node: if `wait` missed the end of a job, no later event would tell it."""
    for _ in range(40):
        service.submit("zero:1000", "null:", "--wait", "--quiet")


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
    for wrong, part in [("{", "line 1"), ('{"schema": 1, "sources": ["/a"], "destination": "/b", "x": 1}', "there is no field 'x'"),
                        ('{"schema": 9, "sources": ["/a"], "destination": "/b"}', "schema 9")]:
        service.run("submit", "--spec", "-", input=wrong.encode(), expect=EXIT_USAGE)
        assert part in service.stderr, service.stderr


def test_what_ends_badly_ends_with_the_code_of_cp(service):
    source = service.net.folder("source")
    service.submit(source / "none", *service.to_far("x"), "--wait", expect=EXIT_FILES)
    service.submit(source, "fh://beta:9/x", "--retry", "0", "--wait", expect=EXIT_CONNECT)
    service.submit(source, service.far.url("x"), "--fingerprint", "SHA256:" + 43 * "A", "--wait", expect=EXIT_AUTH)
    make_file(source / "a", 10)
    make_file(source / "b", 10)
    (service.far.root / "in/a").mkdir(parents=True)
    make_file(service.far.root / "in/a/there", 1)
    id = service.submit(f"{source}/", *service.to_far("in"), "--wait", expect=EXIT_SOME_FAILED)
    assert service.job(id)["state"] == "partly_failed"
    # The obstacle is removed: another run of the same job succeeds.
    (service.far.root / "in/a/there").unlink()
    (service.far.root / "in/a").rmdir()
    service.run("retry", id)
    service.wait(id)
    assert service.job(id)["run"] == 2 and (service.far.root / "in/a").is_file()


def test_a_job_whose_source_vanishes_ends_as_the_copy_would(service):
    """The small file is not read while the large one before it fills the memory."""
    folder = service.net.folder("source")
    large, gone = make_file(folder / "large", 60 * MIB), make_file(folder / "gone", 1000)
    id = service.submit(large, gone, *service.to_far("in/"), "--memory", "16M", "--rate", "100M")
    wait_until(lambda: service.job(id)["state"] == "running", 60, what="the job runs")
    wait_until(lambda: (service.job(id)["progress"] or {}).get("files_total") == 2, 60, what="both files are known")
    gone.unlink()
    service.run("wait", id, expect=EXIT_VANISHED)
    job = service.job(id)
    assert (job["state"], job["error"]["code"]) == ("done", "FH-SOURCE-VANISHED"), job
    assert "gone: it vanished before it was read" in job["error"]["text"], job
    assert "FH-SOURCE-VANISHED" in service.run("jobs", "--state", "done", "--json")
    (record,) = service.json("history")
    assert (record["state"], record["error_code"]) == ("done", "FH-SOURCE-VANISHED"), record


def test_who_waits_hears_why_a_job_is_tried_again(service):
    id = service.submit("zero:10", "fh://beta:1/null:", "--retry", "1")
    process = service.host.start(["farhaul", "wait", id], env={"FARHAUL_API": str(service.socket)}, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    assert line.startswith(f"{id}: nothing listens on port 1 of beta; the next attempt is at "), line
    service.run("cancel", id)
    assert process.wait(30) == EXIT_INTERRUPTED
    service.submit("zero:10", "null:", "--every", "1h", "--wait", expect=EXIT_USAGE)


def test_a_job_says_why_ssh_could_not_connect(service):
    id = service.submit("zero:10", "nowhere.invalid:/x", "--retry", "0", "--wait", expect=EXIT_CONNECT)
    assert "Could not resolve hostname nowhere.invalid" in service.stderr, service.stderr
    text = service.job(id)["error"]["text"]
    assert "Could not resolve hostname nowhere.invalid" in text and "\n" not in text, text
    key = service.net.ssh.client_key
    key.rename(key.with_name("elsewhere"))
    service.submit("zero:10", "beta:/x", "--retry", "0", "--wait", expect=EXIT_AUTH)
    assert "Permission denied (publickey" in service.stderr, service.stderr
    # The log has the messages, too.
    assert "Permission denied (publickey" in service.daemon.log.read_text()


def test_names_that_cannot_be_meant_are_refused(service):
    id = service.submit("zero:10", "null:", "--wait", "--quiet")
    service.run("job", id, "--files", "--result", "fail", expect=EXIT_USAGE)
    assert "no result is called 'fail'" in service.stderr
    service.submit("zero:10", "null:", "--label", "a=1", "--label", "a=2", expect=EXIT_USAGE)
    assert "label a is given twice" in service.stderr
    file = make_file(service.net.folder("x") / "file", 10)
    service.run("watch", "add", file, "--to", "/x", expect=EXIT_FILES)
    assert "is not a directory" in service.stderr


def test_commands_find_the_socket_that_the_configuration_names(own_net):
    home = own_net.alpha.home
    socket = own_net.folder("run") / "here.sock"
    (home / ".config/farhaul").mkdir(parents=True, exist_ok=True)
    (home / ".config/farhaul/farhaul.toml").write_text(f'[api]\nsocket = "{socket}"\n')
    Service(own_net, own_net.alpha, arguments=["--api-socket", socket], far=own_net.daemon)
    done = own_net.alpha.run(["farhaul", "jobs", "--json"])
    assert (done.returncode, done.stdout.strip()) == (EXIT_OK, b"[]"), done


def test_a_partly_failed_job_says_what_failed_and_why(service):
    source = service.net.folder("source")
    for name in ("a", "b", "c"):
        make_file(source / name, 10)
    for name in ("a", "b"):
        (service.far.root / "in" / name).mkdir(parents=True)
    id = service.submit(f"{source}/", *service.to_far("in"), "--retry", "0")
    service.wait(id, expect=EXIT_SOME_FAILED)
    job = service.job(id)
    assert (job["state"], sha256(service.far.root / "in/c")) == ("partly_failed", sha256(source / "c")), job
    text = job["error"]["text"]
    assert re.fullmatch(r"2 entries failed: 2 times FH-[A-Z-]+: .* \((a, b|b, a)\)", text), job
    assert job["error"]["code"] in text, job
    (record,) = service.json("history")
    assert record["error"] == text and record["error_code"] == job["error"]["code"], record
    for said in (service.run("job", id), service.run("logs", id)):
        assert text in said, said


def test_a_running_job_is_steered_from_outside(service):
    id = service.submit("zero:", *service.to_far("null:")[1:], service.far.url("null:"), "--rate", "40M")
    done = lambda: (service.job(id).get("progress") or {}).get("bytes_done", 0)
    wait_until(done, 30, 0.1, "content of the job moves")
    service.run("pause", id)
    time.sleep(2)
    before = done()
    time.sleep(1.5)
    assert done() == before and service.job(id)["state"] == "paused"
    service.run("set", id, "--rate", "400M", "--priority", "9")
    service.run("resume", id)
    wait_until(lambda: service.job(id)["progress"]["goodput_bps"] > 150e6, 30, 0.2, "the job is faster")
    service.run("cancel", id)
    service.wait(id, expect=EXIT_INTERRUPTED)
    service.run("pause", id, expect=EXIT_USAGE)
    assert "is over" in service.stderr


def test_a_job_with_a_deadline_is_done_as_soon_as_others_let_it(service):
    """Held to what its deadline needs, it would be done tomorrow. The words never name a rate of 0."""
    id = service.submit("zero:30M", *service.to_far("null:"), "--finish-by", "2099-01-01T00:00:00Z")
    service.run("wait", id)
    job = service.job(id)
    assert job["promise"]["state"] == "kept" and job["promise"]["words"].startswith("done at "), job
    assert job["promise"]["words"] in service.run("jobs"), service.run("jobs")
    assert f"promise    {job['promise']['words']}" in service.run("job", id), service.run("job", id)


def test_a_deadline_holds_under_a_cap_beside_a_job_of_greater_weight(service):
    """By their weights alone, the job would have a 513th of the cap, and would be done in a day."""
    service.run("cap", "set", "host", "--rate", "16M")
    heavy = service.submit("zero:", *service.to_far("null:"), "--priority", "9", "--policy", "high")
    moves = lambda id: (service.job(id)["progress"] or {}).get("bytes_done", 0)
    wait_until(lambda: moves(heavy), 60, what="content of the other job moves")
    by = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=15)
    id = service.submit("zero:8M", *service.to_far("null:"), "--priority", "0", "--finish-by", by.isoformat())
    service.wait(id)
    promise = service.job(id)["promise"]
    assert promise["state"] == "kept", (promise, service.run("logs", id))
    service.run("cancel", heavy)


def test_a_smooth_job_and_a_deadline_that_cannot_be_kept(service):
    service.run("cap", "set", "host", "--rate", "10M")
    soon = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=10)).isoformat()
    # 10 GB at 10 Mbit/s take more than two hours.
    job = ["zero:10G", *service.to_far("null:"), "--finish-by", soon]
    service.submit(*job, expect=EXIT_USAGE)
    said = re.search(r"cannot be done by [0-9: -]+; [0-9: -]+ can be kept\n.*use --finish-by (\S+), or --anyway", service.stderr)
    assert said, service.stderr
    kept = service.submit(*job[:-1], said[1])
    assert service.job(kept)["promise"]["state"] == "kept", service.job(kept)
    assert service.run("job", kept).count("at the latest") == 1, service.run("job", kept)
    # There is no room for a second one by then, but for one that somebody takes all the same.
    service.submit(*job[:-1], said[1], expect=EXIT_USAGE)
    late = service.submit(*job, "--anyway", "--smooth")
    assert service.job(late)["promise"]["state"] == "late", service.job(late)
    service.submit("zero:1", "null:", "--smooth", expect=EXIT_USAGE)
    # A cap is lowered: the promise breaks, and the job says so.
    service.run("cap", "set", "host", "--rate", "100k")
    wait_until(lambda: service.job(kept)["promise"]["state"] == "late", 60, what="the promise is broken")
    assert "not done by" in service.run("logs", kept), service.run("logs", kept)
    service.run("cancel", kept, late)


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
        assert option not in service.run("submit", "--help").split(), option
    for option in ("--bring", "--events", "--verbose", "-v"):
        service.submit(option, "/a", "/b", expect=EXIT_USAGE)
        assert "is not for a job" in service.stderr, service.stderr


def test_a_second_service_does_not_take_the_first_ones_place(service):
    daemon = service.daemon
    argv = ["farhaul", "serve", "--listen", "[::]:34999", "--root", daemon.root, "--authorized-keys", daemon.keys,
            "--identity", daemon.identity, "--state", service.state]
    done = service.host.run(argv)
    assert done.returncode != 0 and b"already uses the state directory" in done.stderr, done
    assert service.run("jobs") == "no jobs\n"


def test_root_is_refused_without_being_asked_for(service):
    argv = ["farhaul", "serve", "--root", service.daemon.root]
    done = service.host.run(argv, env={"FARHAUL_ALLOW_ROOT": "0"})
    assert done.returncode == EXIT_USAGE and b"--allow-root" in done.stderr


def mixed_jobs(service, count, seed):
    """Submits jobs of all kinds; returns (id, check of the result) for each."""
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
            # This job fetches from the other host.
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


def test_a_job_has_a_receipt_if_it_is_asked_for(service):
    source = service.net.folder("source")
    make_file(source / "a", 3 * MIB)
    id = service.submit(f"{source}/", *service.to_far("in"), "--with-receipt", "--wait").strip()
    receipt = source / "receipt.json"
    receipt.write_text(service.run("receipt", id.splitlines()[0]))
    service.run("receipt", "verify", receipt, "--key", service.daemon.identity.with_suffix(".pub"))
    (record,) = service.json("history")
    assert record["tree_root"] == json.loads(receipt.read_text())["received"]["statement"]["tree_root"], record
    service.run("submit", "zero:5", "beta:five", "--with-receipt", expect=EXIT_USAGE)
    assert "no receipt: over SSH" in service.stderr, service.stderr
    other = service.submit("zero:5", "null:", "--wait").splitlines()[0]
    service.run("receipt", other, expect=EXIT_USAGE)
    assert "has no receipt" in service.stderr, service.stderr


def test_a_job_between_two_daemons_moves_no_content_through_the_service(own_net):
    """The service has the rights of its key at both daemons, and they tell it the progress."""
    beta = own_net.daemon
    service = Service(own_net, own_net.alpha, far=beta)
    third = Service(own_net, own_net.beta, port=34002).daemon
    third.keys.write_text(service.key)
    make_file(beta.root / "a", 20 * MIB)
    known = ["--fingerprint", beta.fingerprint]
    # The keys of both ends must be known: a fingerprint would be for one end only.
    service.host.run(["farhaul", "ls", "--accept-new", "-i", service.daemon.identity, beta.url()], check=True)
    service.host.run(["farhaul", "ls", "--accept-new", "-i", service.daemon.identity, third.url()], check=True)
    before = service.host.device_bytes()
    id = service.submit(beta.url("a"), third.url("b"), "--wait").splitlines()[0]
    assert sha256(third.root / "b") == sha256(beta.root / "a"), known
    assert service.host.device_bytes() - before < MIB
    (record,) = service.json("history")
    assert (record["job"], record["direction"], record["bytes"]) == (id, "third", 20 * MIB), record
    assert record["tree_root"], record
    files = [json.loads(line) for line in service.run("job", id, "--files").splitlines()]
    assert [(file["path"], file["result"], file["size"]) for file in files] == [("a", "sent", 20 * MIB)], files


def test_a_token_does_what_it_says_and_nothing_else(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=["--api-listen", "127.0.0.1:34080"])
    projects = service.net.folder("projects").resolve()
    make_file(projects / "a", 100)
    (projects / "out").symlink_to("/etc")
    token = service.run("token", "create", "--scope", "submit,read", "--root", projects, "--peer", "beta:33001:/in", "--expires", "1h",
                        "-q").strip()
    (service.host.home / ".config/farhaul/token").write_text(token)
    over_tcp = {"FARHAUL_API": "http://127.0.0.1:34080"}
    far = service.far
    (far.root / "in").mkdir()
    id = service.submit(projects / "a", *service.to_far("in/a"), env=over_tcp)
    service.run("wait", id, env=over_tcp)
    assert sha256(far.root / "in/a") == sha256(projects / "a")
    for source, target in [("/etc/passwd", far.url("in/x")), (projects / "a", far.url("x")), (projects / "a", far.url("in/../x")),
                           (projects / "a", "fh://alpha:34001/x"), (projects / "a", "beta:/x")]:
        service.submit(source, target, env=over_tcp, expect=EXIT_AUTH)
    # This path lies below the prefix only by its name: `out` is a link that leads elsewhere.
    service.submit(projects / "out/passwd", *service.to_far("in/x"), "--wait", env=over_tcp, expect=(EXIT_AUTH, EXIT_FILES))
    assert not (far.root / "in/x").exists()
    service.run("cancel", id, env=over_tcp, expect=EXIT_AUTH)
    service.run("token", "list", env=over_tcp, expect=EXIT_AUTH)
    audit = [json.loads(line) for line in (service.state / "audit.log").read_text().splitlines()]
    refused = [line for line in audit if line["outcome"] == "refused"]
    assert len(refused) >= 7 and all(line["caller"].startswith("token:") for line in refused), audit
    name = service.json("token", "list")[0]["id"]
    service.run("token", "revoke", name)
    service.run("jobs", env=over_tcp, expect=EXIT_AUTH)
    assert "revoked" in service.stderr


def test_a_configuration_is_read_anew_while_jobs_run(service):
    config = service.host.home / ".config/farhaul/farhaul.toml"
    config.write_text("[jobs]\nrunning_max = 1\n")
    os.chmod(config, 0o600)
    import signal
    service.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "was reloaded" in service.daemon.log_text(), what="the configuration is read")
    first, second = (service.submit("zero:", "null:", "--rate", "8M") for _ in range(2))
    wait_until(lambda: service.job(first)["state"] == "running", what="the first job runs")
    time.sleep(0.5)
    assert service.job(second)["state"] == "queued"
    config.write_text("[jobs]\nrunning_mx = 2\n")
    service.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "stays as it was" in service.daemon.log_text(), what="the configuration is refused")
    assert "running_max" in service.daemon.log_text()
    config.write_text("[jobs]\nrunning_max = 2\n")
    service.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.job(second)["state"] == "running", 20, what="the second job runs")
    service.run("cancel", first, second)
    service.wait(first, second, expect=EXIT_INTERRUPTED)


@pytest.mark.parametrize("words", ["wait", "pause", "job", "logs", "receipt", "cap set", "cap remove", "watch remove", "token revoke", "peers"])
def test_an_empty_id_or_name_is_refused_before_anything_is_asked(net, words):
    done = net.alpha.run(["farhaul", *words.split(), ""], timeout=30)
    assert done.returncode == EXIT_USAGE and b"a value is required" in done.stderr, done


def test_no_token_gets_the_account_by_a_root(own_net):
    service = Service(own_net, own_net.alpha)
    home = service.host.home
    (home / "data").mkdir()
    for root in [home, home.parent, home / "data", service.state, "/", "/proc/self/root"]:
        service.run("token", "create", "--scope", "submit", "--root", root, expect=EXIT_USAGE)
        assert "a token cannot be kept below" in service.stderr and service.stderr.count("\n") <= 2, service.stderr
    service.run("token", "create", "--scope", "admin", expect=EXIT_USAGE)
    assert "--everything" in service.stderr
    service.run("token", "create", "--scope", "submit", "--everything")
    assert "it is the whole account of the service's user" in service.stderr
    service.run("token", "create", "--scope", "read")
    assert "it reaches no file and no peer" in service.stderr
    assert sorted(line.split()[-1] for line in service.run("token", "list").splitlines()[1:]) == ["everything", "nothing"]


def test_what_a_revoked_token_left_behind_stops_and_is_taken_over(own_net):
    service = Service(own_net, own_net.alpha, arguments=["--api-listen", "127.0.0.1:34080"])
    token = service.run("token", "create", "--scope", "submit,read", "--everything", "-q").strip()
    (service.host.home / ".config/farhaul/token").write_text(token)
    over_tcp = {"FARHAUL_API": "http://127.0.0.1:34080"}
    waiting = service.submit("zero:5", "null:", "--not-before", "2200-01-01T00:00:00Z", env=over_tcp)
    running = service.submit("zero:", "null:", "--rate", "8M", env=over_tcp)
    wait_until(lambda: service.job(running)["state"] == "running", what="the job runs")
    name = service.json("token", "list")[0]["id"]
    service.run("token", "revoke", name)
    for id in (waiting, running):
        wait_until(lambda: service.job(id)["state"] == "stopped", what="the job is stopped")
        assert f"the token {name} was revoked" in service.job(id)["error"]["text"]
        assert "stopped" in service.run("job", id) and f"the token {name} was revoked" in service.run("logs", id)
        service.run("retry", id, expect=EXIT_USAGE)
    assert {record["state"] for record in service.json("history")} == {"stopped"}
    service.run("take", waiting, running)
    assert (service.job(waiting)["state"], service.job(waiting)["owner"]) == ("waiting", "local")
    wait_until(lambda: service.job(running)["state"] == "running", what="the job goes on")
    service.run("cancel", running)


@pytest.mark.parametrize("name", ["alpha", "127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_a_peer_that_is_this_host_is_no_way_to_its_files(own_net, name):
    service = Service(own_net, own_net.alpha, arguments=["--api-listen", "127.0.0.1:34080"])
    mine = service.net.folder("mine").resolve()
    make_file(mine / "a", 100)
    port = service.daemon.port
    peers = ["--peer", f"{name}:{port}:/", "--peer", f"ssh://{name}:/"]
    token = service.run("token", "create", "--scope", "submit,read", "--root", mine, *peers, "-q").strip()
    (service.host.home / ".config/farhaul/token").write_text(token)
    over_tcp = {"FARHAUL_API": "http://127.0.0.1:34080"}
    id = service.submit(mine / "a", f"fh://{name}:{port}/x", env=over_tcp)
    wait_until(lambda: service.job(id)["state"] == "failed", what="the job is refused")
    error = service.job(id)["error"]
    assert error["code"] == "FH-FORBIDDEN" and "is this host itself" in error["text"] and "name the directory itself" in error["hint"], error
    assert not (service.daemon.root / "x").exists()
