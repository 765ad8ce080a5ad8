"""One file of many fails, or the destination as a whole: what arrives, what the user is told, which exit
code."""

import os
import shutil
import subprocess
import threading
import time

import pytest
from conftest import FAILING_PORTS
from harness import hooks, product
from harness.hosts import USER, USER_ID, wait_until
from harness.product import EXIT_FILES, EXIT_INTERNAL, EXIT_LOST, EXIT_OK, EXIT_SOME_FAILED, EXIT_VANISHED, Daemon, cp, finish, keygen, start_cp
from harness.ssh import user_target
from harness.trees import leftovers, make_file, make_tree, sha256

MIB = 1 << 20


def assert_one_clear_line(outcome, *words):
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("error")]
    assert len(lines) >= 1, outcome
    for word in words:
        assert word in outcome.stderr, (word, str(outcome))
    assert "panicked" not in outcome.stderr and "RUST_BACKTRACE" not in outcome.stderr


def test_no_such_source(road, near):
    outcome = road.cp(near / "missing", road.url("x"), expect=EXIT_FILES)
    assert_one_clear_line(outcome, "missing")
    assert outcome.report["error_detail"]["code"] == "FH-NOT-FOUND", outcome
    outcome = road.cp(road.url("missing"), near / "x", expect=EXIT_FILES)
    assert_one_clear_line(outcome, "missing")
    assert outcome.report["error_detail"]["code"] == "FH-NOT-FOUND", outcome
    assert not (near / "x").exists()


def test_one_source_of_two_is_missing(road, near):
    source = make_file(near / "there", 1000)
    outcome = road.cp(near / "missing", source, road.url("into/"), expect=EXIT_SOME_FAILED)
    assert sha256(road.far / "into/there") == sha256(source)
    assert [entry for entry in outcome.report["failed"] if "missing" in entry["path"]]


def test_unreadable_files_are_listed_and_the_others_arrive(own_net):
    """A client that is not root meets files that it may not read."""
    near = own_net.folder("near")
    tree = make_tree(near / "tree", seed=21, files=100)
    os.system(f"chown -R {USER_ID} {near}")
    files = sorted(path for path in tree.rglob("file*") if path.is_file() and not path.is_symlink())
    refused = files[:2]
    for path in refused:
        os.chown(path, 0, 0)
        path.chmod(0o600)
    closed = tree / "closed"
    closed.mkdir()
    make_file(closed / "inside", 10)
    closed.chmod(0o700)
    key = keygen(own_net.alpha, user=USER)
    own_net.daemon.keys.write_text(key)
    own_net.daemon.restart()
    outcome = cp(own_net.alpha, "--accept-new", tree, own_net.daemon.url("copy"), user=USER, expect=EXIT_SOME_FAILED)
    failed = {entry["path"]: entry["reason"] for entry in outcome.report["failed"]}
    for path in refused + [closed]:
        reason = [text for name, text in failed.items() if name.endswith(path.name)]
        assert reason and "ermission" in reason[0], (path, failed)
    assert {entry["code"] for entry in outcome.report["failed"]} == {"FH-PERMISSION-DENIED"}, outcome
    assert outcome.report["failed_count"] == len(failed) and not outcome.report["ok"]
    for path in files[2:]:
        assert sha256(own_net.daemon.root / "copy" / path.relative_to(tree)) == sha256(path)
    plain = cp(own_net.alpha, tree, own_net.daemon.url("copy"), user=USER, as_json=False, expect=EXIT_SOME_FAILED)
    assert all(path.name in plain.stderr for path in refused)


