"""`farhaul stream`: frames from one host to another, in order and complete or each on time.

No test looks at the clock. The frames of `test:` carry their number and a checksum, so a file of them says which
frames have arrived, and that they are whole.
"""

import contextlib
import json
import os
import signal
import subprocess
import zlib

import pytest

from harness import lab
from harness.hosts import wait_until
from harness.product import EXIT_CONNECT, EXIT_FILES, EXIT_INTERRUPTED, EXIT_LOST, EXIT_USAGE

MB = 1_000_000


def numbers(content, size):
    """The numbers of the test pictures in `content`, each of which must be whole."""
    assert len(content) % size == 0, (len(content), size)
    frames = [content[at:at + size] for at in range(0, len(content), size)]
    for frame in frames:
        assert zlib.crc32(frame[:-4]) == int.from_bytes(frame[-4:], "little")
    return [int.from_bytes(frame[:8], "little") for frame in frames]


class Stage:
    """Keys on both hosts, and the processes that run there."""

    def __init__(self, net):
        self.net = net
        self.here, self.there = net.folder("here"), net.folder("there")
        net.alpha.run(["farhaul", "keygen", "-q", "-f", self.here / "key"], check=True)
        self.processes = []

    def start(self, host, *words, **options):
        folder = self.here if host is self.net.alpha else self.there
        environment = {"XDG_RUNTIME_DIR": str(folder), "FARHAUL_DUMPABLE": "1"}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = host.start(["farhaul", "stream", *map(str, words)], env=environment, **options)
        self.processes.append(process)
        return process

    def recv(self, *words, port=0, **options):
        """Starts to receive. Returns the process, and its address for a name."""
        process = self.start(self.net.beta, "recv", "--listen", f"[::]:{port}", "--identity", self.there / "key",
                             "--authorized-keys", f"{self.here}/key.pub", *words, **options)
        said = process.stderr.readline().decode()
        assert said.startswith("waiting for "), (said, process.stderr.read().decode())
        self.fingerprint = said.split("(key ")[1].split(")")[0]
        port = said.split("]:")[1].split()[0]
        return process, lambda name: f"fh://beta:{port}/{name}"

    def send(self, *words, **options):
        return self.start(self.net.alpha, "send", "-i", self.here / "key", "--known-hosts", self.here / "known",
                          "--fingerprint", self.fingerprint, *words, **options)

    def stats(self, host, show):
        process = self.start(host, "stats", "--json", show)
        out, err = process.communicate(timeout=60)
        return [json.loads(line) for line in out.splitlines()], process.returncode, err.decode()


@pytest.fixture
def stage(net):
    stage = Stage(net)
    yield stage
    for process in stage.processes:
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(ValueError):
            process.communicate()


def end(process, expect=0, **options):
    out, err = process.communicate(timeout=120, **options)
    err = err.decode(errors="replace") if err is not None else ""
    assert process.returncode == expect, (process.args, process.returncode, out[-2000:] if out else out, err)
    assert "panicked" not in err, err
    return out, err


def test_a_test_picture_arrives_in_a_file_byte_by_byte(stage):
    receiver, at = stage.recv("--name", "tile-3", "--to", f"file:{stage.there}/out", "--json")
    end(stage.send("--name", "tile-3", "--from", "test:640x480", "--frames", "40", at("tile-3")))
    out, _ = end(receiver)
    assert numbers((stage.there / "out").read_bytes(), 640 * 480 * 3) == list(range(40))
    figures = json.loads(out)["streams"][0]
    assert figures["receiver"]["on_time"] == 40 and figures["receiver"]["bytes"] == 40 * 640 * 480 * 3, figures


def test_a_directory_of_frames_arrives_as_a_directory(stage):
    frames = stage.here / "frames"
    frames.mkdir()
    for name, size in (("a.tif", 3_000_000), ("b.tif", 0), ("c.tif", 17)):
        (frames / name).write_bytes(os.urandom(size))
    (frames / ".hidden").write_bytes(b"x")
    receiver, at = stage.recv("--name", "run7", "--to", f"dir:{stage.there}/frames")
    end(stage.send("--from", f"dir:{frames}/*.tif", at("run7")))
    end(receiver)
    there = {path.name: path.read_bytes() for path in (stage.there / "frames").iterdir()}
    assert there == {name: (frames / name).read_bytes() for name in ("a.tif", "b.tif", "c.tif")}


