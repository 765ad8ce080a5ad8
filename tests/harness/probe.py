"""Small measurements across a link, run on host A of a lab; the far end is started on host B over ssh. JSON on stdout.

    probe.py rtt COUNT             round trips of single datagrams, in ms
    probe.py loss PACKETS RATE     loss of datagrams sent at RATE bit/s (0: as fast as it goes)
    probe.py udp SECONDS RATE      rate of datagrams of 1472 bytes sent at RATE bit/s (0: as fast as it goes)
    probe.py tcp SECONDS [CC]      rate of one TCP connection
    probe.py delays COUNT MS SET   one-way delays in ms of datagrams sent every MS, in the order of arrival, with their
                                   numbers. `farhaul lab set SET` changes the link before, so that moving delays begin
                                   with the first datagram

Datagrams go out as GSO super-packets and come in as GRO super-packets, as with fast senders.
"""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

UDP_SEGMENT, UDP_GRO, SO_RCVBUFFORCE = 103, 104, 33
PAYLOAD = 1472
TRAIN = 44
PORT = 5000


def far(what, *arguments):
    """Starts this file at the far end and waits until it is ready."""
    # The far end is on the same machine, so the interpreter and this file are there as well.
    argv = ["ssh", os.environ["FARHAUL_LAB_B"], sys.executable, os.path.abspath(__file__), what, *map(str, arguments)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def ready():
    print("ready", flush=True)


def udp_socket(buffer=64 << 20):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
    return made


def hurry():
    """Takes priority over all other processes, if permitted: the probe measures the link, not the wait for a
    processor."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def rtt(count):
    hurry()
    far_end = far("echo")
    near = udp_socket()
    near.connect((os.environ["FARHAUL_LAB_B"], PORT))
    near.settimeout(5)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        near.send(b"x" * 64)
        near.recv(100)
        times.append(1000 * (time.perf_counter() - begin))
        time.sleep(0.01)
    far_end.stdin.close()
    far_end.wait()
    times.sort()
    return {"median_ms": times[len(times) // 2], "min_ms": times[0], "max_ms": times[-1]}


def echo():
    """Sends datagrams back until stdin ends."""
    hurry()
    here = udp_socket()
    here.bind(("0.0.0.0", PORT))
    ready()
    while 0 not in select.select([here, 0], [], [])[0]:
        data, sender = here.recvfrom(2000)
        here.sendto(data, sender)


def send_datagrams(rate, packets=None, seconds=None, train=TRAIN):
    """Sends `packets`, or for `seconds`, paced by trains. Returns how many datagrams went and how long that
    took."""
    near = udp_socket()
    near.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD)
    near.connect((os.environ["FARHAUL_LAB_B"], PORT))
    if rate:
        # A train is at most a millisecond long.
        train = max(1, min(train, int(rate * 0.001 / 8 / (PAYLOAD + 28))))
    data = os.urandom(PAYLOAD * train)
    step = train * (PAYLOAD + 28) * 8 / rate if rate else 0
    sent = 0
    begin = due = time.perf_counter()
    while (packets is None or sent < packets) and (seconds is None or time.perf_counter() - begin < seconds):
        if rate:
            due += step
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
        if packets is not None and packets - sent < train:
            data = data[:PAYLOAD * (packets - sent)]
        sent += near.send(data) // PAYLOAD
    return sent, time.perf_counter() - begin


def count_datagrams():
    """Counts datagrams until stdin ends; the time runs from the first to the last."""
    here = udp_socket(256 << 20)
    here.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    here.bind(("0.0.0.0", PORT))
    here.settimeout(0.2)
    ready()
    size, first, last = 0, None, None
    room = bytearray(1 << 16)
    while True:
        try:
            size += here.recv_into(room)
            last = time.perf_counter()
            first = first or last
        except TimeoutError:
            # stdin becomes readable when the near end closes it.
            if select.select([0], [], [], 0)[0]:
                break
    dropped = int(next(line for line in open("/proc/self/net/udp") if f":{PORT:04X} " in line).split()[-1])
    print(json.dumps({"packets": size // PAYLOAD, "seconds": (last or 0) - (first or 0), "dropped": dropped}))


def through(rate, **how):
    receiver = far("count")
    sent, seconds = send_datagrams(rate, **how)
    time.sleep(1.0)
    receiver.stdin.close()
    got = json.loads(receiver.stdout.read())
    packet_bits = 8 * (PAYLOAD + 28)
    return {"sent": sent, "received": got["packets"], "receiver_dropped": got["dropped"],
            "sent_bps": sent * packet_bits / seconds,
            "received_bps": got["packets"] * packet_bits / max(got["seconds"], 1e-9)}


def tcp(seconds, congestion=None):
    sink = far("sink")
    near = socket.socket()
    if congestion:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    near.connect((os.environ["FARHAUL_LAB_B"], PORT))
    near.settimeout(1)
    data = bytes(1 << 17)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            near.send(data)
        except TimeoutError:
            pass
    # The rate counts what has arrived, so data that still wait to be sent may be dropped.
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    return json.loads(sink.stdout.readline())


def delays(count, every_ms, *changes):
    hurry()
    far_end = far("stamps")
    # A late packet of ssh must not be the first one on the changed link.
    time.sleep(0.5)
    subprocess.run(["farhaul", "lab", "set", *changes], check=True)
    near = udp_socket()
    near.connect((os.environ["FARHAUL_LAB_B"], PORT))
    due = time.monotonic_ns()
    for number in range(count):
        due += int(every_ms * 1e6)
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        near.send(struct.pack("=IQ", number, time.monotonic_ns()))
    time.sleep(0.5)
    far_end.stdin.close()
    return json.loads(far_end.stdout.read())


def stamps():
    """Notes when datagrams arrive, until stdin ends. Both hosts have the clock of this machine."""
    hurry()
    here = udp_socket()
    here.bind(("0.0.0.0", PORT))
    ready()
    numbers, late, came = [], [], []
    while 0 not in (found := select.select([here, 0], [], [])[0]) or here in found:
        if here in found:
            data = here.recv(100)
            now = time.monotonic_ns()
            number, sent = struct.unpack("=IQ", data)
            numbers.append(number)
            late.append((now - sent) / 1e6)
            came.append(now / 1e6)
    print(json.dumps({"numbers": numbers, "delays_ms": late, "came_ms": came}))


def sink():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", PORT))
    listener.listen()
    ready()
    here, _ = listener.accept()
    begin = last = time.perf_counter()
    room = bytearray(1 << 20)
    size = 0
    half = (begin, 0)
    try:
        while got := here.recv_into(room):
            size += got
            last = time.perf_counter()
            if half[1] == 0 and last - begin > 5:
                half = (last, size)
    except ConnectionResetError:
        pass
    steady = 8 * (size - half[1]) / max(last - half[0], 1e-9)
    print(json.dumps({"bps": 8 * size / max(last - begin, 1e-9), "bps_after_5s": steady}), flush=True)


def main():
    what, *numbers = sys.argv[1:]
    if what == "rtt":
        figures = rtt(int(numbers[0]))
    elif what == "loss":
        figures = through(float(numbers[1]), packets=int(numbers[0]))
    elif what == "udp":
        figures = through(float(numbers[1]), seconds=float(numbers[0]))
    elif what == "tcp":
        figures = tcp(float(numbers[0]), *numbers[1:])
    elif what == "delays":
        figures = delays(int(numbers[0]), float(numbers[1]), *numbers[2:])
    else:
        {"echo": echo, "stamps": stamps, "count": count_datagrams, "sink": sink}[what]()
        return
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