def test_unwritable_file_of_a_tree(own_net):
    near = own_net.folder("near")
    tree = near / "tree"
    (tree / "shut").mkdir(parents=True)
    make_file(tree / "a", 5000, seed=1)
    make_file(tree / "shut/b", 5000, seed=2)
    far = own_net.folder("far")
    os.chown(far, USER_ID, USER_ID)
    (far / "tree").mkdir()
    os.chown(far / "tree", USER_ID, USER_ID)
    (far / "tree/shut").mkdir(mode=0o755)
    outcome = cp(own_net.alpha, tree, f"{user_target()}:{far}", expect=EXIT_SOME_FAILED)
    assert sha256(far / "tree/a") == sha256(tree / "a")
    (failed,) = [entry for entry in outcome.report["failed"] if entry["path"].endswith("b")]
    assert "ermission" in failed["reason"] and failed["code"] == "FH-PERMISSION-DENIED", failed


def test_nothing_below_a_directory_that_cannot_be_made_is_sent(road, near):
    """Each entry below it names the directory as the cause, with the code of the directory's failure."""
    (near / "tree/shut/in").mkdir(parents=True)
    make_file(near / "tree/shut/small", 100_000, seed=1)
    make_file(near / "tree/shut/in/large", 5 * MIB, seed=2)
    make_file(near / "tree/open", 1000, seed=3)
    os.symlink("small", near / "tree/shut/link")
    (road.far / "tree").mkdir()
    (road.far / "tree/shut").write_text("a file")
    dry = road.cp("--dry-run", near / "tree", road.url(""), expect=EXIT_SOME_FAILED)
    outcome = road.cp(near / "tree", road.url(""), expect=EXIT_SOME_FAILED)
    for done in (dry, outcome):
        reasons = {entry["path"]: entry["reason"] for entry in done.report["failed"]}
        assert "in its place" in reasons.pop("tree/shut"), done
        assert set(reasons) == {f"tree/shut/{name}" for name in ("small", "link", "in", "in/large")}, done
        assert set(reasons.values()) == {"its directory could not be created"}, done
        assert len({entry["code"] for entry in done.report["failed"]}) == 1, done
        assert done.report["files"] == 1 and done.report["bytes"] == 1000, done
    assert sha256(road.far / "tree/open") == sha256(near / "tree/open")
    assert (road.far / "tree/shut").read_text() == "a file"


def test_a_dry_run_fails_where_the_run_would(own_net):
    """An ordinary user copies to a directory of root's, to a sticky one, and to one of his own that is read-only."""
    near, far = own_net.folder("near"), own_net.folder("far")
    for folder in ("tree/into", "tree/room"):
        (near / folder).mkdir(parents=True)
    for folder in ("shut/into", "sticky", "own/into/surplus"):
        (far / folder).mkdir(parents=True)
    for name, size in (("small", 1000), ("large", 5 * MIB), ("into/there", 10), ("room/x", 10)):
        make_file(near / "tree" / name, size, seed=1)
    os.symlink("small", near / "tree/link")
    os.link(near / "tree/large", near / "tree/other")
    (near / "tree/new").mkdir()
    os.mkfifo(near / "tree/pipe")
    make_file(far / "shut/small", 20)
    make_file(far / "shut/surplus", 20)
    make_file(far / "shut/into/surplus", 20)
    (far / "shut/room").write_text("a file")
    for name in ("small", "large", "surplus"):
        make_file(far / "sticky" / name, 20)
    make_file(far / "own/into/surplus/deep", 20)
    far.chmod(0o755)
    for name, mode in (("shut", 0o755), ("shut/into", 0o755), ("sticky", 0o1777)):
        (far / name).chmod(mode)
    for path in (far / "own", *far.glob("own/**/*")):
        os.chown(path, USER_ID, USER_ID)
    (far / "own/into/surplus").chmod(0o555)
    (far / "own/into").chmod(0o555)
    for place, failures, code in (("shut", 11, EXIT_FILES), ("sticky", 3, EXIT_SOME_FAILED), ("own", 0, EXIT_OK)):
        done = {}
        for dry in (["--dry-run"], []):
            outcome = cp(own_net.alpha, *dry, "--delete", "--specials", f"{near}/tree/", f"{user_target()}:{far}/{place}/", verb="sync",
                         expect=code)
            done[bool(dry)] = {(entry["path"], entry["reason"], entry["code"]) for entry in outcome.report["failed"]}
        assert done[True] == done[False] and len(done[True]) == failures, (place, done)
    for source, name in (("tree/small", "new"), ("tree", "new/"), ("tree/small", "small")):
        runs = [cp(own_net.alpha, *dry, "-r", near / source, f"{user_target()}:{far}/shut/{name}", check=False) for dry in (["--dry-run"], [])]
        assert runs[0].code == runs[1].code != EXIT_OK and runs[0].error_line == runs[1].error_line, runs


