"""What a location on the command line means at the far end, and here: patterns, home directories, links, odd names."""

import pytest

from harness.hosts import USER
from harness.product import cp
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


@pytest.mark.parametrize("written, place", [
    ("./nvme0/", "nvme0"), (".//./nvme0//", "nvme0"), ("in//sub/", "in/sub"), ("in/.", "in"), ("in/./sub", "in/sub"),
    ("./", "."), (".//", "."), ("new/.", "new")])
def test_a_destination_is_read_as_users_write_it(road, near, written, place):
    (near / "file").write_text("it")
    fill(road.far, "nvme0/ in/sub/")
    road.cp(near / "file", f"{road.url()}/{written}")
    assert (road.far / place / "file").read_text() == "it"


# ---- names and homes ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("written, name", [
    ("my\\ file", "my file"), ("a\\*", "a*"), ("b[", "b["), ("b[*", "b[x"), ("{c*", "{c"), ("d{1,2}", "d{1,2}"),
    ("caf\udce9*", "caf\udce9s")])
def test_what_the_far_end_finds_is_what_was_asked_for(road, near, written, name):
    (road.far / name).write_text("it")
    road.cp(road.url(written), f"{near}/")
    assert [path.name for path in near.iterdir()] == [name]


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("home", ["~", f"~{USER}"])
def test_a_home_directory_alone_is_its_content(ssh_road, near, home, slash):
    beta = ssh_road.net.beta
    folder = beta.home if home == "~" else beta.user_home
    (folder / "in-home").write_text("it")
    ssh_road.cp(f"beta:{home}{slash}", near / "new")
    assert (near / "new/in-home").read_text() == "it"
    assert not (near / "new" / folder.name).exists()


def test_a_file_called_like_a_home_directory(road, near):
    (near / "~").write_text("tilde")
    road.cp(near / "~", f"{road.url()}/")
    assert names(road.far) == "~"
    road.cp(road.url("~"), near / "back")
    assert (near / "back").read_text() == "tilde"


def test_a_tilde_here_is_a_name(net, near):
    """The shell has expanded those that were meant."""
    (near / "file").write_text("it")
    run = lambda *places: cp(net.alpha, *places, as_json=False, cwd=near)  # noqa: E731
    run("file", "~")
    run("~", "copy")
    run("~", "~root")
    assert names(near) == "copy file ~ ~root"
    assert run("~", "-").stdout == b"it"
