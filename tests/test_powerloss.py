"""What is left of a transfer when the power fails: no file counts as complete if its data had not reached the
disk."""

import os
import random
import signal
import subprocess
import time

import pytest

from harness import product
from harness.powerloss import KINDS, Disk, Unavailable, after_a_reboot, files_of, taken_for_complete
from harness.trees import differences, make_file

KIB, MIB = 1 << 10, 1 << 20
#: Files of 2 to 4 chunks, which have no journal and are always written through the page cache; larger files;
#: small files.
SIZES = [3 * MIB] * 8 + [MIB + 1, 2 * MIB, 6 * MIB, 17 * MIB + 5] + [MIB, 300 * KIB, 4096, 17] * 4


@pytest.fixture(params=KINDS)
def disk(request, net):
    try:
        made = Disk(net.pair, request.param)
    except Unavailable as why:
        pytest.skip(str(why))
    yield made
    made.close()


def make_source(folder, seed=1, sizes=SIZES):
    (folder / "d").mkdir(parents=True)
    for number, size in enumerate(sizes):
        make_file(folder / ("d" if number % 2 else ".") / f"file{number}", size, seed=seed * 1000 + number)
    hole = folder / "sparse"
    with open(hole, "wb") as file:
        file.truncate(9 * MIB)
        file.seek(5 * MIB)
        file.write(random.Random(seed).randbytes(2 * MIB))
    os.link(folder / "file0", folder / "d" / "second-name")
    return folder


def run(net, source, target, *arguments, verb="cp", again=False, **options):
    argv = ["farhaul", verb, "--json", *map(os.fspath, arguments), f"{source}/", os.fspath(target)]
    if again:
        argv = after_a_reboot(net.pair, argv)
    done = net.alpha.run(argv, **options)
    assert done.returncode == 0, done.stderr.decode()


def lose_power(disk):
    disk.cut()
    disk.restart()


def check_and_go_on(net, disk, source, target, *arguments, verb="cp"):
    """After a cut: the files that are there are right, and the next run completes the tree. The partial file
    or journal of a complete file may have come back: `farhaul clean` removes it."""
    assert taken_for_complete(source, target) == []
    run(net, source, target, *arguments, verb=verb, again=True)
    net.alpha.run(["farhaul", "clean", "--older", "0s", os.fspath(target)], check=True)
    assert differences(source, target) == []


ARGUMENTS = pytest.mark.parametrize("verb,arguments", [
    ("cp", []), ("sync", ["--inplace"]), ("sync", ["--no-whole-file"]), ("sync", ["-c"]), ("cp", ["--verify", "transit"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value) or "plain")


def test_no_name_comes_before_its_bytes(net, near, disk):
    """A sync of another program has brought names and sizes to the disk when the power fails."""
    source, target = make_source(near / "source"), disk.path / "target"
    run(net, source, target)
    disk.sync_something_else()
    lose_power(disk)
    check_and_go_on(net, disk, source, target)


@pytest.mark.slow
@ARGUMENTS
def test_a_version_that_was_safe_is_not_lost(net, near, disk, verb, arguments):
    """Each file is completely the old or completely the new one."""
    old, new, target = make_source(near / "old", seed=1), make_source(near / "new", seed=2), disk.path / "target"
    for path in files_of(new).values():
        os.utime(path, ns=(0, 1_700_000_000_000_000_000))
    run(net, old, target)
    disk.sync()
    run(net, new, target, *arguments, verb=verb)
    disk.sync_something_else()
    lose_power(disk)
    assert taken_for_complete(new, target) == []
    if "--inplace" not in arguments:
        was, should = files_of(old), files_of(new)
        neither = [str(name) for name, path in files_of(target).items()
                   if path.read_bytes() not in (was[name].read_bytes(), should[name].read_bytes())]
        assert neither == []
    check_and_go_on(net, disk, new, target, *arguments, verb=verb)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1, 6, 12, 30])
def test_a_cut_after_the_end(net, near, disk, seconds):
    source, target = make_source(near / "source"), disk.path / "target"
    run(net, source, target)
    time.sleep(seconds)
    lose_power(disk)
    check_and_go_on(net, disk, source, target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["large", "small"])
def test_a_cut_in_the_middle(net, near, disk, what, seed):
    """The cut comes at a random instant, while another program syncs now and then, as databases and mail
    servers do."""
    chance = random.Random(f"{what} {seed} {disk.kind}")
    if what == "large":
        sizes = [chance.choice([MIB + 1, 3 * MIB, 9 * MIB, 30 * MIB]) for _ in range(20)]
    else:
        sizes = [chance.choice([17, 4096, 60 * KIB, 300 * KIB]) for _ in range(1500)]
    source, target = make_source(near / "source", seed, sizes), disk.path / "target"
    arguments = ["--rate", "1G"] if what == "large" else []
    process = product.start_cp(net.alpha, *arguments, f"{source}/", target)
    end = time.monotonic() + chance.uniform(0.05, 1.5)
    while time.monotonic() < end and process.poll() is None:
        time.sleep(chance.uniform(0.01, 0.2))
        disk.sync_something_else()
    disk.cut()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    disk.restart()
    target.mkdir(exist_ok=True)
    check_and_go_on(net, disk, source, target)
