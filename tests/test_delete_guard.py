"""The guard against a mirror of a source that is not there: what a sync would delete is counted before the first entry goes,
at the end that deletes."""

import contextlib
import json
import shutil
import stat

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_USAGE, cp
from harness.receiver import Receiver
from harness.service import Service
from harness.three import ThreeNet
from harness.trees import differences, fill, names

WHENS = ["--delete", "--delete-before"]


def files(folder, count, prefix="f"):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{prefix}{number:03}").write_text(f"{number}")


@contextlib.contextmanager
def disk_at(folder, disk):
    """Puts another directory in the place of the folder, as mounting a disk there does."""
    below = folder.with_name("below")
    folder.rename(below)
    disk.rename(folder)
    try:
        yield
    finally:
        folder.rename(disk)
        below.rename(folder)


def stopped(outcome, code, entries, of, cause):
    """The command's outcome says that nothing was deleted, how much it would have been, and ten names."""
    stop = outcome.report["deletion_stop"]
    assert (stop["cause"], stop["entries"], stop["of"]) == (cause, entries, of), outcome
    assert len(stop["names"]) == min(entries, 10) and outcome.report["error_detail"]["code"] == code, outcome
    assert f"deleted: {entries} of {of} entries would go" in outcome.stderr and stop["names"][-1] in outcome.stderr, outcome
    assert "--delete-anyway" in outcome.stderr, outcome
    return stop["names"]


class Here:
    """A source and a destination on one host."""

    def __init__(self, net, near):
        self.net, self.source, self.target = net, near / "source", near / "target"

    def sync(self, *arguments, **options):
        return cp(self.net.alpha, *arguments, self.source, self.target, verb="sync", **options)


@pytest.fixture
def here(net, near):
    return Here(net, near)


# ---- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", WHENS)
def test_an_empty_source_empties_nothing_under_the_guard(way, when):
    fill(way.source, "x/")
    shutil.rmtree(way.source / "x")
    files(way.target, 12)
    fill(way.target, "d/e/f")
    outcome = way.sync(when, "--delete-guard", expect=EXIT_FILES)
    stopped(outcome, "FH-DELETE-GUARD", 15, 15, "empty_source")
    assert outcome.report["deleted"] == 0 and len(names(way.target).split()) == 15
    # A dry run says the same, and lists all of it.
    dry = way.sync(when, "--delete-guard", "--dry-run", expect=EXIT_FILES)
    stopped(dry, "FH-DELETE-GUARD", 15, 15, "empty_source")
    assert dry.report["deleted"] == 15 and len(dry.report["deleted_names"]) == 10
    assert sum(line.startswith("would delete ") and "," not in line for line in dry.stderr.splitlines()) == 15, dry
    assert way.sync(when, "--delete-guard", "--delete-anyway").report["deleted"] == 15 and names(way.target) == ""
    # Where nothing is too much, an empty source is no reason to stop.
    assert way.sync(when, "--delete-guard").report["ok"]
    # Without the guard a terminal is told to do what it says, as by rsync.
    files(way.target, 12)
    assert way.sync(when).report["deleted"] == 12


@pytest.mark.parametrize("when", WHENS)
def test_most_of_the_destination_does_not_go_under_the_guard(here, when):
    files(here.source, 150, "kept")
    files(here.target, 140, "kept")
    files(here.target / "old", 149)
    # 150 of 290 would go, and the new files arrive all the same.
    outcome = here.sync(when, "--delete-guard", expect=EXIT_FILES)
    stopped(outcome, "FH-DELETE-GUARD", 150, 290, "most")
    assert (here.target / "kept149").exists() and (here.target / "old/f000").exists()
    assert outcome.report["files"] >= 10
    shutil.rmtree(here.target / "old")
    files(here.target / "old", 140)
    assert here.sync(when, "--delete-guard").report["deleted"] == 141
    assert differences(here.source, here.target) == []


@pytest.mark.parametrize("when", WHENS)
def test_a_limit_is_kept_before_the_first_entry_goes(here, when):
    fill(here.source, "a")
    fill(here.target, "a b c d/e d/f")
    for limit in ("4", "0", "83%", "0%"):
        outcome = here.sync(when, "--max-delete", limit, expect=EXIT_FILES)
        stopped(outcome, "FH-DELETE-LIMIT", 5, 6, "over_limit")
        assert names(here.target) == "a b c d d/e d/f", outcome
    assert here.sync(when, "--max-delete", "84%").report["deleted"] == 5


def test_a_directory_in_the_place_of_a_file_is_counted_with_the_rest(here):
    fill(here.source, "x y")
    fill(here.target, "x/a x/b z")
    outcome = here.sync("--delete", "--max-delete", "3", expect=EXIT_FILES)
    stopped(outcome, "FH-DELETE-LIMIT", 4, 4, "over_limit")
    assert names(here.target) == "x x/a x/b y z", outcome
    assert here.sync("--delete", "--max-delete", "4").report["deleted"] == 4
    assert names(here.target) == "x y"


def test_nothing_is_done_without_what_is_required(way):
    fill(way.source, "new sub/mark")
    fill(way.target, "old")
    for missing in ("mark", "sub/mark/x", "sub/other"):
        outcome = way.sync("--delete", "--require", "new", "--require", missing, expect=EXIT_FILES)
        assert outcome.report["error_detail"]["code"] == "FH-REQUIRED-MISSING", outcome
        assert names(way.target) == "old" and f"{missing} is not in" in outcome.stderr, outcome
    for senseless in ("/mark", "../mark", ""):
        way.sync("--require", senseless, expect=EXIT_USAGE)
    assert way.sync("--delete", "--require", "sub/mark", "--require", "sub").report["deleted"] == 1


