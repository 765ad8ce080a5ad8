"""`farhaul sync`: the destination becomes like the source, in both directions, on both roads, and nothing is
deleted that must stay."""

import json
import os
import pathlib
import shutil
import signal
import time

import pytest

from harness import lab
from harness.hosts import USER, call, require_root
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_INTERRUPTED, EXIT_SOME_FAILED, EXIT_USAGE, Daemon, cp, finish
from harness.trees import differences, fill, leftovers, listing, make_file, make_tree, names

MIB = 1 << 20


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("target_slash", ["", "/"])
def test_contents_become_the_same_whatever_the_slashes(way, slash, target_slash):
    make_tree(way.source, seed=1, files=80)
    report = way.sync(slash=slash, target_slash=target_slash).report
    assert report["ok"] and report["deleted"] == 0
    assert differences(way.source, way.target) == []
    again = way.sync("--delete", slash=slash, target_slash=target_slash).report
    assert (again["files"], again["links"], again["bytes"], again["deleted"]) == (0, 0, 0, 0) and again["skipped"] > 80
    assert differences(way.source, way.target) == []
    assert not leftovers(way.target)


def test_what_changed_is_sent_and_what_is_gone_is_deleted(way):
    make_tree(way.source, seed=2, files=120)
    fill(way.source, "gone/a gone/b/c gone/d/ stays/x stays/gone moved")
    way.sync()
    shutil.rmtree(way.source / "gone")
    (way.source / "stays/gone").unlink()
    (way.source / "moved").rename(way.source / "moved2")
    (way.source / "stays/x").write_text("other content")
    (way.source / "stays/x").chmod(0o600)
    kept = way.sync().report
    assert kept["files"] == 2 and kept["deleted"] == 0 and (way.target / "gone/b/c").exists()
    done = way.sync("--delete", "-v")
    assert done.report["deleted"] == 7, done
    for line in ("deleted gone/b/c", "deleted gone", "deleted stays/gone", "deleted moved"):
        assert line in done.stderr.splitlines(), done
    assert differences(way.source, way.target) == [], "times of directories are equal, too"


def test_a_changed_mode_alone_is_taken_over(way):
    fill(way.source, "a b")
    way.sync()
    (way.source / "a").chmod(0o640)
    report = way.sync().report
    assert report["files"] == 0 and report["skipped"] == 2
    assert differences(way.source, way.target) == []


@pytest.mark.parametrize("when", ["--delete", "--delete-before", "--delete-after"])
def test_kinds_that_changed_give_way(way, when):
    for name in ("dir-to-file", "dir-to-link"):
        fill(way.target, f"{name}/a/b {name}/c")
    fill(way.target, "file-to-dir link/")
    (way.target / "link-to-dir").symlink_to("link")
    fill(way.source, "dir-to-file file-to-dir/x link-to-dir/y link/")
    (way.source / "dir-to-link").symlink_to("nowhere")
    dry = way.sync(when, "--dry-run")
    assert dry.report["deleted"] == 8 and (way.target / "dir-to-file/a/b").exists(), dry
    done = way.sync(when)
    assert done.report["deleted"] == 8, done
    assert differences(way.source, way.target) == []


def test_a_directory_in_the_place_of_a_file_stays_without_delete(way):
    fill(way.target, "x/precious")
    fill(way.source, "x y")
    outcome = way.sync(expect=EXIT_SOME_FAILED)
    assert "directory is in its place" in outcome.stderr
    assert (way.target / "x/precious").exists() and (way.target / "y").exists()


def test_dry_run_lists_and_changes_nothing(way):
    fill(way.source, "new same changed")
    fill(way.target, "same changed surplus surplus-dir/a")
    (way.source / "changed").write_text("longer than it was before")
    before = names(way.target)
    for when in ("--delete", "--delete-before"):
        outcome = way.sync("--dry-run", when)
        lines = outcome.stderr.splitlines()
        would = "would send" if way.is_push else "would receive"
        assert sum(line.startswith(would) for line in lines) == 2, outcome
        deleted = sorted(line for line in lines if line.startswith("would delete") and "," not in line)
        assert deleted == [f"would delete {name}" for name in ("surplus", "surplus-dir", "surplus-dir/a")], outcome
        assert outcome.report["deleted"] == 3 and outcome.report["files"] == 2
        assert names(way.target) == before
    shutil.rmtree(way.target)
    assert way.sync("--dry-run", "--delete").report["files"] == 3 and not way.target.exists()


