"""`farhaul mkdir`, `mv` and `rm`: names change where they are, over ssh and at a daemon, within what the far end allows."""

import os

import pytest

from conftest import FAILING_PORTS
from harness.product import EXIT_AUTH, EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, Daemon
from harness.trees import make_file


class Far:
    """A folder of beta's, as a client on alpha names it."""

    def __init__(self, net, road):
        self.net, self.road = net, road
        self.folder = net.folder("far") if road == "ssh" else net.daemon.root / f"names-{os.urandom(4).hex()}"
        self.folder.mkdir(exist_ok=True)

    def __call__(self, path):
        if self.road == "ssh":
            return f"beta:{self.folder}/{path}"
        return f"fh://beta:{self.net.daemon.port}/{self.folder.name}/{path}"

    def run(self, verb, *arguments, expect=EXIT_OK):
        reach = [] if self.road == "ssh" else ["--accept-new"]
        done = self.net.alpha.run(["farhaul", verb, *reach, *arguments])
        assert done.returncode == expect, done
        return done.stderr.decode()


@pytest.fixture(params=["ssh", "daemon"])
def far(request, net):
    return Far(net, request.param)


def test_directories_files_and_trees(far):
    make_file(far.folder / "file", 100)
    far.run("mkdir", far("new"), far("other"))
    far.run("mkdir", "-p", far("a/b/c"), far("a/b"))
    assert (far.folder / "a/b/c").is_dir()
    far.run("mv", far("file"), far("new"))
    far.run("mv", far("new/file"), far("new/renamed"))
    assert (far.folder / "new/renamed").stat().st_size == 100
    far.run("mv", far("a"), far("other"), far("new"))
    assert sorted(os.listdir(far.folder / "new")) == ["a", "other", "renamed"]
    assert "removed" in far.run("rm", "-v", far("new/renamed"))
    far.run("rm", "-r", far("new"))
    assert os.listdir(far.folder) == []


def test_what_cannot_be_done_is_one_line_with_a_code(far):
    make_file(far.folder / "file", 100)
    make_file(far.folder / "second", 100)
    (far.folder / "directory").mkdir()
    (far.folder / "link").symlink_to("directory")
    for verb, arguments, words in [
        ("mkdir", [far("file")], "something of that name is there"),
        ("mkdir", [far("none/new")], "no such file"),
        ("mv", [far("none"), far("x")], "there is no such file"),
        ("mv", ["-n", far("file"), far("second")], "something of the new name is there"),
        ("mv", [far("directory"), far("directory/below")], "into itself"),
        ("rm", [far("directory")], "-r removes directories"),
        ("rm", [far("none")], "there is no such file"),
    ]:
        error = far.run(verb, *arguments, expect=EXIT_USAGE if "itself" in words else EXIT_FILES)
        assert error.startswith("error: ") and words in error, error
    assert far.run("rm", "-f", far("none")) == ""
    far.run("rm", far("none"), far("link"), expect=EXIT_SOME_FAILED)
    assert sorted(os.listdir(far.folder)) == ["directory", "file", "second"]
    far.run("mv", far("file"), "/tmp/here", expect=EXIT_USAGE)
    far.run("mv", far("file"), expect=EXIT_USAGE)
    far.run("rm", "-", expect=EXIT_USAGE)


def test_a_pattern_is_expanded_at_the_far_end(far):
    for name in ("a.tmp", "b.tmp", "kept"):
        make_file(far.folder / name, 1)
    far.run("rm", far("*.tmp"))
    assert os.listdir(far.folder) == ["kept"]


def test_on_this_host(net, near):
    run = lambda *words: net.alpha.run(["farhaul", *map(str, words)], check=True, cwd=near)
    run("mkdir", "-p", "a/b")
    make_file(near / "a/file", 1)
    run("mv", "a/file", "a/b")
    run("mv", near / "a/b", near / "c")
    assert os.listdir(near / "c") == ["file"]
    run("rm", "-r", "a", near / "c")
    assert os.listdir(near) == []


@pytest.mark.parametrize("option, may_write", [("read-only", False), ("write-only", True), ("root=DIR/mine", True)])
def test_a_key_changes_what_its_line_allows(net, option, may_write):
    root = net.folder("root")
    (root / "mine").mkdir()
    (root / "mine/file").write_text("x")
    (root / "mine/out").symlink_to("../other")
    (root / "other").mkdir()
    (root / "other/kept").write_text("kept")
    confined = option.startswith("root=")
    daemon = Daemon(net.pair, net.beta, [f"{option.replace('DIR', str(root))} {net.key}"], port=next(FAILING_PORTS), root=root)
    try:
        def run(verb, path, *more, expect=EXIT_OK):
            at = lambda path: f"fh://beta:{daemon.port}/{path}"
            done = net.alpha.run(["farhaul", verb, "--accept-new", *map(at, (path, *more))])
            assert done.returncode == expect, done
            return done.stderr.decode()

        top = "" if confined else "mine/"
        if not may_write:
            assert "you may only read here" in run("rm", f"{top}file", expect=EXIT_AUTH)
            assert (root / "mine/file").exists()
            return
        run("mv", f"{top}file", f"{top}renamed")
        assert (root / "mine/renamed").exists()
        if confined:
            for path in ("out/kept", "../other/kept", "/../other/kept"):
                assert run("rm", path, expect=EXIT_AUTH if path.startswith("out") else EXIT_FILES)
            assert (root / "other/kept").exists()
        # What was done is in the log, with the key.
        assert "changed a name" in daemon.log_text() and "renamed" not in os.listdir(root)
    finally:
        daemon.kill()


def test_overwriting_and_removing_are_a_right_each(net):
    root = net.folder("root")
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), root=root)
    try:
        def run(verb, *paths, expect=EXIT_OK):
            done = net.alpha.run(["farhaul", verb, "--accept-new", *(f"fh://beta:{daemon.port}/{path}" for path in paths)])
            assert done.returncode == expect, done
            return done.stderr.decode()

        for options in ("no-delete", "no-overwrite", "no-delete,no-overwrite"):
            daemon.keys.write_text(f"{options} {net.key}\n")
            for name in ("a", "b", "c"):
                (root / name).write_text(name)
            run("mkdir", f"new-{options}")
            if "no-delete" in options:
                assert "you may not remove or rename" in run("rm", "a", expect=EXIT_AUTH)
                assert "you may not remove or rename" in run("mv", "a", "x", expect=EXIT_AUTH)
            else:
                assert "something of the new name is there" in run("mv", "a", "b", expect=EXIT_FILES)
                run("mv", "c", "renamed")
                run("rm", "renamed")
                (root / "c").write_text("c")
            assert [(root / name).read_text() for name in ("a", "b", "c")] == ["a", "b", "c"]
    finally:
        daemon.kill()
