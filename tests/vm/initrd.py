"""The first file system of a guest: a shell, the modules of its disk and its file system, and a script that goes on from there.

Always true: modules are loaded in the order in which they need each other, and they are not compressed here, as the small
shell reads none that are.
"""

import gzip
import lzma
import os
import pathlib
import stat

#: What the root needs before it is there, and what Linux 5.10 does not load by itself when it mounts. A kernel may have some of
#: these built in.
MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "9pnet_virtio"]
TRAILER = "TRAILER!!!"

INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
for module in $(/bin/busybox cat /modules/order); do
    /bin/busybox insmod /modules/$module
done
tries=0
while [ ! -b /dev/vda ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "there is no /dev/vda"; /bin/busybox poweroff -f; }
    /bin/busybox sleep 0.1
done
/bin/busybox mount -t ext4 -o rw /dev/vda /root || /bin/busybox poweroff -f
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /sbin/init
"""

#: Says that a kernel runs, and ends. For `accelerator`.
HELLO = "guest kernel runs"
HELLO_INIT = f"""\
#!/bin/busybox sh
echo "{HELLO}"
/bin/busybox poweroff -f
"""


def make(system: pathlib.Path, modules: pathlib.Path, init: str = INIT) -> bytes:
    """The archive for the kernel whose `modules` (lib/modules/VERSION) are in the root `system`."""
    order = load_order(modules / "modules.dep", MODULES)
    files: dict[str, bytes] = {"init": init.encode(), "bin/busybox": (system / "bin/busybox").read_bytes()}
    names = []
    for place in order:
        name = module_name(place)
        names.append(f"{name}.ko")
        files[f"modules/{name}.ko"] = plain(modules / place)
    files["modules/order"] = ("\n".join(names) + "\n").encode()
    return gzip.compress(archive(["bin", "dev", "proc", "root", "modules"], files), 1, mtime=0)


def load_order(dependencies: pathlib.Path, wanted: list[str]) -> list[str]:
    """The files of these modules and of all that they need, each after what it needs. A name that is not listed is built into
    the kernel."""
    needs = {}
    for line in dependencies.read_text().splitlines():
        place, _, needed = line.partition(":")
        needs[place] = needed.split()
    places = {module_name(place): place for place in needs}
    order: list[str] = []

    def add(place: str) -> None:
        # modules.dep lists what a module needs with the last one first.
        for needed in reversed(needs[place]):
            add(needed)
        if place not in order:
            order.append(place)

    for name in wanted:
        if name in places:
            add(places[name])
    return order


def module_name(place: str) -> str:
    return pathlib.PurePosixPath(place).name.partition(".ko")[0].replace("-", "_")


def plain(module: pathlib.Path) -> bytes:
    content = module.read_bytes()
    return lzma.decompress(content) if module.suffix == ".xz" else content


def archive(folders: list[str], files: dict[str, bytes]) -> bytes:
    """An archive in the form "newc" of cpio. Each file may be run."""
    parts = [entry(folder, stat.S_IFDIR | 0o755) for folder in folders]
    parts += [entry(name, stat.S_IFREG | 0o755, content) for name, content in files.items()]
    return b"".join([*parts, entry(TRAILER, 0)])


def entry(name: str, mode: int, content: bytes = b"") -> bytes:
    spelt = os.fsencode(name) + b"\0"
    # inode, mode, uid, gid, links, mtime, size, four numbers of devices, length of the name, checksum
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(spelt), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + spelt
    return padded(head) + padded(content)


def padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