def test_checksum_compares_by_content(way):
    make_file(way_file(way, "source", "large"), 7 * MIB + 5, seed=1)
    make_file(way_file(way, "target", "large"), 7 * MIB + 5, seed=1)
    make_file(way_file(way, "source", "large-differs"), 3 * MIB, seed=2)
    make_file(way_file(way, "target", "large-differs"), 3 * MIB, seed=3)
    for name, there in (("same", "content"), ("differs", "CONTENT"), ("shorter", "content and more"), ("empty", "")):
        way_file(way, "source", name).write_text("" if name == "empty" else "content")
        way_file(way, "target", name).write_text(there)
    for name in ("large", "large-differs", "differs"):
        when = (1_500_000_000, 1_500_000_000)
        os.utime(way.source / name, when)
        os.utime(way.target / name, when)
    for name in ("same", "empty"):
        os.utime(way.source / name, (1_400_000_000, 1_400_000_000))
    by_time = way.sync("--dry-run").report
    assert by_time["files"] == 3, "two changed files have the same size and time, so they are not sent"
    dry = way.sync("--dry-run", "--checksum").report
    assert dry["files"] == 3 and dry["skipped"] == 3
    report = way.sync("--checksum").report
    assert report["files"] == 3 and report["skipped"] == 3 and report["content_bytes_sent"] < 3 * MIB + 100
    assert differences(way.source, way.target) == [], "times and modes are taken over"
    assert way.sync("-c").report["files"] == 0


def way_file(way, end, name):
    root = way.source if end == "source" else way.target
    root.mkdir(exist_ok=True)
    return root / name


def test_many_files_are_compared_without_waiting_for_each(way):
    way.source.mkdir()
    for number in range(3000):
        (way.source / f"{number}").write_text(f"{number}")
    way.sync()
    begin = time.monotonic()
    assert way.sync("--checksum").report["skipped"] == 3000
    assert time.monotonic() - begin < 20


# ---- what must stay ----------------------------------------------------------------------------------------------------


def test_an_incomplete_listing_deletes_nothing(net, road, near):
    """The sender may not read one directory: files that seem to be missing there may exist."""
    if road.name == "daemon":
        pytest.skip("the daemon of these tests is root and may look everywhere")
    source, target = near / "tree", pathlib.Path(net.beta.user_home) / "incomplete"
    fill(source, "a locked/x")
    fill(target, "surplus locked/x locked/y")
    for folder, _, found in os.walk(target):
        for path in [folder, *(os.path.join(folder, name) for name in found)]:
            os.chown(path, 54321, 54321)
    (target / "locked").chmod(0)
    pulled = near / "pulled"
    fill(pulled, "surplus2")
    for when in ("--delete", "--delete-before"):
        outcome = road.sync(when, f"{USER}@beta:incomplete", f"{pulled}", expect=EXIT_SOME_FAILED)
        assert "nothing was deleted" in outcome.stderr and (pulled / "surplus2").exists(), outcome
        assert outcome.report["deleted"] == 0 and any("nothing was deleted" in text for text in outcome.report["warnings"])
        assert outcome.stderr.count("nothing was deleted") == 1
    assert (pulled / "surplus").exists(), "what could be read was copied"


def test_excluded_paths_are_protected_unless_asked_otherwise(way):
    fill(way.source, "a skip.o dir/b")
    fill(way.target, "keep.o dir/keep.o gone/keep.o gone/x gone2/x")
    report = way.sync("--delete", "--exclude", "*.o").report
    assert names(way.target) == "a dir dir/b dir/keep.o gone gone/keep.o keep.o" and report["deleted"] == 3
    way.sync("--delete", "--filter", "P dir/", "--delete-excluded", "--exclude", "*.o", "--filter", "P /gone/")
    assert names(way.target) == "a dir dir/b gone gone/keep.o"


