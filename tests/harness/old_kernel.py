"""Runs a program as if the kernel were older, or as a container runs it: a seccomp filter refuses system calls.

`old_kernel.py KIND PROGRAM...` installs the filter of that kind and executes the program; what it starts has the
filter, too. `wrapper` makes a script that does this, for `$FARHAUL_BIN`: `pytest tests --kernel KIND` uses it.

Kinds:
 - `4.18`: a call that came after Linux 4.18 gives ENOSYS, and UDP sockets know neither UDP_SEGMENT nor UDP_GRO.
 - `4.18-eperm`: the same calls give EPERM, as the filters of older container programs have it, which refuse what
   they do not know. `clone3` gives ENOSYS, as glibc cannot start a thread otherwise; those filters had to learn it.
 - `container`: what Docker's default filter refuses gives EPERM, and later calls give ENOSYS.

Numbers of system calls are those of x86-64. What an old kernel refuses by flags or by lengths of arguments is not
imitated, but for `waitid` with a descriptor of a process.
"""

import ctypes
import errno
import os
import pathlib
import platform
import shlex
import struct
import sys

KINDS = ("4.18", "4.18-eperm", "container")

ARCHITECTURE = 0xC000003E
#: The first number that x86-64 gave to a call after Linux 4.18, whose last one is `rseq`.
FIRST_LATER = 335
#: `cachestat`, the last call of Linux 6.5: Docker's default filter of that time knows no later one.
LAST_KNOWN_TO_CONTAINER = 451
SETSOCKOPT, WAITID, CLONE, CLONE3 = 54, 247, 56, 435
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
P_PIDFD = 3
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
CLONE_NEW = 0x7E020000
#: What Docker's default filter refuses to a container without further capabilities.
REFUSED_TO_CONTAINER = {
    "acct": 163, "add_key": 248, "bpf": 321, "clock_settime": 227, "delete_module": 176, "fanotify_init": 300,
    "finit_module": 313, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "get_mempolicy": 239,
    "init_module": 175, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "ioperm": 173,
    "iopl": 172, "kcmp": 312, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "lookup_dcookie": 212,
    "mbind": 237, "mount": 165, "mount_setattr": 442, "move_mount": 429, "move_pages": 279, "open_by_handle_at": 304,
    "open_tree": 428, "perf_event_open": 298, "pivot_root": 155, "process_vm_readv": 310, "process_vm_writev": 311,
    "quotactl": 179, "reboot": 169, "request_key": 249, "set_mempolicy": 238, "setdomainname": 171, "setns": 308,
    "sethostname": 170, "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103, "umount2": 166,
    "unshare": 272, "userfaultfd": 323, "vhangup": 153,
}

LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT, ARGUMENT_LEN = 0, 4, 16, 8

NO_NEW_PRIVILEGES, SET_SECCOMP, MODE_FILTER = 38, 22, 2


def argument(index, then, matches, value):
    """Instructions that go on behind `then` if the lower half of an argument of the call matches."""
    return [(LOAD, 0, 0, FIRST_ARGUMENT_AT + ARGUMENT_LEN * index), (matches, 0, len(then), value), *then]


def call(number, then):
    """Instructions for one call. The number has to be loaded, and `then` either returns or is the last."""
    return [(IF_EQUAL, 0, len(then) + 1, number), *then, (LOAD, 0, 0, NUMBER_AT)]


def fail(number):
    return [(RETURN, 0, 0, FAIL | number)]


def program(kind):
    """The filter's instructions: (code, jump if true, jump if false, value)."""
    rules = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (IF_EQUAL, 1, 0, ARCHITECTURE),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, NUMBER_AT),
        *call(CLONE3, fail(errno.ENOSYS)),
    ]
    if kind == "container":
        for number in sorted(REFUSED_TO_CONTAINER.values()):
            rules += call(number, fail(errno.EPERM))
        rules += call(CLONE, argument(0, fail(errno.EPERM), IF_ANY_BIT, CLONE_NEW))
        rules += [(IF_AT_LEAST, 0, 1, LAST_KNOWN_TO_CONTAINER + 1), *fail(errno.ENOSYS)]
    else:
        later = errno.EPERM if kind == "4.18-eperm" else errno.ENOSYS
        rules += [(IF_AT_LEAST, 0, 1, FIRST_LATER), *fail(later)]
        for option in (UDP_SEGMENT, UDP_GRO):
            refuse = argument(2, fail(errno.ENOPROTOOPT), IF_EQUAL, option)
            rules += call(SETSOCKOPT, argument(1, refuse, IF_EQUAL, SOL_UDP))
        rules += call(WAITID, argument(0, fail(errno.EINVAL), IF_EQUAL, P_PIDFD))
    return [*rules, (RETURN, 0, 0, ALLOW)]


def install(kind):
    """Puts the filter on this process, for good."""
    if platform.machine() != "x86_64":
        raise SystemExit("old_kernel.py knows the system calls of x86-64 only")
    rules = b"".join(struct.pack("=HBBI", *rule) for rule in program(kind))
    held = ctypes.create_string_buffer(rules, len(rules))
    head = struct.pack("HxxxxxxP", len(rules) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, MODE_FILTER, head, 0, 0)):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "prctl")


def prefix(kind):
    """The words before a command line that put the filter on its program."""
    return [sys.executable, "-S", os.path.abspath(__file__), kind]


def wrapper(folder, kind, binary):
    """A program that runs `binary` below the filter."""
    script = pathlib.Path(folder) / "farhaul"
    script.write_text(f'#!/bin/sh\nexec {shlex.join([*prefix(kind), os.fspath(binary)])} "$@"\n')
    script.chmod(0o755)
    return script


if __name__ == "__main__":
    install(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
