"""A read-only file system of one directory, by the kernel's FUSE protocol, whose files report other sizes
than they have, or all the same inode number and two names.

Always true: reads use direct I/O, so the kernel does not cut a file's content at the reported size.
"""

import contextlib
import ctypes
import os
import struct
import threading

import pytest

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = 25, 26, 27, 28, 29, 42
ENOENT, ENOSYS = 2, 38
DIRECT_IO = 1
MNT_DETACH = 2
MTIME = 1_500_000_000

libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def mounted(target, files, inode=None):
    """While it lasts, `target` has `files`: a dictionary of name -> (the size that is reported, the content
    that is read). With `inode`, all of them report this inode number, and two names."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"harness", os.fsencode(target), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
    server = threading.Thread(target=serve, args=(device, files, inode), daemon=True)
    server.start()
    try:
        yield target
    finally:
        libc.umount2(os.fsencode(target), MNT_DETACH)
        server.join(10)
        os.close(device)


def serve(device, files, inode):
    names = sorted(files)
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        if code in (FORGET, BATCH_FORGET):
            continue
        body = answer(code, node, request[40:], names, files, inode)
        error, body = (-body, b"") if isinstance(body, int) else (0, body)
        with contextlib.suppress(OSError):
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def answer(code, node, body, names, files, inode):
    """The body of a reply, or the number of an error. The directory is node 1, its files are the nodes from 2
    on."""
    def attributes(node):
        size, mode = (0, 0o40755) if node == 1 else (files[names[node - 2]][0], 0o100644)
        number, links = (node, 1) if node == 1 or inode is None else (inode, 2)
        return struct.pack("<6Q10I", number, size, 0, MTIME, MTIME, MTIME, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)

    if code == INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, 0)
    if code == LOOKUP:
        name = os.fsdecode(body.rstrip(b"\0"))
        if name not in files:
            return ENOENT
        found = names.index(name) + 2
        return struct.pack("<4Q2I", found, 0, 1, 1, 0, 0) + attributes(found)
    if code == GETATTR:
        return struct.pack("<QII", 1, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, DIRECT_IO if code == OPEN else 0, 0)
    if code == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return files[names[node - 2]][1][offset:offset + size]
    if code == READDIR:
        _, offset, size = struct.unpack_from("<QQI", body)
        out = b""
        for number, name in list(enumerate(names, 1))[offset:]:
            name = os.fsencode(name)
            entry = struct.pack("<QQII", number + 1, number, len(name), 8) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out
    if code == STATFS:
        return struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
    return b"" if code in (RELEASE, RELEASEDIR, FLUSH) else ENOSYS
