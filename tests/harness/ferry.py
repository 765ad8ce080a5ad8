"""Carries datagrams between clients and a daemon as a ferry does: what comes from either side meanwhile waits for the next crossing.

So round trips can be counted where a clock would only measure how fast the machine is. Written to stdout: a line a crossing, with
how many datagrams went there and back.
"""

import select
import socket
import sys
import time

#: Long enough for every end to have said all it has to say about what the last crossing has brought.
PAUSE = 0.4


def main(port, daemon):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("127.0.0.1", port))
    print("ready", flush=True)
    #: Of each client, a socket by which the daemon knows it.
    beyond = {}
    while True:
        select.select([here, *beyond.values()], [], [])
        time.sleep(PAUSE)
        there, back = taken(here), [(client, data) for client, own in beyond.items() for data, _ in taken(own)]
        for data, client in there:
            if client not in beyond:
                beyond[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                beyond[client].connect(("127.0.0.1", daemon))
            beyond[client].send(data)
        for client, data in back:
            here.sendto(data, client)
        print(len(there), len(back), flush=True)


def taken(sock):
    """All that waits, each with its sender."""
    found = []
    while select.select([sock], [], [], 0)[0]:
        try:
            found.append(sock.recvfrom(1 << 16))
        except ConnectionRefusedError:
            break
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