def test_rules_of_one_end(way):
    fill(way.source, "a hidden")
    fill(way.target, "hidden surplus protected")
    way.sync("--delete", "--filter", "hide hidden", "--filter", "protect protected")
    assert names(way.target) == "a protected"


def test_files_outside_the_limits_are_no_reason_to_delete(way):
    fill(way.source, "small")
    fill(way.target, "large surplus-large")
    (way.source / "large").write_text("x" * 5000)
    os.mkfifo(way.source / "fifo")
    fill(way.target, "fifo")
    report = way.sync("--delete", "--max-size", "4K").report
    assert names(way.target) == "fifo large small" and report["deleted"] == 1
    assert (way.target / "large").stat().st_size < 100


def test_links_are_deleted_and_not_followed(way):
    outside = way.target.parent / "outside"
    fill(outside, "precious dir/precious")
    fill(way.source, "a")
    fill(way.target, "surplus/x")
    (way.target / "to-dir").symlink_to("../outside")
    (way.target / "surplus/to-dir").symlink_to("../../outside/dir")
    (way.target / "to-file").symlink_to("../outside/precious")
    os.mkfifo(way.target / "surplus/fifo")
    way.sync("--delete")
    assert names(way.target) == "a" and names(outside) == "dir dir/precious precious"


def test_read_only_directories_are_emptied(ssh_road, near):
    """The receiver is a user who is not root."""
    source, home = near / "tree", pathlib.Path(ssh_road.net.beta.user_home)
    fill(source, "locked/a")
    (source / "locked").chmod(0o555)
    ssh_road.sync(source, f"{USER}@beta:locked-tree")
    target = home / "locked-tree"
    (target / "locked").chmod(0o755)
    fill(target, "locked/surplus old/deep/x")
    for path in ("locked/surplus", "old", "old/deep", "old/deep/x"):
        os.chown(target / path, 54321, 54321)
    (target / "old/deep").chmod(0o500)
    (target / "locked").chmod(0o555)
    assert ssh_road.sync("--delete", source, f"{USER}@beta:locked-tree").report["deleted"] == 4
    assert differences(source, target) == []


def test_an_interrupted_run_leaves_what_is_surplus(way):
    """Deletion comes after everything else. The same command goes on, and deletes then."""
    make_file(way_file(way, "source", "file"), 60 * MIB)
    fill(way.target, "surplus")
    ends = (way.source, way.road.url("tree")) if way.is_push else (way.road.url("tree"), way.target)
    process = way.road.start("--delete", "--rate", "100M", *ends, verb="sync")
    time.sleep(2)
    os.kill(process.pid, signal.SIGINT)
    assert finish(process, timeout=30).code == EXIT_INTERRUPTED
    assert (way.target / "surplus").exists() and not (way.target / "file").exists()
    report = way.sync("--delete").report
    assert report["bytes_resumed"] > 0 and report["deleted"] == 1 and names(way.target) == "file"


def test_a_read_only_daemon_deletes_nothing(own_net, near):
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33070, arguments=["--read-only"])
    fill(daemon.root, "tree/a")
    fill(near, "tree/b")
    cp(own_net.alpha, "--accept-new", "--delete", near / "tree", daemon.url("tree"), verb="sync", expect=EXIT_AUTH)
    assert names(daemon.root) == "tree tree/a"
    cp(own_net.alpha, "--accept-new", "--delete", daemon.url("tree"), near / "tree", verb="sync")
    assert names(near / "tree") == "a"


def test_a_daemon_root_is_synced_and_its_outside_is_not(daemon_road, near):
    source = near / "tree"
    fill(source, "a")
    for place in ("../x", "a/../../x"):
        outcome = daemon_road.sync("--delete", source, daemon_road.net.daemon.url(place), check=False)
        assert outcome.code == EXIT_FILES, outcome