def test_no_permission_at_the_destination(own_net):
    source = make_file(own_net.folder("near") / "file", 1000)
    far = own_net.folder("far")
    far.chmod(0o755)
    outcome = cp(own_net.alpha, source, f"{user_target()}:{far}/x", check=False)
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED)
    assert "ermission" in outcome.stderr
    locked = own_net.folder("locked")
    locked.chmod(0o700)
    make_file(locked / "x", 10)
    outcome = cp(own_net.alpha, f"{user_target()}:{locked}/x", own_net.folder("near") / "x", check=False)
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED) and "ermission" in outcome.stderr


def test_no_space(own_net):
    """A large file on a small disk: the error is one clear line, and what fits stays for the next run."""
    near = own_net.folder("near")
    source = make_file(near / "file", 100 * MIB)
    disk = own_net.pair.small_disk(32)
    outcome = cp(own_net.alpha, source, f"beta:{disk}/file", check=False)
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED), outcome
    assert_one_clear_line(outcome, "space")
    assert outcome.report["error_detail"]["code"] == "FH-NO-SPACE", outcome
    assert not (disk / "file").exists()
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33060, root=own_net.pair.small_disk(32))
    outcome = cp(own_net.alpha, "--accept-new", source, daemon.url("file"), check=False)
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED), outcome
    assert "space" in outcome.stderr
    small = make_file(near / "small", 100_000)
    for path in leftovers(daemon.root):
        path.unlink()
    cp(own_net.alpha, small, daemon.url("small"))


def test_disk_fills_up_under_a_tree(own_net):
    near = own_net.folder("near")
    tree = near / "tree"
    tree.mkdir()
    for n in range(60):
        make_file(tree / f"f{n:02}", MIB, seed=n)
    disk = own_net.pair.small_disk(24)
    outcome = cp(own_net.alpha, tree, f"beta:{disk}/", check=False, timeout=60)
    assert outcome.code in (EXIT_FILES, EXIT_SOME_FAILED), outcome
    assert "space" in outcome.stderr
    arrived = [path for path in (disk / "tree").iterdir() if path.name.startswith("f")]
    assert len(arrived) >= 10
    assert all(sha256(path) == sha256(tree / path.name) for path in arrived)


def test_source_changed_while_it_is_read(road, near):
    source = make_file(near / "file", 200 * MIB)
    process = road.start("--rate", "600M", source, road.url("file"))
    time.sleep(1.0)
    with open(source, "r+b") as out:
        out.write(os.urandom(MIB))
        out.seek(0, os.SEEK_END)
        out.write(b"more")
    outcome = finish(process)
    assert outcome.code == 0, outcome
    assert sha256(road.far / "file") == sha256(source), "read once more"
    assert not leftovers(road.far)


def test_source_that_shrinks_or_goes_while_the_tree_is_sent(road, near):
    tree = near / "tree"
    tree.mkdir()
    for n in range(40):
        make_file(tree / f"f{n:02}", 3 * MIB, seed=n)
    process = road.start("--rate", "300M", tree, road.url("copy"))
    stop = threading.Event()

    def meddle():
        for n in range(39, 30, -1):
            time.sleep(0.1)
            if stop.is_set():
                return
            os.unlink(tree / f"f{n:02}") if n % 2 else os.truncate(tree / f"f{n:02}", 1000)

    meddler = threading.Thread(target=meddle)
    meddler.start()
    outcome = finish(process)
    stop.set()
    meddler.join()
    assert outcome.code in (0, EXIT_SOME_FAILED, EXIT_VANISHED), outcome
    vanished = {os.path.basename(entry["path"]) for entry in outcome.report["vanished"]}
    assert not vanished & {path.name for path in tree.iterdir()}, outcome
    failed = {os.path.basename(entry["path"]) for entry in outcome.report["failed"]}
    for path in tree.iterdir():
        copy = road.far / "copy" / path.name
        assert path.name in failed or copy.stat().st_size in (path.stat().st_size, 3 * MIB)
    for n in range(30):
        assert sha256(road.far / f"copy/f{n:02}") == sha256(tree / f"f{n:02}")


