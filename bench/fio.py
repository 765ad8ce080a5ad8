"""fio on one file, past the page cache: how fast a disk is at each block size and queue depth."""

import json
import os
import pathlib
import subprocess

#: (block size, queue depth). Larger ones have not been faster.
SHAPES = [("1M", 1), ("1M", 2), ("1M", 8), ("4M", 4)]


def chill(path):
    """Takes a file out of the page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


class Fio:
    """Rates in bits a second. A write includes the sync at its end."""

    def __init__(self, path, size):
        self.path = pathlib.Path(path)
        self.size = size

    def read(self, shape):
        return self._run([self._job("read", self.path, shape)])

    def write(self, shape):
        return self._run([self._job("write", self.path, shape)])

    def both(self, target, shape):
        """Reads this file and writes another one at the same time; returns the rate of the slower one."""
        return self._run([self._job("read", self.path, shape), self._job("write", target, shape)])

    def _job(self, way, path, shape):
        block, depth = shape
        job = [f"--name={way}", f"--rw={way}", f"--filename={path}", f"--bs={block}", f"--iodepth={depth}", "--direct=1",
               f"--size={self.size}"]
        return job + (["--end_fsync=1", "--fallocate=posix"] if way == "write" else [])

    def _run(self, jobs):
        for engine in ("io_uring", "libaio"):
            argv = ["fio", "--output-format=json", f"--ioengine={engine}", *(word for job in jobs for word in job)]
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if done.returncode == 0:
                found = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
                # fio's own rate of a write leaves the sync out, so it is computed from the job's run time.
                return min(8 * self.size / (job["job_runtime"] / 1000) for job in found)
        raise SystemExit(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