def test_two_directories_here(net, near):
    fill(near, "a/x b/y")
    assert cp(net.alpha, "--delete", near / "a", near / "b", verb="sync").report["deleted"] == 1
    assert names(near) == "a a/x b b/x"
    for source, target in (("a", "."), (".", "a"), ("a", "a"), ("a", "b/../a")):
        cp(net.alpha, "--delete", near / source, near / target, verb="sync", expect=EXIT_USAGE)
    assert names(near) == "a a/x b b/x"


@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_a_directory_is_not_copied_into_itself(net, near, verb):
    fill(near, "run7/x run7/sub/y run70/z")
    (near / "link").symlink_to("run7")
    before = names(near)
    run = lambda *places, **options: cp(net.alpha, *places, verb=verb, **options)  # noqa: E731
    cases = [("run7", "run7/backup"), ("run7", "run7/new/deep"), ("run7/", "run7/sub"), (".", "./backup/"), ("run7", "link/backup"),
             ("link", "run7/backup"), ("run7/sub/..", "run7/sub/new"), ("run7", "run7"), ("run7", "run70/../run7/new")]
    for source, target in cases:
        outcome = run(source, target, expect=EXIT_USAGE, cwd=near)
        assert len(outcome.stderr.splitlines()) == 1 and names(near) == before, (source, target, str(outcome))
    run("run7", "run71", cwd=near)
    run("run7", "run70/run7", cwd=near)
    assert (near / "run71/sub/y").exists() and (near / "run70/run7/x").exists()


def test_a_bind_mount_leads_no_directory_into_itself(net, near):
    fill(near, "run7/precious run7/sub/y bound/")
    call("mount", "--bind", str(near / "run7"), str(near / "bound"))
    try:
        before = names(near)
        for verb, source, target in [("sync", "run7/sub", "bound"), ("sync", "bound", "run7/new"), ("cp", "run7", "bound/x"),
                                     ("cp", "bound", "run7/sub/x"), ("sync", "run7", "bound")]:
            cp(net.alpha, *(["--delete"] if verb == "sync" else []), source, target, verb=verb, expect=EXIT_USAGE, cwd=near)
            assert names(near) == before, (verb, source, target)
    finally:
        call("umount", str(near / "bound"))


def test_what_is_not_a_directory_or_not_taken_may_go_into_its_directory(net, near):
    fill(near, "run7/x run7/sub/y run7/z")
    run = lambda *places, **options: cp(net.alpha, *places, cwd=near, **options)  # noqa: E731
    run("run7/x", "run7/copy")
    run("run7/x", "run7/z", "run7/sub")
    run("run7", ".")
    (near / "list").write_text("sub\nx\n")
    run("--files-from", "list", "run7", "run7/chosen/")
    assert names(near / "run7/chosen") == "sub sub/x sub/y sub/z x"
    run("--files-from", "list", "run7", "run7/sub/in", expect=EXIT_USAGE)
    assert not (near / "run7/sub/in").exists()


def test_no_place_of_a_spread_may_be_in_the_source(net, near):
    fill(near, "tree/x tree/disk/ disk/")
    before = names(near)
    cp(net.alpha, "--spread", "tree/disk,disk", "tree", "disk/", cwd=near, expect=EXIT_USAGE)
    assert names(near) == before


# ---- what is chosen ----------------------------------------------------------------------------------------------------


def test_filters_choose_on_a_copy_too(way):
    fill(way.source, "a.c a.o dir/b.c dir/b.o no/c.c")
    rules = way.source.parent / "rules" if way.is_push else way.target.parent / "rules"
    rules.write_text("- *.o\n- /tree/no/\n")
    way.sync("--filter", f"merge {rules}", verb="cp", target_slash="-copy")
    assert names(f"{way.target}-copy") == "a.c dir dir/b.c", "without a slash, a rule's path begins with the source's name"
    way.sync("--filter", "- *.o", "--filter", "- /no/")
    assert names(way.target) == "a.c dir dir/b.c"


