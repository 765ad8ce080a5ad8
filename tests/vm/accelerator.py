"""Whether this machine runs guests itself, by /dev/kvm, or qemu emulates their processor.

/dev/kvm may be there and not run a kernel: some virtual machines have one that starts a guest's firmware and no more. So a
kernel is started once, and what came of it is kept.
"""

import os
import subprocess

from . import initrd
from .releases import FOLDER, Release

#: A kernel says hello after two seconds, with an emulated processor after eight.
HELLO_SECONDS = 30
EMULATED = ["-accel", "tcg,thread=multi", "-cpu", "max"]
#: Some machines refuse to set that register of a guest.
KVM = ["-accel", "kvm", "-cpu", "host,-arch-capabilities"]


def options(release: Release) -> list[str]:
    """The options of qemu that say who runs the guest's instructions."""
    kept = FOLDER / "kvm-runs"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATED
    if not kept.exists():
        kept.write_text("yes" if runs_a_kernel(release, KVM) else "no")
    return KVM if kept.read_text() == "yes" else EMULATED


def runs_a_kernel(release: Release, how: list[str]) -> bool:
    hello = release.folder / "hello"
    command = ["qemu-system-x86_64", *how, "-M", "q35", "-m", "256", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]
    command += ["-kernel", str(release.vmlinuz), "-initrd", str(hello), "-append", "console=ttyS0 panic=-1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELLO_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return initrd.HELLO.encode() in done.stdout