@pytest.mark.parametrize("cut", ["4K", "prefixed"])
def test_a_pipe_arrives_in_a_pipe(stage, cut):
    frames = [os.urandom(4096 if cut == "4K" else size) for size in (5, 0, 3_000_000, 4096)]
    prefixes = [b"" if cut == "4K" else len(frame).to_bytes(4, "little") for frame in frames]
    receiver, at = stage.recv("--name", "p", "--to", "-")
    sender = stage.send("--from", "-", "--frame", cut, at("p"), stdin=subprocess.PIPE)
    content = b"".join(prefix + frame for prefix, frame in zip(prefixes, frames))
    sender.stdin.write(content)
    sender.stdin.close()
    sender.stdin = None
    out, _ = end(receiver)
    end(sender)
    assert out == b"".join(frames)


def test_a_file_is_cut_into_frames(stage):
    content = os.urandom(5_000_001)
    (stage.here / "a").write_bytes(content)
    receiver, at = stage.recv("--name", "cut", "--to", f"file:{stage.there}/a", "--json")
    end(stage.send("--from", f"file:{stage.here}/a", "--frame", "256K", at("cut")))
    out, _ = end(receiver)
    assert (stage.there / "a").read_bytes() == content
    assert json.loads(out)["streams"][0]["receiver"]["on_time"] == 20


def test_several_streams_of_a_show_go_to_one_receiver(stage):
    receiver, at = stage.recv("--name", "left", "--to", f"file:{stage.there}/left", "--name", "right", "--to", f"dir:{stage.there}/right")
    (stage.here / "wall.toml").write_text(
        f'[[stream]]\nname = "left"\nfrom = "test:64x48"\nto = "{at("left")}"\nframes = 30\n'
        f'[[stream]]\nname = "east"\nfrom = "test:32x32"\nto = "{at("right")}"\nframes = 7\nfps = 100\n')
    out, _ = end(stage.send(stage.here / "wall.toml", "--json"))
    end(receiver)
    assert numbers((stage.there / "left").read_bytes(), 64 * 48 * 3) == list(range(30))
    right = b"".join(path.read_bytes() for path in sorted((stage.there / "right").iterdir()))
    assert numbers(right, 32 * 32 * 3) == list(range(7))
    shown = json.loads(out)
    assert shown["show"] == "wall" and [stream["frames"] for stream in shown["streams"]] == [30, 7], shown


def test_stats_ask_the_processes_that_run(stage):
    receiver, at = stage.recv("--name", "live", "--to", "null")
    sender = stage.send("--from", "test:64x48", "--fps", "50", at("live"))

    def running():
        shown, code, _ = stage.stats(stage.net.beta, "live")
        return shown if code == 0 and shown[0]["streams"][0]["receiver"]["on_time"] > 0 else None
    far = wait_until(running, seconds=60, what="frames arrive")[0]
    near = wait_until(lambda: stage.stats(stage.net.alpha, "live")[0], seconds=60, what="an answer")[0]
    assert far["schema"] == near["schema"] == "farhaul-stream-stats/1"
    assert (far["streams"][0]["role"], near["streams"][0]["role"]) == ("recv", "send")
    assert near["pid"] != far["pid"] and near["streams"][0]["frames"] > 0, near
    sender.send_signal(signal.SIGINT)
    end(sender, expect=EXIT_INTERRUPTED)
    end(receiver)
    shown, code, said = stage.stats(stage.net.alpha, "live")
    assert (shown, code) == ([], EXIT_CONNECT) and "no process of this user has streams of the name live" in said, said


def test_ctrl_c_at_the_sender_ends_the_stream_in_order(stage):
    receiver, at = stage.recv("--name", "t", "--to", f"file:{stage.there}/out")
    sender = stage.send("--from", "test:320x200", "--fps", "100", at("t"))
    wait_until(lambda: (stage.there / "out").exists() and (stage.there / "out").stat().st_size > MB, seconds=60, what="frames")
    sender.send_signal(signal.SIGINT)
    end(sender, expect=EXIT_INTERRUPTED)
    end(receiver)
    there = numbers((stage.there / "out").read_bytes(), 320 * 200 * 3)
    assert there == list(range(len(there))) and there, there


