"""docs/reference/wire.md suffices for a second implementation of `read`, too: harness/reading.py looks at a
daemon's files."""

import hashlib
import os
import random
import socket
import stat

import pytest

from harness import seal
from harness.product import EXIT_OK
from harness.reading import RANGES_MAX, Reader, Refused, reader, reader_over_ssh, wish
from harness.play import daemon_session

# Numbers of docs/reference/errors.md.
NOT_FOUND, PERMISSION_DENIED, NOT_A_DIRECTORY, BAD_PATH, SOURCE_CHANGED = 1022, 1023, 1025, 1026, 1033
SIZE = 150_000


@pytest.fixture
def root(net):
    """A folder of this test in the daemon's root."""
    path = net.daemon.root / f"read{len(list(net.daemon.root.iterdir()))}"
    path.mkdir()
    return path


def named(path):
    """A path as clients of the daemon name it."""
    return f"{path.parent.name}/{path.name}"


def written(path, size=SIZE):
    """Writes a file whose bytes tell their offset; returns them."""
    data = b"".join(n.to_bytes(4, "big") for n in range((size + 3) // 4))[:size]
    path.write_bytes(data)
    return data


def refused(call, *arguments):
    """The number of the error with which the server refuses a call."""
    with pytest.raises(Refused) as failed:
        call(*arguments)
    return failed.value.code


# ---- contents --------------------------------------------------------------------------------------------------------

RANGES = {
    "one byte": [(0, 1)],
    "nothing": [(0, 0), (SIZE, 0), (2**63, 0), (2**64 - 1, 0)],
    "the end": [(SIZE - 5, 100), (SIZE - 1, 1)],
    "beyond the end": [(SIZE, 1), (2**63 - 3, 2), (2**63 - 3, 9), (SIZE + 5, 10), (2**62, 10), (2**63, 5), (2**64 - 6, 5)],
    "near one another": [(n * 1000, 700) for n in range(100)],
    "behind one another": [(n * 512, 512) for n in range(100)],
    "overlapping": [(n * 100, 1000) for n in range(60)],
    "the same twice": [(77, 500), (77, 500)],
    "far from one another, backwards": [(SIZE - 10 - n * 17_000, 10) for n in range(8)],
    "all of it": [(0, SIZE)],
    "all that there may be": [(0, 2**63)],
    "more than a message has": [(n * 7, 1) for n in range(RANGES_MAX + 100)],
}


@pytest.mark.parametrize("case", RANGES)
def test_ranges_are_the_bytes_of_the_file(net, root, case):
    data = written(root / "file")
    with reader(net) as far:
        file, identity = far.open(named(root / "file"))
        assert identity.size == SIZE
        expected = [data[offset:offset + length] if offset < SIZE else b"" for offset, length in RANGES[case]]
        assert far.read(file, *RANGES[case]) == expected
        far.finish()


def test_random_vectors_of_two_files_come_as_they_are_asked_for(net, root):
    random.seed(7)
    contents = {name: written(root / name, size) for name, size in (("one", SIZE), ("other", 40_000))}
    with reader(net) as far:
        asked = []
        for name, data in contents.items():
            # The ranges are asked for before the answer to the open has come.
            file = far.begin_open(named(root / name))
            for _ in range(4):
                ranges = [(random.randrange(len(data) + 100), random.randrange(300)) for _ in range(60)]
                asked.append((data, ranges, far.begin_read(file, *ranges)))
        for data, ranges, op in asked:
            assert far.content(op, len(ranges)) == [data[offset:offset + length] for offset, length in ranges]
        far.finish()


def test_a_range_ends_short_where_the_file_does_and_its_last_piece_says_so(net, root):
    written(root / "file", 1000)
    with reader(net) as far:
        file, _ = far.open(named(root / "file"))
        op = far.begin_read(file, (990, 4000), (1000, 4000))
        far.content(op, 2)
        assert sorted(piece for piece in far.pieces if piece[0] == op) == [(op, 0, 0, 10, True), (op, 1, 0, 0, True)]


def test_small_answers_go_ahead_of_long_ones(net, root):
    """A long answer is under way and takes all the room. A short answer comes before the long one is
    complete."""
    with (root / "long").open("wb") as file:
        file.truncate(1 << 34)
    data = written(root / "short")
    with reader(net, window=2) as far:
        long, _ = far.open(named(root / "long"))
        op = far.begin_read(long, (0, 1 << 34))
        far.wait(lambda: far.pieces)
        short, _ = far.open(named(root / "short"))
        assert far.read(short, (5, 100), (140_000, 100)) == [data[5:105], data[140_000:140_100]]
        assert not far.incoming[op, 0].is_whole()
        far.cancel(op)
        far.finish()


def test_the_beginning_of_a_list_goes_ahead_of_all_that_is_asked_for(net, root):
    """If each range came before the list, a gigabyte would have to arrive first."""
    with (root / "long").open("wb") as file:
        file.truncate(1 << 34)
    with reader(net, window=4) as far:
        long, _ = far.open(named(root / "long"))
        op = far.begin_read(long, *[(n << 20, 1 << 30) for n in range(1000)])
        assert [entry.path for _, entry in far.list(root.name)] == [b"", b"long"]
        far.cancel(op)
        far.finish()


def test_a_file_that_has_changed_is_not_read_on(net, root):
    data = written(root / "file")
    os.utime(root / "file", (1_700_000_000, 1_700_000_000))
    with reader(net) as far:
        file, identity = far.open(named(root / "file"))
        assert identity.mtime == 1_700_000_000 and far.read(file, (0, 4)) == [data[:4]]
        with (root / "file").open("r+b") as changing:
            changing.write(b"new")
        assert refused(far.read, file, (0, 4)) == SOURCE_CHANGED
        assert refused(far.digest, file, "sha256") == SOURCE_CHANGED
        far.close(file)
        again, now = far.open(named(root / "file"))
        assert now != identity and far.read(again, (0, 4)) == [b"new" + data[3:4]]
        far.finish()


def test_advice_changes_nothing(net, root):
    data = written(root / "file")
    with reader(net) as far:
        file, _ = far.open(named(root / "file"))
        far.advise(file, (0, SIZE), (2**63, 2**63), (SIZE, 10))
        assert far.read(file, (9, 9)) == [data[9:18]]
        far.close(file)
        far.finish()


def test_what_is_cancelled_may_come_and_what_is_not_comes(net, root):
    data = written(root / "file")
    with reader(net, window=4) as far:
        file, _ = far.open(named(root / "file"))
        for number in range(50):
            far.cancel(far.begin_read(file, (number, 1000), (0, 70_000)))
        far.cancel(4711)
        assert far.read(file, (3, 3)) == [data[3:6]]
        far.finish()


def test_what_is_open_can_be_read_though_it_was_closed_meanwhile(net, root):
    data = written(root / "file")
    with reader(net) as far:
        file = far.begin_open(named(root / "file"))
        op = far.begin_read(file, (0, 1000))
        far.close(file)
        assert far.content(op, 1) == [data[:1000]]
        far.finish()


# ---- digests ---------------------------------------------------------------------------------------------------------

def test_digests_are_those_of_the_bytes(net, root):
    data = written(root / "file", 3000)
    blake3 = {"blake3": seal.blake3, "sha256": lambda data: hashlib.sha256(data).digest(), "md5": lambda data: hashlib.md5(data).digest()}
    with reader(net) as far:
        file, _ = far.open(named(root / "file"))
        for algorithm, digest in blake3.items():
            assert far.digest(file, algorithm) == (3000, digest(data))
            assert far.digest(file, algorithm, (5, 700)) == (700, digest(data[5:705]))
            assert far.digest(file, algorithm, (2990, 2**63)) == (10, digest(data[2990:]))
            assert far.digest(file, algorithm, (2**63, 5)) == (0, digest(b""))
        assert len(far.digest(file, "xxh3")[1]) == 8
        far.finish()


# ---- entries ---------------------------------------------------------------------------------------------------------

def make_zoo(root):
    """Makes one entry of each kind in a folder; returns their names."""
    zoo = root / "zoo"
    zoo.mkdir(mode=0o750)
    written(zoo / "file", 1234)
    (zoo / "file").chmod(0o640)
    os.utime(zoo / "file", ns=(0, 1_600_000_000_123_456_789))
    os.link(zoo / "file", zoo / "second")
    (zoo / "link").symlink_to("file")
    (zoo / "dangling").symlink_to("no such file")
    os.mkfifo(zoo / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(zoo)
        bound.bind("socket")
        os.chdir(here)
    (zoo / "sub/deep").mkdir(parents=True)
    (zoo / "sub/deep/est").write_bytes(b"x")
    (zoo / os.fsdecode(b"not \xff utf-8")).write_bytes(b"")
    return zoo


def kind_of(meta):
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
    return kinds[stat.S_IFMT(meta.st_mode)]


def check_entry(entry, path):
    """Checks that the entry describes what is at the path."""
    meta = path.lstat()
    assert entry.kind == kind_of(meta) and entry.mode == stat.S_IMODE(meta.st_mode) and entry.links == meta.st_nlink, entry
    assert entry.target == (os.readlink(os.fsencode(path)) if path.is_symlink() else b""), entry
    identity = entry.identity
    assert identity.mtime * 10**9 + identity.mtime_ns == meta.st_mtime_ns
    assert identity.ctime * 10**9 + identity.ctime_ns == meta.st_ctime_ns
    assert (identity.inode, identity.device) == (meta.st_ino, meta.st_dev)
    if entry.kind in ("file", "symlink"):
        assert identity.size == meta.st_size


def test_entries_say_what_is_there(net, root):
    zoo = make_zoo(root)
    names = ["file", "second", "link", "dangling", "fifo", "socket", "sub", os.fsdecode(b"not \xff utf-8")]
    with reader(net) as far:
        for name in names:
            check_entry(far.stat(f"{named(zoo)}/{name}", follow=False), zoo / name)
        followed = far.stat(f"{named(zoo)}/link")
        assert (followed.kind, followed.identity.size, followed.path) == ("file", 1234, f"{named(zoo)}/link".encode())
        depths = {1: names, 2: names + ["sub/deep"], 0: names + ["sub/deep", "sub/deep/est"]}
        for depth, expected in depths.items():
            listed = far.list(named(zoo), depth)
            assert {what for what, *_ in listed} == {"entry"} and listed[0][1].path == b""
            entries = {os.fsdecode(entry.path): entry for _, entry in listed[1:]}
            assert sorted(entries) == sorted(expected) and len(listed) == len(expected) + 1
            for name, entry in entries.items():
                check_entry(entry, zoo / name)
        far.finish()


def test_a_root_is_the_top_of_what_there_is(net, root):
    written(root / "file", 10)
    with reader(net) as far:
        for path in (root.name, f"/{root.name}", f"//{root.name}/./"):
            assert far.stat(path).kind == "directory" and len(far.list(path)) == 2
        for path in ("", "/", "."):
            assert os.fsencode(root.name) in [entry.path for _, entry in far.list(path)[1:]]
        far.finish()


@pytest.mark.parametrize("room", [1, 1000, 100_000])
def test_a_list_comes_whole_though_there_is_little_room(net, root, room):
    folder = root / "folder"
    folder.mkdir()
    count = 2 if room == 1 else 300
    for number in range(count):
        (folder / f"{number:0>100}").touch()
    with reader(net) as far:
        # `Reader.stream` asserts that no more comes than there is room for.
        listed = far.list(named(folder), room=room, more=room)
        assert sorted(entry.path for _, entry in listed[1:]) == [b"%0100d" % number for number in range(count)]
        # The first list has used up no room of this one.
        assert len(far.list(named(folder), room=room, more=1 << 20)) == count + 1
        far.finish()


def test_a_list_without_room_waits_and_can_be_cancelled(net, root):
    folder = root / "folder"
    folder.mkdir()
    (folder / "file").touch()
    with reader(net) as far:
        waiting, cancelled = far.begin_list(named(folder), room=0), far.begin_list(named(folder), room=0)
        assert far.stat(named(folder)).kind == "directory"
        far.cancel(cancelled)
        assert not far.pieces
        far.more(waiting, 1 << 20)
        assert len(far.stream(waiting, 1 << 20, 1)) == 2
        far.finish()


def test_patterns_stand_for_the_paths_that_fit_them(net, root):
    make_zoo(root)
    (root / "other").touch()
    with reader(net) as far:
        folder = root.name
        assert far.find(f"{folder}/zoo/s*") == [f"{folder}/zoo/{name}".encode() for name in ("second", "socket", "sub")]
        assert far.find(f"{folder}/*o*", room=3, more=3) == [f"{folder}/{name}".encode() for name in ("other", "zoo")]
        assert far.find(f"{folder}/other") == [f"{folder}/other".encode()]
        # A path that was found can be asked for as it is.
        for path in far.find(f"{folder}/*"):
            assert far.stat(path).path == path
        far.finish()


# ---- what is not there -----------------------------------------------------------------------------------------------

def test_what_cannot_be_read_is_refused_with_a_code(net, root):
    zoo = make_zoo(root)
    (zoo / "out").symlink_to("/etc")
    with reader(net) as far:
        def at(name):
            return f"{named(zoo)}/{name}"

        assert refused(far.open, at("none")) == NOT_FOUND
        assert refused(far.open, at("dangling")) == NOT_FOUND
        assert refused(far.open, at("sub")) == BAD_PATH
        assert refused(far.open, at("fifo")) == BAD_PATH
        assert refused(far.open, at("file/below")) == NOT_A_DIRECTORY
        assert refused(far.open, at("out/passwd")) == PERMISSION_DENIED
        assert refused(far.open, "../x") == BAD_PATH
        assert refused(far.stat, at("none")) == NOT_FOUND
        assert refused(far.stat, at("out")) == PERMISSION_DENIED
        assert far.stat(at("out"), follow=False).target == b"/etc"
        assert refused(far.list, at("file")) == NOT_A_DIRECTORY
        assert refused(far.list, at("none")) == NOT_FOUND
        assert refused(far.list, at("out")) == PERMISSION_DENIED
        # A file that could not be opened has a number all the same, and operations on it fail.
        file = far.begin_open(at("none"))
        assert refused(far.read, file, (0, 1)) == NOT_FOUND
        assert refused(far.digest, file, "md5") == NOT_FOUND
        far.close(file)
        far.finish()


# ---- the session -----------------------------------------------------------------------------------------------------

def test_the_hello_asks_for_the_service_and_nothing_else(net):
    with daemon_session(net, wish()) as (reply, session):
        assert reply["refusal"] is None and not reply["terms"], reply
        Reader(session).finish()
    bad = {**wish(), "request": "e30="[:3] + "x"}
    with daemon_session(net, bad) as (reply, _session):
        assert reply["refusal"]["code"] == "FH-BAD-REQUEST", reply


def test_over_ssh_paths_are_the_users_own(net):
    folder = net.folder("ssh-reads")
    data = written(folder / "file", 5000)
    with reader_over_ssh(net.beta, cwd=folder) as (far, process):
        for path in ("file", folder / "file", f"../{folder.name}/file"):
            file, identity = far.open(path)
            assert identity.size == 5000 and far.read(file, (9, 10)) == [data[9:19]]
        assert len(far.list("")) == 2
        far.finish()
    assert process.returncode == EXIT_OK
