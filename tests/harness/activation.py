"""The part of a service manager in socket activation: binds sockets, then executes the program that gets
them.

`activation.py [--user UID] NAME=KIND:ADDRESS... -- PROGRAM...`; KIND is udp, tcp, unix (ADDRESS is a path) or
file (ADDRESS is a file, which is not a socket).
"""

import os
import socket
import sys

FIRST = 3


def opened(kind, address):
    if kind == "file":
        return os.open(address, os.O_RDONLY)
    if kind == "unix":
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(address)
    else:
        host, _, port = address.rpartition(":")
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        # systemd sets this on all its sockets, too.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host.strip("[]"), int(port)))
    if kind != "udp":
        made.listen()
    return made.detach()


def main(words):
    user = None
    if words[0] == "--user":
        user, words = int(words[1]), words[2:]
    at = words.index("--")
    names, made = [], []
    for word in words[:at]:
        name, _, rest = word.partition("=")
        kind, _, address = rest.partition(":")
        names.append(name)
        made.append(opened(kind, address))
        if kind == "unix" and user is not None:
            os.chown(address, user, user)
    # First to high numbers, so that none is in the way of the numbers that the descriptors get at the end.
    made = [os.dup2(one, 100 + number) for number, one in enumerate(made)]
    for number, one in enumerate(made):
        os.dup2(one, FIRST + number)
        os.close(one)
    os.environ |= {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names), "LISTEN_PID": str(os.getpid())}
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    os.execvp(words[at + 1], words[at + 1:])


if __name__ == "__main__":
    main(sys.argv[1:])
