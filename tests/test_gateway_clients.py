"""Programs of others read through `farhaul gateway`: each does what its users do, and gets the files byte for byte."""

import os
import shutil

import pytest

from harness.trees import make_file, make_tree
from test_gateway import MIB, by_daemon  # noqa: F401

pytestmark = pytest.mark.slow


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program}")


@pytest.fixture
def served(by_daemon):  # noqa: F811
    make_file(by_daemon.far / "large.bin", 20 * MIB)
    make_tree(by_daemon.far / "tree")
    by_daemon.got = by_daemon.net.folder("got")
    by_daemon.root = f"http://127.0.0.1:{by_daemon.port}"
    return by_daemon


def run(served, *argv, **options):
    done = served.net.alpha.run(argv, cwd=served.got, **options)
    assert done.returncode == 0, (argv, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def is_large(served, name="large.bin"):
    return (served.got / name).read_bytes() == (served.far / "large.bin").read_bytes()


def contents(folder):
    """The plain files below a folder, with what is in them, but for the pages of lists. Links are what they lead to, unless
    they lead out."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.resolve().is_relative_to(folder.resolve())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if not path.name.startswith("index.html")}


@needs("curl")
def test_curl_goes_on_where_it_stopped(served):
    (served.got / "large.bin").write_bytes((served.far / "large.bin").read_bytes()[:7 * MIB + 3])
    run(served, "curl", "-sSf", "-C", "-", "-O", f"{served.root}/large.bin")
    assert is_large(served)


@needs("wget")
def test_wget_mirrors_a_tree(served):
    run(served, "wget", "-q", "-r", "-np", "-nH", "-R", "index.html", f"{served.root}/tree/")
    got, there = contents(served.got / "tree"), contents(served.far / "tree")
    # wget writes other names where a name has bytes that it takes for dangerous.
    same = got.keys() & there.keys()
    assert len(got) == len(there), sorted(got.keys() ^ there.keys())
    assert len(same) > len(there) / 2
    assert all(got[name] == there[name] for name in same)


@needs("aria2c")
def test_aria2_takes_a_file_in_sixteen_pieces(served):
    run(served, "aria2c", "-q", "-x16", "-s16", "-k1M", f"{served.root}/large.bin")
    assert is_large(served)


@needs("rclone")
def test_rclone_copies_and_checks_a_tree(served):
    remote = f":http,url='{served.root}/':"
    # rclone takes text for names, and leaves out those with a question mark or a colon.
    for path in sorted((served.far / "tree").rglob("*"), reverse=True):
        if set("?:") & set(path.name) or not path.name.isprintable() or os.fsencode(path.name) != path.name.encode(errors="replace"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    run(served, "rclone", "copy", f"{remote}tree", "copied")
    assert contents(served.got / "copied") == contents(served.far / "tree")
    run(served, "rclone", "check", "--download", f"{remote}tree", "copied")


@needs("davix-get")
def test_davix_reads_lists_and_vectors(served):
    run(served, "davix-get", f"{served.root}/large.bin", "large.bin")
    assert is_large(served)
    assert b"tree" in run(served, "davix-ls", f"{served.root}/")


@needs("cadaver")
def test_cadaver_looks_and_fetches(served):
    said = run(served, "cadaver", f"{served.root}/", input=b"ls\nget large.bin\nquit\n")
    assert b"large.bin" in said and is_large(served), said
