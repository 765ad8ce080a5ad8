"""A source has changed between two runs, or only looks as if it had. The content of an earlier run is trusted
if nothing about the source has changed, compared with the source if only size and time are the same, and
never mixed with another state of the source."""

import os
import shutil
import signal

import pytest

from harness.hosts import wait_until
from harness.trees import leftovers, make_file, sha256
from test_resume import MIB, damage, interrupted_at, revive

SIZE = 96 * MIB + 4711
CHUNKS = 30


def changed_in_place(source, *places):
    """Changes a byte at each place and then restores the file's time, as VeraCrypt and `touch -r` do."""
    before = os.stat(source)
    for place in places:
        damage(source, place)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def journal_of(folder):
    [journal] = [path for path in leftovers(folder) if path.suffix == ".fhjournal"]
    return journal


def chunks_there(folder):
    """The chunks that the journal of one undisturbed run lists."""
    records = journal_of(folder).read_bytes()[144:]
    records = [records[at:at + 56] for at in range(0, len(records) - 55, 56)]
    return {int.from_bytes(record[8:16], "little") for record in records if record[0] == 1}


class Interrupted:
    """A copy of one file that was killed at both ends after some chunks."""

    def __init__(self, road, direction, *arguments, verb="cp"):
        self.road, self.verb, self.arguments = road, verb, arguments
        near = road.net.folder("near")
        here, there = near / "file", road.far / "file"
        self.source, self.target = (here, there) if direction == "push" else (there, here)
        make_file(self.source, SIZE)
        self.ends = (here, road.url("file")) if direction == "push" else (road.url("file"), here)
        self.folder = self.target.parent
        interrupted_at(road, self.folder, CHUNKS, *arguments, *self.ends)
        revive(road)
        self.kept = len(chunks_there(self.folder)) if "transit" not in arguments else 0
        assert not self.target.exists()

    def again(self, *arguments, source=None):
        ends = [source or self.ends[0], self.ends[1]]
        run = self.road.cp
        if self.verb == "sync":
            run, ends = self.road.sync, [str(end).removesuffix("file") for end in ends]
        report = run(*self.arguments, *arguments, *ends).report
        assert sha256(self.target) == sha256(self.source if source is None else source)
        assert not leftovers(self.folder)
        return report

    def assert_only_the_missing(self, report, changed=0):
        """Asserts that of the kept chunks only `changed` chunks are sent."""
        kept = (self.kept - changed) * MIB
        # The journal may have got more chunks between the look at it and the kill.
        more = report["bytes_resumed"] - kept
        assert 0 <= more <= 4 * MIB, (self.kept, report)
        assert report["bytes"] + report["bytes_matched"] == SIZE - kept - more, report
        assert report["content_bytes_sent"] <= SIZE - kept, report


WAYS = {"plain": [], "transit": ["--verify", "transit"], "readback": ["--verify", "readback"], "durable": ["--durable"],
        "whole": ["-W"], "checksum": ["-c"]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", ["push", "pull"])
def test_a_source_changed_in_place_is_never_mixed(own_road, direction, way):
    """The source's time was restored, so that size and time are as before."""
    verb = "sync" if way == "checksum" else "cp"
    arguments = [] if verb == "sync" else WAYS[way]
    run = Interrupted(own_road, direction, *arguments, verb=verb)
    run.arguments = WAYS[way]
    changed_in_place(run.source, 3 * MIB + 17, 7 * MIB)
    report = run.again()
    if way == "transit":
        # Without digests there is nothing to compare.
        assert report["bytes_resumed"] == 0 and report["bytes"] == SIZE, report
    else:
        run.assert_only_the_missing(report, changed=2)


def test_the_manifest_has_the_digest_of_what_arrived(own_road):
    run = Interrupted(own_road, "push")
    changed_in_place(run.source, 5 * MIB)
    manifest = own_road.net.folder("near") / "manifest"
    run.again("--manifest", manifest)
    assert own_road.net.beta.run(["farhaul", "verify", manifest, own_road.far]).returncode == 0
    assert own_road.alpha.run(["farhaul", "verify", manifest, run.source.parent]).returncode == 0


def touched(run):
    """Changes that leave content and time as they were."""
    os.chmod(run.source, 0o640)
    yield "mode", None
    os.link(run.source, run.source.parent / "second")
    yield "link", None
    os.unlink(run.source.parent / "second")
    copy = run.source.parent / "copy"
    shutil.copy2(run.source, copy)
    os.replace(copy, run.source)
    yield "restored", None


@pytest.mark.parametrize("more", [[], ["-W"], ["--verify", "readback"]])
@pytest.mark.parametrize("what", ["mode", "link", "restored"])
def test_what_only_looks_changed_is_not_sent_again(own_road, what, more):
    run = Interrupted(own_road, "push", *more)
    for done, _ in touched(run):
        if done == what:
            break
    report = run.again()
    run.assert_only_the_missing(report)
    if more == ["-W"]:
        assert report["content_bytes_sent"] == SIZE - run.kept * MIB, report


def test_the_same_file_of_another_device_is_not_sent_again(own_road):
    """A copy of the file on another device, as in a snapshot."""
    run = Interrupted(own_road, "push", "-W")
    disk = own_road.net.pair.small_disk(128)
    shutil.copy2(run.source, disk / "file")
    report = run.again(source=disk / "file")
    run.assert_only_the_missing(report)


def test_nothing_is_compared_where_nothing_has_moved(own_road):
    """Content that has arrived is not read again: a byte that another program has changed is found only by
    readback."""
    run = Interrupted(own_road, "push", "-W")
    first = min(chunks_there(run.folder))
    before = journal_of(run.folder).stat().st_size
    outcome = own_road.start("-W", "--rate", "400M", *run.ends)
    wait_until(lambda: journal_of(run.folder).stat().st_size > before + 56 * 5, what="the copy goes on")
    os.kill(outcome.pid, signal.SIGKILL)
    outcome.wait()
    text = journal_of(run.folder).read_bytes()[144:]
    again = [at for at in range(0, len(text) - 55, 56) if text[at] == 1 and text[at + 8] == first]
    assert len(again) == 1, "the journal has the chunk once"


def test_a_comparison_that_is_interrupted_goes_on(own_road):
    """The run is killed while it compares and sends, and the source changes again before the next run."""
    road = own_road
    run = Interrupted(road, "push")
    kept = run.kept
    for place in (2 * MIB, 11 * MIB + 5):
        changed_in_place(run.source, place)
        before = journal_of(run.folder).stat().st_size
        process = road.start("--rate", "100M", *run.ends)
        wait_until(lambda: journal_of(run.folder).stat().st_size > before + 56 * 6, what="the journal grows")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    changed_in_place(run.source, 13 * MIB)
    report = run.again()
    assert report["bytes_resumed"] >= (kept - 3) * MIB, report


def test_a_source_on_several_disks(own_road):
    road = own_road
    near, other = road.net.folder("near"), road.net.folder("other")
    for folder in (near, other):
        (folder / "tree").mkdir()
    source = make_file(other / "tree/file", SIZE)
    arguments = ["--spread", f"{near},{other}", near / "tree", road.url("copy/")]
    process = road.start("--rate", "400M", *arguments)
    wait_until(lambda: sum(path.stat().st_size for path in leftovers(road.far) if path.suffix == ".fhjournal") > 144 + 56 * CHUNKS,
               seconds=60, what="the journal grows")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    changed_in_place(source, 3 * MIB)
    report = road.cp(*arguments).report
    assert report["bytes_resumed"] >= (CHUNKS - 2) * MIB, report
    assert sha256(road.far / "copy/tree/file") == sha256(source)
