"""`--manifest`: one line of JSON for each entry, written on the host of the command, whichever way the data
go."""

import base64
import json
import os
import pathlib
import subprocess
import time

import pytest

from harness.digest_tree import root_of_manifest
from harness.hosts import wait_until
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, EXIT_USAGE, finish
from harness.trees import listing, make_file, make_tree, sha256

MIB = 1 << 20


def name_of(line, key="path"):
    if f"{key}_base64" in line:
        return base64.b64decode(line[f"{key}_base64"])
    return os.fsencode(line[key])


def read(path):
    """The lines between the first and the last, by path; each path has one line. And the last line."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_bytes().splitlines()]
    assert lines[0]["manifest"] == 1 and lines[0]["digest"] == "blake3-tree-1MiB"
    entries = {name_of(line): line for line in lines[1:-1]}
    assert len(entries) == len(lines) - 2, "one line for each entry"
    return entries, lines[-1]


@pytest.fixture(params=["push", "pull"])
def way(request, road, near):
    class Way:
        is_push = request.param == "push"
        source = (near if is_push else road.far) / "tree"
        target = (road.far if is_push else near) / "copy"
        manifest = near / "manifest.jsonl"

        def run(self, *arguments, verb="sync", **options):
            ends = (f"{self.source}/", road.url("copy/")) if self.is_push else (road.url("tree/"), f"{self.target}/")
            return getattr(road, verb)("--manifest", self.manifest, *arguments, *ends, **options)

        def start(self, *arguments):
            ends = (f"{self.source}/", road.url("copy/")) if self.is_push else (road.url("tree/"), f"{self.target}/")
            return road.start("--manifest", self.manifest, *arguments, *ends)
    return Way()


def test_every_entry_has_a_line_that_is_true(way):
    make_tree(way.source, seed=51, files=80)
    report = way.run("--checksum-extra", "sha256,md5").report
    entries, end = read(way.manifest)
    assert end == {"end": True, "ok": True, "complete": True}
    assert report["tree_root"] == root_of_manifest(way.manifest)
    found = listing(way.source)
    assert entries.keys() == {path or b"." for path in found}
    kinds = {"file": 0, "directory": 0, "symlink": 0, "hardlink": 0}
    for path, line in entries.items():
        kinds[line["kind"]] += 1
        there = found[path if path != b"." else b""]
        assert line["result"] == "sent" and line["mtime_ns"] == there.st_mtime_ns, line
        assert int(line["mode"], 8) == there.st_mode & 0o7777
        full = os.path.join(os.fsencode(way.source), path)
        if line["kind"] == "file":
            assert line["size"] == there.st_size and len(line["digest"]) == 64
            assert line["sha256"] == sha256(os.fsdecode(full))
            md5 = subprocess.run(["md5sum", "-z", full], check=True, stdout=subprocess.PIPE).stdout[:32].decode()
            assert line["md5"] == md5
        elif line["kind"] == "symlink":
            assert name_of(line, "target") == os.readlink(full)
        elif line["kind"] == "hardlink":
            other = os.path.join(os.fsencode(way.source), name_of(line, "to"))
            assert os.stat(other).st_ino == there.st_ino
    assert kinds["file"] == report["files"] and kinds["symlink"] + kinds["hardlink"] == report["links"]
    assert kinds["hardlink"] == 3


def test_the_second_run_says_what_it_found(way):
    make_tree(way.source, seed=52, files=60)
    way.run()
    first, _ = read(way.manifest)
    (way.source / "dir0/new").write_text("new")
    (way.target / "surplus").write_text("x")
    way.run("--delete")
    second, _ = read(way.manifest)
    assert second[b"dir0/new"]["result"] == "sent" and second[b"surplus"]["result"] == "deleted"
    files = [path for path, line in second.items() if line.get("kind") == "file" and path != b"dir0/new"]
    assert all(second[path]["result"] == "unchanged" and "digest" not in second[path] for path in files)
    way.run("--checksum-unchanged")
    third, _ = read(way.manifest)
    for path in files:
        assert third[path]["result"] == "unchanged" and third[path]["digest"] == first[path]["digest"]
        # Only the receiver has read it.
        assert "compared" not in third[path]
    for options in (["--checksum"], ["--checksum", "--checksum-unchanged"]):
        way.run(*options)
        by_content, _ = read(way.manifest)
        for path in files:
            if first[path]["size"]:
                assert by_content[path]["digest"] == first[path]["digest"] and by_content[path]["compared"] is True, path


def test_what_fails_and_what_is_kept_is_told(way, net):
    way.source.mkdir()
    way.target.mkdir()
    for name in ("good", "blocked", "older"):
        (way.source / name).write_text(name)
    (way.target / "blocked").mkdir()
    (way.target / "blocked/x").write_text("x")
    (way.target / "older").write_text("mine")
    outcome = way.run("--overwrite", "never", verb="cp", expect=EXIT_SOME_FAILED)
    entries, end = read(way.manifest)
    assert end["ok"] is False
    assert entries[b"blocked"]["result"] == "failed" and "directory" in entries[b"blocked"]["error"]
    assert entries[b"blocked"]["code"] == "FH-ALREADY-EXISTS"
    assert entries[b"blocked"]["size"] == 7 and entries[b"older"]["result"] == "kept"
    assert entries[b"good"]["result"] == "sent"
    assert [one["path"] for one in outcome.report["failed"]] == ["blocked"] and outcome.report["complete"]


def test_a_dry_run_says_what_it_would_send(way):
    make_tree(way.source, seed=53, files=20)
    way.run("--dry-run")
    entries, _ = read(way.manifest)
    assert {line["kind"] for line in entries.values()} == {"file", "directory", "symlink", "hardlink"}
    assert all(line["result"] == "would-send" for line in entries.values())
    assert not way.target.exists()


def test_a_dry_run_finds_links_that_are_there(way):
    make_tree(way.source, seed=54, files=20)
    os.mkfifo(way.source / "pipe")
    way.run("--specials")
    report = way.run("--specials", "--dry-run").report
    entries, _ = read(way.manifest)
    assert (report["files"], report["links"]) == (0, 0), report
    assert all(line["result"] == "unchanged" for line in entries.values() if line["kind"] != "directory")
    linked = next(path for path, line in entries.items() if line["kind"] == "hardlink")
    file = name_of(entries[linked], "to")
    os.utime(os.path.join(os.fsencode(way.source), file), (1, 1))
    assert way.run("--specials", "--dry-run").report["links"] > 0, "a file that is replaced loses its other names"
    results = {path: line["result"] for path, line in read(way.manifest)[0].items()}
    assert results[linked] == results[file] == "would-send"


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_new_name_at_the_destination_is_told(road, near, direction):
    source = make_tree((near if direction == "push" else road.far) / "old", seed=54, files=10)
    ends = (source, road.url("new")) if direction == "push" else (road.url("old"), near / "new")
    road.cp("--manifest", near / "m", *ends)
    entries, _ = read(near / "m")
    for path, line in entries.items():
        assert path.startswith(b"old") and name_of(line, "dest") == b"new" + path[3:]


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_resumed_file_has_its_digest(own_road, direction):
    """This run has not read what an earlier one brought, and still has a digest of the whole file."""
    near = own_road.net.folder("near")
    source = make_file((near if direction == "push" else own_road.far) / "file", 64 * MIB)
    ends = (source, own_road.url("copy")) if direction == "push" else (own_road.url("file"), near / "copy")
    own_road.cp(*ends, "--manifest", near / "whole")
    target = own_road.far / "copy" if direction == "push" else near / "copy"
    target.unlink()
    process = own_road.start("--rate", "100M", *ends)
    while not any(target.parent.glob(".*.fhjournal")) or process.poll() is None and progress(target) < 8 * MIB:
        assert process.poll() is None
    process.kill()
    process.communicate()
    report = own_road.cp(*ends, "--manifest", near / "resumed").report
    assert report["bytes_resumed"] > 0
    whole, resumed = (read(near / name)[0][os.fsencode(source.name)]["digest"] for name in ("whole", "resumed"))
    assert whole == resumed


def progress(target):
    return sum(path.stat().st_size for path in target.parent.glob(".*.fhjournal")) * 20_000


def test_a_pipe_has_its_size_and_digest(road, near):
    make_file(near / "content", 3 * MIB + 5)
    with open(near / "content", "rb") as content:
        road.cp("--manifest", near / "m", "-", road.url("piped"), stdin=content)
    road.cp("--manifest", near / "m2", near / "content", road.url("plain"))
    piped, plain = (next(iter(read(near / name)[0].values())) for name in ("m", "m2"))
    assert piped["size"] == 3 * MIB + 5 and piped["digest"] == plain["digest"]


def test_a_manifest_that_cannot_be_written_stops_the_run_before_it_begins(road, near):
    make_file(near / "a", 10)
    outcome = road.cp("--manifest", near / "missing/m", near / "a", road.url("a"), expect=EXIT_FILES)
    assert "manifest" in outcome.error_line and not (road.far / "a").exists()
    road.cp("--checksum-extra", "md5", near / "a", road.url("a"), as_json=False, expect=EXIT_USAGE)
    road.cp("--manifest", near / "m", "--checksum-extra", "crc", near / "a", road.url("a"), as_json=False, expect=EXIT_USAGE)


@pytest.mark.slow
def test_a_manifest_costs_less_than_three_percent_of_the_processor(road, near):
    """Measured with 100,000 small files, both ends together, with and without a manifest in turns."""
    tree = near / "many"
    for number in range(100_000):
        folder = tree / f"{number // 1000}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"{number}").write_bytes(b"%d" % number)
    used = {True: [], False: []}
    for turn in range(10):
        with_manifest = turn % 2 == 1
        extra = ["--manifest", near / "m"] if with_manifest else []
        before = os.times()
        road.cp(*extra, tree, road.url(f"copy{turn}"), timeout=300)
        after = os.times()
        used[with_manifest].append(after.children_user + after.children_system - before.children_user - before.children_system)
    cost = sorted(used[True])[2] / sorted(used[False])[2]
    print(f"with a manifest {cost:.3f} of the processor time at the client")

def verify(way, net):
    host = net.beta if way.is_push else net.alpha
    done = host.run(["farhaul", "verify", os.fspath(way.manifest), os.fspath(way.target)], timeout=120)
    assert done.returncode == 0 and done.stdout == b"", done


def test_a_pipe_has_a_line_whether_it_is_made_or_left_out(way, net):
    way.source.mkdir()
    os.mkfifo(way.source / "pipe", 0o640)
    (way.source / "file").write_text("x")
    way.run()
    entries, _ = read(way.manifest)
    assert entries[b"pipe"]["result"] == "skipped" and "`specials`" in entries[b"pipe"]["reason"]
    for result in ("sent", "unchanged"):
        way.run("--specials")
        entries, _ = read(way.manifest)
        assert (entries[b"pipe"]["result"], entries[b"pipe"]["kind"]) == (result, "fifo")
        assert entries[b"pipe"]["mode"] == "0640"
        verify(way, net)


def test_a_file_of_which_only_what_differs_came_has_a_digest_of_all(way, net):
    way.source.mkdir()
    big = make_file(way.source / "big", 5 * MIB + 3)
    way.run()
    before, _ = read(way.manifest)
    with open(big, "r+b") as file:
        file.seek(2 * MIB)
        file.write(b"changed")
    assert way.run().report["bytes_matched"] > MIB
    entries, _ = read(way.manifest)
    assert entries[b"big"]["result"] == "sent" and entries[b"big"]["digest"] != before[b"big"]["digest"]
    verify(way, net)


@pytest.mark.parametrize("size", [2 * MIB + 5, 5])
def test_a_file_that_changed_while_it_was_read_has_one_line(way, net, size):
    way.source.mkdir()
    big = make_file(way.source / "big", 60 * MIB)
    run = way.start("--rate", "150M")
    wait_until(lambda: list(way.target.glob(".*.fhpart")), what="a part of the file arrives")
    time.sleep(0.5)
    os.truncate(big, size)
    done = finish(run)
    assert done.code == 0 and "it is read again" in done.stderr, done
    entries, _ = read(way.manifest)
    line = entries[b"big"]
    assert (line["result"], line["size"], line["mtime_ns"]) == ("sent", size, os.stat(big).st_mtime_ns)
    assert len(line["digest"]) == 64
    verify(way, net)
