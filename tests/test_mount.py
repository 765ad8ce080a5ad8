"""`farhaul mount`: a far directory looks like a local one, and nothing that happens far away makes a process hang or read a
wrong byte."""

import contextlib
import errno
import hashlib
import os
import pathlib
import random
import signal
import stat
import subprocess
import threading
import time

import pytest

from conftest import FAILING_PORTS
from harness import product
from harness.hosts import USER, wait_until
from harness.product import EXIT_FILES, EXIT_OK, EXIT_USAGE, Daemon
from harness.trees import make_file, make_tree

MIB = 1 << 20

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no FUSE here")


class Here:
    """A process of alpha whose mounts the test sees, and mounts below it."""

    def __init__(self, net, user=None):
        self.net, self.user = net, user
        self.keeper = net.alpha.start(["sleep", "infinity"])
        # It is another program until `ip` has made its surroundings.
        wait_until(lambda: b"sleep" in pathlib.Path(f"/proc/{self.keeper.pid}/cmdline").read_bytes()[:6], what="the keeper runs")
        self.target = net.folder("mount")
        if user:
            os.chown(self.target, 54321, 54321)
        #: The mount, as this process sees it.
        self.seen = pathlib.Path(f"/proc/{self.keeper.pid}/root{self.target}")

    def command(self, argv):
        become = [] if self.user is None else ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--"]
        return ["nsenter", f"--target={self.keeper.pid}", "--mount", "--net", "--", *become, *map(os.fspath, argv)]

    def start(self, *argv, **options):
        return subprocess.Popen(self.command(argv), env=self.net.alpha.environment(self.user), cwd="/", start_new_session=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def run(self, *argv, expect=EXIT_OK, timeout=60):
        process = self.start(*argv)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        if expect is not None:
            assert process.returncode == expect, (argv, process.returncode, out, err)
        return (out + err).decode(errors="replace") if expect != EXIT_OK else out.decode(errors="replace")

    def open_device(self):
        """Lets every user open /dev/fuse, as on most systems."""
        device = self.net.folder("device") / "fuse"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(device, 0o666)
        subprocess.run(["nsenter", f"--target={self.keeper.pid}", "--mount", "--", "mount", "--bind", device, "/dev/fuse"], check=True)

    def mount(self, location, *arguments, expect=EXIT_OK):
        reach = ["--accept-new"] if location.startswith("fh://") else []
        return self.run("farhaul", "mount", *reach, *arguments, location, self.target, expect=expect)

    def umount(self, *arguments, expect=EXIT_OK):
        return self.run("farhaul", "umount", *arguments, self.target, expect=expect, timeout=20)

    def is_mounted(self):
        return f" {self.target} " in pathlib.Path(f"/proc/{self.keeper.pid}/mountinfo").read_text()

    def server(self):
        """The pid of the process that serves the mount."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"mount" in words and os.fsencode(self.target) in words:
                    return int(folder.name)
        return None

    def close(self):
        with contextlib.suppress(Exception):
            if self.is_mounted():
                self.umount("--force")
        self.keeper.kill()
        self.keeper.wait()


@pytest.fixture
def here(net):
    here = Here(net)
    yield here
    here.close()


@pytest.fixture
def own_daemon(net):
    """A daemon that the test may kill, and its root."""
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), root=net.folder("served"))
    yield daemon
    daemon.kill()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def look(folder):
    """Everything below a folder: kind and permissions, links, size, time, and where links lead."""
    found = {}
    for above, names, files in os.walk(os.fsencode(folder)):
        for name in names + files:
            path = os.path.join(above, name)
            meta = os.lstat(path)
            where = os.readlink(path) if os.path.islink(path) else None
            size = None if os.path.isdir(path) else meta.st_size
            links = None if os.path.isdir(path) else meta.st_nlink
            found[os.path.relpath(path, os.fsencode(folder))] = (meta.st_mode, links, size, meta.st_mtime_ns, where, meta.st_ino)
    return found


@pytest.mark.parametrize("road", ["ssh", "daemon"])
def test_a_mount_looks_like_the_far_directory(net, here, own_daemon, road):
    far = own_daemon.root / "tree"
    make_tree(far)
    make_file(far / "large", 5 * MIB + 17)
    os.link(far / "large", far / "second name")
    (far / os.fsdecode(b"odd \xff\n name")).write_text("odd")
    here.mount(f"beta:{far}" if road == "ssh" else own_daemon.url("tree"))
    assert look(here.seen) == look(far)
    for path in far.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert digest(here.seen / path.relative_to(far)) == digest(path), path
    # Any part of a file, in any order.
    with open(here.seen / "large", "rb") as seen, open(far / "large", "rb") as there:
        for _ in range(200):
            at, length = random.randrange(5 * MIB + 100), random.choice([1, 100, 5000, 300_000])
            assert os.pread(seen.fileno(), length, at) == os.pread(there.fileno(), length, at)
    sums = subprocess.run(["find", ".", "-type", "f", "-exec", "md5sum", "{}", "+"], cwd=far, capture_output=True, check=True).stdout
    list_of_sums = net.folder("sums") / "sums"
    list_of_sums.write_bytes(sums)
    assert "FAILED" not in here.run("sh", "-c", f"cd {here.target} && md5sum -c {list_of_sums}")
    here.umount()
    assert not here.is_mounted() and os.listdir(here.seen) == []


def test_nothing_can_be_changed(here, own_daemon):
    make_file(own_daemon.root / "file", 10)
    here.mount(own_daemon.url())
    for change in (lambda: (here.seen / "new").write_text("x"), lambda: (here.seen / "new").mkdir(), lambda: (here.seen / "file").unlink(),
                   lambda: (here.seen / "file").rename(here.seen / "other"), lambda: os.chmod(here.seen / "file", 0),
                   lambda: os.utime(here.seen / "file"), lambda: os.truncate(here.seen / "file", 0)):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert os.listdir(own_daemon.root) == ["file"]


def test_a_daemon_is_killed_and_started_again_while_somebody_reads(here, own_daemon):
    source = make_file(own_daemon.root / "file", 120 * MIB)
    here.mount(own_daemon.url(), "--cache-size", "0", "--rate", "200M")
    copy = here.target.parent / "copied"
    reading = here.start("dd", f"if={here.target}/file", f"of={copy}", "bs=64k")
    for part in (15, 50, 90):
        wait_until(lambda: copy.exists() and copy.stat().st_size > part * MIB, seconds=60, what="a part is read")
        own_daemon.kill()
        time.sleep(0.5)
        own_daemon.start()
    _out, err = reading.communicate(timeout=120)
    assert reading.returncode == 0, err
    assert digest(copy) == digest(source)


def test_a_host_that_goes_away_makes_errors_in_time_and_comes_back(net, here, own_daemon):
    make_file(own_daemon.root / "file", 40 * MIB)
    make_file(own_daemon.root / "other", 1000)
    here.mount(own_daemon.url(), "--read-wait", "4s", "--metadata-wait", "2s", "--metadata-time", "0s", "--cache-size", "0")
    with open(here.seen / "file", "rb") as file:
        first = os.pread(file.fileno(), 1000, 0)
        own_daemon.kill()
        for act, wait in ((lambda: os.pread(file.fileno(), 1000, 30 * MIB), 4), (lambda: os.stat(here.seen / "other"), 2),
                          (lambda: os.listdir(here.seen), 2)):
            begin = time.monotonic()
            with pytest.raises(OSError) as failed:
                act()
            assert failed.value.errno == errno.EIO and wait - 0.5 < time.monotonic() - begin < wait + 2
        own_daemon.start()
        wait_until(lambda: (here.seen / "other").exists(), seconds=20, what="the host is back")
        with open(own_daemon.root / "file", "rb") as there:
            assert os.pread(file.fileno(), 1000, 30 * MIB) == os.pread(there.fileno(), 1000, 30 * MIB)
            assert first == os.pread(there.fileno(), 1000, 0)


def test_any_signal_ends_a_wait(here, own_daemon):
    make_file(own_daemon.root / "file", 40 * MIB)
    here.mount(own_daemon.url(), "--cache-size", "0", "--metadata-time", "60s")
    assert os.listdir(here.seen) == ["file"]
    own_daemon.kill()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL):
        for argv in (["head", "-c", "9", f"{here.target}/file"], ["ls", f"{here.target}/none/below"], ["stat", f"{here.target}/file"]):
            waiting = here.start(*argv)
            time.sleep(0.4)
            if waiting.poll() is None:
                os.kill(waiting.pid, number)
            begin = time.monotonic()
            waiting.communicate(timeout=5)
            assert time.monotonic() - begin < 3, (number, argv)


def test_a_mount_whose_process_was_killed_is_no_trap(here, own_daemon):
    make_file(own_daemon.root / "file", 40 * MIB)
    here.mount(own_daemon.url())
    file = os.open(here.seen / "file", os.O_RDONLY)
    os.pread(file, 10, 0)
    os.kill(here.server(), signal.SIGKILL)
    begin = time.monotonic()
    wait_until(lambda: "not connected" in here.run("ls", here.target, expect=None), what="ls says so")
    assert time.monotonic() - begin < 10
    here.umount()
    # Nobody flushes it.
    with contextlib.suppress(OSError):
        os.close(file)
    assert not here.is_mounted()
    here.mount(own_daemon.url())
    assert os.listdir(here.seen) == ["file"]


def test_umount_leaves_what_is_in_use_unless_it_is_forced(here, own_daemon):
    make_file(own_daemon.root / "file", 40 * MIB)
    here.mount(own_daemon.url(), "--read-wait", "30s", "--cache-size", "0")
    reading = here.start("sh", "-c", f"exec 5<{here.target}/file; sleep 60")
    wait_until(lambda: any(os.readlink(f"/proc/{reading.pid}/fd/{number}").endswith("file") for number in os.listdir(f"/proc/{reading.pid}/fd")),
               what="it is open")
    assert "is in use" in here.umount(expect=EXIT_FILES) and here.is_mounted()
    own_daemon.kill()
    waiting = here.start("dd", f"if={here.target}/file", "bs=1M", "skip=30", "count=1")
    time.sleep(0.5)
    begin = time.monotonic()
    here.umount("--force")
    waiting.communicate(timeout=5)
    assert not here.is_mounted() and time.monotonic() - begin < 5
    reading.kill()
    reading.communicate()
    wait_until(lambda: here.server() is None, what="the process of the mount ends")
    assert "nothing of farhaul is mounted" in here.umount(expect=EXIT_FILES)


def test_a_file_that_changes_is_old_or_an_error_and_never_both(here, own_daemon):
    """Each version is of one letter, so a mixture shows."""
    path, size = own_daemon.root / "file", 3 * MIB
    path.write_bytes(b"a" * size)
    here.mount(own_daemon.url(), "--metadata-time", "1s")
    is_over = threading.Event()

    def write():
        for number in range(10_000):
            if is_over.is_set():
                return
            letter = bytes([ord("b") + number % 20])
            if number % 2:
                path.write_bytes(letter * size)
            else:
                (path.parent / "new").write_bytes(letter * size)
                (path.parent / "new").rename(path)
            time.sleep(random.random() * 0.2)

    writing = threading.Thread(target=write)
    writing.start()
    whole = failed = 0
    try:
        end = time.monotonic() + 12
        while time.monotonic() < end:
            try:
                with open(here.seen / "file", "rb") as file:
                    content = b""
                    while part := file.read(200_000):
                        content += part
                        time.sleep(random.random() * 0.01)
            except OSError as error:
                assert error.errno in (errno.ESTALE, errno.EIO), error
                failed += 1
                continue
            # A version that is being written in place may be short, and then the rest is of no other letter.
            assert len(set(content)) <= 1 or content.count(content[:1]) == len(content), set(content)
            whole += 1
    finally:
        is_over.set()
        writing.join()
    assert whole > 0
    time.sleep(1.2)
    assert (here.seen / "file").read_bytes() == path.read_bytes()


def test_what_was_read_comes_from_the_disk_the_next_time(net, here, own_daemon):
    source = make_file(own_daemon.root / "file", 6 * MIB + 5)
    old = time.time() - 3600
    os.utime(source, (old, old))
    # Its time of change is that of now, and so young a file is not kept.
    time.sleep(6)
    cache = net.folder("cache")
    os.chmod(cache, 0o700)
    chunks = lambda: sorted(path for path in cache.rglob("chunks/*/*") if path.is_file())

    def read_again():
        here.mount(own_daemon.url(), "--cache-dir", cache)
        before = net.alpha.device_bytes()
        assert digest(here.seen / "file") == digest(source)
        moved = net.alpha.device_bytes() - before
        here.umount()
        return moved

    assert read_again() > 6 * MIB
    wait_until(lambda: len(chunks()) == 7, what="all chunks are kept")
    assert read_again() < MIB
    # A disk that has changed a byte, and one that has lost the end of a file.
    with open(chunks()[0], "r+b") as chunk:
        chunk.seek(1000)
        chunk.write(bytes([chunk.read(1)[0] ^ 1]))
    os.truncate(chunks()[1], 100)
    assert MIB < read_again() < 4 * MIB
    assert read_again() < MIB
    os.chmod(cache, 0o750)
    assert "not this user's alone" in here.mount(own_daemon.url(), "--cache-dir", cache, expect=EXIT_FILES)


def test_a_user_mounts_for_himself_alone(net, own_daemon):
    here = Here(net, user=USER)
    try:
        here.open_device()
        make_file(own_daemon.root / "file", 1000)
        key = net.alpha.run(["farhaul", "keygen"], user=USER, check=True)
        public = next((net.alpha.user_home / ".config/farhaul").glob("*.pub")).read_text()
        own_daemon.keys.write_text(net.key + public)
        assert key.returncode == 0
        assert "for root" in here.mount(own_daemon.url(), "--allow-other", expect=EXIT_USAGE)
        here.mount(own_daemon.url())
        assert here.run("ls", here.target) == "file\n"
        assert here.run("stat", "-c", "%s %u", here.target / "file") == f"1000 {54321}\n"
        here.umount()
        assert not here.is_mounted()
    finally:
        here.close()


def test_what_cannot_be_mounted_is_one_line(net, here, own_daemon):
    make_file(own_daemon.root / "file", 10)
    for location, code, words in ((own_daemon.url("none"), EXIT_FILES, "no such file"), (own_daemon.url("file"), EXIT_FILES, "not a directory"),
                                  (str(own_daemon.root), EXIT_USAGE, "a directory of another host")):
        error = here.mount(location, expect=code)
        assert error.startswith("error: ") and words in error, error
        assert not here.is_mounted()
    assert "nothing of farhaul is mounted" in here.umount(expect=EXIT_FILES)


def test_many_read_at_once_and_names_are_taken_as_they_were_for_a_while(here, own_daemon):
    folder = own_daemon.root / "many"
    folder.mkdir()
    for number in range(300):
        make_file(folder / f"{number}", 5000 + number, seed=number)
    here.mount(own_daemon.url(), "--metadata-time", "3s")
    failed = []

    def read(numbers):
        for number in numbers:
            if digest(here.seen / "many" / str(number)) != digest(folder / str(number)):
                failed.append(number)

    threads = [threading.Thread(target=read, args=(random.sample(range(300), 100),)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(os.listdir(here.seen / "many")) == 300
    (folder / "new").write_text("new")
    wait_until(lambda: (here.seen / "many/new").exists(), seconds=6, what="the new name is seen")
    assert (here.seen / "many/new").read_text() == "new"


def test_a_link_that_is_cut_for_a_while_and_a_far_program_that_is_killed(net, here, own_daemon):
    """Over ssh nothing but the session itself notices a cut link; a killed far end is started again by ssh."""
    source = make_file(own_daemon.root / "file", 60 * MIB)
    here.mount(f"beta:{own_daemon.root}", "--cache-size", "0", "--rate", "60M")
    copy = here.target.parent / "copied"
    reading = here.start("dd", f"if={here.target}/file", f"of={copy}", "bs=64k")
    has_read = lambda part: wait_until(lambda: copy.exists() and copy.stat().st_size > part * MIB, seconds=60, what="a part is read")
    has_read(5)
    with net.beta.dropping(f"iifname {net.beta.interface}"):
        time.sleep(6)
    has_read(25)
    served = {own_daemon.process.pid, net.daemon.process.pid}
    for pid in set(net.beta.pids("farhaul")) - served:
        os.kill(pid, signal.SIGKILL)
    _out, err = reading.communicate(timeout=120)
    assert reading.returncode == 0, err
    assert digest(copy) == digest(source)


def test_a_line_of_fstab_mounts(net, here, own_daemon):
    make_file(own_daemon.root / "file", 1000)
    (own_daemon.root / "sub").mkdir()
    here.run("farhaul", "ls", "--accept-new", own_daemon.url())
    # The helper is where mount(8) looks, for this process and no other one.
    helpers = net.folder("helpers")
    (helpers / "mount.farhaul").symlink_to(product.binary().resolve())
    here.run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={helpers}:/usr/sbin", "/usr/sbin")
    table = net.folder("table") / "fstab"
    spaced = str(here.target).replace(" ", "\\040")
    table.write_text(f"{own_daemon.url()} {spaced} farhaul _netdev,nofail,noatime,x-systemd.automount,allow_other,metadata_time=1m 0 0\n")
    here.run("mount", "-T", table, here.target)
    mounted = next(line for line in pathlib.Path(f"/proc/{here.keeper.pid}/mountinfo").read_text().splitlines() if f" {here.target} " in line)
    assert "fuse.farhaul" in mounted and "allow_other" in mounted and " ro," in mounted, mounted
    assert sorted(os.listdir(here.seen)) == ["file", "sub"]
    words = pathlib.Path(f"/proc/{here.server()}/cmdline").read_bytes().split(b"\0")
    assert {b"--allow-other", b"--metadata-time=1m"} <= set(words), words
    # What is mounted is not mounted again.
    here.run("mount", "-a", "-T", table)
    here.run("umount", here.target)
    wait_until(lambda: not here.is_mounted(), what="it is not mounted any more")
    said = here.run("mount", "-t", "farhaul", own_daemon.url("sub"), here.target, "-o", "no_such_option", expect=EXIT_USAGE)
    assert "no-such-option" in said, said
    here.run("mount", "-t", "farhaul", own_daemon.url("sub"), here.target)
    assert os.listdir(here.seen) == []
    here.run("umount", here.target)


def test_clean_removes_what_mounts_keep(net, here, own_daemon):
    make_file(own_daemon.root / "file", MIB + 1)
    time.sleep(6)
    cache = net.alpha.home / ".cache/farhaul/chunks"
    chunks = lambda: [path for path in cache.rglob("v1/chunks/*/*") if path.is_file()]
    # Other tests may have left some in the same home.
    here.run("farhaul", "clean", "--cache")
    here.mount(own_daemon.url())
    content = (here.seen / "file").read_bytes()
    wait_until(lambda: len(chunks()) == 2, 60, what="both chunks are kept")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    said = here.run("farhaul", "clean", "--cache", "--dry-run")
    assert said.count("would remove: ") >= 2 and len(chunks()) == 2
    here.run("farhaul", "clean", "--cache")
    assert chunks() == []
    # The mount goes on without them.
    assert (here.seen / "file").read_bytes() == content
