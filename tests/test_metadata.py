"""More than names, contents, modes and times: extended attributes, access control lists, pipes, devices,
followed and skipped links."""

import os
import pathlib
import shutil
import socket
import stat
import struct
import threading

import pytest

from harness import hosts
from harness.product import EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED
from harness.trees import differences, leftovers, make_file

MIB = 1 << 20
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*entries):
    """The kernel's form of an access control list of (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, USER, GROUP, MASK, OTHER, NOBODY = 1, 2, 4, 0x10, 0x20, 0xFFFFFFFF
LIST = acl((OWNER, 6, NOBODY), (USER, 4, 12345), (GROUP, 4, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY))
INHERITED = acl((OWNER, 7, NOBODY), (USER, 5, 12345), (GROUP, 5, NOBODY), (MASK, 5, NOBODY), (OTHER, 0, NOBODY))


def supports(folder, name, value):
    try:
        os.setxattr(folder, name, value)
        os.removexattr(folder, name)
        return True
    except OSError:
        return False


def supports_nameless(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
        return True
    except OSError:
        return False


def attributes(path):
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
            if name != "security.selinux"}


def fill(way):
    way.source.mkdir()
    if not supports(way.source, "user.x", b"1") or not supports(way.source, ACCESS, LIST):
        pytest.skip("this file system keeps no attributes")
    (way.source / "d").mkdir()
    paths = {name: way.source / name for name in ("d", "d/small", "empty", "large", "read-only")}
    (paths["d/small"]).write_text("small")
    paths["empty"].touch()
    make_file(paths["large"], 5 * MIB)
    paths["read-only"].write_text("x")
    for path in paths.values():
        os.setxattr(path, "user.name", os.fsencode(path.name))
        os.setxattr(path, "user.empty", b"")
        os.setxattr(path, "user.binary", bytes(range(256)) * 8)
        os.setxattr(path, ACCESS, LIST if path.is_file() else INHERITED)
    os.setxattr(paths["d"], DEFAULT, INHERITED)
    os.chmod(paths["read-only"], 0o440)
    os.symlink("d/small", way.source / "link")
    return paths


def test_attributes_and_lists_are_kept_when_asked_for(way):
    paths = fill(way)
    way.sync()
    for name in paths:
        assert attributes(way.target / name) == {}, "nothing was asked for"
    # Files that are there already get their attributes, too. Then attributes change while the files do not.
    report = way.sync("-X", "-A").report
    assert report["files"] == 0
    os.setxattr(paths["large"], "user.name", b"other")
    os.removexattr(paths["d/small"], "user.binary")
    os.setxattr(way.target / "empty", "user.surplus", b"1")
    way.sync("--xattrs", "--acls")
    for name, path in paths.items():
        assert attributes(way.target / name) == attributes(path) != {}, name
    assert differences(way.source, way.target) == []
    shutil.rmtree(way.target)
    way.sync("-XA")
    for name, path in paths.items():
        assert attributes(way.target / name) == attributes(path), name
    assert differences(way.source, way.target) == [] and not leftovers(way.target)


def test_a_user_may_set_attributes_of_what_is_read_only(ssh_road, near):
    source = near / "tree"
    source.mkdir()
    if not supports(source, "user.x", b"1"):
        pytest.skip("this file system keeps no attributes")
    for mode in (0o444, 0o400, 0o000):
        (source / f"{mode:o}").write_text("x")
        os.setxattr(source / f"{mode:o}", "user.x", b"1")
        (source / f"{mode:o}").chmod(mode)
    report = ssh_road.cp("-r", "--xattrs", source, f"{hosts.USER}@beta:read-only").report
    assert report["ok"] and report["files"] == 3, report
    there = pathlib.Path(ssh_road.net.beta.user_home) / "read-only"
    for mode in (0o444, 0o400, 0o000):
        assert attributes(there / f"{mode:o}") == {"user.x": b"1"}
        assert (there / f"{mode:o}").stat().st_mode & 0o7777 == mode


def test_lists_alone_and_attributes_alone(way):
    paths = fill(way)
    way.sync("-X")
    assert all(name.startswith("user.") for name in attributes(way.target / "large"))
    shutil.rmtree(way.target)
    way.sync("-A")
    assert attributes(way.target / "large") == {ACCESS: LIST}
    assert attributes(way.target / "d") == {ACCESS: INHERITED, DEFAULT: INHERITED}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_is_roots_goes_only_from_root_to_root_and_never_through_a_daemon(way):
    way.source.mkdir()
    program = way.source / "program"
    program.write_text("#!/bin/sh\n")
    if not supports(way.source, "trusted.x", b"1"):
        pytest.skip("this file system keeps no trusted attributes")
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    os.setxattr(program, "trusted.farhaul", b"1")
    os.setxattr(program, "user.plain", b"2")
    os.setxattr(program, "security.capability", capability)
    way.sync("-X")
    is_daemon = way.road.name == "daemon"
    expected = {"user.plain": b"2"} if is_daemon else {"user.plain": b"2", "trusted.farhaul": b"1"}
    assert attributes(way.target / "program") == expected, "file capabilities are copied only with -p"
    shutil.rmtree(way.target)
    way.sync("-X", "-p")
    got = attributes(way.target / "program")
    assert got == (expected if is_daemon else {**expected, "security.capability": capability}), got


def make_nodes(root):
    os.mkfifo(root / "pipe", 0o640)
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)
    server.bind("socket")
    os.chdir(here)
    server.close()
    os.utime(root / "pipe", ns=(5_000_000_007, 5_000_000_007))
    if os.geteuid() == 0:
        os.mknod(root / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(root / "disk", 0o600 | stat.S_IFBLK, os.makedev(259, 70_000))


def test_pipes_and_sockets_are_made_when_asked_for(way):
    way.source.mkdir()
    make_nodes(way.source)
    (way.source / "file").write_text("x")
    done = way.sync()
    assert os.listdir(way.target) == ["file"]
    if way.is_push:
        assert "skipped pipe: a pipe or socket (--specials takes it)" in done.stderr
    (way.target / "pipe").write_text("in the way")
    report = way.sync("--specials").report
    assert report["ok"] and report["links"] == 2
    there = os.lstat(way.target / "pipe")
    assert stat.S_ISFIFO(there.st_mode) and stat.S_IMODE(there.st_mode) == 0o640 and there.st_mtime_ns == 5_000_000_007
    assert stat.S_ISSOCK(os.lstat(way.target / "socket").st_mode)
    assert sorted(os.listdir(way.target)) == ["file", "pipe", "socket"]
    assert way.sync("--specials").report["links"] == 0, "they are there"
    os.unlink(way.source / "pipe")
    way.sync("--specials", "--delete")
    assert sorted(os.listdir(way.target)) == ["file", "socket"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_devices_are_made_by_root_but_not_by_a_daemon(way):
    way.source.mkdir()
    make_nodes(way.source)
    to_daemon = way.road.name == "daemon" and way.is_push
    done = way.sync("--devices", expect=EXIT_SOME_FAILED if to_daemon else 0)
    if to_daemon:
        assert sorted(entry["path"] for entry in done.report["failed"]) == ["disk", "null"]
        assert all("a daemon makes no devices" in entry["reason"] for entry in done.report["failed"])
        assert os.listdir(way.target) == []
        return
    for name in ("null", "disk"):
        source, target = os.lstat(way.source / name), os.lstat(way.target / name)
        assert (source.st_mode, source.st_rdev) == (target.st_mode, target.st_rdev), name
    assert not (way.target / "pipe").exists()


def node_in_place(path, kind):
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        # A socket's address has room for a short path only.
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)
    else:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("no devices can be made here")


@pytest.mark.parametrize("kind, what", [("fifo", "FIFO"), ("socket", "socket"), ("device", "device")])
def test_what_is_no_file_is_not_replaced_by_one(road, near, kind, what):
    """Its first use: `farhaul cp host:big /dev/null`."""
    (near / "in").mkdir()
    sources = near / "in"
    small, large = make_file(sources / "small", 100), make_file(sources / "large", 3 * MIB)
    os.link(small, sources / "linked")
    os.symlink("small", sources / "symlink")
    (road.far / "in").mkdir()
    there = [road.far / "in" / name for name in ("small", "large", "symlink")] + [road.far / "named"]
    for path in there:
        node_in_place(path, kind)
    outcome = road.cp(small, road.url("named"), expect=EXIT_FILES)
    assert f"a {what} is in its place" in outcome.stderr and "null:" in outcome.stderr
    # The second name of one of them arrives.
    for dry in (["--dry-run"], []):
        outcome = road.cp(*dry, sources, road.url("/"), expect=EXIT_SOME_FAILED)
        assert len(outcome.report["failed"]) == 3 and outcome.report["files"] == 1, outcome
    assert all(not path.is_file() and not path.is_symlink() for path in there)
    outcome = road.sync(f"{sources}/", road.url("in/"), check=False)
    if kind == "device":
        assert outcome.code == EXIT_SOME_FAILED and stat.S_ISCHR((road.far / "in/large").lstat().st_mode)
    else:
        assert outcome.code == EXIT_OK and differences(sources, road.far / "in") == []


def test_links_are_followed_when_asked_for_and_never_in_a_circle(way):
    (way.source / "a/b").mkdir(parents=True)
    (way.source / "a/b/file").write_text("content")
    make_file(way.source / "large", 3 * MIB)
    (way.source / "to-file").symlink_to("a/b/file")
    (way.source / "to-large").symlink_to("large")
    (way.source / "to-dir").symlink_to("a")
    done = way.sync("-L")
    assert done.report["ok"] and done.report["links"] == 0, done
    for name in ("to-file", "to-large", "to-dir/b/file"):
        assert (way.target / name).is_file() and not (way.target / name).is_symlink()
    assert not (way.target / "to-dir").is_symlink()
    assert (way.target / "to-large").read_bytes() == (way.source / "large").read_bytes()
    (way.source / "a/b/up").symlink_to("..")
    (way.source / "nowhere").symlink_to("no/such/thing")
    (way.source / "itself").symlink_to("itself")
    done = way.sync("--follow", expect=EXIT_SOME_FAILED)
    failed = {entry["path"]: entry["reason"] for entry in done.report["failed"]}
    assert "leads nowhere" in failed.pop("nowhere")
    assert "leads to a directory above it" in failed.pop("a/b/up")
    # The same circle, reached through the link to-dir.
    failed.pop("to-dir/b/up")
    assert list(failed) == ["itself"], failed


def test_a_daemon_follows_no_link_out_of_its_root(net, near):
    from conftest import road_to
    road = road_to(net, "daemon")
    secret = near / "secret"
    secret.write_text("not for everybody")
    (road.far / "tree").mkdir()
    (road.far / "beside").write_text("in the root")
    (road.far / "tree/absolute").symlink_to(secret)
    (road.far / "tree/relative").symlink_to(os.path.relpath(secret, road.far / "tree"))
    (road.far / "tree/dir").symlink_to("/etc")
    (road.far / "tree/inside").symlink_to("../beside")
    done = road.cp("-L", road.url("tree/"), near / "got", expect=EXIT_SOME_FAILED)
    assert sorted(entry["path"] for entry in done.report["failed"]) == ["absolute", "dir", "relative"]
    assert sorted(os.listdir(near / "got")) == ["inside"]
    assert (near / "got/inside").read_text() == "in the root"
    (road.far / "named").symlink_to(secret)
    assert road.cp("-L", road.url("named"), near / "named", check=False).code != 0
    assert not (near / "named").exists()


def test_links_that_lead_out_are_skipped_when_asked_for(way):
    (way.source / "d").mkdir(parents=True)
    links = {"in": "d", "d/up": "../in", "absolute": "/etc/passwd", "out": "../x", "d/out": "../../x", "d/devious": "y/../../../x"}
    for name, target in links.items():
        (way.source / name).symlink_to(target)
    done = way.sync("--safe-links")
    assert done.report["ok"] and done.report["links"] == 2
    there = {name for name in links if (way.target / name).is_symlink()}
    assert there == {"in", "d/up"}
    if way.is_push:
        assert done.stderr.count("leads out of what is copied") == 4
    way.sync("--safe-links", "--delete")
    way.sync()
    assert all((way.target / name).is_symlink() for name in links)


def test_symbolic_links_are_skipped_when_asked_for(way):
    way.source.mkdir()
    make_file(way.source / "file", 1000)
    (way.source / "link").symlink_to("file")
    report = way.sync("--no-links").report
    assert report["ok"] and (report["files"], report["links"]) == (1, 0)
    assert [entry["path"] for entry in report["not_taken"]] == ["link"], report
    assert sorted(os.listdir(way.target)) == ["file"]
    # The link stays: it is skipped, but the source has it, so it is no surplus.
    way.sync()
    way.sync("--no-links", "--delete")
    assert (way.target / "link").is_symlink()


@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_the_time_of_a_link_that_is_there_is_brought_in_step(way, verb):
    way.source.mkdir()
    (way.source / "link").symlink_to("anywhere")
    os.utime(way.source / "link", ns=(1_000_000_000_123_456_789,) * 2, follow_symlinks=False)
    way.sync(slash="/", target_slash="/")
    # A run that is killed between making the link and setting its time leaves this.
    os.utime(way.target / "link", follow_symlinks=False)
    report = way.sync(slash="/", target_slash="/", verb=verb, *(["-r"] if verb == "cp" else [])).report
    assert report["ok"] and report["links"] == 0
    assert (way.target / "link").lstat().st_mtime_ns == 1_000_000_000_123_456_789


@pytest.mark.parametrize("verify", ["digest", "readback"])
@pytest.mark.parametrize("size", [600 << 10, 9 * MIB], ids=["small", "large"])
def test_holes_stay_holes(way, size, verify):
    way.source.mkdir()
    with open(way.source / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(size - 5)
        file.write(b"ended")
    if (way.source / "sparse").stat().st_blocks * 512 > size // 2:
        pytest.skip("this file system keeps no holes")
    way.sync("--verify", verify)
    assert differences(way.source, way.target) == []
    assert (way.target / "sparse").stat().st_blocks * 512 <= size // 2


def test_files_appear_whole_and_under_no_other_name(way):
    """A watched directory, made for small files, never holds other names than theirs, and each file is
    complete at once."""
    content = bytes(range(256)) * 64
    for number in range(3000):
        file = way.source / f"{number // 1000}" / f"{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    seen, stop, wrong = set(), threading.Event(), []

    def watch():
        while not stop.is_set():
            for path in way.target.glob("*/*"):
                if path.name not in seen:
                    seen.add(path.name)
                    if not path.name.isdigit() or path.stat().st_size != len(content):
                        wrong.append(path)

    if not supports_nameless(way.source):
        pytest.skip("this file system has no files without names")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        way.sync("--rate", "200M")
    finally:
        stop.set()
        watcher.join()
    assert not wrong and seen
    assert differences(way.source, way.target) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_a_file_that_replaces_another_keeps_its_owner_and_access_list(way):
    """As `cp` does, which writes into the old file. Owners and lists are not copied."""
    fill(way)
    names = ["d/small", "large", "empty"]
    way.sync()
    for name in names:
        os.chown(way.target / name, 1234, 5678)
        os.setxattr(way.target / name, ACCESS, LIST)
        with open(way.source / name, "ab") as file:
            file.write(b"more")
    way.sync()
    for name in names:
        there = os.stat(way.target / name)
        assert (there.st_uid, there.st_gid) == (1234, 5678), name
        assert attributes(way.target / name)[ACCESS] == LIST, name
        assert (way.target / name).read_bytes() == (way.source / name).read_bytes()
    # A program that runs as its owner belongs to whoever has put it there.
    os.chmod(way.source / "large", 0o4755)
    with open(way.source / "large", "ab") as file:
        file.write(b"more")
    way.sync("-p")
    there = os.stat(way.target / "large")
    assert there.st_uid == 0 or there.st_mode & 0o4000 == 0, "a daemon takes the bit off"


def test_without_modes_the_default_list_of_a_directory_decides(way):
    """The umask does not count there, and the list may allow others nothing: acl(5)."""
    fill(way)
    os.chmod(way.source / "d/small", 0o644)
    way.target.mkdir()
    os.setxattr(way.target, DEFAULT, acl((OWNER, 7, NOBODY), (GROUP, 5, NOBODY), (OTHER, 0, NOBODY)))
    way.sync("--no-perms")
    for name in ("d/small", "empty", "large"):
        made = way.target / f"{name}.expected"
        made.touch(os.stat(way.source / name).st_mode & 0o777)
        assert os.stat(way.target / name).st_mode == os.stat(made).st_mode, name
        assert os.stat(way.target / name).st_mode & 0o007 == 0
    assert os.stat(way.target / "d").st_mode & 0o777 == 0o750
