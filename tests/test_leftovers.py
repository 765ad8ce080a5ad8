"""What interrupted transfers leave: farhaul tells it from users' files by its content, not by its name, and
can list and remove it."""

import json
import os
import pathlib
import signal


import pytest

from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, cp, finish
from harness.trees import differences, make_file, sha256

MIB = 1 << 20
NAMES = [".0123456789abcdef.fhpart", ".0123456789abcdef.fhjournal", ".0123456789abcdef.fhtmp", ".0123456789abcdef.fhlink",
         f".{'0123456789abcdef' * 2}.fhlink"]


def ours(root):
    return sorted(path for path in pathlib.Path(root).rglob(".*")
                  if path.suffix in (".fhpart", ".fhjournal", ".fhtmp", ".fhlink"))


def interrupted(road, source, url, folder, *arguments, chunks=5):
    """Kills a copy of a large file when a part of it has arrived, and returns its partial file."""
    before = set(ours(folder))
    process = road.start("--rate", "200M", *arguments, source, url)

    def journals():
        return [path for path in ours(folder) if path not in before and path.suffix == ".fhjournal"]

    wait_until(lambda: sum(path.stat().st_size for path in journals()) > 144 + 56 * chunks, seconds=60, what="a part of the file has arrived")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: is_free(journals()[0].with_suffix(".fhpart")), seconds=60, what="no process holds the partial file")
    return journals()[0].with_suffix(".fhpart")


def is_free(path):
    import fcntl
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_files_of_users_that_are_called_like_ours_arrive(way, verb):
    way.source.mkdir(parents=True)
    for name in NAMES:
        (way.source / name).write_text(f"of a user: {name}")
    (way.source / "empty.fhpart").write_text("")
    make_file(way.source / "large", 9 * MIB)
    report = way.sync(verb=verb, slash="/" if verb == "sync" else "").report
    assert report["failed_count"] == 0 and report["files"] == len(NAMES) + 2, report
    assert differences(way.source, way.target) == []


def test_one_of_them_arrives_by_its_name(road, near):
    (road.far / NAMES[0]).write_text("of a user")
    for pattern in (NAMES[0], ".*.fhpart"):
        target = near / pattern.replace("*", "x")
        target.mkdir()
        road.cp(road.url(pattern), f"{target}/")
        assert (target / NAMES[0]).read_text() == "of a user"


def test_what_a_run_has_left_is_not_copied_on(road, near):
    """A copy of a partial file, made by any means, is a file of the user."""
    source = make_file(near / "file", 64 * MIB)
    (road.far / "tree").mkdir()
    part = interrupted(road, source, road.url("tree/file"), road.far / "tree")
    (road.far / "tree/other").write_text("other")
    report = road.cp(road.url("tree"), near / "back").report
    assert report["files"] == 1 and sorted(os.listdir(near / "back")) == ["other"], report
    copy = road.far / "tree/.fedcba9876543210.fhpart"
    copy.write_bytes(part.read_bytes()[:3 * MIB])
    assert road.cp(road.url("tree"), near / "again").report["files"] == 2
    assert (near / "again" / copy.name).read_bytes() == copy.read_bytes()


def test_what_is_in_the_way_stays_and_blocks_nothing(road, near):
    """In a directory with a sticky bit, files of other users cannot be removed. The names depend on the
    directory."""
    source = make_file(near / "file", 64 * MIB)
    part = interrupted(road, source, road.url("file"), road.far)
    for path in ours(road.far):
        path.unlink()
    os.chmod(road.far, 0o1777)
    part.write_text("somebody else's")
    os.chown(part, 4242, 4242)
    road.cp(source, road.url("file"))
    assert sha256(road.far / "file") == sha256(source)
    assert part.read_text() == "somebody else's" and ours(road.far) == [part]
    os.utime(source)
    road.cp("--overwrite", "always", source, road.url("file"))
    part.unlink()


