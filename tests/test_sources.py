"""Every source that is named is sent, or fails: pipes, devices, files of unknown size, two sources of one
name."""

import contextlib
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest

from harness import fuse
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, EXIT_USAGE, cp
from harness.trees import fill, make_file, names, sha256

MIB = 1 << 20
CONTENT = hashlib.shake_256(b"what a program writes").digest(3 * MIB + 77)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextlib.contextmanager
def written(fifo, *parts):
    """While it lasts, a thread writes these parts into a named pipe, and closes it."""
    def write():
        with contextlib.suppress(BrokenPipeError), open(fifo, "wb", buffering=0) as out:
            for part in parts:
                out.write(part)

    os.mkfifo(fifo, 0o640)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield fifo
    finally:
        # If nobody has read the pipe, this lets the writer end.
        with contextlib.suppress(OSError):
            os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
        writer.join()


@contextlib.contextmanager
def loop_device(image):
    done = subprocess.run(["losetup", "--find", "--show", os.fspath(image)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no loop devices here: {done.stderr.decode().strip()}")
    device = pathlib.Path(done.stdout.decode().strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", os.fspath(device)], check=True)


def bind_socket(path):
    """Binds a socket. Its address has room for a short path only, so this changes into the directory."""
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


# ---- named pipes and what a shell makes of them --------------------------------------------------------------------------

def test_a_process_substitution_is_sent(road, near):
    (near / "content").write_bytes(CONTENT)
    script = 'exec farhaul cp --json "${@:3}" <(cat "$1") "$2"'
    done = road.alpha.run(["bash", "-c", script, "sh", near / "content", road.url("copy"), *road.arguments])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["files"], report["bytes"], report["not_taken"]) == (1, len(CONTENT), [])
    assert (road.far / "copy").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_by_its_name(ssh_road, name):
    report = ssh_road.cp(name, ssh_road.url("copy"), input=CONTENT).report
    assert (report["files"], report["bytes"]) == (1, len(CONTENT))
    assert (ssh_road.far / "copy").read_bytes() == CONTENT


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("content", [b"", b"short", CONTENT], ids=["empty", "short", "long"])
def test_a_named_pipe_is_read_to_its_end(road, near, direction, content):
    here, there = (near, road.far) if direction == "push" else (road.far, near)
    with written(here / "pipe", content) as pipe:
        ends = (pipe, road.url("copy")) if direction == "push" else (road.url("pipe"), near / "copy")
        report = road.cp("-q", *ends, timeout=60).report
    assert (report["files"], report["bytes"], report["ok"]) == (1, len(content), True)
    assert (there / "copy").read_bytes() == content
    assert (there / "copy").stat().st_mode & 0o777 == 0o640


def test_pipes_beside_files(road, near):
    """Pipes are read in the order in which they are named, and files do not wait for them."""
    make_file(near / "file", 2 * MIB)
    with written(near / "one", b"1" * 5000) as one, written(near / "two", CONTENT) as two:
        report = road.cp(two, near / "file", one, road.url("in/"), timeout=60).report
    assert report["files"] == 3 and report["failed"] == []
    assert (road.far / "in/one").read_bytes() == b"1" * 5000 and (road.far / "in/two").read_bytes() == CONTENT
    assert sha256(road.far / "in/file") == sha256(near / "file")


def test_a_pipe_into_a_pipe(road):
    with written(road.far / "pipe", CONTENT):
        done = road.cp(road.url("pipe"), "-", as_json=False, timeout=60)
    assert done.stdout == CONTENT


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_the_manifest_has_what_came_through_a_pipe(ssh_road, near, direction):
    road, is_push = ssh_road, direction == "push"
    with written((near if is_push else road.far) / "pipe", CONTENT) as pipe:
        ends = (pipe, road.url("copy/")) if is_push else (road.url("pipe"), f"{near}/copy/")
        road.cp("--manifest", near / "m.jsonl", *ends, timeout=60)
    lines = [json.loads(line) for line in (near / "m.jsonl").read_text().splitlines()]
    [line] = [line for line in lines if line.get("path") == "pipe"]
    assert (line["result"], line["size"]) == ("sent", len(CONTENT))
    target = (road.far if is_push else near) / "copy"
    road.alpha.run(["farhaul", "verify", near / "m.jsonl", target], check=True)


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/dev/fd/1", "/proc/self/fd/1"])
def test_descriptors_of_the_far_program_are_no_sources(ssh_road, near, name):
    """These descriptors are the channel of the transfer itself, or nothing."""
    outcome = ssh_road.cp(f"beta:{name}", near / "copy", expect=EXIT_FILES, timeout=60)
    assert name in outcome.error_line and not (near / "copy").exists()


# ---- devices and sockets -------------------------------------------------------------------------------------------------

@needs_root
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_block_device_is_read_to_its_end(ssh_road, near, direction):
    road, is_push = ssh_road, direction == "push"
    image = make_file((near if is_push else road.far) / "image", 5 * MIB + 512)
    target = (road.far if is_push else near) / "copy"
    with loop_device(image) as device:
        ends = (device, road.url("copy")) if is_push else (f"beta:{device}", target)
        report = road.cp(*ends).report
        assert (report["files"], report["bytes"]) == (1, 5 * MIB + 512)
        assert sha256(target) == sha256(image)
        with open(device, "r+b") as there:
            there.seek(3 * MIB)
            there.write(b"changed")
        report = road.cp(*ends).report
        assert report["files"] == 1, "a device has no time that shows whether it has changed, so it is read"
        assert report["bytes"] < MIB, "content that has not changed is not sent"
    assert sha256(target) == sha256(image)


@needs_root
def test_a_daemon_reads_no_devices(daemon_road, near):
    """The content of a disk lies outside of the root, even if a device file below the root leads to it."""
    road = daemon_road
    image = make_file(near / "image", MIB)
    with loop_device(image) as device:
        os.mknod(road.far / "disk", 0o666 | 0o060000, device.stat().st_rdev)
        outcome = road.cp("-q", road.url("disk"), near / "copy", expect=EXIT_FILES)
    assert "disk: " in outcome.error_line and not (near / "copy").exists()


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_what_cannot_be_read_to_an_end_fails_by_name(ssh_road, near, direction):
    road, is_push = ssh_road, direction == "push"
    here = near if is_push else road.far
    bind_socket(here / "socket")
    make_file(here / "file", 1000)
    def run(*sources, expect):
        sources = sources if is_push else [f"beta:{source}" for source in sources]
        return road.cp("-q", *sources, road.url("copy/") if is_push else f"{near}/copy/", expect=expect)

    for source in (here / "socket", "/dev/zero", "/dev/urandom"):
        outcome = run(source, expect=EXIT_FILES)
        assert str(source) in outcome.error_line, outcome
        outcome = run(here / "file", source, expect=EXIT_SOME_FAILED)
        assert [entry["path"] for entry in outcome.report["failed"]] == [str(source)]
    assert os.listdir((road.far if is_push else near) / "copy") == ["file"]


def test_the_null_device_is_an_empty_file(ssh_road):
    ssh_road.cp("/dev/null", ssh_road.url("empty"))
    assert (ssh_road.far / "empty").read_bytes() == b""


def test_a_named_pipe_goes_as_one_if_that_is_asked_for(road, near):
    os.mkfifo(near / "pipe")
    assert road.cp("--specials", near / "pipe", road.url("copy")).report["links"] == 1
    assert (road.far / "copy").is_fifo()
    script = 'exec farhaul cp --json --specials "${@:2}" <(echo it) "$1"'
    done = road.alpha.run(["bash", "-c", script, "sh", road.url("text"), *road.arguments])
    assert done.returncode == 0 and (road.far / "text").read_text() == "it\n", done


# ---- what is left out of a tree ------------------------------------------------------------------------------------------

def test_what_is_not_taken_of_a_tree_is_told_where_the_user_is(way):
    way.source.mkdir()
    os.mkfifo(way.source / "pipe")
    bind_socket(way.source / "socket")
    (way.source / "file").write_text("x")
    done = way.sync(verb="cp")
    told = {"tree/pipe", "tree/socket"}
    assert {line.split(": ")[0] for line in done.stderr.splitlines() if line.startswith("skipped ")} == {
        f"skipped {path}" for path in told}
    assert {entry["path"] for entry in done.report["not_taken"]} == told and done.report["not_taken_count"] == 2
    assert all("`specials`" in entry["reason"] for entry in done.report["not_taken"])
    assert "2 not taken" in done.stderr and done.report["ok"]
    quiet = way.sync("-q", verb="cp")
    assert "skipped" not in quiet.stderr and quiet.report["not_taken_count"] == 2


def test_a_dry_run_reads_no_pipe(road, near):
    """Nobody writes into the pipe, so a read would wait for ever."""
    os.mkfifo(near / "pipe")
    report = road.cp("--dry-run", near / "pipe", road.url("copy"), timeout=60).report
    assert report["files"] == 1 and not (road.far / "copy").exists()


# ---- two of one name -----------------------------------------------------------------------------------------------------

def two(folder, size=10):
    """Makes directories a and b: each has a file x of equal size, and a directory d with a file in it."""
    for name in "ab":
        fill(folder, f"{name}/ {name}/d/ {name}/e/")
        make_file(folder / name / "x", size, seed=ord(name))
        make_file(folder / name / "d/same", size, seed=ord(name))
        (folder / name / "d" / name).write_text(name)
    return folder


def ends(road, near, direction, sources):
    """The arguments of the command that copies all sources into the destination's `in/`."""
    if direction == "push":
        return [f"{near}/{source}" for source in sources] + [road.url("in/")]
    return [road.url() + f"/{source}" for source in sources] + [f"{near}/in/"]


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("sources", [["a/x", "b/x"], ["a/d", "b/d"], ["a/x", "b/d", "b/x"], ["a/x", "a/x"], ["a/", "a/"]])
def test_two_sources_of_one_name_are_refused(road, near, direction, sources):
    two(near if direction == "push" else road.far, 3 * MIB)
    outcome = road.cp(*ends(road, near, direction, sources), expect=EXIT_USAGE)
    assert all(outcome.error_line.count(source) for source in {sources[0], sources[-1]}), outcome
    target = (road.far if direction == "push" else near) / "in"
    assert not target.exists() or os.listdir(target) == []


def test_patterns_that_match_two_of_one_name_are_refused(road, near):
    two(road.far)
    outcome = road.cp(road.url("[ab]/x"), f"{near}/in/", expect=EXIT_USAGE)
    assert "a/x" in outcome.error_line and "b/x" in outcome.error_line and os.listdir(near / "in") == []


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_contents_that_meet_keep_the_first_of_each_name(road, near, direction):
    """Directories of one name become one; the second file of a name fails."""
    here, there = (near, road.far) if direction == "push" else (road.far, near)
    two(here, 2 * MIB)
    (here / "b/e").rmdir()
    (here / "b/e").write_text("a directory in a")
    outcome = road.cp("--manifest", near / "m.jsonl", *ends(road, near, direction, ["a/", "b/"]), expect=EXIT_SOME_FAILED)
    assert {entry["path"] for entry in outcome.report["failed"]} == {"x", "d/same", "e"}, outcome
    assert all("another source has the same name" in entry["reason"] for entry in outcome.report["failed"])
    assert names(there / "in") == "d d/a d/b d/same e x"
    for name in ("x", "d/same"):
        assert sha256(there / "in" / name) == sha256(here / "a" / name)
    lines = [json.loads(line) for line in (near / "m.jsonl").read_text().splitlines()]
    assert [line["result"] for line in lines if line.get("path") == "x"].count("sent") == 1


def test_a_name_beside_a_content_that_has_it(road, near):
    two(near)
    for sources, first in ((["a/x", "b/"], "a/x"), (["b/", "a/x"], "b/x")):
        outcome = road.cp(*ends(road, near, "push", sources), expect=EXIT_SOME_FAILED)
        assert [entry["path"] for entry in outcome.report["failed"]] in (["x"], [f"{near}/a/x"]), outcome
        assert (road.far / "in/x").read_bytes() == (near / first).read_bytes()
        (road.far / "in/x").unlink()


def test_what_a_filter_leaves_out_has_no_name(road, near):
    """The first x is too large for the filter, so the second x is the only one."""
    fill(near, "a/ b/x")
    make_file(near / "a/x", 5000)
    report = road.cp("--max-size", "1k", *ends(road, near, "push", ["a/", "b/"])).report
    assert report["files"] == 1 and (road.far / "in/x").read_bytes() == (near / "b/x").read_bytes()


# ---- files whose size is not what their entry says -------------------------------------------------------------------------

@pytest.mark.parametrize("direction", ["push", "pull"])
def test_made_files_arrive_whole(ssh_road, near, direction):
    """Files in /proc report a size of 0, those in sysfs 4096."""
    road, is_push = ssh_road, direction == "push"
    target = (road.far if is_push else near) / "in"
    sources = ["/proc/version", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/kallsyms"]
    report = road.cp(*[source if is_push else f"beta:{source}" for source in sources],
                     road.url("in/") if is_push else f"{target}/").report
    assert report["files"] == len(sources) and report["failed"] == []
    for source in sources:
        expected = pathlib.Path(source).read_bytes()
        assert len(expected) > 0 and (target / os.path.basename(source)).read_bytes() == expected, source
    assert report["bytes"] == sum(path.stat().st_size for path in target.iterdir())


def test_a_tree_of_made_files(road, near):
    tree = pathlib.Path("/proc/sys/vm")
    readable = {}
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError):
                readable[path.relative_to(tree)] = path.read_bytes()
    outcome = road.cp("--manifest", near / "m.jsonl", tree, road.url("copy"), check=False)
    assert outcome.code in (0, EXIT_SOME_FAILED), outcome
    failed = {entry["path"] for entry in outcome.report["failed"]}
    arrived = {path: (road.far / "copy" / path) for path in readable if f"vm/{path}" not in failed}
    assert len(arrived) > 20 and set(arrived) == set(readable)
    # A few of these files change while the test reads them.
    same = [path for path, copy in arrived.items() if copy.read_bytes() == readable[path]]
    assert len(same) > 0.9 * len(arrived)
    lines = {line["path"]: line for line in map(json.loads, (near / "m.jsonl").read_text().splitlines()) if "path" in line}
    line = lines["vm/overcommit_memory"]
    assert (line["result"], line["size"]) == ("sent", len(readable[pathlib.Path("overcommit_memory")]))


def test_a_made_file_into_a_pipe(road):
    if road.name == "daemon":
        pytest.skip("nothing of the kind lies below its root")
    done = road.cp("beta:/proc/version", "-", as_json=False)
    assert done.stdout == pathlib.Path("/proc/version").read_bytes()


def test_empty_files_are_as_they_were(road, near):
    fill(near, "tree/")
    for number in range(50):
        (near / f"tree/{number}").touch()
    report = road.cp(near / "tree", road.url("copy")).report
    assert (report["files"], report["bytes"], report["content_bytes_sent"]) == (50, 0, 0)
    assert road.cp(f"{near}/tree/", road.url("copy")).report["skipped"] == 50


@needs_root
def test_what_waits_for_ever_fails_by_itself(road, near):
    """A file without an end: a read waits for more content."""
    trace = pathlib.Path("/sys/kernel/tracing/trace_pipe")
    source = trace if os.path.exists(trace) else pathlib.Path("/proc/kmsg")
    if not os.access(source, os.R_OK):
        pytest.skip("there is no such file here")
    (near / "file").write_text("it")
    outcome = road.cp(source, near / "file", road.url("in/"), timeout=60, check=False)
    assert (road.far / "in/file").read_text() == "it"
    assert outcome.code == 0 or [entry["path"] for entry in outcome.report["failed"]] == [source.name], outcome


@needs_root
@pytest.mark.parametrize("target", ["copy", "null:"])
def test_files_of_fuse_are_read_to_their_end(road, near, target):
    """A server makes the content when it is read, and may report any size."""
    content = CONTENT[:MIB + MIB // 2]
    files = {"zero": (0, content), "short": (4096, b"6bytes"), "long": (10, content), "longer": (2 * MIB, CONTENT),
             "shorter": (2 * MIB, content), "empty": (0, b""), "nothing": (4096, b""), "true": (5, b"truth"),
             "large": (len(CONTENT), CONTENT)}
    (near / "mount").mkdir()
    with fuse.mounted(near / "mount", files):
        assert sorted(os.listdir(near / "mount")) == sorted(files)
        report = road.cp("--manifest", near / "m.jsonl", near / "mount", road.url(target)).report
        again = road.cp(f"{near}/mount/", road.url(target)).report
    assert report["files"] == len(files) and report["failed"] == []
    if target == "copy":
        for name, (_, content) in files.items():
            assert (road.far / "copy" / name).read_bytes() == content, name
        assert again["skipped"] == 2, "the two files that are as large as they say"
        lines = [json.loads(line) for line in (near / "m.jsonl").read_text().splitlines()]
        sizes = {line["path"]: line["size"] for line in lines if line.get("kind") == "file" or "size" in line}
        assert all(sizes[f"mount/{name}"] == len(content) for name, (_, content) in files.items()), sizes
        road.alpha.run(["farhaul", "verify", near / "m.jsonl", road.far], check=True)


def test_a_file_of_the_kernel_without_a_value_fails_and_says_so(net, near):
    """`speed` and `duplex` of the loopback device have no value: reading them is an invalid argument."""
    source = "/sys/class/net/lo"
    outcome = cp(net.alpha, "-r", f"{source}/speed", f"{source}/mtu", f"{near}/", expect=EXIT_SOME_FAILED)
    (failed,) = outcome.report["failed"]
    assert failed["path"].endswith("speed") and "gives none now (invalid argument)" in failed["reason"], failed
    assert (near / "mtu").read_text().strip().isdigit()