# ---- jobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(own_net):
    file = own_net.folder("settings") / "farhaul.toml"
    file.write_text(f'[webhooks]\nallow_networks = ["{own_net.beta.v4}"]\n')
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return Service(own_net, own_net.alpha, far=own_net.daemon, arguments=("--config", file))


def end_of(service, *locations, options=(), expect=0):
    id = service.submit("--sync", "--delete", *options, *locations)
    service.wait(id, expect=expect)
    return id


def test_a_job_whose_disk_is_not_mounted_deletes_nothing(service):
    receiver = Receiver(service.net, service.net.beta, service.net.beta.v4, 8080)
    disk, one, other = (service.net.folder(name) for name in ("disk", "one", "other"))
    copy = service.far.root / "copy"
    hook = ("--webhook", receiver.url())
    files(one, 50)
    files(other, 49)
    with disk_at(disk, one):
        id = end_of(service, disk, *service.to_far("copy"), options=hook)
        assert len(names(copy).split()) == 50
        receiver.next("/in")
        assert service.job(id)["state"] == "done"
    # The mount point is empty.
    service.run("retry", id)
    service.wait(id, expect=EXIT_FILES)
    job = service.job(id)
    assert (job["state"], job["error"]["code"]) == ("failed", "FH-DELETE-GUARD"), job
    assert "50 of 50 entries would go" in job["error"]["text"] and job["error"]["text"].count("f0") == 10, job
    assert len(names(copy).split()) == 50
    assert "nothing was deleted: 50 of 50 entries would go" in service.run("logs", id)
    wait_until(lambda: len(receiver.messages()) == 2, 60, what="the second message")
    told = json.loads(receiver.messages()[-1].body)
    assert (told["event"], told["error"]["code"], told["job"]["deleted"]) == ("fail", "FH-DELETE-GUARD", 0), told
    # Another disk is there, and one file would go.
    with disk_at(disk, other):
        service.run("retry", id)
        service.wait(id, expect=EXIT_FILES)
        assert "on another disk" in service.job(id)["error"]["text"], service.job(id)
        # Whoever knows better says so, for one run.
        service.run("retry", id, "--delete-anyway")
        service.wait(id)
        assert names(copy) == names(disk)
        (disk / "f000").unlink()
        service.run("retry", id)
        service.wait(id)
        assert not (copy / "f000").exists()
    service.run("retry", id)
    service.wait(id, expect=EXIT_FILES)
    service.run("retry", id, "--delete-anyway")
    service.wait(id)
    assert names(copy) == ""
    record = service.json("history")[0]
    assert (record["deleted"], record["state"]) == (48, "done"), record
    assert " 48 " in service.run("history").splitlines()[1]
    assert "48 entries were deleted: f0" in service.run("logs", id)
    messages = wait_until(lambda: len(receiver.messages()) == 7 and receiver.messages(), 60, what="all messages")
    assert [json.loads(message.body)["job"]["deleted"] for message in messages] == [0, 0, 0, 1, 1, 0, 48]


def test_a_job_counts_what_it_deletes_and_a_dry_run_what_it_would(service):
    source, copy = service.net.folder("source"), service.net.folder("copy")
    fill(source, "a")
    files(copy, 60)
    id = end_of(service, source, copy, options=("--dry-run",))
    log = service.run("logs", id)
    assert "60 entries would be deleted: " in log and log.count("f0") >= 10 and len(names(copy).split()) == 60, log
    # A job that is told to has no guard, or another limit.
    id = end_of(service, source, copy, options=("--max-delete", "10%"), expect=EXIT_FILES)
    assert service.job(id)["error"]["code"] == "FH-DELETE-LIMIT"
    id = end_of(service, source, copy)
    assert service.json("history")[0]["deleted"] == 60 and names(copy) == "a"
    (source / "a").unlink()
    id = end_of(service, source, copy, expect=EXIT_FILES)
    assert service.job(id)["error"]["code"] == "FH-DELETE-GUARD"
    end_of(service, source, copy, options=("--no-delete-guard",))
    assert names(copy) == ""
    fill(copy, "x")
    end_of(service, source, copy, options=("--require", "mark"), expect=EXIT_FILES)
    end_of(service, source, copy, options=("--delete-anyway",))
    assert names(copy) == ""
    # Nobody else says where the source was.
    document = {"schema": 1, "kind": "sync", "sources": [str(source)], "destination": str(copy),
                "options": {"sync": {"delete": {"last_root": {"file_system": 1, "inode": 2}}}}}
    service.submit("--spec", "-", input=json.dumps(document).encode(), expect=EXIT_USAGE)


# ---- between daemons -------------------------------------------------------------------------------------------------


def test_the_guard_holds_between_daemons():
    three = ThreeNet()
    try:
        (three.b.root / "tree").mkdir()
        files(three.c.root / "copy", 12)
        for arguments in (["--delete", "--delete-guard"], ["--delete-before", "--max-delete", "50%"]):
            outcome = three.cp(*arguments, three.b.url("tree"), three.c.url("copy"), verb="sync", expect=EXIT_FILES)
            assert outcome.report["deletion_stop"]["entries"] == 12 and outcome.report["deleted"] == 0, outcome
            assert len(names(three.c.root / "copy").split()) == 12
        outcome = three.cp("--delete", "--require", "mark", three.b.url("tree"), three.c.url("copy"), verb="sync",
                           expect=EXIT_FILES)
        assert "mark is not in" in outcome.stderr, outcome
        done = three.cp("--delete", "--delete-guard", "--delete-anyway", three.b.url("tree"), three.c.url("copy"), verb="sync")
        assert done.report["deleted"] == 12 and names(three.c.root / "copy") == ""
    finally:
        three.pair.close()