@pytest.mark.parametrize("separator", ["newline", "zero", "json"])
@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_names_from_a_file(way, separator, verb):
    fill(way.source, "a b dir/c dir/d dir/sub/e other/f odd{name")
    wanted = ["dir/d", "./dir/sub/", "a", "odd{name"]
    if separator == "json":
        text = "".join(json.dumps({"path": name, "size": 1}) + "\n" for name in wanted)
    else:
        text = "".join(name + ("\n" if separator == "newline" else "\0") for name in wanted)
    listed = (way.source if way.is_push else way.target).parent / "list"
    listed.write_text(text)
    zero = ["-0"] if separator == "zero" else []
    report = way.sync(*zero, "--files-from", listed, verb=verb, target_slash="/").report
    assert report["ok"] and names(way.target) == "a dir dir/d dir/sub dir/sub/e odd{name"


def test_names_from_standard_input_that_are_not_there(way):
    fill(way.source, "a b")
    outcome = way.sync("--files-from", "-", input=b"a\nnone/x\n", expect=EXIT_SOME_FAILED)
    assert names(way.target) == "a" and "none" in outcome.stderr
    assert way.sync("--files-from", "-", input=b"").report["files"] == 0


def test_each_name_below_a_missing_directory_fails_by_itself(way):
    fill(way.source, "a there/x file")
    asked = "a\nnone/x\nnone/deeper/y\nthere/none/z\nthere/x\nfile/w\n"
    outcome = way.sync("--files-from", "-", input=asked.encode(), verb="cp", slash="/", target_slash="/", expect=EXIT_SOME_FAILED)
    failed = sorted(entry["path"] for entry in outcome.report["failed"])
    assert failed == ["file/w", "none/deeper/y", "none/x", "there/none/z"], outcome
    assert outcome.report["failed_count"] == 4 and names(way.target) == "a there there/x"
    # Another run tries each of them again.
    (way.source.parent if way.is_push else way.target.parent).joinpath("report").write_text(json.dumps(outcome.report))
    report = (way.source.parent if way.is_push else way.target.parent) / "report"
    fill(way.source, "none/x none/other")
    again = way.sync("--retry-failed", report, verb="cp", slash="/", target_slash="/", expect=EXIT_SOME_FAILED)
    assert names(way.target) == "a none none/x there there/x", again


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("asked", ["d d/none d/z/deep d/z/in d/a", "d/z/in d/a d/z/deep d/none d", ". d/none d/z/deep x"])
def test_a_missing_name_below_a_name_that_is_there_fails(way, verb, asked):
    fill(way.source, "d/a d/z/in d/z/out x")
    names_asked = "".join(f"{name}\n" for name in asked.split()).encode()
    outcome = way.sync("--files-from", "-", input=names_asked, verb=verb, slash="/", target_slash="/", expect=EXIT_SOME_FAILED)
    failed = sorted((entry["path"], entry["reason"]) for entry in outcome.report["failed"])
    assert failed == [(name, "cannot read: no such file or directory") for name in ("d/none", "d/z/deep")], outcome
    all_of_d = "d d/a d/z d/z/in d/z/out"
    assert names(way.target) == (all_of_d if asked[0] == "d" else f"{all_of_d} x"), outcome
    assert outcome.report["files"] == (3 if asked[0] == "d" else 4), "each once"


def test_a_name_below_a_file_that_is_asked_for_fails(way):
    fill(way.source, "x d/y")
    outcome = way.sync("--files-from", "-", input=b"x\nx/none\nd\nd/y/none\ngone\ngone/too\n", verb="cp", slash="/", target_slash="/",
                       expect=EXIT_SOME_FAILED)
    assert sorted(entry["path"] for entry in outcome.report["failed"]) == ["d/y/none", "gone", "gone/too", "x/none"], outcome
    assert names(way.target) == "d d/y x"


