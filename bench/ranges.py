"""Reads random ranges of one file over HTTP or XRootD, to compare with `farhaul bench read`: JSON on stdout.

    ranges.py http HOST PORT PATH SIZE CONNECTIONS BYTES SECONDS
        HTTP/1.1: one range in a request, one request at a time on a connection
    ranges.py xrootd HOST PORT PATH SIZE THREADS VECTOR BYTES SECONDS
        vector reads of VECTOR ranges, one request at a time in a thread

The figure is the bytes that came in each second.
"""

import asyncio
import json
import random
import sys
import threading
import time


class Count:
    def __init__(self, seconds):
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.seconds = []
        self.lock = threading.Lock()

    def add(self, count):
        second = int(time.monotonic() - self.begin)
        with self.lock:
            self.seconds.extend([0] * (second + 1 - len(self.seconds)))
            self.seconds[second] += count

    def is_over(self):
        return time.monotonic() >= self.end


async def http(host, port, path, size, connections, count, seconds):
    counted = Count(seconds)

    async def one(seed):
        chance = random.Random(seed)
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        while not counted.is_over():
            at = chance.randrange(size - count)
            writer.write(b"GET /%s HTTP/1.1\r\nHost: b\r\nRange: bytes=%d-%d\r\n\r\n" % (path.encode(), at, at + count - 1))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 206 " not in head.split(b"\r\n", 1)[0]:
                raise SystemExit(head.decode())
            await reader.readexactly(count)
            counted.add(count)
        writer.close()

    await asyncio.gather(*(one(seed) for seed in range(connections)))
    return counted.seconds


def xrootd(host, port, path, size, threads, vector, count, seconds):
    from XRootD import client
    counted = Count(seconds)
    failed = []

    def one(seed):
        chance = random.Random(seed)
        file = client.File()
        status, _ = file.open(f"root://{host}:{port}/{path}")
        while status.ok and not counted.is_over():
            status, found = file.vector_read([(chance.randrange(size - count), count) for _ in range(vector)])
            if status.ok:
                counted.add(sum(len(chunk.buffer) for chunk in found.chunks))
        if not status.ok:
            failed.append(status.message)

    running = [threading.Thread(target=one, args=(seed,)) for seed in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise SystemExit(failed[0])
    return counted.seconds


def main():
    what, host, port, path, *numbers = sys.argv[1:]
    numbers = [int(number) for number in numbers]
    if what == "http":
        seconds = asyncio.run(http(host, int(port), path, *numbers))
    else:
        seconds = xrootd(host, int(port), path, *numbers)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
