"""Watches processes while they run: resident memory over time from /proc."""

import pathlib
import threading
import time


def resident_bytes(pid):
    """VmRSS of a process, 0 if it has ended."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class MemoryWatch:
    """Samples the memory of processes until it is closed. `pids` is a function, so that processes that start
    later count, too."""

    def __init__(self, pids, every=0.05):
        self._pids = pids if callable(pids) else lambda: pids
        self._every = every
        self._stop = threading.Event()
        self.samples = []
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self):
        begin = time.monotonic()
        while not self._stop.is_set():
            self.samples.append((time.monotonic() - begin, {pid: resident_bytes(pid) for pid in self._pids()}))
            self._stop.wait(self._every)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    @property
    def peak(self):
        """The largest memory of any one process that was seen."""
        return max((size for _, sizes in self.samples for size in sizes.values()), default=0)

    def series(self, points=60):
        """(seconds, largest, sum), thinned out to at most `points`."""
        step = max(1, len(self.samples) // points)
        return [(round(at, 2), max(sizes.values(), default=0), sum(sizes.values()))
                for at, sizes in self.samples[::step]]