def test_destination_kind_conflicts(road, near):
    """A directory where a file should go, and the other way round."""
    source = make_file(near / "thing", 100)
    (road.far / "thing").mkdir()
    (road.far / "thing/keep").write_text("keep")
    road.cp(source, road.url("thing"), check=False)
    assert (road.far / "thing/keep").read_text() == "keep"
    (near / "tree/sub").mkdir(parents=True)
    make_file(near / "tree/sub/file", 10)
    make_file(near / "tree/other", 10)
    (road.far / "tree").mkdir()
    (road.far / "tree/sub").write_text("a file")
    outcome = road.cp(near / "tree", road.url(""), check=False)
    assert outcome.code in (0, EXIT_SOME_FAILED)
    assert sha256(road.far / "tree/other") == sha256(near / "tree/other")


def test_names_are_escaped_on_terminals(road, near):
    name = b"bad\x1b[31m\nname"
    with open(os.fsencode(near) + b"/" + name, "wb"):
        pass
    outcome = road.cp(os.fsencode(near) + b"/" + name, road.url("no/such/dir/x/"), "-v", check=False, as_json=False)
    assert "\x1b" not in outcome.stderr and "\nname" not in outcome.stderr


def test_full_report_of_a_failure(road, near):
    outcome = road.cp(near / "missing", road.url("x"), expect=EXIT_FILES)
    assert outcome.report is not None and outcome.report["ok"] is False
    assert outcome.report["error"] or outcome.report["failed"]


def test_receiver_that_vanishes_is_told(own_net):
    """A signal to the far end cuts the connection: exit code and hint say that the command can be
    repeated."""
    from harness.product import EXIT_LOST
    far = own_net.folder("far")
    source = make_file(own_net.folder("near") / "file", 300 * MIB)
    process = start_cp(own_net.alpha, "--rate", "500M", source, f"beta:{far}/file")
    time.sleep(1.5)
    for pid in own_net.beta.pids("farhaul"):
        if pid != own_net.daemon.process.pid:
            os.kill(pid, 9)
    begin = time.monotonic()
    outcome = finish(process, timeout=60)
    assert outcome.code == EXIT_LOST, outcome
    assert time.monotonic() - begin < 15
    assert "again" in outcome.stderr or "same command" in outcome.stderr


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("whose", ["client's", "daemon's"])
def test_a_fault_of_our_own_ends_its_session_and_nothing_else(net, near, whose, direction):
    """A thread panics: at a client this ends the command, at a daemon only the one session."""
    fault = hooks.prefix("panic_after=60")
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), hooks=fault if whose == "daemon's" else ())
    source = make_file((near if direction == "push" else daemon.root) / "source", 64 * MIB)
    ends = (source, daemon.url("copy")) if direction == "push" else (daemon.url("source"), near / "copy")
    small = make_file(near / "small", 1000)
    cp(net.alpha, "--accept-new", small, daemon.url("before"))
    idle = len(os.listdir(f"/proc/{daemon.process.pid}/task"))
    outcome = cp(net.alpha, "--rate", "500M", *ends, hooks=fault if whose == "client's" else (), timeout=30,
                 expect=EXIT_LOST if whose == "daemon's" else EXIT_INTERNAL)
    assert_one_clear_line(outcome, "has given the session up" if whose == "daemon's" else "panics on purpose")
    assert ("this is a fault of farhaul itself" in daemon.log_text()) == (whose == "daemon's")
    assert not (daemon.root / "copy").exists() and not (near / "copy").exists()
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/task")) <= idle, what="the session's threads have ended")
    cp(net.alpha, small, daemon.url("after"))
    assert (daemon.root / "after").read_bytes() == small.read_bytes()
    daemon.kill()


