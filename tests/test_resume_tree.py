"""kill -9 of either end at random instants of a tree's transfer: only what was under way is sent twice, and
all is right."""

import os
import pathlib
import random
import signal

import pytest

from harness.hosts import wait_until
from harness.product import finish
from harness.trees import differences, leftovers
from test_resume import MIB, SEED, kill_receiver, revive


def make_files(root, count, chance):
    """Makes small files in many directories, some of a few MiB among them. Returns the sum of their sizes."""
    blob = chance.randbytes(8 * MIB)
    total = 0
    for number in range(count):
        folder = root / f"d{number % 97:02}" / f"e{number % 7}"
        if number < 97 * 7:
            folder.mkdir(parents=True, exist_ok=True)
        size = chance.randrange(3 * MIB, 6 * MIB) if number % 2000 == 1999 else chance.randrange(0, 16_000)
        at = chance.randrange(len(blob) - size)
        (folder / f"file{number}").write_bytes(blob[at:at + size])
        total += size
    return total


def present(root):
    """Files under their final names: path -> (inode, size)."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.startswith("."):
                status = os.lstat(os.path.join(folder, name))
                found[os.path.relpath(os.path.join(folder, name), root)] = (status.st_ino, status.st_size)
    return found


def check_kills(road, files, kills):
    chance = random.Random(f"{SEED}{road.name}{files}")
    source, target = road.net.folder("near") / "tree", road.far / "tree"
    total = make_files(source, files, chance)
    beta = road.net.beta
    before, arrived, excess = {}, 0, []
    reached = 0
    for kill in range(kills):
        end = chance.choice(["sender", "receiver"])
        # Uniform over the rest, divided by the kills that are left: some kills come at the very start, in the
        # listing.
        amount = chance.uniform(0, 2 * max(total - arrived, MIB) / (kills - kill + 1))
        begin = beta.counter("rx_bytes")
        process = road.start(f"{source}/", road.url("tree"))
        wait_until(lambda: beta.counter("rx_bytes") - begin > amount or process.poll() is not None, seconds=300,
                   every=0.005, what="some of the tree comes")
        if process.poll() is None and end == "sender":
            os.kill(process.pid, signal.SIGKILL)
        elif process.poll() is None:
            kill_receiver(road)
        finish(process)
        came = beta.counter("rx_bytes") - begin
        if end == "receiver":
            revive(road)
        else:
            # The far end notices, writes what it has and ends; a new run would wait for that.
            wait_until(lambda: target.exists() or not came, seconds=30, what="the tree's directory")
        now, in_part = settled(target)
        for path, (inode, size) in before.items():
            assert now[path] == (inode, size), f"seed {SEED}, kill {kill} of the {end}: {path} was written again"
        reached = sum(size for _, size in now.values()) + in_part
        excess.append(came - (reached - arrived))
        before, arrived = now, reached
    begin = beta.counter("rx_bytes")
    done = finish(road.start(f"{source}/", road.url("tree")), timeout=600)
    assert done.code == 0, done
    excess.append(beta.counter("rx_bytes") - begin - (total - arrived))
    now = present(target)
    assert all(now[path] == was for path, was in before.items())
    # The directory itself does not count: an earlier run has made it.
    assert [line for line in differences(source, target) if not line.startswith("b''")] == [] and not leftovers(target)
    # Bytes that are no content: the manifest, which each run sends from its start, and the headers of
    # packets.
    begin = beta.counter("rx_bytes")
    assert finish(road.start(f"{source}/", road.url("tree")), timeout=600).report["files"] == 0
    manifest = beta.counter("rx_bytes") - begin
    twice = sum(excess) - (kills + 1) * manifest - 0.08 * total
    assert twice <= 16 * MIB * kills, f"{twice / MIB / kills:.1f} MiB a kill were sent twice"


def settled(root):
    """The files that are there and the bytes of partial files, once an end that lost its peer has written all
    it had."""
    seen = []

    def is_still():
        try:
            seen.append((present(root), partials(root)))
        except FileNotFoundError:
            # A file was renamed or removed between the listing and the look at it.
            seen.clear()
        return seen[-2:-1] == seen[-1:] != []

    wait_until(is_still, seconds=30, every=0.2, what="nobody writes to the tree")
    return seen[-1]


def partials(root):
    return sum(path.stat().st_blocks * 512 for path in pathlib.Path(root).rglob(".*.fhpart"))


def test_kills_of_a_tree(own_road):
    check_kills(own_road, files=3000, kills=6)


@pytest.mark.slow
def test_fifty_kills_of_a_hundred_thousand_files(own_road):
    check_kills(own_road, files=100_000, kills=50)
