"""A guest that runs: starts it, runs commands in it, cuts its power, starts it again, ends it.

Always true: what a guest had not brought to its disk when the power is cut is lost, as with a real machine, since qemu itself
is killed. The image stays as it is: what a guest writes goes to a layer over it, which lives as long as the guest's object.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from . import accelerator, image
from .agent import Agent, AgentError, Done
from .releases import FOLDER, RELEASES, ROOT, Release

MEMORY_MIB = 1024
PROCESSORS = 2
#: An emulated guest boots within half a minute on a machine that does nothing else.
BOOT_SECONDS = 600
COMMAND_SECONDS = 600


class GuestError(Exception):
    """The guest did not start. This says nothing about the product."""


def command_line(release: Release, overlay: pathlib.Path, how: list[str], share: pathlib.Path, agent: str, console: str) -> list[str]:
    """How qemu is started: a kernel without a boot loader, one disk, the repository read-only, and a port for commands."""
    # A kernel takes the timer of an emulated processor on a busy machine for a broken one.
    words = "root=/dev/vda console=ttyS0 panic=-1 quiet mitigations=off no_timer_check"
    argv = ["qemu-system-x86_64", *how, "-M", "q35", "-m", str(MEMORY_MIB), "-smp", str(PROCESSORS), "-nodefaults", "-no-reboot"]
    argv += ["-display", "none", "-serial", console, "-kernel", str(release.vmlinuz), "-initrd", str(release.initrd), "-append", words]
    # The cache of qcow2 lies in qemu: what the guest has not flushed goes with it.
    argv += ["-drive", f"file={overlay},format=qcow2,if=virtio,cache=writeback", "-device", "virtio-rng-pci"]
    argv += ["-virtfs", f"local,path={ROOT},mount_tag=repository,security_model=none,readonly=on,multidevs=remap"]
    argv += ["-virtfs", f"local,path={share},mount_tag=share,security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-serial-pci", "-chardev", f"socket,path={agent},server=on,wait=off,id=agent"]
    return [*argv, "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]


class Guest:
    """A guest from the image of a version of Debian ("11", "12", "13"). `share` is a folder that it sees as /share."""

    def __init__(self, version: str, share: pathlib.Path | None = None) -> None:
        self.release = RELEASES[version]
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.lock = open(FOLDER / "lock", "w")
        # One guest at a time takes as much memory as a small machine has to spare.
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.process: subprocess.Popen | None = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="farhaul-vm-"))
        try:
            image.make(self.release)
            self.how = accelerator.options(self.release)
            self.share = share or self.folder / "share"
            self.share.mkdir(exist_ok=True)
            self.overlay = pathlib.Path(tempfile.mkdtemp(prefix="running-", dir=FOLDER)) / "disk.qcow2"
            backing = ["-b", str(self.release.image), "-F", "raw"]
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(self.overlay)], check=True)
            self.agent = Agent(str(self.folder / "agent"))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Guest":
        self.boot()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def is_emulated(self) -> bool:
        return "kvm" not in self.how

    @property
    def console(self) -> str:
        """What the guest has written to its console since it booted last."""
        with contextlib.suppress(OSError):
            return (self.folder / "console").read_text(errors="replace")
        return ""

    def boot(self) -> None:
        """Starts the guest and waits until systemd has started all that it starts."""
        console = f"file:{self.folder / 'console'}"
        argv = command_line(self.release, self.overlay, self.how, self.share, self.agent.path, console)
        within = ["nice", "-n", "10", "setpriv", "--pdeathsig", "KILL"]
        with open(self.folder / "qemu.log", "w") as log:
            self.process = subprocess.Popen([*within, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.connect()
        except (AgentError, OSError) as why:
            said = (self.folder / "qemu.log").read_text()
            self.cut_power()
            raise GuestError(f"Debian {self.release.version} did not start: {why}\n{said}{self.console[-3000:]}") from None
        self.run("systemctl is-system-running --wait >/dev/null || true", seconds=BOOT_SECONDS)

    def connect(self) -> None:
        assert self.process, "the guest was started"
        for _ in range(100):
            if os.path.exists(self.agent.path) or self.process.poll() is not None:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        self.agent.connect(BOOT_SECONDS)

    def run(self, script: str, seconds: float = COMMAND_SECONDS) -> Done:
        """Runs a script of sh as root, to its end."""
        return self.agent.wait(self.agent.start(script), seconds)

    def shell(self, script: str, seconds: float = COMMAND_SECONDS) -> str:
        """Each of its commands has to succeed. Returns what they have written."""
        done = self.run(f"set -e\n{script}", seconds)
        if done.code != 0:
            raise AssertionError(f"in Debian {self.release.version}: {script}\n{done}")
        return done.stdout

    def cut_power(self) -> None:
        """As if the plug was pulled: qemu is killed. `boot` starts the guest again, from what its disk has."""
        self.agent.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / "agent")

    def reboot(self) -> None:
        """Shuts the guest down in order and starts it again."""
        self.agent.send({"execute": "guest-shutdown", "arguments": {"mode": "powerdown"}})
        assert self.process, "the guest was started"
        self.process.wait(BOOT_SECONDS)
        self.cut_power()
        self.boot()

    def close(self) -> None:
        if hasattr(self, "agent"):
            self.cut_power()
        if hasattr(self, "overlay"):
            shutil.rmtree(self.overlay.parent, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def at_the_console(version: str, share: pathlib.Path | None = None) -> int:
    """A guest whose console is this terminal."""
    guest = Guest(version, share)
    try:
        argv = command_line(guest.release, guest.overlay, guest.how, guest.share, guest.agent.path, "mon:stdio")
        print("ctrl-a x ends the guest, ctrl-a c is qemu's own prompt", file=sys.stderr)
        return subprocess.run(["nice", "-n", "10", *argv]).returncode
    finally:
        guest.close()
