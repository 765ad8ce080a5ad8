"""Names that a destination's file system does not tell apart, returns in another form, or does not accept."""

import json
import os
import subprocess

import pytest

from harness.hosts import USER, USER_ID, wait_until
from harness.product import EXIT_SOME_FAILED, cp
from harness.trees import differences, fill, leftovers, make_file, names

MIB = 1 << 20

#: What a failure says beside "rename one of them".
RENAMED = " (if it was renamed at the source: farhaul sync `delete-before`)"


@pytest.fixture
def folding(way):
    """A way to a destination that does not tell `a` from `A`."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no FUSE here: /dev/fuse is missing")
    way.target.mkdir()
    way.road.net.pair.mount_folding(way.target)
    yield way
    subprocess.run(["umount", "-l", way.target], check=False)


def failures(outcome):
    return {failed["path"]: failed["reason"] for failed in outcome.report["failed"]}


@pytest.mark.parametrize("name", ["\u00e9\u00e8", "\u6587\u4ef6", "\U0001f600\U0001f601", "plain"])
def test_a_folder_that_may_be_written_and_not_listed_takes_a_name_a_second_time(net, name):
    """An upload folder with mode 0333: nobody can list which names it has."""
    base = net.folder("upload")
    base.chmod(0o755)
    source, folder = base / "source", base / "folder"
    source.mkdir()
    folder.mkdir()
    (source / name).write_text("first")
    make_file(source / f"{name}-large", 5 * MIB)
    folder.chmod(0o333)
    os.chown(folder, USER_ID, USER_ID)
    files = [source / name, source / f"{name}-large"]
    assert cp(net.alpha, *files, f"{folder}/", user=USER).report["files"] == 2
    assert cp(net.alpha, *files, f"{folder}/", user=USER).report["skipped"] == 2
    (source / name).write_text("the second one")
    assert cp(net.alpha, *files, f"{folder}/", user=USER).report["files"] == 1
    assert (folder / name).read_text() == "the second one"


def test_what_cannot_have_its_name_fails_by_itself(folding):
    fill(folding.source, "a A Alone sub/foo sub/Foo dir/x dir/both Dir/y Dir/both Dir/in/deep only/File 123 caf\u00e9 CAF\u00c9")
    for name, seed in (("big", 1), ("BIG", 2)):
        make_file(folding.source / name, 5 * MIB, seed)
    os.symlink("a", folding.source / "link")
    os.symlink("A", folding.source / "LINK")
    os.mkfifo(folding.source / "pipe")
    os.mkfifo(folding.source / "PIPE")
    os.link(folding.source / "a", folding.source / "Hard")
    os.link(folding.source / "A", folding.source / "of-failed")
    outcome = folding.sync("--specials", slash="/", verb="cp", expect=EXIT_SOME_FAILED)
    found = failures(outcome)
    # The order of the scan decides which of two names of one file is sent as the file.
    linked = {"a", "Hard", "A", "of-failed"}
    lost = {"Alone", "sub/Foo", "Dir", "Dir/y", "Dir/both", "Dir/in", "Dir/in/deep", "only/File", "BIG", "LINK", "PIPE", "CAF\u00c9"}
    assert set(found) - linked == lost and {"A", "Hard"} <= set(found), found
    assert outcome.report["failed_count"] == len(found)
    for path in ("sub/Foo", "BIG", "LINK", "PIPE", "CAF\u00c9"):
        other = path.rpartition("/")[2].lower()
        assert found[path] in (f'this file system does not tell it from "{other}" (case-insensitive); rename one of them{RENAMED}',
                               f'this file system would call it "{other}"; rename it'), found[path]
    assert found["Alone"] == 'this file system would call it "alone"; rename it'
    assert found["Dir/y"] == found["Dir/in/deep"] == "its directory could not have its name there"
    # If two large files were under way at once, the partial file of the second one stays for a later run.
    there = {name for name in names(folding.target).split() if not name.startswith(".")}
    assert there - linked == set("sub sub/foo dir dir/x dir/both only 123 caf\u00e9 big link pipe".split())
    for path in ("sub/foo", "dir/x", "dir/both", "123", "caf\u00e9"):
        assert (folding.target / path).read_text() == f"content of {path}"
    assert (folding.target / "big").read_bytes() == (folding.source / "big").read_bytes()
    assert os.readlink(folding.target / "link") == "a"


def test_of_two_names_that_come_at_once_one_stays(folding):
    """In directories that are not known yet to ignore case."""
    fill(folding.source, " ".join(f"d{number}/foo d{number}/Foo" for number in range(300)))
    outcome = folding.sync(slash="/", verb="cp", expect=EXIT_SOME_FAILED)
    assert set(failures(outcome)) == {f"d{number}/Foo" for number in range(300)}
    for number in range(300):
        assert (folding.target / f"d{number}/foo").read_text() == f"content of d{number}/foo"


def test_what_is_there_under_another_case_stays_as_it_is(folding):
    fill(folding.source, "Foo same Dir/new dir2/ Old")
    make_file(folding.source / "Large", 3 * MIB)
    os.symlink("x", folding.source / "Link")
    for name in ("foo", "dir/old", "link/kept", "Same-size"):
        fill(folding.target, name.lower())
    make_file(folding.target / "large", 4 * MIB, seed=9)
    before = {path: (folding.target / path).read_bytes() for path in ("foo", "dir/old", "link/kept", "large")}
    lost = {"Foo", "Dir", "Dir/new", "Large", "Link", "Old"}
    for arguments in ([], ["--delete"], ["--delete", "--checksum"], ["--delete", "--detect-renames"], ["--inplace"]):
        outcome = folding.sync(*arguments, slash="/", expect=EXIT_SOME_FAILED)
        assert set(failures(outcome)) == lost, (arguments, outcome)
        assert {path: (folding.target / path).read_bytes() for path in before} == before, arguments
        assert (folding.target / "same").read_text() == "content of same"
    assert failures(outcome)["Foo"] == ('this file system does not tell it from "foo" (case-insensitive); '
                                        f"rename one of them{RENAMED}")
    # Surplus is deleted in directories in which no name was taken for another one.
    fill(folding.target, "dir2/surplus")
    outcome = folding.sync("--delete", slash="/", expect=EXIT_SOME_FAILED)
    assert outcome.report["deleted"] == 1 and not (folding.target / "dir2/surplus").exists()
    assert any("nothing was deleted in ." in warning for warning in outcome.report["warnings"]), outcome
    # A dry run says so, too.
    dry = folding.sync("--dry-run", slash="/", expect=EXIT_SOME_FAILED)
    assert set(failures(dry)) >= {"Foo", "Dir", "Large", "Link"}, dry


def test_names_that_the_file_system_does_not_take(folding):
    fill(folding.source, "plain co:lon sub/what? sub/ok dir:/x")
    make_file(folding.source / "large|", 5 * MIB)
    with open(os.fsencode(folding.source) + b"/bad\xff", "w") as out:
        out.write("x")
    outcome = folding.sync(slash="/", expect=EXIT_SOME_FAILED)
    found = failures(outcome)
    assert set(found) == {"co:lon", "sub/what?", "dir:", "dir:/x", "large|", "bad\\xff"}, found
    for path in set(found) - {"dir:/x"}:
        assert found[path].startswith("the file system there refuses this name: "), found[path]
    assert names(folding.target) == "plain sub sub/ok" and not leftovers(folding.target)
    # On a file system that accepts the names, another run copies what failed.
    report = folding.source.parent / "report.json"
    report.write_text(json.dumps(outcome.report) + "\n")
    # A daemon's session has directories open until a moment after its client has gone.
    wait_until(lambda: subprocess.run(["umount", folding.target], check=False).returncode == 0, what="it can be unmounted")
    wait_until(lambda: not os.path.ismount(folding.target), what="the mount is gone")
    folding.sync("--retry-failed", report, slash="/")
    fill(folding.target, "plain sub/ok")
    folding.sync(slash="/")
    assert differences(folding.source, folding.target) == []


@pytest.mark.parametrize("sources", [["a/X", "b/x"], ["a/", "b/"]])
def test_two_sources_whose_names_are_one_there(folding, near, sources):
    """One of them arrives complete, and the other fails."""
    road, size = folding.road, 3 * MIB
    fill(folding.source, "a/ b/")
    for name, seed in (("a/X", 1), ("b/x", 2)):
        make_file(folding.source / name, size, seed)
        make_file(folding.source / f"{name}-small", 100, seed)
    here, there = (f"{folding.source}", road.url("tree/")) if folding.is_push else (road.url("tree"), f"{folding.target}/")
    outcome = road.cp(*(f"{here}/{source}" for source in sources), there, expect=EXIT_SOME_FAILED)
    assert {path.rpartition("/")[2] for path in failures(outcome)} <= {"X", "x", "X-small", "x-small"}
    assert outcome.report["failed_count"] == outcome.report["files"] == (1 if len(sources[0]) > 2 else 2), outcome
    [failed] = [name for name in failures(outcome) if not name.endswith("small")]
    kept = folding.source / ("b/x" if failed == "X" else "a/X")
    assert (folding.target / "x").read_bytes() == kept.read_bytes()
