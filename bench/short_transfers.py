"""Real TCP transfers that come and go: a server of zeros over HTTP, and clients that arrive as the simulator's do.

    short_transfers.py serve PORT=CONTROL ...                           serves /SIZE, each port with its congestion control
    short_transfers.py fetch HOST PORT SHARE RATE SECONDS SEED          fetches for SECONDS; JSON on stdout

Transfers begin at random (Poisson), and their sizes have a Pareto distribution (1.2, 10 kB to 10 MB), as in
crates/sim/src/cross_traffic.rs. `fetch` offers SHARE of RATE bit/s. It prints for each transfer when it
began, its bytes, its seconds and whether it had ended.
"""

import asyncio
import json
import os
import random
import re
import socket
import sys
import time

TAIL, LEAST_BYTES, MOST_BYTES = 1.2, 10e3, 10e6
#: How many bytes on the wire a byte of content takes.
WIRE = 1500 / 1448
#: The size of the buffer of zeros; larger answers send it several times.
ROOM = 1 << 20


def size_bytes(part):
    """The quantile of the sizes: a share `part` of all transfers is smaller."""
    above = (LEAST_BYTES / MOST_BYTES) ** TAIL
    return int(LEAST_BYTES * (1 - part * (1 - above)) ** (-1 / TAIL))


def mean_bytes():
    ratio = LEAST_BYTES / MOST_BYTES
    return LEAST_BYTES * TAIL / (TAIL - 1) * (1 - ratio ** (TAIL - 1)) / (1 - ratio ** TAIL)


def listener(port, control):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    made.bind(("0.0.0.0", port))
    made.listen(1024)
    made.setblocking(False)
    return made


async def answer(connection, zeros):
    loop = asyncio.get_running_loop()
    with connection:
        request = b""
        while b"\r\n\r\n" not in request:
            got = await loop.sock_recv(connection, 4096)
            if not got:
                return
            request += got
        left = int(re.match(rb"GET /(\d+) ", request)[1])
        await loop.sock_sendall(connection, b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            left -= await loop.sock_sendfile(connection, zeros, 0, min(left, ROOM))


async def serve(ports):
    loop = asyncio.get_running_loop()
    tasks = set()
    file = os.fdopen(os.memfd_create("zeros"), "r+b")
    file.truncate(ROOM)

    async def accept(port, control):
        here = listener(port, control)
        while True:
            connection, _ = await loop.sock_accept(here)
            connection.setblocking(False)
            task = loop.create_task(answer(connection, file))
            tasks.add(task)
            task.add_done_callback(ended)

    def ended(task):
        tasks.discard(task)
        if error := task.exception():
            # A client that has gone is not an error.
            if not isinstance(error, ConnectionError):
                print(f"short_transfers: {error!r}", file=sys.stderr)

    await asyncio.gather(*(accept(int(port), control) for port, control in (word.split("=") for word in ports)))


async def fetch(host, port, share, rate, seconds, seed):
    loop = asyncio.get_running_loop()
    chance = random.Random(seed)
    gap = 8 * mean_bytes() * WIRE / (share * rate)
    begin = time.monotonic()
    transfers, tasks = [], []
    room = bytearray(1 << 18)

    async def one(size):
        transfer = {"began": time.monotonic() - begin, "bytes": size, "ended": False}
        transfers.append(transfer)
        with socket.socket() as near:
            near.setblocking(False)
            await loop.sock_connect(near, (host, port))
            await loop.sock_sendall(near, b"GET /%d HTTP/1.0\r\n\r\n" % size)
            got = 0
            while count := await loop.sock_recv_into(near, room):
                got += count
        transfer["seconds"] = time.monotonic() - begin - transfer["began"]
        transfer["ended"] = got > size

    due = 0.0
    while (due := due + chance.expovariate(1 / gap)) < seconds:
        size = size_bytes(chance.random())
        await asyncio.sleep(max(0.0, begin + due - time.monotonic()))
        tasks.append(loop.create_task(one(size)))
    await asyncio.sleep(max(0.0, begin + seconds - time.monotonic()))
    for task in tasks:
        task.cancel()
    failed = [done for done in await asyncio.gather(*tasks, return_exceptions=True)
              if isinstance(done, Exception) and not isinstance(done, asyncio.CancelledError)]
    if failed:
        raise failed[0]
    for transfer in transfers:
        # A transfer that has not ended has taken at least this long.
        transfer.setdefault("seconds", seconds - transfer["began"])
    print(json.dumps(transfers))


def main():
    what, *words = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(words))
    else:
        host, port, *numbers = words
        share, rate, seconds, seed = map(float, numbers)
        asyncio.run(fetch(host, int(port), share, rate, seconds, int(seed)))


if __name__ == "__main__":
    main()
