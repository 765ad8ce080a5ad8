"""Runs inside a host: captures frames from its link, or puts frames on it. Limited in count and time."""

import json
import socket
import sys
import time

ETH_P_ALL = 3
PACKET_OUTGOING = 4


def is_udp(frame, port):
    if frame[12:14] == b"\x08\x00" and frame[23] == 17:
        at = 14 + (frame[14] & 15) * 4
    elif frame[12:14] == b"\x86\xdd" and frame[20] == 17:
        at = 54
    else:
        return False
    return port == 0 or port in (int.from_bytes(frame[at:at + 2], "big"), int.from_bytes(frame[at + 2:at + 4], "big"))


def capture(interface, seconds, count, port, quiet):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.bind((interface, 0))
    link.settimeout(0.1)
    print("ready", flush=True)
    end = time.monotonic() + seconds
    frames, until = [], end
    while time.monotonic() < until and len(frames) < count:
        try:
            frame, address = link.recvfrom(65600)
        except TimeoutError:
            continue
        if address[2] != PACKET_OUTGOING and is_udp(frame, port):
            frames.append(frame.hex())
            until = min(end, time.monotonic() + quiet)
    print(json.dumps(frames))


def repeat(interface, times):
    frames = [bytes.fromhex(line) for line in json.load(sys.stdin)]
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    for _ in range(min(times, 1000)):
        for frame in frames:
            try:
                link.send(frame)
            except OSError:
                time.sleep(0.001)


if __name__ == "__main__":
    if sys.argv[1] == "capture":
        capture(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
    else:
        repeat(sys.argv[2], int(sys.argv[3]))
