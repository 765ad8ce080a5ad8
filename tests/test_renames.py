"""`sync --detect-renames`: content that the destination has under another name is not sent, and nothing is
lost."""

import json
import os
import random
import shutil
import time

import pytest

from harness.product import EXIT_FILES, EXIT_OK, cp
from harness.trees import differences, leftovers, make_file

MIB = 1 << 20


@pytest.fixture(params=["push", "pull"])
def way(request, road, near):
    class Way:
        is_push = request.param == "push"
        source = (near if is_push else road.far) / "tree"
        target = (road.far if is_push else near) / "tree"

        def ends(self):
            return (self.source, road.url("tree")) if self.is_push else (road.url("tree"), self.target)

        def sync(self, *arguments, **options):
            return road.sync("--detect-renames", *arguments, *self.ends(), **options)

        def start(self, *arguments):
            return road.start(*road.arguments, "--detect-renames", *arguments, *self.ends(), verb="sync")
    return Way()


def fill(way, size=300_000):
    """Makes twenty files with different times, and syncs them."""
    for folder in ("a", "b/c"):
        (way.source / folder).mkdir(parents=True)
    for number in range(20):
        path = make_file(way.source / ("a" if number < 10 else "b/c") / f"f{number}", size + number, seed=number)
        os.utime(path, ns=(0, 1_500_000_000_000_000_000 + number))
    way.sync()


@pytest.mark.parametrize("when", ["--delete", "--delete-before"])
def test_renamed_files_and_directories_are_not_sent(way, when):
    fill(way)
    (way.source / "a/f0").rename(way.source / "a/renamed")
    (way.source / "a/f1").rename(way.source / "b/c/f1")
    (way.source / "b").rename(way.source / "moved")
    inodes = {path.stat().st_ino for path in way.target.rglob("f*")}
    outcome = way.sync(when, "-v", "--max-delete", "2")
    report = outcome.report
    assert (report["renames"], report["files"], report["content_bytes_sent"]) == (12, 0, 0), outcome
    assert report["deleted"] == 2, "only b and b/c, which nothing replaces"
    assert "renamed a/f0 -> a/renamed" in outcome.stderr.splitlines()
    assert differences(way.source, way.target) == [] and not leftovers(way.target)
    assert {path.stat().st_ino for path in way.target.rglob("*") if path.is_file()} == inodes, "moved, not copied"


def test_without_delete_the_old_name_stays_another_file(way):
    fill(way)
    (way.source / "a/f0").rename(way.source / "new")
    report = way.sync().report
    assert (report["renames"], report["files"], report["deleted"]) == (1, 0, 0)
    old, new = way.target / "a/f0", way.target / "new"
    assert old.read_bytes() == new.read_bytes() and old.stat().st_ino != new.stat().st_ino
    assert new.stat().st_mtime_ns == old.stat().st_mtime_ns


@pytest.mark.parametrize("twins", ["two old files", "one old file", "two names of one old file"])
def test_twins_stay_two_files(way, twins):
    """Files with the same bytes and times, like a licence in each directory of an archive."""
    fill(way)
    for folder in ("a", "b"):
        (way.source / "old" / folder).mkdir(parents=True)
    first, second = (way.source / "old" / folder / "LICENSE" for folder in ("a", "b"))
    make_file(first, 300_000, seed="licence")
    if twins == "two old files":
        shutil.copy2(first, second)
    elif twins == "two names of one old file":
        os.link(first, second)
    way.sync()
    (way.source / "old").rename(way.source / "new")
    first, second = (way.source / "new" / folder / "LICENSE" for folder in ("a", "b"))
    second.unlink(missing_ok=True)
    shutil.copy2(first, second)
    os.utime(second.parent, ns=(1, 1))
    report = way.sync("--delete").report
    assert (report["renames"], report["files"]) == (2, 0), report
    assert differences(way.source, way.target) == [] and not leftovers(way.target)
    assert all(path.stat().st_nlink == 1 for path in way.target.rglob("*") if path.is_file())


def test_a_copy_at_the_source_becomes_a_copy(way):
    """The old name stays in the source. The receiver knows this only after the listing."""
    fill(way)
    shutil.copy2(way.source / "a/f0", way.source / "copy")
    shutil.copy2(way.source / "b/c/f11", way.source / "a/0")
    (way.source / "a/0").chmod(0o600)
    report = way.sync("--delete").report
    assert (report["renames"], report["deleted"]) == (2, 0)
    assert differences(way.source, way.target) == []
    assert all(path.stat().st_nlink == 1 for path in way.target.rglob("*") if path.is_file())


