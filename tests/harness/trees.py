"""Data to move, and the comparison of what arrived, by tools and calls that are not the product's.

Always true: made data depends on the seed alone; `differences` is empty only if names, types, contents, modes,
modification times to the nanosecond, link targets and hard link groups are all equal.
"""

import hashlib
import os
import pathlib
import random
import stat
import subprocess

EPOCH_NS = 1_600_000_000_000_000_000


def make_file(path, size, seed=1):
    """A file of `size` bytes that do not compress, the same for the same seed."""
    key = hashlib.sha256(f"{seed}".encode()).hexdigest()[:32]
    with open(path, "wb") as out:
        if size:
            cipher = subprocess.Popen(
                ["openssl", "enc", "-aes-128-ctr", "-nosalt", "-K", key, "-iv", "0" * 32, "-in", "/dev/zero"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            _copy_exactly(cipher.stdout, out, size)
            cipher.stdout.close()
            cipher.kill()
            cipher.wait()
    return pathlib.Path(path)


def _copy_exactly(source, out, size):
    while size:
        data = source.read(min(size, 1 << 20))
        if not data:
            raise RuntimeError("openssl gave too little data")
        out.write(data)
        size -= len(data)


def sha256(path):
    """The digest as the system's sha256sum tells it."""
    out = subprocess.run(["sha256sum", "--zero", "--", os.fspath(path)], check=True, stdout=subprocess.PIPE).stdout
    return out.split(b" ", 1)[0].decode()


ODD_NAMES = [b"with space", b"new\nline", b"-dash", b"quote'\"`$HOME", b"star*?[a]", b"back\\slash", b"\xff\xfe not utf-8",
             "zażółć 漢字 🚚".encode(), b"esc\x1b[31m", b"tab\t", b".hidden", b"colon:name", b"~tilde", b"%s%n",
             b"n" * 255, b"trailing space "]
SIZES = [0, 1, 511, 4096, 4097, 65536, 100_000, 1 << 20, (1 << 20) + 1, 3_000_000]


def make_tree(root, seed=1, files=60):
    """Makes a tree with every kind of entry that an ordinary user can make. Returns its path."""
    chance = random.Random(seed)
    root = os.fsencode(root)
    os.makedirs(root, exist_ok=True)
    folders = [root]
    for number in range(max(3, files // 8)):
        folder = os.path.join(chance.choice(folders), b"dir%d" % number)
        os.mkdir(folder)
        folders.append(folder)
    names = ODD_NAMES + [b"file%d" % number for number in range(max(0, files - len(ODD_NAMES)))]
    made = []
    for number, name in enumerate(names):
        path = os.path.join(chance.choice(folders), name)
        with open(path, "wb") as out:
            out.write(chance.randbytes(SIZES[number % len(SIZES)] if number < 2 * len(SIZES) else chance.randrange(20_000)))
        os.chmod(path, chance.choice([0o644, 0o600, 0o755, 0o400, 0o444, 0o640, 0o777]))
        made.append(path)
    os.mkdir(os.path.join(root, b"empty"))
    first = made[0]
    for number in range(3):
        os.link(first, os.path.join(chance.choice(folders), b"hard%d" % number))
    for name, target in ((b"to-file", b"empty/../" + os.path.basename(first)), (b"dangling", b"no/such/thing"),
                         (b"absolute", b"/etc/passwd"), (b"to-dir", b"empty"), (b"up", b"../../../x"), (b"odd", b"a\nb\xff")):
        os.symlink(target, os.path.join(root, name))
    with open(os.path.join(root, b"sparse"), "wb") as out:
        out.seek(5 << 20)
        out.write(chance.randbytes(10_000))
        out.truncate(40 << 20)
    _set_times(root, chance)
    return pathlib.Path(os.fsdecode(root))


def _set_times(root, chance):
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names + folders:
            path = os.path.join(folder, name)
            when = EPOCH_NS + chance.randrange(10**17)
            os.utime(path, ns=(when, when), follow_symlinks=False)
        if chance.random() < 0.3 and folder != root:
            os.chmod(folder, chance.choice([0o700, 0o750, 0o755]))
    when = EPOCH_NS + chance.randrange(10**17)
    os.utime(root, ns=(when, when))


def listing(root):
    """Relative path -> lstat, for the root itself (as b'') and everything below it."""
    root = os.fsencode(root)
    found = {b"": os.lstat(root)}
    stack = [b""]
    while stack:
        folder = stack.pop()
        with os.scandir(os.path.join(root, folder) if folder else root) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                found[path] = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    stack.append(path)
    return found


def differences(source, target, times=True, root_too=True, hard_links=True, limit=20):
    """The differences between two trees, in words; empty if there are none. Contents are compared by
    diff(1)."""
    left, right = listing(source), listing(target)
    found = [f"missing: {path!r}" for path in sorted(left.keys() - right.keys())]
    found += [f"too much: {path!r}" for path in sorted(right.keys() - left.keys())]
    for path in sorted(left.keys() & right.keys()):
        if path or root_too:
            found += [f"{path!r}: {text}" for text in _entry_differences(left[path], right[path], times)]
            if stat.S_ISLNK(left[path].st_mode) and stat.S_ISLNK(right[path].st_mode):
                ends = [os.readlink(os.path.join(os.fsencode(root), path)) for root in (source, target)]
                if ends[0] != ends[1]:
                    found.append(f"{path!r}: link to {ends[1]!r} instead of {ends[0]!r}")
    if hard_links:
        found += _hard_link_differences(left, right)
    if not found:
        found += content_differences(source, target)
    return found[:limit]


def content_differences(source, target):
    done = subprocess.run(["diff", "-r", "-q", "--no-dereference", "--", os.fspath(source), os.fspath(target)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"})
    if done.returncode == 0:
        return []
    return [f"diff: {line!r}" for line in done.stdout.splitlines()[:20]] or ["diff failed"]


def _entry_differences(left, right, times):
    found = []
    if stat.S_IFMT(left.st_mode) != stat.S_IFMT(right.st_mode):
        return ["another type"]
    if not stat.S_ISLNK(left.st_mode):
        wanted = stat.S_IMODE(left.st_mode) & 0o1777
        if stat.S_IMODE(right.st_mode) & 0o1777 != wanted:
            found.append(f"mode {stat.S_IMODE(right.st_mode):o} instead of {stat.S_IMODE(left.st_mode):o}")
    if times and left.st_mtime_ns != right.st_mtime_ns:
        found.append(f"time {right.st_mtime_ns} instead of {left.st_mtime_ns}")
    if stat.S_ISREG(left.st_mode) and left.st_size != right.st_size:
        found.append(f"size {right.st_size} instead of {left.st_size}")
    return found


def _hard_link_differences(left, right):
    def groups(entries):
        by_inode = {}
        for path, entry in entries.items():
            if stat.S_ISREG(entry.st_mode) and entry.st_nlink > 1:
                by_inode.setdefault((entry.st_dev, entry.st_ino), set()).add(path)
        return {frozenset(paths) for paths in by_inode.values() if len(paths) > 1}
    lost = groups(left) - groups(right)
    return [f"hard links not kept: {sorted(paths)!r}" for paths in lost]


def leftovers(root):
    """Partial files, journals and temporary files, which a finished transfer must not leave."""
    suffixes = (".fhpart", ".fhjournal", ".fhtmp", ".fhlink")
    return [path for path in pathlib.Path(root).rglob(".*") if path.suffix in suffixes]


def data_ranges(path):
    """The ranges of a file that hold data, by SEEK_DATA."""
    ranges = []
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            ranges.append((begin, at))
    return ranges


def fill(root, names):
    """Makes files of these names, whose content is their name; a name with a slash at its end is a
    directory."""
    for name in names.split():
        path = pathlib.Path(root) / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {name}")
            os.utime(path, (1_000_000_000, 1_000_000_000))


def names(root):
    """The names of a tree, as `fill` takes them to make the same tree."""
    return " ".join(sorted(os.fsdecode(path) for path in listing(root) if path))
