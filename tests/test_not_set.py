"""Content arrives where its mode or its times cannot be set: exit code 10, and the options that leave these
alone."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time

import pytest

from harness.hosts import USER
from harness.product import (EXIT_METADATA, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, Daemon, cp, keygen)
from harness.service import Service
from harness.three import ThreeNet
from harness.trees import leftovers, make_file

MIB = 1 << 20
OLD = 1_000_000_000
PORTS = itertools.count(33700)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as somebody who is not")


class ToUser:
    """A copy to a destination that the receiving user does not own."""

    def __init__(self, net, way):
        self.net, self.host = net, net.alpha
        self.source = net.folder("source") / "tree"
        self.source.mkdir()
        self.far = net.folder("shared")
        self.target = self.far / "tree"
        self.user = self.prefix = None
        if way == "local":
            self.user, self.url, self.prefix = USER, f"{self.target}", f"{self.source}"
        elif way == "ssh-push":
            self.url, self.prefix = f"{USER}@beta:{self.target}", f"{self.source}"
        elif way == "daemon-push":
            daemon = Daemon(net.pair, net.beta, [net.key], port=next(PORTS), user=USER, root=self.far)
            self.url, self.prefix = daemon.url("tree"), f"{self.source}"
        elif way == "daemon-pull":
            daemon = Daemon(net.pair, net.beta, [users_key(net.alpha)], port=next(PORTS), root=self.source.parent)
            self.user, self.url, self.prefix = USER, f"{self.target}", daemon.url("tree")
        self.arguments = ["--accept-new"] if "daemon" in way else []
        os.chmod(self.source.parent, 0o755)
        os.chmod(self.far, 0o755)

    def run(self, *arguments, verb="sync", what="", **options):
        return cp(self.host, *self.arguments, *arguments, f"{self.prefix}{what}", self.url, verb=verb, user=self.user,
                  cwd="/", **options)


@pytest.fixture(params=["local", "ssh-push", "daemon-push", "daemon-pull"])
def to_user(request, net):
    return ToUser(net, request.param)


def users_key(host):
    there = host.user_home / ".config/farhaul/id_ed25519.pub"
    return there.read_text() if there.exists() else keygen(host, user=USER)


def shared_directory(folder):
    """Makes a directory of root in which everybody may write."""
    folder.mkdir()
    os.chmod(folder, 0o777)
    return folder


def set_times(root):
    for path in [root, *root.rglob("*")]:
        os.utime(path, (OLD, OLD), follow_symlinks=False)


def fill(tree):
    (tree / "d").mkdir(exist_ok=True)
    (tree / "d/small").write_text("small")
    make_file(tree / "large", 3 * MIB)
    set_times(tree)


def test_a_shared_directory_of_another_owner_is_code_10_and_has_a_name(to_user):
    fill(to_user.source)
    shared_directory(to_user.target)
    report = to_user.run(expect=EXIT_METADATA).report
    assert report["failed_count"] == 0 and report["files"] == 2 and not report["ok"] and report["complete"], report
    assert report["error"] is None
    assert [entry["path"] for entry in report["not_set"]] == ["."] and report["not_set_count"] == 1
    assert report["not_set"][0]["reason"] == "cannot set its time: operation not permitted", report["not_set"]
    assert (to_user.target / "large").read_bytes() == (to_user.source / "large").read_bytes()
    # Another run has nothing to send, and still cannot set the time: it ends the same way. Its text says so,
    # too.
    again = to_user.run("-v", as_json=False, expect=EXIT_METADATA)
    assert "not set: .: cannot set its time: operation not permitted" in again.stderr, again
    assert "--omit-dir-times" in again.stderr and "failed" not in again.stderr.lower(), again


def test_what_was_not_asked_for_counts_nothing(to_user):
    fill(to_user.source)
    shared_directory(to_user.target)
    report = to_user.run("--omit-dir-times", expect=EXIT_OK).report
    assert report["ok"] and report["not_set_count"] == 0 and report["files"] == 2, report
    assert (to_user.target / "large").stat().st_mtime == OLD
    assert (to_user.target / "d").stat().st_mtime != OLD, "the directory's time was left alone"
    assert to_user.run("--omit-dir-times").report["skipped"] == 2


def test_modes_of_what_another_one_owns(to_user):
    """`sync` sets modes of existing files, but files of another owner keep theirs."""
    fill(to_user.source)
    shared_directory(to_user.target)
    to_user.run("--omit-dir-times")
    os.chown(to_user.target / "d/small", 0, 0)
    os.chmod(to_user.source / "d/small", 0o640)
    set_times(to_user.source)
    report = to_user.run("--omit-dir-times", expect=EXIT_METADATA).report
    assert [(entry["path"], entry["reason"]) for entry in report["not_set"]] == [
        ("d/small", "cannot set its mode: operation not permitted")], report
    assert report["failed_count"] == 0 and report["skipped"] == 2
    report = to_user.run("--omit-dir-times", "--no-perms").report
    assert report["ok"] and report["skipped"] == 2


def test_a_file_that_is_changed_in_place_and_is_anothers(to_user):
    make_file(to_user.source / "large", 3 * MIB)
    shared_directory(to_user.target)
    make_file(to_user.target / "large", 3 * MIB, seed=9)
    os.chmod(to_user.target / "large", 0o666)
    set_times(to_user.source)
    report = to_user.run("--inplace", "--omit-dir-times", expect=EXIT_METADATA).report
    assert report["failed_count"] == 0 and report["files"] == 1, report
    assert [entry["path"] for entry in report["not_set"]] == ["large"]
    assert report["not_set"][0]["reason"] == "cannot set its mode and time: operation not permitted"
    assert (to_user.target / "large").read_bytes() == (to_user.source / "large").read_bytes()
    assert (to_user.target / "large").stat().st_uid == 0 and not leftovers(to_user.target)
    make_file(to_user.source / "large", 3 * MIB, seed=10)
    report = to_user.run("--inplace", "--no-perms", "--no-times").report
    assert report["ok"] and report["files"] == 1
    assert (to_user.target / "large").read_bytes() == (to_user.source / "large").read_bytes()


def test_times_are_left_as_they_come(way):
    """This holds for files, directories, links and pipes, in `cp` and `sync`, in both directions."""
    for number, verb in enumerate(["cp", "sync"]):
        if way.source.exists():
            shutil.rmtree(way.source)
            shutil.rmtree(way.target)
        way.source.mkdir()
        fill(way.source)
        os.symlink("large", way.source / "link")
        os.mkfifo(way.source / "pipe")
        set_times(way.source)
        begin = time.time() - 60
        report = way.sync("--no-times", "--specials", verb=verb, slash="/", target_slash="/").report
        assert report["ok"] and report["files"] == 2, report
        for path in [way.target, *way.target.rglob("*")]:
            assert path.lstat().st_mtime > begin, f"{path} has the source's time"
        assert way.sync("--no-times", "--specials", "--checksum").report["skipped"] >= 2, number


def test_directories_keep_their_times_and_files_do_not(way):
    way.source.mkdir()
    fill(way.source)
    report = way.sync("--omit-dir-times").report
    assert report["ok"]
    assert (way.target / "d").stat().st_mtime != OLD and way.target.stat().st_mtime != OLD
    assert (way.target / "large").stat().st_mtime == (way.target / "d/small").stat().st_mtime == OLD
    assert way.sync("--omit-dir-times").report["skipped"] == 2
    assert way.sync().report["ok"] and (way.target / "d").stat().st_mtime == OLD


def test_modes_are_as_the_receiver_makes_them(net, near):
    """New files get modes by the umask, existing ones keep theirs. The shell sets the umask; a daemon's own
    would be set by its configuration."""
    source, target = near / "source", near / "target"
    source.mkdir()
    fill(source)
    os.chmod(source / "d", 0o777)
    os.chmod(source / "large", 0o666)
    os.chmod(source / "d/small", 0o755)
    argv = ["sh", "-c", 'umask 027; exec farhaul sync --no-perms --no-times "$1" "$2"', "sh", source, target]
    net.alpha.run(argv, check=True)
    modes = {name: (target / name).stat().st_mode & 0o7777 for name in ("d", "large", "d/small")}
    assert modes == {"d": 0o750, "large": 0o640, "d/small": 0o750}
    os.chmod(target / "d", 0o711)
    os.chmod(target / "large", 0o604)
    os.chmod(target / "d/small", 0o604)
    for name in ("large", "d/small"):
        with open(source / name, "ab") as out:
            out.write(b"more")
    net.alpha.run(argv, check=True)
    assert (target / "large").read_bytes() == (source / "large").read_bytes()
    modes = {name: (target / name).stat().st_mode & 0o7777 for name in ("d", "large", "d/small")}
    assert modes == {"d": 0o711, "large": 0o604, "d/small": 0o604}


def test_all_bits_of_a_mode_and_none_contradict_each_other(near, net):
    (near / "a").write_text("x")
    outcome = cp(net.alpha, "-p", "--no-perms", near / "a", near / "b", expect=EXIT_USAGE)
    assert "--no-perms" in outcome.error_line


def test_what_fails_is_worth_more_than_what_is_not_set(to_user):
    fill(to_user.source)
    shared_directory(to_user.target)
    (to_user.target / "d").mkdir()
    os.chmod(to_user.target / "d", 0o755)
    report = to_user.run(expect=EXIT_SOME_FAILED).report
    assert report["failed_count"] == 1 and report["failed"][0]["path"] == "d/small", report
    assert {entry["path"] for entry in report["not_set"]} == {".", "d"}, report


def test_events_tell_it(to_user):
    fill(to_user.source)
    shared_directory(to_user.target)
    outcome = to_user.run("--events", as_json=False, expect=EXIT_METADATA)
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    told = [event for event in events if event["event"] == "metadata_not_set"]
    assert [(event["path"], event["reason"]) for event in told] == [
        (".", "cannot set its time: operation not permitted")], events
    (ended,) = [event for event in events if event["event"] == "ended"]
    assert (ended["ok"], ended["exit_code"], ended["error"]) == (False, EXIT_METADATA, None)


@contextlib.contextmanager
def append_only(folder):
    """Not even root sets modes and times of such a directory."""
    done = subprocess.run(["chattr", "+a", os.fspath(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no chattr +a here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-a", os.fspath(folder)], check=False)


def test_a_job_whose_content_is_there_is_done(own_net):
    """The job is done, and its error says what could not be set. Jobs have the options for this, too."""
    service = Service(own_net, own_net.alpha, far=own_net.daemon)
    source = own_net.folder("source")
    fill(source)
    target = service.far.root / "in"
    target.mkdir()
    with append_only(target):
        id = service.submit(f"{source}/", *service.to_far("in"), "--retry", "3")
        service.wait(id, expect=EXIT_METADATA)
        job = service.job(id)
        assert (job["state"], job["attempt"]) == ("done", 1), job
        assert (job["error"]["code"], job["error"]["exit_code"]) == ("FH-METADATA-NOT-SET", EXIT_METADATA), job
        assert ".: cannot set its mode and time" in job["error"]["text"] or ".: cannot set its time" in job["error"]["text"]
        assert "nothing has failed, but" in service.run("logs", id)
        (record,) = service.json("history")
        assert (record["state"], record["error_code"], record["files_failed"]) == ("done", "FH-METADATA-NOT-SET", 0), record
        id = service.submit(f"{source}/", *service.to_far("in"), "--omit-dir-times", "--no-perms", "--no-times",
                            "--modify-window", "2")
        service.wait(id)
        assert service.job(id)["error"] is None


def test_two_daemons_tell_it():
    """In a copy from one daemon to another, the report tells the client."""
    net = ThreeNet()
    with contextlib.closing(net.pair):
        for daemon in (net.b, net.c):
            daemon.keys.write_text(net.key)
        source, target = net.b.root / "tree", net.c.root / "in"
        source.mkdir()
        target.mkdir()
        fill(source)
        with append_only(target):
            outcome = cp(net.alpha, "--accept-new", net.b.url("tree/"), net.c.url("in"), verb="sync", expect=EXIT_METADATA)
        assert outcome.report["not_set_count"] == 1 and outcome.report["not_set"][0]["path"] == ".", outcome


def test_an_attribute_that_is_too_large_takes_no_other_along(own_net):
    source, target = (own_net.pair.mount_memory(own_net.folder(name), 8) for name in ("source", "target"))
    file = source / "file"
    file.write_text("content")
    try:
        os.setxattr(file, "user.a", b"x" * 40_000)
        os.setxattr(file, "user.b", b"y" * 20_000)
    except OSError as why:
        pytest.skip(f"no such attributes on tmpfs here: {why}")
    os.setxattr(file, "user.c", b"small")
    outcome = cp(own_net.alpha, "-X", file, f"{target}/", expect=EXIT_METADATA)
    arrived = set(os.listxattr(target / "file"))
    assert "user.c" in arrived and len(arrived) == 2, arrived
    (not_set,) = outcome.report["not_set"]
    assert "would make them larger than 48 KiB together" in not_set["reason"], outcome
    plain = cp(own_net.alpha, "-X", file, f"{target}/again", as_json=False, expect=EXIT_METADATA)
    assert "leave out -X or -A" in plain.stderr and "--no-perms" not in plain.stderr, plain


#: Makes utimensat(2) on a link itself fail as sshfs does, which follows the link at the far end: a filter of
#: system calls, as the program calls the kernel directly.
FILTER = """
import ctypes, os, struct, sys
number = {"x86_64": 280, "aarch64": 88}[os.uname().machine]
ENOENT, ALLOW, ERRNO = 2, 0x7fff0000, 0x00050000
def step(code, yes, no, value): return struct.pack("<HBBI", code, yes, no, value)
# Offset 0 is the call's number, 40 its fourth argument: the flag AT_SYMLINK_NOFOLLOW.
program = b"".join([step(0x20, 0, 0, 0), step(0x15, 0, 3, number), step(0x20, 0, 0, 40), step(0x15, 0, 1, 0x100),
                    step(0x06, 0, 0, ERRNO | ENOENT), step(0x06, 0, 0, ALLOW)])
code = ctypes.create_string_buffer(program)
whole = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, whole, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the filter knows other processors only")
def test_a_link_whose_time_cannot_be_set_is_there(net, near):
    source, target = near / "source", near / "target"
    source.mkdir()
    (source / "link").symlink_to("nowhere")
    os.utime(source / "link", (OLD, OLD), follow_symlinks=False)
    command = ["python3", "-c", FILTER, "farhaul", "cp", "-r", "--omit-dir-times", "--json", f"{source}/", target]
    for run in range(2):
        done = net.alpha.run(command)
        report = json.loads(done.stdout)
        assert done.returncode == EXIT_METADATA and report["failed_count"] == 0, done
        assert "cannot set its time" in report["not_set"][0]["reason"], report
        assert os.readlink(target / "link") == "nowhere" and (report["links"], report["skipped"]) == [(1, 0), (0, 1)][run]