def test_names_that_move_up_by_one(way):
    """Files that are rotated as logs are: each new name is the old name of another file."""
    way.source.mkdir()
    for number in range(6):
        path = make_file(way.source / f"log.{number}", 50_000 + number, seed=number)
        os.utime(path, (1_500_000_000 + number, 1_500_000_000 + number))
    way.sync()
    for number in reversed(range(6)):
        (way.source / f"log.{number}").rename(way.source / f"log.{number + 1}")
    (way.source / "log.0").write_text("fresh")
    way.sync("--delete")
    assert differences(way.source, way.target) == []


def test_the_same_size_and_time_is_not_enough(way):
    fill(way)
    (way.source / "a/f0").unlink()
    other = make_file(way.source / "other", 300_000, seed=99)
    os.utime(other, ns=(0, 1_500_000_000_000_000_000))
    report = way.sync("--delete").report
    assert (report["renames"], report["files"], report["deleted"]) == (0, 1, 1)
    assert differences(way.source, way.target) == []


def test_dry_run_and_protected_names(way):
    fill(way)
    (way.source / "a/f0").rename(way.source / "new")
    (way.source / "b/c/f12").rename(way.source / "new2")
    dry = way.sync("--delete", "--dry-run")
    assert dry.report["renames"] == 2 and not (way.target / "new").exists(), dry
    assert "would rename a/f0 -> new" in dry.stderr.splitlines()
    report = way.sync("--delete", "--exclude", "/b").report
    assert (report["renames"], report["files"]) == (1, 1), "excluded files are not looked at"
    assert (way.target / "b/c/f12").exists() and not (way.target / "a/f0").exists()


def test_a_deletion_that_is_stopped_leaves_two_files(way):
    fill(way)
    (way.source / "a/f0").rename(way.source / "new")
    shutil.rmtree(way.source / "b")
    outcome = way.sync("--delete", "--max-delete", "3", expect=EXIT_FILES)
    assert outcome.report["renames"] == 1 and outcome.report["deleted"] == 0, outcome
    way.sync("--delete", expect=EXIT_OK)
    assert differences(way.source, way.target) == []


def test_the_manifest_says_from_where(way, near):
    fill(way)
    (way.source / "a/f0").rename(way.source / "new")
    way.sync("--manifest", near / "m")
    lines = [json.loads(line) for line in (near / "m").read_text().splitlines()]
    line, = [line for line in lines if line.get("path") == "new"]
    assert line["result"] == "renamed" and line["from"] == "a/f0" and len(line["digest"]) == 64


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_when_it_is_killed(way, seed):
    fill(way, size=2 * MIB)
    chance = random.Random(seed)
    contents = {path.read_bytes() for path in way.target.rglob("f*")}
    (way.source / "a").rename(way.source / "b/z")
    for number in range(10, 15):
        (way.source / f"b/c/f{number}").rename(way.source / f"n{number}")
    for _ in range(3):
        process = way.start("--delete")
        time.sleep(chance.random() * 0.5)
        process.kill()
        process.communicate()
        time.sleep(0.3)
        assert contents <= {path.read_bytes() for path in way.target.rglob("*") if path.is_file()}
    way.sync("--delete")
    assert differences(way.source, way.target) == []


def link_groups(root):
    """The names of each file that has several, by what they are."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file():
            found.setdefault(path.stat().st_ino, []).append(str(path.relative_to(root)))
    return sorted(sorted(names) for names in found.values())


def change(tree, draw):
    """One change of names in a tree: a rename, a further link, a copy with its time, or the end of a name."""
    names = sorted(path for path in tree.rglob("*") if path.is_file())
    old, new = draw.choice(names), tree / draw.choice("abc") / f"n{draw.randrange(1000)}"
    if new.exists():
        return
    kind = draw.choice(["rename", "link", "link", "copy", "unlink"])
    if kind == "rename":
        old.rename(new)
    elif kind == "link":
        os.link(old, new)
    elif kind == "copy":
        shutil.copy2(old, new)
    elif len(names) > 3:
        old.unlink()


@pytest.mark.parametrize("seed", range(8))
def test_names_of_one_file_are_one_file_at_the_destination_whatever_was_renamed(net, near, seed):
    draw = random.Random(seed)
    source, target = near / "source", near / "target"
    for directory in "abc":
        (source / directory).mkdir(parents=True)
    for number in range(4):
        path = source / "a" / f"f{number}"
        path.write_text("content")
        os.utime(path, ns=(0, 1_500_000_000_000_000_000))
    options = ["--delete", "--detect-renames", source, target]
    for _ in range(4):
        cp(net.alpha, *options, verb="sync")
        assert link_groups(target) == link_groups(source), f"seed {seed}"
        assert differences(source, target) == []
        for _ in range(draw.randrange(1, 6)):
            change(source, draw)
