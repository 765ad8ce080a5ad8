"""Makes a system: a root by debootstrap, the kernel of that version of Debian, and an image of both.

Always true: an image appears under its name when it is whole. It is made again when what this file says of it has changed.
"""

import fnmatch
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from . import initrd
from .releases import FOLDER, Release

#: What a guest has beside the smallest Debian. qemu-guest-agent is how commands get in.
PACKAGES = [
    "systemd", "systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "busybox-static", "qemu-guest-agent",
    "openssh-server", "openssh-client", "iputils-ping", "dmsetup", "mdadm", "nftables", "ethtool", "adduser", "ca-certificates",
]
#: Modules for devices that no guest has. They are three quarters of all.
NO_SUCH_DEVICES = [
    "drivers/" + name
    for name in (
        "accel", "android", "bluetooth", "comedi", "firewire", "gpu", "hid", "hwmon", "iio", "infiniband", "input", "isdn", "leds",
        "media", "mfd", "mmc", "mtd", "net/can", "net/ethernet", "net/usb", "net/wireless", "net/wwan", "pcmcia", "platform",
        "power", "scsi", "staging", "thunderbolt", "usb", "video",
    )
] + ["sound", "net/bluetooth", "net/mac80211", "net/wireless"]
#: An image may grow to this while a guest runs; what is not written takes no room.
IMAGE_BYTES = 8 << 30
#: Features that the oldest of these kernels and its tools know.
FEATURES = "^orphan_file,^metadata_csum_seed"

FILES = {
    "etc/hostname": "guest\n",
    "etc/hosts": "127.0.0.1 localhost guest\n::1 localhost\n",
    "etc/fstab": """\
repository /repository 9p trans=virtio,version=9p2000.L,msize=262144,ro,nofail 0 0
share /share 9p trans=virtio,version=9p2000.L,msize=262144,rw,nofail 0 0
""",
    # A shell without a password at the console.
    "etc/systemd/system/serial-getty@ttyS0.service.d/login.conf": """\
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --keep-baud 115200,57600,38400,9600 - $TERM
""",
}
#: What would only cost time.
MASKED = [
    "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "dpkg-db-backup.timer",
    "mdcheck_start.timer", "mdcheck_continue.timer", "mdmonitor-oneshot.timer", "ssh.service", "systemd-update-utmp.service",
]


class ImageError(Exception):
    """A system could not be made. This says nothing about the product."""


def make(release: Release) -> None:
    """Makes the image, unless it is there."""
    stamp = release.folder / "made-from"
    wanted = recipe()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    for command in ("debootstrap", "mkfs.ext4", "qemu-img"):
        if shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise ImageError(f"there is no {command}; ./x vm installs it")
    shutil.rmtree(release.folder, ignore_errors=True)
    release.folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix=f"{release.name}-", dir=FOLDER) as place:
        system = pathlib.Path(place) / "root"
        bootstrap(release, system)
        modules = kernel(release, system, pathlib.Path(place))
        release.initrd.write_bytes(initrd.make(system, modules))
        hello = initrd.make(system, modules, initrd.HELLO_INIT)
        release.initrd.with_name("hello").write_bytes(hello)
        settle(system)
        with open(release.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-O", FEATURES, "-m", "0", "-d", system, release.image)
    stamp.write_text(wanted)


def recipe() -> str:
    sources = [pathlib.Path(__file__), pathlib.Path(initrd.__file__)]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def run(*command, **options) -> str:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    argv = ["nice", "-n", "10", *map(str, command)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=1800, env=environment, **options)
    if done.returncode != 0:
        raise ImageError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def mirror() -> str:
    """Where this machine has its own packages from."""
    sites = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian").split()
    sites = [site for site in sites if "security" not in site]
    if not sites:
        raise ImageError("apt knows no mirror of Debian: run apt-get update")
    return sites[0]


def bootstrap(release: Release, system: pathlib.Path) -> None:
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    options = ["--variant=minbase", f"--keyring={keys}", f"--include={','.join(PACKAGES)}"]
    # What debootstrap mounts within the root goes with the namespace.
    run("unshare", "--mount", "debootstrap", *options, release.name, system, mirror())


def kernel(release: Release, system: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """Puts the kernel of this version of Debian beside the image and its modules into the root. It is unpacked, not
    installed: the package would make a large initrd, with tools of its own."""
    inside = ["unshare", "--mount", "chroot", system]
    depends = run(*inside, "apt-cache", "depends", "--important", "linux-image-amd64")
    package = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line)
    run(*inside, "sh", "-c", f"cd /tmp && apt-get download -q {package}")
    found = next((system / "tmp").glob("linux-image-*.deb"))
    run("sh", "-c", 'dpkg-deb --fsys-tarfile "$1" >"$2"', "sh", found, place / "kernel.tar")
    found.unlink()
    with tarfile.open(place / "kernel.tar") as archive:
        archive.extractall(place / "kernel", members=[member for member in archive if is_wanted(member.name)])
    version = next((place / "kernel/boot").glob("vmlinuz-*"))
    shutil.copy(version, release.vmlinuz)
    name = version.name.removeprefix("vmlinuz-")
    modules = system / "usr/lib/modules" / name
    shutil.copytree(next(path for path in (place / "kernel/lib/modules", place / "kernel/usr/lib/modules") if path.exists()) / name, modules)
    run("chroot", system, "depmod", name)
    return modules


def is_wanted(name: str) -> bool:
    below = name.partition("/kernel/")[2]
    if any(below == place or below.startswith(f"{place}/") for place in NO_SUCH_DEVICES):
        return False
    return fnmatch.fnmatch(name, "./boot/vmlinuz-*") or "/lib/modules/" in name


def settle(system: pathlib.Path) -> None:
    """What makes a root a guest."""
    for name, content in FILES.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(content)
    for folder in ("repository", "share"):
        (system / folder).mkdir()
    run("chroot", system, "passwd", "--delete", "root")
    for unit in MASKED:
        (system / "etc/systemd/system" / unit).unlink(missing_ok=True)
        (system / "etc/systemd/system" / unit).symlink_to("/dev/null")
    # Pages and languages that no test reads, and the lists and packages that came from the mirror.
    for place in ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt/archives", "var/lib/apt/lists", "usr/share/info"):
        for path in (system / place).glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
