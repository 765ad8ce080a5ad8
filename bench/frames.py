"""Streams of frames in the lab: how many of them are on time under loss, and what that costs; and how fast frames come
from a disk. A part of `./x bench stream`.

Always true: a frame that is dropped counts as late. What is sent beyond the frames is compared with a run of the same
frames without loss, so that headers do not count.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

from ground import MIB, end, gbit, remove, settle
from link import LabLink, Profile, VethLink

from harness.hosts import HarnessError, call

RATE, RTT_MS = 1_000_000_000, 100
PORT = 4700
LATE_MOST = 1e-4
#: The share that may be sent beyond the frames: this many times the loss, and this.
LOSS_TIMES, BESIDE = 3, 0.01
DISK = 0.9


@dataclasses.dataclass(frozen=True)
class Row:
    """`loss` is a share; `burst` the mean length of its bursts, or 1."""

    loss: float
    burst: int
    deadline_ms: int
    frame: int
    fps: int
    frames: int
    late_most: float

    def __str__(self):
        bursts = f" in bursts of {self.burst}" if self.burst > 1 else ""
        return f"{self.loss * 100:g} %{bursts}, frames of {self.frame >> 10} KiB, deadline {self.deadline_ms} ms"


def rows(chosen):
    """The rows, each with as many frames as was asked for."""
    first = chosen.first_seconds * 200
    yield Row(0.001, 1, 200, 256 << 10, 200, first, 0.0)
    for frame, fps in ((64 << 10, 500), (MIB, 40)):
        yield Row(0.01, 1, 250, frame, fps, chosen.frames, LATE_MOST)
        yield Row(0.05, 1, 350, frame, fps, chosen.frames, LATE_MOST)
        yield Row(0.01, 20, 250, frame, fps, chosen.frames, LATE_MOST)


class Streams:
    """Sends streams from host A to host B, and returns the figures of both ends."""

    def __init__(self, link):
        self.link = link
        self.folder = link.pair.folder("stream")
        self.environment = {"XDG_RUNTIME_DIR": str(self.folder)}
        self.key = self.folder / "key"
        link.a.run(["farhaul", "keygen", "-q", "-f", self.key], check=True)

    def send(self, names, show):
        """`show` makes the arguments or the file of the sender, of the address of a name."""
        words = [word for name in names for word in ("--name", name, "--to", "null")]
        receiver = self.link.b.start(
            ["farhaul", "stream", "recv", "--json", "--listen", f"{self.link.b.v4}:{PORT}", "--identity", self.key,
             "--authorized-keys", f"{self.key}.pub", *words],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            said = receiver.stderr.readline().decode()
            if "(key " not in said:
                raise HarnessError(f"farhaul stream recv: {said}{receiver.stderr.read().decode()}")
            fingerprint = said.split("(key ")[1].split(")")[0]
            arguments = show(lambda name: f"fh://{self.link.b.v4}:{PORT}/{name}")
            done = self.link.a.run(
                ["farhaul", "stream", "send", "--json", "-i", self.key, "--fingerprint", fingerprint, *arguments],
                env=self.environment, timeout=1800)
            if done.returncode != 0:
                raise HarnessError(f"farhaul stream send: {done.returncode}: {done.stderr.decode()}")
            out, _ = receiver.communicate(timeout=60)
        finally:
            if receiver.poll() is None:
                end(receiver)
        return json.loads(done.stdout)["streams"], json.loads(out)["streams"]


def measured(streams, row):
    """The figures of one stream: late frames, and bytes sent per byte of frames."""
    near, far = streams.send(["t"], lambda at: [
        "--from", "pipe:/dev/zero", "--frame", str(row.frame), "--fps", str(row.fps), "--frames", str(row.frames),
        "--deadline", f"{row.deadline_ms}ms", at("t")])
    counts = far[0]["receiver"]
    late = counts["late"] + counts["dropped"]
    if counts["on_time"] + late != row.frames:
        raise HarnessError(f"{row.frames} frames were sent, and these are accounted for: {counts}")
    return late, near[0]["wire_bytes_sent"] / near[0]["bytes_handed"], counts


def on_time(results, chosen):
    link = LabLink(chosen.dir)
    try:
        streams = Streams(link)
        plain = {}
        for row in rows(chosen):
            if row.frame not in plain:
                set_link(link, Row(0, 1, 1000, row.frame, row.fps, 0, 0))
                _, plain[row.frame], _ = measured(streams, dataclasses.replace(row, deadline_ms=1000, frames=row.fps * 4))
            set_link(link, row)
            link.state()
            late, sent, counts = measured(streams, row)
            state = link.state()
            share, beyond = late / row.frames, sent / plain[row.frame] - 1
            case = f"1 Gbit/s, {RTT_MS} ms, {row}"
            detail = {"frames": row.frames, "counts": counts, "limited": state["limited"]}
            results.row(f"{case}: late", share <= row.late_most, f"{late} of {row.frames}", f"at most {row.late_most:g} of them", **detail)
            # A packet of 1,400 bytes for each frame that is shorter than ten of them.
            few = 1400 / row.frame if row.frame < 14_000 else 0
            most = LOSS_TIMES * row.loss + (few or BESIDE)
            results.row(f"{case}: sent beyond the frames", beyond <= most, f"{beyond:.3f}", f"at most {most:.3f}", **detail)
    finally:
        link.close()


def set_link(link, row):
    burst = row.burst > 1
    link.set(Profile("stream", rtt_ms=RTT_MS, rate_bps=RATE, loss=0 if burst else row.loss))
    call(link.pair.program, "lab", "set", "--lab", link.pair.lab, "--burst-loss",
         f"{row.loss * 100:g}%:{row.burst}" if burst else "off")


def from_disk(results, chosen):
    """The rate at which frames come from files on a disk, against the same streams from memory, and fio."""
    link = VethLink(chosen.dir)
    try:
        streams, rates = Streams(link), {}
        size = chosen.mib * MIB
        for where, base in (("memory", pathlib.Path("/dev/shm")), ("disk", link.pair.folder("frames"))):
            files = [base / f"farhaul-bench-stream-{number}" for number in range(chosen.files)]
            try:
                for file in files:
                    with open(file, "wb") as out:
                        for _ in range(chosen.mib):
                            out.write(os.urandom(MIB))
                settle()
                if where == "disk":
                    rates["fio"] = fio(files, size)
                for file in files:
                    evict(file)
                rates[where] = rate_of(streams, link, files, size)
            finally:
                for file in files:
                    remove(file)
        least = min(rate for where, rate in rates.items() if where != "disk" and rate)
        results.row(f"disk to network, {chosen.files} files", rates["disk"] >= DISK * least, gbit(rates["disk"]),
                    f"at least {DISK} of {gbit(least)}", rates=rates)
    finally:
        link.close()


def evict(file):
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fio(files, size):
    """What fio reads from these files in the same pattern; None without fio."""
    if not shutil.which("fio"):
        return None
    for file in files:
        evict(file)
    done = subprocess.run(["fio", "--name=frames", "--rw=read", "--bs=1M", "--direct=1", f"--size={size}", f"--numjobs={len(files)}",
                           f"--filename={':'.join(map(str, files))}", "--file_service_type=sequential", "--group_reporting",
                           "--output-format=json"], check=True, stdout=subprocess.PIPE)
    return 8 * json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def rate_of(streams, link, files, size):
    """Bits a second of all files together, each a stream of its own, from their first frame to their last."""
    names = [f"s{number}" for number in range(len(files))]
    show = link.pair.folder("show") / "show.toml"

    def document(at):
        show.write_text("".join(f'[[stream]]\nname = "{name}"\nfrom = "file:{file}"\nto = "{at(name)}"\n' for name, file in zip(names, files)))
        return ["--memory", "64M", show]
    near, _ = streams.send(names, document)
    return 8 * size * len(files) / max(stream["seconds"] for stream in near)


def frames(results, chosen):
    on_time(results, chosen)
    from_disk(results, chosen)