def test_ctrl_c_at_the_receiver_leaves_whole_frames_and_tells_the_sender(stage):
    receiver, at = stage.recv("--name", "t", "--to", f"dir:{stage.there}/out")
    sender = stage.send("--from", "test:1200x1000", "--fps", "100", at("t"))
    wait_until(lambda: (stage.there / "out").exists() and len(list((stage.there / "out").iterdir())) > 3, seconds=60, what="frames")
    receiver.send_signal(signal.SIGINT)
    end(receiver, expect=EXIT_INTERRUPTED)
    end(sender, expect=EXIT_LOST)
    files = list((stage.there / "out").iterdir())
    assert files and all(path.name.startswith("frame-") for path in files), files
    assert all(numbers(path.read_bytes(), 1200 * 1000 * 3) for path in files)


def test_ctrl_c_ends_the_wait_for_a_receiver(stage):
    receiver, at = stage.recv("--name", "t", "--to", "null")
    receiver.kill()
    receiver.wait()
    sender = stage.send("--from", "test:64x48", at("t"))
    assert b"waiting for" in sender.stderr.readline()
    sender.send_signal(signal.SIGINT)
    end(sender, expect=EXIT_INTERRUPTED)


def test_a_receiver_that_is_killed_and_comes_back_gets_all_frames(stage):
    receiver, at = stage.recv("--name", "t", "--to", f"file:{stage.there}/first")
    port = at("").split(":")[2].strip("/")
    sender = stage.send("--from", "test:320x200", "--frames", "60", "--fps", "30", "--json", at("t"))
    wait_until(lambda: (stage.there / "first").exists() and (stage.there / "first").stat().st_size > MB, seconds=60, what="frames")
    receiver.kill()
    receiver.wait()
    receiver, _ = stage.recv("--name", "t", "--to", f"file:{stage.there}/second", port=port)
    out, _ = end(sender)
    end(receiver)
    assert numbers((stage.there / "second").read_bytes(), 320 * 200 * 3) == list(range(60))
    assert json.loads(out)["streams"][0]["sessions"] == 2, out


def test_a_stream_with_deadlines_goes_on_with_what_is_due_when_its_receiver_comes_back(stage):
    receiver, at = stage.recv("--name", "t", "--to", f"dir:{stage.there}/first")
    port = at("").split(":")[2].strip("/")
    sender = stage.send("--from", "test:320x200", "--fps", "50", "--deadline", "5s", at("t"))
    wait_until(lambda: (stage.there / "first").exists() and len(list((stage.there / "first").iterdir())) > 3, seconds=60, what="frames")
    receiver.kill()
    receiver.wait()
    receiver, _ = stage.recv("--name", "t", "--to", f"file:{stage.there}/second", "--json", port=port)
    wait_until(lambda: (stage.there / "second").exists() and (stage.there / "second").stat().st_size > MB, seconds=60, what="frames")
    sender.send_signal(signal.SIGINT)
    end(sender, expect=EXIT_INTERRUPTED)
    out, _ = end(receiver)
    there = numbers((stage.there / "second").read_bytes(), 320 * 200 * 3)
    counts = json.loads(out)["streams"][0]["receiver"]
    assert there == sorted(set(there)) and there[0] > 3, there
    assert counts["on_time"] == len(there) and counts["dropped"] >= there[0], counts


def two_paths(net):
    return ["--path", f"{net.alpha.v4}={net.beta.v4}", "--path", f"{net.alpha.v6}={net.beta.v6}"]


def test_a_stream_over_two_paths_arrives_at_its_places(stage, net):
    content = os.urandom(20 * MB + 1)
    (stage.here / "a").write_bytes(content)
    receiver, at = stage.recv("--name", "cut", "--to", f"file:{stage.there}/a")
    end(stage.send("--from", f"file:{stage.here}/a", "--frame", "300K", *two_paths(net), at("cut")))
    end(receiver)
    assert (stage.there / "a").read_bytes() == content


def test_a_pipe_takes_no_stream_over_two_paths(stage, net):
    receiver, at = stage.recv("--name", "t", "--to", "-")
    sender = stage.send("--from", "test:64x48", "--frames", "5", *two_paths(net), at("t"))
    _, err = end(receiver, expect=EXIT_USAGE)
    assert "a pipe needs frames in order" in err, err
    _, err = end(sender, expect=EXIT_LOST)
    assert "has failed: a pipe needs frames in order" in err, err


