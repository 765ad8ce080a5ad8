"""`--retry-failed`: another run takes just what failed in an earlier one, by its report or its manifest."""

import json
import os

import pytest

from harness.product import EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE
from harness.trees import differences, make_tree


@pytest.fixture(params=["push", "pull"])
def way(request, road, near):
    class Way:
        is_push = request.param == "push"
        source = (near if is_push else road.far) / "tree"
        target = road.far if is_push else near
        manifest, report_file = near / "m", near / "report.json"

        def run(self, source, target, *arguments, verb="cp", **options):
            ends = (near / source, road.url(target)) if self.is_push else (road.url(source), near / target)
            if str(source).endswith("/"):
                ends = (f"{ends[0]}/" if self.is_push else ends[0], ends[1])
            outcome = getattr(road, verb)(*arguments, *ends, **options)
            self.report_file.write_text(json.dumps(outcome.report) + "\n")
            return outcome
    return Way()


def block(folder, names):
    """Puts a directory that is not empty in the place of each file."""
    for name in names:
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.join(path, b"in the way"))


def unblock(folder, names):
    for name in names:
        os.rmdir(os.path.join(os.fsencode(folder), name, b"in the way"))
        os.rmdir(os.path.join(os.fsencode(folder), name))


NAMES = [b"plain", b"odd\xff\n\\ \"name", "Grüße\u202e".encode(), b"d/e/deep"]


def fill(way):
    make_tree(way.source, seed=71, files=40)
    (way.source / "d/e").mkdir(parents=True)
    for name in NAMES:
        with open(os.path.join(os.fsencode(way.source), name), "wb") as out:
            out.write(b"content of " + name)


@pytest.mark.parametrize("by", ["report", "manifest"])
def test_just_what_failed_is_taken(way, by):
    fill(way)
    target, copy = "into/", way.target / "into/tree"
    block(copy, NAMES)
    outcome = way.run("tree", target, "--manifest", way.manifest, expect=EXIT_SOME_FAILED)
    assert outcome.report["failed_count"] == len(NAMES) == len(outcome.report["failed"])
    again = way.run("tree", target, "--retry-failed", way.report_file, expect=EXIT_FILES)
    assert again.report["failed_count"] == len(NAMES) and again.report["skipped"] == 0
    unblock(copy, NAMES)
    changed = way.source / "sparse"
    changed.write_text("a run that takes only what failed does not look at this")
    done = way.run("tree", target, "--retry-failed", way.report_file if by == "report" else way.manifest)
    assert (done.report["files"], done.report["skipped"]) == (len(NAMES), 0)
    assert (copy / "sparse").stat().st_size == 40 << 20
    way.run("tree", target)
    assert differences(way.source, copy) == []


def test_a_renamed_source(way, net, road, near):
    """`cp tree host:new` made `new`; trying again what failed must not make `new/tree`."""
    fill(way)
    outcome = way.run("tree", "new")
    report = outcome.report
    assert report["renamed"]
    (way.target / "new/plain").unlink()
    report.update(ok=False, failed_count=1, failed=[{"path": "tree/plain", "reason": "no", "action": "copy"}])
    way.report_file.write_text(json.dumps(report))
    done = way.run("tree", "new", "--retry-failed", way.report_file)
    assert done.report["files"] == 1 and not (way.target / "new/tree").exists()
    assert differences(way.source, way.target / "new") == []


def test_of_a_sync(way):
    fill(way)
    copy = way.target / "copy"
    block(copy, NAMES)
    first = way.run("tree", "copy", verb="sync", expect=EXIT_SOME_FAILED)
    assert first.report["failed_count"] == len(NAMES)
    unblock(copy, NAMES)
    (copy / "surplus").write_text("x")
    done = way.run("tree", "copy", "--delete", "--retry-failed", way.report_file, verb="sync")
    assert done.report["files"] == len(NAMES) and done.report["deleted"] == 0 and (copy / "surplus").exists()
    way.run("tree", "copy", "--delete", verb="sync")
    assert differences(way.source, copy) == []


def test_sources_that_could_not_be_read(road, near):
    (near / "a").write_text("a")
    (near / "c").write_text("c")
    ends = [near / "a", near / "b", near / "c", road.url("into/")]
    (near / "r").write_text(json.dumps(road.cp(*ends, expect=EXIT_SOME_FAILED).report))
    (near / "b").write_text("b")
    done = road.cp("--retry-failed", near / "r", *ends).report
    assert (done["files"], done["skipped"]) == (1, 0) and (road.far / "into/b").read_text() == "b"


def test_nothing_to_do_and_what_is_refused(road, near):
    (near / "a").write_text("a")
    ends = [near / "a", road.url("into/")]
    report = road.cp(*ends).report
    (near / "r").write_text(json.dumps(report))
    done = road.cp("--retry-failed", near / "r", *ends, expect=EXIT_OK)
    assert done.report["ok"] and done.report["files"] == 0 and "nothing failed" in done.stderr
    for change in ({"complete": False, "error": "lost"}, {"failed_count": 3}, {"failed": 3},
                   {"failed": [{"path": "other/x", "reason": ""}], "failed_count": 1}):
        (near / "r").write_text(json.dumps({**report, **change}))
        refused = road.cp("--retry-failed", near / "r", *ends, expect=EXIT_USAGE)
        assert refused.error_line.startswith("error: --retry-failed"), refused
    assert len(road.cp("--manifest", near / "m", *ends).stderr.splitlines()) == 1
    (near / "m").write_bytes((near / "m").read_bytes()[:-5])
    refused = road.cp("--retry-failed", near / "m", *ends, expect=EXIT_USAGE)
    assert "ended early" in refused.error_line


@pytest.mark.slow
def test_every_failure_is_in_the_report(ssh_road, near):
    """Even if 100,000 files have failed."""
    road = ssh_road
    tree, target = near / "tree", road.far / "copy"
    tree.mkdir()
    target.mkdir()
    for number in range(100_000):
        os.mknod(tree / f"file-with-a-name-of-some-length-{number}")
    for number in range(100_000):
        os.mkdir(target / f"file-with-a-name-of-some-length-{number}")
    outcome = road.cp(f"{tree}/", road.url("copy/"), check=False, timeout=300)
    assert outcome.code == EXIT_SOME_FAILED
    assert outcome.report["failed_count"] == 100_000 == len(outcome.report["failed"])
    (near / "r").write_text(json.dumps(outcome.report))
    for number in range(0, 100_000):
        os.rmdir(target / f"file-with-a-name-of-some-length-{number}")
    done = road.cp("--retry-failed", near / "r", f"{tree}/", road.url("copy/"), timeout=300)
    assert done.report["files"] == 100_000
