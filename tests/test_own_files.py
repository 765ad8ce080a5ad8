"""The files that a run writes for its user beside the copy, `--manifest FILE` and `--receipt FILE`: only files
of the same kind are replaced."""

import os
import stat

import pytest

from harness.product import EXIT_FILES, EXIT_USAGE, cp
from harness.trees import make_file, sha256


@pytest.fixture
def source(near):
    return make_file(near / "file", 3000)


def paths_in(near, *names):
    return [near / name for name in names]


def test_a_source_behind_a_forgotten_name_is_not_replaced(net, near, source):
    """Who forgets FILE behind --manifest names his first source there."""
    first, second, target = make_file(near / "g1", 100), source, near / "target/"
    content = sha256(first)
    outcome = cp(net.alpha, "--manifest", first, second, f"{target}/", expect=EXIT_FILES)
    assert "is no manifest" in outcome.error_line and sha256(first) == content, outcome
    assert not target.exists()


@pytest.mark.parametrize("option", ["--manifest", "--receipt"])
def test_a_source_is_no_file_to_write(daemon_road, near, source, option):
    content = sha256(source)
    link = near / "link"
    os.link(source, link)
    for name in (source, link, f"{near}/../{near.name}/file"):
        outcome = daemon_road.cp(option, name, source, daemon_road.url("copy"), expect=EXIT_USAGE)
        assert "is a source of the copy" in outcome.error_line and sha256(source) == content, outcome


def test_what_the_copy_writes_is_no_manifest(net, near, source):
    folder = near / "folder"
    folder.mkdir()
    for manifest, target in ((near / "new", near / "new"), (folder / "file", folder), (folder / "file", f"{folder}/")):
        outcome = cp(net.alpha, "--manifest", manifest, source, target, expect=EXIT_USAGE)
        assert "the copy writes this file" in outcome.error_line, outcome
    assert list(folder.iterdir()) == []


def test_manifest_and_receipt_are_two_files(daemon_road, near, source):
    both = near / "both"
    outcome = daemon_road.cp("--manifest", both, "--receipt", both, source, daemon_road.url("copy"), expect=EXIT_USAGE)
    assert "both name" in outcome.error_line and not both.exists(), outcome


def test_an_earlier_manifest_and_receipt_are_replaced(daemon_road, near, source):
    manifest, receipt = paths_in(near, "m", "r")
    for name in ("one", "two"):
        daemon_road.cp("--manifest", manifest, "--receipt", receipt, source, daemon_road.url(name))
        assert f'"dest":"{name}"' in manifest.read_text()
    manifest.write_text(manifest.read_text()[:5])
    daemon_road.cp("--manifest", manifest, source, daemon_road.url("three"))
    receipt.write_text("notes of mine\n")
    outcome = daemon_road.cp("--receipt", receipt, source, daemon_road.url("four"), expect=EXIT_FILES)
    assert "is no receipt" in outcome.error_line and receipt.read_text() == "notes of mine\n", outcome


def test_a_receipt_leaves_devices_pipes_and_links_what_they_are(daemon_road, near, source):
    device, pipe, link, real = paths_in(near, "null", "pipe", "link", "real")
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    daemon_road.cp("--receipt", device, source, daemon_road.url("one"))
    assert stat.S_ISCHR(device.stat().st_mode)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        daemon_road.cp("--receipt", pipe, source, daemon_road.url("two"))
        assert os.read(reader, 1 << 16).startswith(b"{")
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    link.symlink_to(real)
    real.touch()
    daemon_road.cp("--receipt", link, source, daemon_road.url("three"))
    assert link.is_symlink() and real.read_text().startswith("{")