def test_a_name_below_a_symbolic_link_says_so(way):
    fill(way.source, "d/z a")
    (way.source / "ld").symlink_to("d")
    outcome = way.sync("--files-from", "-", input=b"a\nld/z\n", expect=EXIT_SOME_FAILED)
    (failed,) = outcome.report["failed"]
    reason = "cannot read: ld is a symbolic link; it is followed with `follow`"
    assert (failed["path"], failed["reason"]) == ("ld/z", reason), outcome
    assert way.sync("--follow", "--files-from", "-", input=b"a\nld/z\n").report["ok"]


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_lines_that_are_taken_for_comments_are_told_and_have_another_way_to_be_named(way, quiet):
    for name in ("#one", ";two", "#three", "plain"):
        fill(way.source, name)
    asked = b"#one\n;two\n./#three\nplain\n# a comment\n"
    outcome = way.sync(*quiet, "--files-from", "-", input=asked)
    assert names(way.target) == "#three plain"
    told = [line for line in outcome.stderr.splitlines() if "comment" in line]
    assert told == ([] if quiet else ["note: --files-from -: 3 lines are comments (# or ; at the beginning); for a file with such a name write ./#name"])
    assert way.sync("-0", "--files-from", "-", input=b"#one\0;two\0").report["files"] == 2


def test_a_long_list_of_names(way):
    way.source.mkdir()
    for number in range(500):
        (way.source / f"{number}").touch()
    asked = "".join(f"{number % 500}/\n./{number % 500}\n" for number in range(100_000))
    assert way.sync("--files-from", "-", input=asked.encode()).report["files"] == 500


def test_ages(way):
    fill(way.source, "old")
    (way.source / "young").touch()
    way.sync("--max-age", "1d", target_slash="-young")
    way.sync("--min-age", "1d", target_slash="-old")
    assert (names(f"{way.target}-young"), names(f"{way.target}-old")) == ("young", "old")


# ---- wrong usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    ["--max-delete", "3"], ["--delete-before", "--delete-after"], ["--delete", "--files-from", "/dev/null"],
    ["--checksum", "--overwrite", "never"], ["--filter", "nonsense"], ["--exclude-from", "/nonexistent"],
    ["--files-from", "/nonexistent"], ["--min-size", "3", "--max-size", "2"], ["--min-age", "x"]])
def test_wrong_usage_is_one_line_and_touches_nothing(way, arguments):
    fill(way.source, "a")
    outcome = way.sync(*arguments, as_json=False, expect=EXIT_USAGE)
    assert outcome.error_line and "panic" not in outcome.stderr
    assert not way.target.exists()


def test_hostile_names_in_a_list_are_refused(way):
    fill(way.source, "a")
    outcome = way.sync("--files-from", "-", input=b"../../etc/passwd\n", expect=EXIT_USAGE)
    assert outcome.error_line.count("\n") == 0 and not way.target.exists()


def test_a_source_that_is_no_directory_is_refused(way):
    way.source.write_text("a file")
    outcome = way.sync("--delete", expect=EXIT_FILES)
    assert "not a directory" in outcome.stderr and not leftovers(way.target.parent)
    way.source.unlink()
    fill(way.target, "precious")
    way.sync("--delete", expect=EXIT_FILES)
    assert names(way.target) == "precious", "a missing source does not count as an empty one"


def test_more_entries_than_a_round_trip_has_room_for(tmp_path):
    require_root()
    count = 70_000
    source = tmp_path / "source"
    for number in range(count):
        if number % 1000 == 0:
            folder = source / f"{number // 1000}"
            folder.mkdir(parents=True)
        (folder / str(number)).touch()
    copy = f'farhaul sync --json $FARHAUL_LAB_CP_OPTIONS {source} "${{FARHAUL_LAB_URL}}t"'
    script = f"{copy}; {copy}; find $FARHAUL_LAB_DIR/t -type f | wc -l"
    first, second, found = lab.run(["--rtt", "200ms"], ["sh", "-ec", script]).stdout.splitlines()
    assert int(found) == json.loads(first)["files"] == count
    again = json.loads(second)
    assert (again["files"], again["skipped"], again["ok"]) == (0, count, True)