def test_nothing_is_left_of_files_that_nothing_could_resume(road, near):
    """Such files have no name before they are complete."""
    road.cp(make_file(near / "file", 3 * MIB), road.url("replaced"))
    before = road.net.beta.counter("rx_bytes")
    with open("/dev/zero", "rb") as endless:
        process = road.start("--rate", "100M", "-", road.url("piped"), stdin=endless)
    wait_until(lambda: road.net.beta.counter("rx_bytes") > before + 8 * MIB, what="a part of the content has arrived")
    assert sorted(os.listdir(road.far)) == ["replaced"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    os.utime(near / "file")
    road.cp(near / "file", road.url("replaced"))
    assert sorted(os.listdir(road.far)) == ["replaced"]


def clean(host, *arguments, expect=0):
    done = host.run(["farhaul", "clean", "--json", *map(str, arguments)])
    assert done.returncode == expect, done
    return json.loads(done.stdout)


def test_clean_removes_what_is_old_and_nobody_has(road, near):
    far, host = road.far, road.net.beta
    source = make_file(near / "file", 64 * MIB)
    (far / "deep/er").mkdir(parents=True)
    part = interrupted(road, source, road.url("deep/er/file"), far)
    users = far / "deep" / NAMES[0]
    users.write_text("of a user")
    (far / "link").symlink_to(near)
    disk = road.net.pair.mount_memory(far / "deep/er" / "mounted" if (far / "deep/er/mounted").mkdir() is None else None, 8)
    shown = host.run(["farhaul", "clean", far])
    assert shown.returncode == 0 and b"too young" in shown.stderr and part.exists(), shown
    report = clean(host, far)
    assert (report["removed"], report["younger"]) == (0, 1) and report["younger_bytes"] >= 5 * MIB, report
    report = clean(host, "--older", "0s", "--dry-run", far)
    assert [file["path"] for file in report["files"]] == [str(part.relative_to(far))] and part.exists()
    running = road.start("--rate", "20M", source, road.url("running"))
    wait_until(lambda: any(path.parent == far for path in ours(far)), what="another copy runs")
    shown = host.run(["farhaul", "clean", "--older", "0s", far])
    assert shown.stdout.startswith(b"removed: deep/er/") and b"1 leftover removed" in shown.stderr and b"1 in use" in shown.stderr, shown
    assert not part.exists() and not part.with_suffix(".fhjournal").exists() and users.exists()
    os.kill(running.pid, signal.SIGINT)
    finish(running)
    assert clean(host, far / "nowhere", expect=EXIT_FILES)["ok"] is False
    assert disk.exists()


def test_sync_delete_removes_what_is_left_of_sources_that_are_gone(road, near):
    tree = near / "tree"
    tree.mkdir()
    make_file(tree / "gone", 64 * MIB, seed=1)
    make_file(tree / "kept", 64 * MIB, seed=2)
    (road.far / "tree").mkdir()
    gone = interrupted(road, tree / "gone", road.url("tree/gone"), road.far)
    kept = interrupted(road, tree / "kept", road.url("tree/kept"), road.far)
    (tree / "gone").unlink()
    report = road.sync("--delete", "--dry-run", f"{tree}/", road.url("tree")).report
    assert report["deleted"] == 1 and gone.exists() and kept.exists(), report
    report = road.sync("--delete", f"{tree}/", road.url("tree")).report
    assert report["deleted"] == 1 and report["bytes_resumed"] > 4 * MIB, report
    assert differences(tree, road.far / "tree") == []


def test_verify_extra_says_what_is_left(road, near):
    tree = near / "tree"
    tree.mkdir()
    make_file(tree / "small", 1000)
    road.cp("--manifest", near / "m", tree, road.url("copy/"))
    source = make_file(near / "file", 64 * MIB)
    part = interrupted(road, source, road.url("copy/tree/file"), road.far)
    done = road.net.beta.run(["farhaul", "verify", "--extra", near / "m", road.far / "copy"])
    assert done.returncode == EXIT_SOME_FAILED and f"extra: tree/{part.name}".encode() in done.stdout, done
    assert b".fhjournal" not in done.stdout
    clean(road.net.beta, "--older", "0s", road.far)
    assert road.net.beta.run(["farhaul", "verify", "--extra", near / "m", road.far / "copy"]).returncode == 0


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_the_summary_says_what_is_kept(road, near, direction):
    if direction == "push":
        source, target = make_file(near / "file", 128 * MIB), road.url("file")
        folder = road.far
    else:
        make_file(road.far / "file", 128 * MIB)
        source, target, folder = road.url("file"), near / "copy", near
    process = road.start("--rate", "200M", source, target)
    wait_until(lambda: sum(path.stat().st_size for path in ours(folder) if path.suffix == ".fhjournal") > 144 + 56 * 8,
               what="a part of the file has arrived")
    os.kill(process.pid, signal.SIGINT)
    outcome = finish(process)
    assert outcome.report["bytes_kept"] >= 5 * MIB, outcome
    kept = outcome.report["bytes_kept"]
    assert "kept for the next run" in outcome.stderr, outcome
    wait_until(lambda: all(is_free(path) for path in ours(folder) if path.suffix == ".fhpart"), what="no process holds the partial files")
    report = road.cp(source, target).report
    # Blocks that had come when the run ended may not have been on the disk yet.
    assert report["bytes_kept"] == 0 and report["bytes_resumed"] >= kept // 2, (kept, report)