def test_the_error_names_the_failure_that_kept_everything_from_arriving(own_net):
    """A file below that cannot be read fails first, but nothing could have arrived anyway."""
    near, far = own_net.folder("near"), own_net.folder("far")
    (near / "src/nox").mkdir(parents=True)
    make_file(near / "src/nox/z", 100)
    os.system(f"chown -R {USER_ID} {near}")
    near.chmod(0o755)
    far.chmod(0o755)
    (near / "src/nox").chmod(0o644)
    outcome = cp(own_net.alpha, near / "src", f"{far}/", user=USER, expect=EXIT_FILES)
    assert {entry["path"] for entry in outcome.report["failed"]} >= {"src", "src/nox/z"}, outcome
    assert outcome.error_line == "error: src: cannot create the directory: permission denied", outcome


@pytest.mark.parametrize("place", ["here", "push", "pull"])
def test_directories_that_were_there_do_not_count_as_arrived(own_net, place):
    near, far = own_net.daemon.root if place == "pull" else own_net.folder("near"), own_net.folder("far")
    (near / "source/d").mkdir(parents=True)
    (far / "shut/d").mkdir(parents=True)
    make_file(near / "source/a", 10)
    make_file(near / "source/d/b", 10)
    for folder in (near, near / "source", far, far / "shut", far / "shut/d"):
        folder.chmod(0o755)
    source, user = f"{near}/source", USER
    target = f"{far}/shut"
    if place == "push":
        target, user = f"{user_target()}:{target}", None
    elif place == "pull":
        own_net.daemon.keys.write_text(keygen(own_net.alpha, user=USER))
        own_net.daemon.restart()
        source = own_net.daemon.url("source")
    ends = [f"{source}/", target]
    for dry in ([], ["--dry-run"]):
        for verb in ("cp", "sync"):
            outcome = cp(own_net.alpha, "--accept-new", *dry, *ends, verb=verb, user=user, expect=EXIT_FILES)
            assert outcome.error_line.endswith(": permission denied"), outcome
            assert (outcome.report["files"], outcome.report["directories"], outcome.report["failed_count"]) == (0, 2, 2), outcome
    # Something arrives: a directory that was not there, or one of the files; or something was there already.
    os.chown(far / "shut/d", USER_ID, USER_ID)
    outcome = cp(own_net.alpha, *ends, user=user, expect=EXIT_SOME_FAILED)
    assert outcome.report["files"] == 1, outcome
    outcome = cp(own_net.alpha, *ends, user=user, expect=EXIT_SOME_FAILED)
    assert (outcome.report["files"], outcome.report["skipped"]) == (0, 1), outcome
    (far / "shut/d/b").unlink()
    (near / "source/d/b").unlink()
    (near / "source/d/new").mkdir()
    outcome = cp(own_net.alpha, *ends, user=user, expect=EXIT_SOME_FAILED)
    assert (outcome.report["files"], outcome.report["directories"]) == (0, 3), outcome


def test_surplus_that_stays_does_not_make_it_a_run_without_arrivals(road, near):
    (near / "tree/d").mkdir(parents=True)
    road.sync(near / "tree", road.url("tree"))
    make_file(road.far / "tree/d/surplus", 10)
    outcome = road.sync("--delete", "--max-delete", "0", near / "tree", road.url("tree"), expect=EXIT_FILES)
    assert outcome.report["error_detail"]["code"] == "FH-DELETE-LIMIT" and outcome.report["failed_count"] == 0, outcome


