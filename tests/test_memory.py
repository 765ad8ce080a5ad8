"""Memory is bounded whatever the size, and the first content leaves while the tree is still being scanned."""

import json
import os
import subprocess
import sys
import time

import pytest

from harness import lab
from harness.product import EXIT_INTERNAL, finish
from harness.sampling import MemoryWatch
from harness.trees import differences, make_file

MIB = 1 << 20


def make_wide_tree(root, files, per_folder=1000):
    """Many empty files, in folders of `per_folder`."""
    root.mkdir()
    for first in range(0, files, per_folder):
        folder = root / f"d{first // per_folder}"
        folder.mkdir()
        for number in range(first, min(files, first + per_folder)):
            os.close(os.open(folder / f"f{number}", os.O_CREAT | os.O_WRONLY))
    return root


def watched(road, *arguments, timeout):
    process = road.start(*arguments)
    net = road.net
    with MemoryWatch(lambda: net.alpha.pids("farhaul") + net.beta.pids("farhaul")) as watch:
        outcome = finish(process, timeout=timeout)
    assert outcome.code == 0, outcome
    return outcome, watch


def memory_tree(road, files):
    """A wide tree and a far folder, both on file systems in memory, on which files are always made
    quickly."""
    pair = road.net.pair
    pair.mount_memory(road.far, 4096)
    return make_wide_tree(pair.mount_memory(road.net.folder("near"), 4096) / "tree", files)


def test_hundred_thousand_files(own_road):
    road = own_road
    tree = memory_tree(road, 100_000)
    outcome, watch = watched(road, tree, road.url("copy"), timeout=400)
    assert outcome.report["files"] == 100_000
    assert watch.peak < 400 * MIB, f"{watch.peak / MIB:.0f} MiB"
    count = subprocess.run(f"find {road.far}/copy -type f | wc -l", shell=True, stdout=subprocess.PIPE).stdout
    assert int(count) == 100_000


def test_terabyte_hole_in_little_memory(own_road):
    road = own_road
    source = road.net.folder("near") / "hole"
    with open(source, "wb") as out:
        out.truncate(1 << 40)
        out.write(os.urandom(MIB))
    _, watch = watched(road, source, road.url("hole"), timeout=60)
    assert watch.peak < 400 * MIB, f"{watch.peak / MIB:.0f} MiB"


def test_first_content_leaves_while_the_scan_runs(own_road):
    """A file that the scan finds early is complete at the far end long before the transfer is over."""
    road = own_road
    # With so many files the start of the transfer, a fifth of a second over ssh, counts for little.
    tree = memory_tree(road, 300_000)
    make_file(tree / "d0/content", 300_000)
    process = road.start(tree, road.url("copy"))
    begin = time.monotonic()
    first = None
    while process.poll() is None:
        if first is None and (road.far / "copy").exists() and any((road.far / "copy").iterdir()):
            first = time.monotonic() - begin
        time.sleep(0.005)
    total = time.monotonic() - begin
    assert finish(process).code == 0
    assert first is not None and first < 0.5 * total, (first, total)


def test_daemon_memory_does_not_grow_with_transfers(own_net):
    from harness.product import cp
    from harness.sampling import resident_bytes
    near = own_net.folder("near")
    source = make_file(near / "file", 5 * MIB)
    sizes = []
    for n in range(12):
        cp(own_net.alpha, "--accept-new", source, own_net.daemon.url(f"f{n}"))
        sizes.append(resident_bytes(own_net.daemon.process.pid))
    assert sizes[-1] < sizes[3] + 24 * MIB, [size // MIB for size in sizes]


@pytest.mark.slow
def test_a_million_files(own_road):
    road = own_road
    tree = memory_tree(road, 1_000_000)
    _, watch = watched(road, tree, road.url("copy"), timeout=1200)
    assert watch.peak < 400 * MIB, f"{watch.peak / MIB:.0f} MiB"


@pytest.fixture(scope="module")
def long_link():
    """A link that holds 30 MB in flight; a sender hears of a loss 600 ms later."""
    with lab.Up("--rtt", "600ms", "--rate", "400m", "--loss", "1%") as link:
        yield link


PARKED = [("sender", "park"), ("receiver", "park")]


def test_a_path_that_holds_more_than_memory_is_filled(long_link, tmp_path):
    """Blocks for which memory has no room go into the overflow file, at both ends."""
    script = f"cd {tmp_path}" + """
        head -c 150000000 /dev/urandom > file
        farhaul cp --json --memory 16M $FARHAUL_LAB_CP_OPTIONS file ${FARHAUL_LAB_URL}copy
        sha256sum < file >&2; farhaul cp $FARHAUL_LAB_CP_OPTIONS ${FARHAUL_LAB_URL}copy - | sha256sum >&2
    """
    done = long_link.execute("a", "bash", "-ec", script, timeout=120)
    report = json.loads(done.stdout)
    sums = [line for line in done.stderr.decode().splitlines() if line.endswith("  -")]
    assert len(sums) == 2 and sums[0] == sums[1], done.stderr.decode()
    parked = {(stage["end"], stage["name"]) for stage in report["stages"] if stage["busy"] > 0}
    assert parked.issuperset(PARKED), report
    waits = {stage["name"]: stage["busy"] for stage in report["stages"] if stage["end"] == "sender"}
    assert waits["wait-receiver"] < 0.25, report
    for peak in (report["peak_rss_bytes_local"], report["peak_rss_bytes_remote"]):
        assert peak < (64 + 16) * MIB, f"{peak / MIB:.0f} MiB"


def test_a_slow_destination_of_a_long_path_keeps_what_has_come(long_link, tmp_path):
    """Complete blocks go into the overflow file, too, and come out complete and in order."""
    slowly = f'{sys.executable} -c "import sys, time\nwhile b := sys.stdin.buffer.read(1_000_000):\n sys.stdout.buffer.write(b); time.sleep(.05)"'
    script = f"""
        cd {tmp_path}
        head -c 80000000 /dev/urandom > file
        farhaul cp --quiet $FARHAUL_LAB_CP_OPTIONS file ${{FARHAUL_LAB_URL}}far
        sha256sum < file; farhaul cp --memory 16M $FARHAUL_LAB_CP_OPTIONS ${{FARHAUL_LAB_URL}}far - | {slowly} | sha256sum
    """
    sums = long_link.execute("a", "bash", "-ec", script, timeout=120).stdout.split()
    assert len(sums) == 4 and sums[0] == sums[2], sums


@pytest.mark.parametrize("kib", [1_000_000, 250_000])
def test_a_copy_runs_where_the_address_space_is_limited(net, near, kib):
    """Job schedulers set such a limit; a process reserves much more address space than it uses."""
    source = near / "source"
    source.mkdir()
    for number in range(100):
        (source / f"small{number}").write_text(str(number))
    make_file(source / "large", 40 * MIB)
    for number, target in enumerate([f"{near}/copy", f"beta:{near}/far"]):
        net.alpha.run(["bash", "-c", f'ulimit -v {kib}; exec farhaul cp -q -r "$1" "$2"', "bash", source, target], check=True)
        assert differences(source, near / ["copy", "far"][number]) == []


def test_an_address_space_that_is_too_small_is_named(net, near):
    source = make_file(near / "file", MIB)
    done = net.alpha.run(["bash", "-c", 'ulimit -v 90000; exec farhaul cp "$1" "$2"', "bash", source, near / "copy"])
    assert done.returncode == EXIT_INTERNAL and b"limited to 87 MiB (ulimit -v)" in done.stderr, done
