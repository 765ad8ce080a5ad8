"""What a program that watches a directory is told by inotify."""

import ctypes
import os
import struct

EVENTS = {"attrib": 0x4, "close_write": 0x8, "moved_to": 0x80, "create": 0x100, "delete": 0x200}
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watches `folder` from now on."""

    def __init__(self, folder, events=("close_write", "moved_to", "create")):
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = 0
        for event in events:
            mask |= EVENTS[event]
        if self._fd < 0 or _libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def heard(self):
        """The events since the last call: pairs of an event and a name."""
        found = []
        while True:
            try:
                data = os.read(self._fd, 1 << 20)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                _, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                name = data[at:at + length].rstrip(b"\0").decode()
                at += length
                found += [(event, name) for event, bit in EVENTS.items() if mask & bit]

    def close(self):
        os.close(self._fd)
