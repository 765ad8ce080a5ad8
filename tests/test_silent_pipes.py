"""The first signal ends a run although another program keeps it waiting: a reader that never reads, or a writer
that never writes."""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import termios

import pytest

from harness.hosts import wait_until
from harness.trees import make_file

MIB = 1 << 20
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
PIPE_BYTES = 64 << 10


class UnreadPipe:
    """A pipe whose reader does not read."""

    def __init__(self):
        self.reader, self.writer = os.pipe()

    def fill(self):
        """Leaves no room, so that the next write waits."""
        os.set_blocking(self.writer, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(self.writer, b"x" * 4096):
                pass
        os.set_blocking(self.writer, True)
        return self

    def waiting(self):
        """How many bytes wait for the reader."""
        count = array.array("i", [0])
        fcntl.ioctl(self.reader, termios.FIONREAD, count)
        return count[0]

    def rest(self):
        """What was written, once no process writes any more."""
        os.close(self.writer)
        with open(self.reader, "rb") as reader:
            return reader.read()


def start(host, *words, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stderr", subprocess.PIPE)
    return host.start(["farhaul", *map(os.fspath, words)], **options)


def catches_signals(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1


def end_by(process, number, until=lambda: True):
    """Sends one signal once the run handles signals and `until` holds; returns the exit code and stderr."""
    try:
        wait_until(lambda: process.poll() is not None or (catches_signals(process) and until()), what="it waits")
        assert process.poll() is None, process.communicate()
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=12)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return process.returncode, (said or b"").decode()


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("place", ["here", "ssh", "daemon"])
def test_content_that_nobody_reads_is_given_up(net, near, road_of, place, number, code):
    road = road_of("ssh" if place == "here" else place)
    source = make_file((near if place == "here" else road.far) / "big", 3 * MIB, seed=5)
    pipe = UnreadPipe()
    words = ["--accept-new", road.url("big")] if place == "daemon" else [source if place == "here" else road.url("big")]
    process = start(net.alpha, "cp", *words, "-", stdout=pipe.writer)
    ended, said = end_by(process, number, lambda: pipe.waiting() == PIPE_BYTES)
    assert ended == code and "interrupted" in said and said.count("error:") == 1, said
    came = pipe.rest()
    assert len(came) < 3 * MIB and source.read_bytes().startswith(came)


def test_content_reaches_a_slow_reader_whole(net, near):
    source = make_file(near / "big", 3 * MIB + 5, seed=6)
    done = net.alpha.run(["bash", "-c", 'farhaul cp big - | (sleep 0.5; cat >copy); exit "${PIPESTATUS[0]}"'], cwd=near)
    assert done.returncode == 0 and (near / "copy").read_bytes() == source.read_bytes(), done


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_events_that_nobody_reads_are_given_up(net, near, number, code):
    (near / "tree").mkdir()
    for name in range(50):
        make_file(near / f"tree/{name}", 10)
    pipe = UnreadPipe().fill()
    process = start(net.alpha, "cp", "-r", "--events", near / "tree", near / "copy", stdout=pipe.writer)
    ended, said = end_by(process, number)
    assert ended == code and "interrupted" in said, said
    assert pipe.rest().strip(b"x") == b""


def made(near, *names):
    """A folder with these files."""
    (near / "folder").mkdir()
    for name in names:
        make_file(near / "folder" / name, 10)
    return near / "folder"


@pytest.mark.parametrize("words", [
    "cp --json file copy",
    "sync --json folder/ copy",
    "verify list folder",
    "verify --json list folder",
    "clean --json folder",
    "bench cpu --seconds 0.01",
])
def test_a_report_that_nobody_reads_is_given_up(net, near, words):
    made(near, "file")
    make_file(near / "file", 10)
    (near / "list").write_text(f"{'0' * 64}  file\n")
    pipe = UnreadPipe().fill()
    process = start(net.alpha, *words.split(), stdout=pipe.writer, cwd=near)
    ended, said = end_by(process, signal.SIGINT, lambda: words.split()[-1] != "copy" or (near / "copy").exists())
    assert ended == 130 and "interrupted" in said, said
    assert pipe.rest().strip(b"x") == b"", "nothing looks complete"


def test_the_report_of_an_interrupted_run_comes_to_a_reader_that_reads_late(net, near):
    pipe = UnreadPipe()
    process = start(net.alpha, "cp", "--json", "--rate", "1M", make_file(near / "file", 10 * MIB), near / "copy", stdout=pipe.writer)
    ended, _ = end_by(process, signal.SIGINT)
    assert ended == 130 and json.loads(pipe.rest())["error_detail"]["code"] == "FH-INTERRUPTED"


def test_lines_that_nobody_reads_are_given_up(net, near, road_of):
    road = road_of("ssh")
    make_file(near / "file", 10 * MIB)
    pipe = UnreadPipe().fill()
    process = start(net.alpha, "cp", "-v", "--json", "--rate", "8M", near / "file", road.url("copy"),
                    stdout=subprocess.PIPE, stderr=pipe.writer)
    try:
        wait_until(lambda: process.poll() is not None or any(road.far.iterdir()), what="content comes")
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=12)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and json.loads(out)["error_detail"]["code"] == "FH-INTERRUPTED"


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("words", [
    "verify - folder",
    "verify fifo folder",
    "cp --manifest fifo file copy",
    "cp -i fifo file fh://beta/x",
    "cp --known-hosts fifo file fh://beta/x",
    "cp --manifest fifo fh://beta/x fh://127.0.0.1/x",
    "cp - copy",
])
def test_a_pipe_whose_other_end_is_silent_is_given_up(net, near, words, number, code):
    made(near, "file")
    make_file(near / "file", 10)
    os.mkfifo(near / "fifo", 0o600)
    silent = os.pipe()
    process = start(net.alpha, *words.split(), stdin=silent[0], cwd=near)
    ended, said = end_by(process, number)
    os.close(silent[1])
    assert ended == code and "interrupted" in said and said.count("error:") == 1, said


def test_a_manifest_whose_reader_never_reads_is_given_up(net, near):
    made(near, *map(str, range(300)))
    os.mkfifo(near / "fifo")
    reader = os.open(near / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    process = start(net.alpha, "cp", "-r", "--manifest", "fifo", "folder", "copy", cwd=near)
    ended, said = end_by(process, signal.SIGINT, lambda: (near / "copy/299").exists())
    os.close(reader)
    assert ended == 130 and "interrupted" in said, said


def test_lists_and_manifests_pass_through_pipes(net, near):
    made(near, "a", "b")
    os.mkfifo(near / "fifo")
    line = "cat fifo >kept & farhaul cp -r --manifest fifo folder/ copy && wait && (sleep 0.3; cat kept) | farhaul verify - copy" \
           " && { (sleep 0.3; cat kept) >fifo & farhaul verify fifo copy; }"
    done = net.alpha.run(["bash", "-c", line], cwd=near, timeout=30)
    assert done.returncode == 0 and done.stderr.count(b"all as listed") == 2, done
