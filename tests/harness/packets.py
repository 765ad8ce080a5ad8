"""Datagrams as an attacker on the path sees them: captured, forged and repeated, between the two hosts only.

Sockets are opened inside a host's namespace by a small child process, so that this process never changes its own.
"""

import contextlib
import json
import pathlib
import subprocess
import sys

from .hosts import HarnessError

HERE = pathlib.Path(__file__).resolve().parent
COUNT_MAX = 5_000_000
SECONDS_MAX = 60


def start_capture(host, seconds, count=200, port=None, quiet=None):
    """Begins to watch for Ethernet frames with UDP that arrive at `host`. Returns a function that waits until
    `count` frames were seen, `seconds` have passed, or nothing has followed a frame for `quiet` seconds; it returns
    the frames as bytes."""
    argv = [sys.executable, HERE / "wire_tool.py", "capture", host.interface, seconds, count, port or 0, quiet or seconds]
    process = host.start([str(part) for part in argv], stdout=subprocess.PIPE)
    if process.stdout.readline() != b"ready\n":
        raise HarnessError("the capture did not start")

    def frames():
        # Not `communicate`, which would miss what has been read ahead with the first line.
        with process:
            return [bytes.fromhex(line) for line in json.loads(process.stdout.read())]
    return frames


def repeat(host, frames, times=1):
    """Puts captured frames on the link again, from the end of `host`."""
    if len(frames) * times > COUNT_MAX:
        raise HarnessError("too many packets")
    text = json.dumps([frame.hex() for frame in frames]).encode()
    host.run([sys.executable, HERE / "wire_tool.py", "repeat", host.interface, str(times)], input=text, check=True,
             timeout=SECONDS_MAX)


class Udp:
    """The parts of a captured frame that matter for forging one."""

    def __init__(self, frame):
        at = 14
        if frame[12:14] == b"\x08\x00":
            at += (frame[14] & 15) * 4
        else:
            at += 40
        self.header_end = at + 8
        self.source = int.from_bytes(frame[at:at + 2], "big")
        self.destination = int.from_bytes(frame[at + 2:at + 4], "big")
        self.payload = frame[at + 8:at + int.from_bytes(frame[at + 4:at + 6], "big")]


@contextlib.contextmanager
def flood(host, frame, per_second, seconds, tool):
    """While it lasts, sends forged copies of `frame`: same addresses, ports and flow, random number and
    body."""
    seconds = min(seconds, SECONDS_MAX)
    if per_second * seconds > COUNT_MAX:
        raise HarnessError("too many packets")
    process = host.start([tool, host.interface, str(per_second), str(seconds), frame.hex()], stdout=subprocess.PIPE)
    result = {}
    try:
        yield result
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=10)
        result["sent"] = int(out or b"0")


def build_flooder(folder):
    """Compiles the flooder, which limits its own time and number of packets."""
    tool = pathlib.Path(folder) / "flooder"
    subprocess.run(["cc", "-O2", "-o", tool, HERE / "flooder.c"], check=True)
    return tool
