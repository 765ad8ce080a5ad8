"""Disks that lose their power, and disks that cannot write: file systems of their own in images.

A cut is the ioctl FS_IOC_SHUTDOWN without a flush of the log: from then on nothing reaches the image, and the
next mount replays the log as far as it was written, as after a real power failure. A real one could also lose
the disk's own volatile cache; this one cannot.

Always true: mounts lie below the pair's directory and are removed with it; loop devices are removed with
their mounts.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess

from .hosts import HarnessError, call, wait_until

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
KINDS = ("ext4", "xfs")
#: mkfs.xfs makes no smaller file systems.
MEGABYTES = 512


def why_not(kind):
    """Why such disks cannot be made on this machine, in words; None if they can."""
    if os.geteuid() != 0:
        return "mounting a disk of one's own needs root"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices here"
    if not shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        return f"mkfs.{kind} is not installed"
    return None


class Unavailable(Exception):
    """Such a disk cannot be made on this machine; the text says why."""


class Disk:
    """A file system of its own, mounted at `path`."""

    serial = 0

    def __init__(self, pair, kind, megabytes=MEGABYTES, image_in=None, options="noatime", features=()):
        reason = why_not(kind)
        if reason:
            raise Unavailable(reason)
        Disk.serial += 1
        self.kind = kind
        self.options = options
        self.image = pathlib.Path(image_in or pair.directory) / f"disk{Disk.serial}.{kind}"
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        make = {"ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
                "xfs": ("mkfs.xfs", "-q", "-f")}
        call(*make[kind], *features, str(self.image))
        self.path = pair.folder(kind)
        self._mount()
        pair.on_close(self.close)

    def _mount(self):
        done = subprocess.run(["mount", "-t", self.kind, "-o", f"loop,{self.options}", str(self.image), str(self.path)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{self.kind} in a loop device cannot be mounted here: {done.stderr.strip()}")
        device = os.stat(self.path).st_dev
        ratio = pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/max_ratio")
        # With a ratio of 0 every writer waits for the disk, and nothing would be left in memory that a cut
        # could lose.
        if ratio.exists() and ratio.read_text().strip() == "0":
            ratio.write_text("100")

    def _unmount(self):
        # Another process may have the mount open for a moment.
        wait_until(lambda: subprocess.run(["umount", str(self.path)], stderr=subprocess.DEVNULL).returncode == 0
                   or not os.path.ismount(self.path), seconds=30, what=f"{self.path} is unmounted")

    def cut(self):
        """The power fails: from now on nothing reaches the disk."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        except OSError as error:
            raise Unavailable(f"{self.kind} cannot be shut down here: {error.strerror}") from None
        finally:
            os.close(fd)

    def restart(self):
        """The machine starts again: what was in memory is lost, and the log is replayed."""
        self._unmount()
        self._mount()

    def sync(self):
        """Brings everything that was written so far to the disk, unless the disk refuses it."""
        subprocess.run(["sync", "-f", str(self.path)], stderr=subprocess.DEVNULL)

    def sync_something_else(self):
        """Syncs a file of another program, as may happen at any time. This writes the log, but no data of
        other files."""
        path = self.path / "of-somebody-else"
        with open(path, "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        os.unlink(path)

    def close(self):
        with contextlib.suppress(HarnessError, OSError):
            self._unmount()
        with contextlib.suppress(OSError):
            self.image.unlink()


class ThinDisk(Disk):
    """A disk that promises more room than it has. While its store is full, writes to new places fail on their
    way from the page cache to the disk (EIO), long after the writing program was told that they had
    succeeded."""

    def __init__(self, pair, megabytes=MEGABYTES):
        self.store = pair.mount_memory(pair.folder("thin"), megabytes)
        # Without a journal, the file system itself goes on after such an error.
        super().__init__(pair, "ext4", megabytes, self.store, "noatime,errors=continue", ("-O", "^has_journal"))
        self.ballast = self.store / "ballast"

    def fill(self):
        """Fills the store to its last page: a loop device reports success for a write of which only a part
        fits."""
        with open(self.ballast, "wb") as file:
            for _ in range(100):
                free = os.statvfs(self.store)
                # A writer may take some of the room meanwhile.
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
                    return
        raise HarnessError("the thin disk does not get full")

    def make_room(self):
        self.ballast.unlink()

    def forget_cached(self):
        """Empties the page cache: reads come from the disk from now on."""
        self._unmount()
        self._mount()


def after_a_reboot(pair, argv):
    """The command line that runs `argv` with a new boot id."""
    boot_id = pair.directory / f"boot_id-{os.urandom(4).hex()}"
    boot_id.write_text(f"{os.urandom(4).hex()}-89ab-cdef-0123-456789abcdef\n")
    shell = f'mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", shell, "sh", *argv]


def files_of(folder):
    """The regular files below a folder by their relative paths, without partial files and journals."""
    folder = pathlib.Path(folder)
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and not path.name.endswith((".fhpart", ".fhjournal"))}


def taken_for_complete(source, target):
    """Files of `target` that have the size and time of their source, but another content."""
    wrong = []
    there = files_of(target)
    for name, path in files_of(source).items():
        found = there.get(name)
        if found is None:
            continue
        ours, theirs = found.stat(), path.stat()
        if (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns) \
                and found.read_bytes() != path.read_bytes():
            wrong.append(str(name))
    return wrong
