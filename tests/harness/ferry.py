"""Carries datagrams between clients and a daemon as a ferry does: datagrams that come during a crossing wait
for the next.

So a test can count round trips; a clock would only measure how fast the machine is. The ferry writes a line
to stdout for each crossing: how many datagrams went to the daemon, and how many came back.
"""

import select
import socket
import sys
import time

#: How long a crossing waits: long enough for both ends to send all their answers to the last crossing.
PAUSE = 0.4


def main(port, daemon):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("127.0.0.1", port))
    print("ready", flush=True)
    #: By client, the socket from which the daemon gets its datagrams.
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
    """All datagrams that wait at a socket, each with its sender."""
    found = []
    while select.select([sock], [], [], 0)[0]:
        try:
            found.append(sock.recvfrom(1 << 16))
        except ConnectionRefusedError:
            break
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
