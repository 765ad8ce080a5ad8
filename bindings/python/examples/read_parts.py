"""Reads parts of a large file where it is: read_parts.py fh://HOST/FILE"""

import sys

import numpy

import farhaul

with farhaul.open(sys.argv[1]) as file:
    print(f"{file.size} bytes, begins with {file.read_at(0, 8)!r}")
    # Two hundred pieces in one round trip, each into a row of its own.
    step = max(1, file.size // 200)
    rows = numpy.zeros((200, 64), "u1")
    counts = file.read_ranges([(number * step, 64) for number in range(200)], into=list(rows))
    print(f"{sum(int(count) for count in counts)} bytes read, their sum is {int(rows.sum(dtype='u8'))}")
