"""What a transfer takes of its host: it keeps to the cores that were named, and has as many flows as these
can feed."""

import os
import re
import subprocess

import pytest

from harness import product

BINARY = product.binary()
CORES = sorted(os.sched_getaffinity(0))


def run(*arguments):
    argv = [BINARY, "cp", "--json", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def threads_of(process):
    """Which cores each thread of a running process may use, as the kernel writes it."""
    lists = {}
    for task in os.scandir(f"/proc/{process.pid}/task"):
        try:
            status = open(f"{task.path}/status").read()
        except OSError:
            continue
        name = re.search(r"^Name:\s*(.*)$", status, re.M)[1]
        lists[name] = re.search(r"^Cpus_allowed_list:\s*(.*)$", status, re.M)[1]
    return lists


def test_every_thread_keeps_to_the_cores_that_were_named():
    core = str(CORES[-1])
    argv = [BINARY, "cp", "--quiet", "--cpus", core, "zero:", "null:"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            seen = {}
            while not {"flow-0", "read", "write"} <= seen.keys():
                assert process.poll() is None
                seen = threads_of(process)
            # The main thread may have been looked at before it had read its options, so look again.
            seen = threads_of(process)
        finally:
            process.kill()
    assert set(seen.values()) == {core}, seen


@pytest.mark.parametrize("cores", ["9999", "x", "3-1", ""])
def test_cores_that_are_none_are_refused_in_a_line(cores):
    ran = run("--cpus", cores, "zero:1M", "null:")
    assert ran.returncode == product.EXIT_USAGE, ran
    # If the text is not a list, the message is clap's own.
    assert "--cpus" in ran.stderr.splitlines()[0], ran.stderr


def test_a_core_that_is_not_there_is_named_with_those_that_are():
    missing = CORES[-1] + 1
    ran = run("--cpus", f"{CORES[0]},{missing}", "zero:1M", "null:")
    assert ran.returncode == product.EXIT_USAGE
    assert f"cannot have CPU {missing}, only {CORES[0]}" in ran.stderr, ran.stderr


def test_flows_follow_the_cores(net):
    """`--flows auto` takes a flow for every four cores, at least one and at most eight."""
    for arguments, expected in (([], min(max(len(CORES) // 4, 1), 8)), (["--cpus", str(CORES[0])], 1)):
        ran = product.cp(net.alpha, "--accept-new", "--flows", "auto", *arguments, "random:8M", net.daemon.url("null:"))
        assert ran.report["flows"] == expected, ran
