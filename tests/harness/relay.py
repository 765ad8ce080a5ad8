"""Runs as the program of a far end: joins its standard input and output to a socket, at which a test plays
the far end."""

import os
import select
import socket
import sys


def main(path):
    test = socket.socket(socket.AF_UNIX)
    test.connect(path)
    open_ends = [0, test]
    while test in open_ends:
        for end in select.select(open_ends, [], [])[0]:
            if end is test:
                data = test.recv(1 << 16)
                if not data:
                    open_ends.remove(test)
                while data:
                    data = data[os.write(1, data):]
            else:
                data = os.read(0, 1 << 16)
                if data:
                    test.sendall(data)
                else:
                    open_ends.remove(0)
                    test.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError:
        pass
