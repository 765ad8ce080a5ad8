"""What a location on the command line means at the far end, and here: patterns, home directories, links, odd names."""

import pytest

from harness.trees import fill, names


# ---- destinations ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, like_it", [("x[1]", "x1"), ("x?", "xy"), ("x*", "x-other"), ("x\\y", "xy")])
def test_a_destination_is_no_pattern(road, near, name, like_it):
    """What it would match stays as it is."""
    (near / "file").write_text("new")
    (road.far / like_it).write_text("precious")
    road.cp(near / "file", road.url(name))
    assert (road.far / name).read_text() == "new"
    assert (road.far / like_it).read_text() == "precious"


def test_a_sync_to_what_looks_like_a_pattern_empties_nothing_else(road, near):
    fill(near, "tree/a")
    fill(road.far, "x1/precious")
    for _ in range(2):
        road.sync("--delete", near / "tree", road.url("x[1]"))
        assert names(road.far) == "x1 x1/precious x[1] x[1]/a"


def test_a_spread_destination_is_no_pattern(road, near):
    fill(near, "tree/a")
    fill(road.far, "d/y1/precious e/")
    disks = ",".join(road.url(disk).removeprefix("beta:" if road.name == "ssh" else road.net.daemon.url())
                     for disk in "de")
    road.cp("--spread", disks, near / "tree", road.url("d/y[1]"))
    assert names(road.far / "d/y1") == "precious"
    assert (road.far / "d/y[1]").is_dir() and (road.far / "e/y[1]").is_dir()
    assert [disk for disk in "de" if (road.far / disk / "y[1]/a").exists()]