def test_a_directory_that_is_immutable_is_named_as_the_reason(road, near):
    (near / "source/d").mkdir(parents=True)
    make_file(near / "source/a", 10, seed=1)
    os.link(near / "source/a", near / "source/b")
    os.symlink("a", near / "source/l")
    road.far.mkdir(exist_ok=True)
    (road.far / "shut").mkdir()
    # One of the two is taken for the file, the other one is to be made a link to it.
    shutil.copy2(near / "source/a", road.far / "shut/a")
    shutil.copy2(near / "source/a", road.far / "shut/b")
    make_file(road.far / "shut/surplus", 10)
    done = subprocess.run(["chattr", "+i", road.far / "shut"], capture_output=True)
    if done.returncode:
        pytest.skip(f"no chattr +i here: {done.stderr.decode().strip()}")
    try:
        dry = road.sync("--dry-run", f"{near}/source/", road.url("shut"), check=False)
        outcome = road.sync(f"{near}/source/", road.url("shut"), check=False)
        single = road.cp(near / "source/a", road.url("shut/new"), expect=EXIT_FILES)
        kept = [road.sync("--delete", *how, f"{near}/source/", road.url("shut"), check=False) for how in ([], ["--dry-run"])]
    finally:
        subprocess.run(["chattr", "-i", road.far / "shut"], check=True)
    assert single.error_line == "error: a: cannot write: its directory is immutable (chattr +i)", single
    reasons = {entry["path"]: entry["reason"] for entry in outcome.report["failed"]}
    assert {"d", "l"} <= set(reasons) and len(reasons) == 3, outcome
    assert all("surplus" in {entry["path"] for entry in done.report["failed"]} for done in kept), kept
    for done in (outcome, dry, *kept):
        assert all(entry["reason"].endswith("its directory is immutable (chattr +i)") for entry in done.report["failed"]), done
        assert "hard links cannot be made" not in done.stderr, done


PLACES = [f"d{number}" for number in range(5)]


def arrives_where_it_can(source, target, shut, copy):
    """A file of five names, of which those in `shut` cannot be written, arrives once, under all others."""
    shutil.rmtree(target, ignore_errors=True)
    for place in shut:
        (target / place / "file/in-the-way").mkdir(parents=True)
    outcome = copy()
    arrived = [target / place / "file" for place in PLACES if place not in shut]
    assert len({path.stat().st_ino for path in arrived}) == min(len(arrived), 1), outcome
    assert {path.read_bytes() for path in arrived} <= {(source / "d0/file").read_bytes()} and not leftovers(target)
    failed = sorted(entry["path"].split("/")[0] for entry in outcome.report["failed"])
    counts = (outcome.report["files"], outcome.report["links"])
    assert failed == sorted(shut) and counts == (min(len(arrived), 1), max(len(arrived) - 1, 0)), outcome


def make_names(folder, size):
    for place in PLACES:
        (folder / place).mkdir(parents=True)
    make_file(folder / "d0/file", size, seed=size)
    for place in PLACES[1:]:
        os.link(folder / "d0/file", folder / place / "file")


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_file_of_several_names_arrives_under_those_that_can_be_written(net, near, verb, size):
    """Whichever name comes first: the others are linked to the next one that has a place."""
    source, target = near / "source", near / "target"
    make_names(source, size)
    for shut in ([PLACES[0]], [PLACES[4]], PLACES[:3], PLACES[1:]):
        arrives_where_it_can(source, target, shut,
                             lambda: cp(net.alpha, f"{source}/", target, verb=verb, expect=EXIT_SOME_FAILED))
    arrives_where_it_can(source, target, PLACES, lambda: cp(net.alpha, f"{source}/", target, verb=verb, expect=EXIT_FILES))


def test_a_file_of_several_names_arrives_under_those_that_can_be_written_from_host_to_host(way):
    make_names(way.source, 3 << 20)
    for shut in (PLACES[:2], PLACES[2:]):
        arrives_where_it_can(way.source, way.target, shut, lambda: way.sync(slash="/", expect=EXIT_SOME_FAILED))
