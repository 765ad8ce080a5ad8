"""Errors that the kernel reports late: when the page cache is written to the disk, and when a file is
closed."""

import os
import pathlib
import resource
import shutil
import subprocess

import pytest

from harness.hosts import wait_until
from harness.powerloss import Disk, ThinDisk, Unavailable, files_of
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, cp, finish, start_cp
from harness.trees import differences, make_file, sha256

KIB, MIB = 1 << 10, 1 << 20
#: Errors of a disk that promises more room than it has: which one comes depends on the kernel.
DISK_FULL = ("no space left on device", "input/output error")

#: Makes close(2) fail with EDQUOT for every file below $CLOSE_FAILS_BELOW, like file systems that write only
#: at a close.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int close(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "close");
    const char *below = getenv("CLOSE_FAILS_BELOW");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = below ? readlink(link, path, sizeof path - 1) : -1;
    int closed = real(fd);
    if (len < 0) return closed;
    path[len] = 0;
    size_t want = strlen(below);
    if (strncmp(path, below, want) || path[want] != '/') return closed;
    errno = EDQUOT;
    return -1;
}
"""


@pytest.fixture
def thin(net):
    try:
        disk = ThinDisk(net.pair)
    except Unavailable as why:
        pytest.skip(str(why))
    yield disk
    disk.close()


def check_failed(outcome, target, *reasons, codes=(EXIT_SOME_FAILED,)):
    """Checks that each failed file has a reason of the kernel; returns the files that have their names."""
    assert outcome.code in codes, outcome
    odd = [failed for failed in outcome.report["failed"]
           if not any(reason in failed["reason"] for reason in reasons or DISK_FULL)]
    assert odd == []
    assert outcome.report["failed"], outcome
    return files_of(target)


def test_a_sync_that_fails_on_the_way_fails_the_file(net, near, thin):
    """The disk is full for a while in the middle of a large file, and has room again before the end."""
    source, target = near / "file", thin.path / "file"
    make_file(source, 80 * MIB)
    # A file with a hole is written through the page cache as a whole.
    with open(source, "r+b") as file:
        file.truncate(84 * MIB)
    process = start_cp(net.alpha, "--rate", "70M", source, target)

    def journal_bytes():
        return sum(path.stat().st_size for path in thin.path.glob(".*.fhjournal"))

    wait_until(lambda: journal_bytes() > 64 + 56 * 10, seconds=60, what="the journal grows")
    thin.fill()
    size = journal_bytes()
    # Waits for longer than one checkpoint, unless the copy ends before.
    wait_until(lambda: process.poll() is not None or journal_bytes() > size + 56 * 60, seconds=60, what="the copy goes on")
    thin.make_room()
    outcome = finish(process)
    check_failed(outcome, thin.path, codes=(EXIT_FILES,))
    assert not target.exists()
    assert cp(net.alpha, source, target).report["files"] == 1
    thin.forget_cached()
    assert sha256(target) == sha256(source)


@pytest.mark.parametrize("arguments", [[], ["--durable"], ["--durable=file"], ["--verify", "readback"]],
                         ids=lambda arguments: " ".join(arguments) or "plain")
def test_what_the_disk_did_not_take_has_no_name(net, near, thin, arguments):
    """Small files, files without a journal, and one that is written past the page cache."""
    source, target = near / "tree", thin.path / "tree"
    source.mkdir()
    for number, size in enumerate([300 * KIB] * 20 + [MIB] * 10 + [3 * MIB] * 10 + [20 * MIB]):
        make_file(source / f"file{number}", size, seed=number)
    target.mkdir()
    # The file system allocates the blocks for so many names before the disk is full.
    for number in range(100):
        (target / f"name{number}").write_text("x")
    thin.sync()
    for path in files_of(target).values():
        path.unlink()
    thin.sync()
    thin.fill()
    outcome = cp(net.alpha, *arguments, f"{source}/", target, check=False)
    # It may be that not one file has arrived. With --durable the sync of the whole file system fails, too.
    named = check_failed(outcome, target, codes=(EXIT_SOME_FAILED, EXIT_FILES))
    # What is still in the page cache would be written within half a minute anyway.
    thin.sync()
    thin.make_room()
    thin.forget_cached()
    wrong = [str(name) for name in named if sha256(target / name) != sha256(source / name)]
    assert wrong == []
    assert cp(net.alpha, *arguments, f"{source}/", target).report["skipped"] == len(named)
    thin.forget_cached()
    assert differences(source, target, root_too=False) == []


def test_a_stream_that_the_disk_did_not_take_has_no_name(net, near, thin):
    data = os.urandom(5 * MIB)
    thin.sync()
    thin.fill()
    outcome = cp(net.alpha, "-", thin.path / "stream", input=data, expect=EXIT_FILES)
    check_failed(outcome, thin.path, codes=(EXIT_FILES,))
    assert files_of(thin.path) == {}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "close.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "close.so", folder / "close.c", "-ldl"], check=True)
    return folder / "close.so"


@pytest.mark.parametrize("arguments", [[], ["--durable"], ["--verify", "readback"], ["--inplace"]],
                         ids=lambda arguments: " ".join(arguments) or "plain")
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_close_that_fails_fails_the_file(net, near, shim, place, arguments):
    source, target = near / "tree", near / "target"
    source.mkdir()
    for name, size in {"small": 10 * KIB, "chunk": MIB, "chunks": 3 * MIB, "large": 9 * MIB}.items():
        make_file(source / name, size)
    target.mkdir()
    if place == "memory":
        net.pair.mount_memory(target, 64)
    if "--inplace" in arguments:
        (target / "large").write_bytes(b"x" * 9 * MIB)
    env = {"LD_PRELOAD": str(shim), "CLOSE_FAILS_BELOW": str(target)}
    verb = "sync" if "--inplace" in arguments else "cp"
    outcome = cp(net.alpha, *arguments, f"{source}/", target, verb=verb, env=env, expect=EXIT_FILES)
    named = check_failed(outcome, target, "quota exceeded", codes=(EXIT_FILES,))
    assert len(outcome.report["failed"]) == 4, outcome
    assert set(named) == ({pathlib.Path("large")} if "--inplace" in arguments else set())
    again = cp(net.alpha, *arguments, f"{source}/", target, verb=verb)
    assert again.report["skipped"] == 0 and again.report["files"] == 4
    assert differences(source, target, root_too=False) == []


def test_a_stream_whose_close_fails_has_no_name(net, near, shim):
    target = near / "target"
    target.mkdir()
    env = {"LD_PRELOAD": str(shim), "CLOSE_FAILS_BELOW": str(target)}
    outcome = cp(net.alpha, "-", target / "stream", input=b"x" * 100_000, env=env, expect=EXIT_FILES)
    check_failed(outcome, target, "quota exceeded", codes=(EXIT_FILES,))
    assert files_of(target) == {}


def test_readback_reads_the_disk(net, near):
    """Small files and streams, too: content from the page cache would say nothing about the disk."""
    try:
        disk = Disk(net.pair, "ext4")
    except Unavailable as why:
        pytest.skip(str(why))
    source = near / "tree"
    source.mkdir()
    data = os.urandom(4 * MIB)
    for number in range(8):
        make_file(source / f"file{number}", MIB, seed=number)

    def blocks_read(*arguments, **options):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        cp(net.alpha, "--verify", "readback", *arguments, **options)
        return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512

    assert blocks_read(f"{source}/", disk.path / "tree") >= 8 * MIB
    assert blocks_read("-", disk.path / "stream", input=data) >= 4 * MIB
    assert differences(source, disk.path / "tree") == []
    disk.close()
