"""`farhaul verify`: a tree against the manifest of the transfer that brought it, or against other tools' lists."""

import json
import os
import shutil
import subprocess

import pytest

from harness.product import EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE
from harness.trees import make_file, make_tree

MIB = 1 << 20


@pytest.fixture
def copied(road, near):
    """Pushes a tree with a manifest; returns the far folder with the copy, and the manifest."""
    source = make_tree(near / "tree", seed=61, files=80)
    make_file(source / "large", 50 * MIB + 3, seed=2)
    with open(source / "large-hole", "wb") as out:
        out.truncate(200 * MIB)
    road.cp("--manifest", near / "m", source, road.url("copy"))
    return road.far, near / "m"


def verify(host, *arguments, expect=EXIT_OK, **options):
    done = host.run(["farhaul", "verify", *map(os.fspath, arguments)], timeout=120, **options)
    assert done.returncode == expect, done
    return done.stdout.decode(), done.stderr.decode()


def test_a_copy_is_what_its_manifest_says(copied, net, road, near):
    far, manifest = copied
    out, err = verify(net.beta, "--extra", "--metadata", manifest, far)
    assert out == "" and "all as listed" in err
    pulled = near / "pulled"
    road.cp("--manifest", near / "m2", road.url("copy/"), f"{pulled}/")
    out, err = verify(net.alpha, "--extra", "--metadata", near / "m2", cwd=pulled)
    assert out == "" and "all as listed" in err
    shutil.copytree(pulled, near / "again", symlinks=True)
    # Without the option, a copy stands for a hard link.
    out, err = verify(net.alpha, near / "m2", near / "again")
    assert out == "" and "all as listed" in err
    out, err = verify(net.alpha, "--metadata", near / "m2", near / "again", expect=EXIT_SOME_FAILED)
    assert len(out.splitlines()) == 3 and out.count("not a hard link") == 3, out


def test_each_difference_has_a_line(copied, net):
    far, manifest = copied
    copy = far / "copy"
    with open(copy / "large", "r+b") as out:
        out.seek(40 * MIB)
        out.write(b"changed")
    (copy / "sparse").unlink()
    (copy / "dangling").unlink()
    os.symlink("other", copy / "dangling")
    with open(os.fsencode(copy) + b"/new\xff\n", "w"):
        pass
    (copy / "to-dir").unlink()
    (copy / "to-dir").mkdir()
    (copy / "empty").chmod(0o700)
    out, err = verify(net.beta, "--extra", manifest, far, expect=EXIT_SOME_FAILED)
    lines = sorted(line.split(": ")[:2] for line in out.splitlines())
    assert lines == [["changed", "copy/dangling"], ["changed", "copy/large"], ["changed", "copy/to-dir"],
                     ["extra", "copy/new\\xff\\n"], ["missing", "copy/sparse"]], out
    assert "1 missing, 3 changed, 1 extra" in err
    out, _ = verify(net.beta, "--json", "--metadata", manifest, far, expect=EXIT_SOME_FAILED)
    report = json.loads(out)
    assert not report["ok"] and report["missing"] == 1 and report["changed"] >= 4 and report["schema"] == 1
    assert len(report["findings"]) == report["missing"] + report["changed"]
    assert {"difference": "changed", "path": "copy/empty", "reason": "mode 0700 instead of 0755"} in report["findings"]
    _, err = verify(net.beta, "--quick", manifest, far, expect=EXIT_SOME_FAILED)
    assert "1 missing, 2 changed" in err and "0 B read" in err


def test_what_failed_is_not_expected(road, near, net):
    source, target = near / "tree", road.far / "copy"
    for folder in (source, target / "b"):
        folder.mkdir(parents=True)
    (source / "a").write_text("a")
    (source / "b").write_text("b")
    road.cp("--manifest", near / "m", f"{source}/", road.url("copy/"), expect=EXIT_SOME_FAILED)
    out, err = verify(net.beta, near / "m", target)
    assert out == "" and "1 that the list says are not there" in err


def test_lists_of_other_tools(net, near):
    tree = make_tree(near / "tree", seed=62, files=40)
    for tool in ("sha256sum", "md5sum"):
        listed = subprocess.run(f"find . -type f -print0 | xargs -0 {tool}", shell=True, cwd=tree, check=True,
                                stdout=subprocess.PIPE).stdout
        (near / "sums").write_bytes(listed)
        out, err = verify(net.alpha, near / "sums", tree)
        assert out == "" and "all as listed" in err
        tagged = subprocess.run(f"find . -type f -print0 | xargs -0 {tool} --tag", shell=True, cwd=tree, check=True,
                                stdout=subprocess.PIPE).stdout
        (near / "tagged").write_bytes(tagged)
        verify(net.alpha, near / "tagged", tree)
    victim = next(path for path in tree.rglob("file*") if path.is_file() and path.stat().st_size)
    victim.chmod(0o600)
    victim.write_bytes(b"!" * victim.stat().st_size)
    out, _ = verify(net.alpha, near / "sums", tree, expect=EXIT_SOME_FAILED)
    assert out.startswith("changed: ") and out.endswith("its content differs\n") and out.count("\n") == 1


def test_a_list_that_is_none_is_refused(net, near):
    (near / "text").write_text("hello\nworld\n")
    (near / "empty").write_text("")
    (near / "blank").write_text("\n\r\n")
    (near / "comments").write_text("# sums\n\n# end\n")
    for arguments in ([near / "text"], [near / "empty"], [near / "blank"], [near / "comments"], [near / "missing"], [near / "text", near / "no-directory"]):
        _, err = verify(net.alpha, *arguments, expect=EXIT_FILES)
        assert len(err.splitlines()) == 1 and err.startswith("error: "), err
    verify(net.alpha, "--algorithm", "crc", near / "text", expect=EXIT_USAGE)


def test_a_manifest_without_entries_is_a_list(net, near):
    (near / "from").mkdir()
    (near / "to").mkdir()
    net.alpha.run(["farhaul", "cp", "--exclude", "*", "--files-from", "/dev/null", "--manifest", near / "m", f"{near}/from/", near / "to"], check=True)
    verify(net.alpha, near / "m", near / "to")


def test_if_nothing_is_there_the_directory_may_be_the_wrong_one(net, near):
    (near / "source").mkdir()
    make_file(near / "source/x", 10)
    net.alpha.run(["farhaul", "cp", "--manifest", near / "m", near / "source", near / "new"], check=True)
    hint = f"hint: the paths of the list do not begin in {near}/new"
    _, err = verify(net.alpha, near / "m", near / "new", expect=EXIT_SOME_FAILED)
    assert any(line.startswith(hint) for line in err.splitlines()), err
    _, err = verify(net.alpha, near / "m", near)
    assert "hint" not in err
    (near / "new/x").unlink()
    _, err = verify(net.alpha, near / "m", near, expect=EXIT_SOME_FAILED)
    assert "hint" not in err, "something is there"