def test_a_sender_that_is_killed_is_waited_for_no_longer_than_said(stage):
    receiver, at = stage.recv("--name", "t", "--to", f"file:{stage.there}/out", "--wait", "100ms")
    sender = stage.send("--from", "test:320x200", "--fps", "100", at("t"))
    wait_until(lambda: (stage.there / "out").exists() and (stage.there / "out").stat().st_size > MB, seconds=60, what="frames")
    sender.kill()
    end(receiver, expect=EXIT_LOST)
    assert numbers((stage.there / "out").read_bytes(), 320 * 200 * 3)


@pytest.mark.parametrize("words, said", [
    (["--from", "test:0x0", "fh://beta/t"], "is no size of a picture"),
    (["--from", "nothing", "fh://beta/t"], "is no source"),
    (["--from", "-", "fh://beta/t"], "how is the pipe cut"),
    (["--from", "test:4x4", "--deadline", "soon", "fh://beta/t"], "is no deadline"),
    (["--from", "test:4x4", "--fps", "0", "fh://beta/t"], "frames a second"),
    (["--from", "test:4x4", "fh://beta/"], "the stream has no name"),
    (["--from", "test:4x4", "/here"], "is no receiver"),
    (["/nowhere/show.toml"], "cannot read /nowhere/show.toml"),
    (["--from", "file:/nowhere", "fh://beta/t"], "cannot read /nowhere"),
])
def test_bad_input_is_one_clear_line(stage, words, said):
    stage.fingerprint = "SHA256:x"
    expect = EXIT_FILES if "/nowhere" in said else EXIT_USAGE
    _, err = end(stage.send(*words), expect=expect)
    errors = [line for line in err.splitlines() if line.startswith("error")]
    assert len(errors) == 1 and said in errors[0], err


def test_frames_that_cannot_be_written_end_the_stream_at_both_ends(stage):
    (stage.there / "full").symlink_to("/dev/full")
    receiver, at = stage.recv("--name", "t", "--to", f"file:{stage.there}/full")
    sender = stage.send("--from", "test:320x200", "--frames", "100", at("t"))
    _, err = end(receiver, expect=EXIT_FILES)
    assert "no space" in err.lower(), err
    _, err = end(sender, expect=EXIT_LOST)
    assert "has failed: cannot write" in err, err


#: Frames of 900 kB ten times a second are more than a link with 20 Mbit/s takes.
NARROW = ("--rtt", "40ms", "--rate", "20m", "--loss", "1%")


@pytest.mark.parametrize("sink", ["dir", "file"])
def test_late_frames_are_dropped_whole_and_the_next_ones_arrive(tmp_path, sink):
    key = tmp_path / "key"
    subprocess.run([lab.binary(), "keygen", "-q", "-f", key], check=True)
    with lab.Up("--home", str(tmp_path), *NARROW) as up:
        def start(host, *words):
            argv = lab.command("exec", "--lab", up.name, host, "--", "env", f"XDG_RUNTIME_DIR={tmp_path}/run-{host}",
                               "farhaul", "stream", *words)
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        receiver = start("b", "recv", "--name", "t", "--to", f"{sink}:{tmp_path}/out", "--json", "--listen", "[::]:4700",
                         "--identity", key, "--authorized-keys", f"{key}.pub")
        fingerprint = receiver.stderr.readline().decode().split("(key ")[1].split(")")[0]
        address = up.environment["FARHAUL_LAB_B"]
        sender = start("a", "send", "-i", key, "--fingerprint", fingerprint, "--known-hosts", tmp_path / "known", "--from", "test:640x480", "--fps", "10", "--frames", "30",
                       "--deadline", "300ms", f"fh://{address}:4700/t")
        end(sender)
        out, _ = end(receiver)
    counts = json.loads(out)["streams"][0]["receiver"]
    if sink == "dir":
        there = [numbers(path.read_bytes(), 640 * 480 * 3)[0] for path in sorted((tmp_path / "out").iterdir())]
    else:
        there = numbers((tmp_path / "out").read_bytes(), 640 * 480 * 3)
    assert there == sorted(set(there)) and len(there) == counts["on_time"], (there, counts)
    assert counts["on_time"] + counts["late"] + counts["dropped"] == 30, counts
    assert counts["dropped"] > 0, counts
