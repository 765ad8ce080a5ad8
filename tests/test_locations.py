"""What a location on the command line means, at the far end and on this host: patterns, home directories,
links, odd names."""

import pytest

from harness.hosts import USER
from harness.product import EXIT_FILES, cp
from harness.trees import fill, names


# ---- destinations ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, like_it", [("x[1]", "x1"), ("x?", "xy"), ("x*", "x-other"), ("x\\y", "xy")])
def test_a_destination_is_no_pattern(road, near, name, like_it):
    """Files that it would match as a pattern stay as they are."""
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


def test_an_open_file_of_a_program_is_no_destination(net, near):
    """`/dev/stdout` is a link: root would replace it by the file. (The test leaves that name alone.)"""
    (near / "file").write_text("new")
    outcome = cp(net.alpha, near / "file", "/dev/fd/1", expect=EXIT_FILES)
    assert "write - as the destination" in outcome.stderr, outcome


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


# ---- links that are named ----------------------------------------------------------------------------------------------

@pytest.fixture
def linked(road):
    """A far folder with a link to a directory in it, and another link that leads out of a daemon's root."""
    fill(road.far, "releases/7/file releases/7/sub/deep")
    (road.far / "releases/7/inner").symlink_to("file")
    (road.far / "current").symlink_to("releases/7")
    return road


@pytest.mark.parametrize("source, expected", [
    ("current", "new new/file new/inner new/sub new/sub/deep"), ("current/sub", "new new/deep"),
    ("current/file", "new"), ("curren?/sub", "new new/deep"), ("current/f*", "new")])
def test_a_link_that_is_named_is_followed(linked, near, source, expected):
    linked.cp(linked.url(source), near / "new")
    assert names(near) == expected
    assert not (near / "new").is_symlink()


def test_the_content_of_a_link_that_is_named(linked, near):
    linked.cp(linked.url("current") + "/", near / "a")
    linked.sync(linked.url("current"), near / "b")
    for copy in "ab":
        assert names(near / copy) == "file inner sub sub/deep"
        assert (near / copy / "inner").is_symlink(), "links below the named one are copied as links"


def test_what_is_copied_to_a_link_goes_into_its_directory(linked, near):
    fill(near, "a.bin run7/x content/y named")
    linked.cp(near / "a.bin", linked.url("current"))
    linked.cp(near / "run7", linked.url("current"))
    linked.cp(f"{near}/content/", linked.url("current/sub"))
    linked.cp(near / "named", linked.url("current/other"))
    linked.cp(near / "named", linked.url("current/made/") + ("" if linked.name == "ssh" else "/"))
    assert (linked.far / "current").is_symlink()
    assert names(linked.far / "releases/7") == "a.bin file inner made made/named other run7 run7/x sub sub/deep sub/y"
    linked.sync("--delete", near / "run7", linked.url("current"))
    assert (linked.far / "current").is_symlink() and names(linked.far / "releases/7") == "x"


@pytest.mark.parametrize("target", ["../../outside", "/etc"])
def test_a_link_out_of_a_daemons_root_is_refused(daemon_road, near, target):
    road = daemon_road
    outside = road.net.daemon.root.parent / "outside"
    fill(outside, "secret")
    before = names(outside)
    (road.far / "out").symlink_to(target)
    (near / "file").write_text("it")
    for source in ("out", "out/", "out/secret", "out/passwd"):
        outcome = road.cp(road.net.daemon.url(f"{road.far.name}/{source}"), f"{near}/", expect=EXIT_FILES)
        assert "out of the root" in outcome.stderr, outcome
    for place in ("out", "out/", "out/x", "out/new/"):
        outcome = road.cp(near / "file", road.net.daemon.url(f"{road.far.name}/{place}"), expect=EXIT_FILES)
        assert "out of the root" in outcome.stderr, outcome
    assert names(near) == "file" and names(outside) == before
    assert (road.far / "out").is_symlink()


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
    """The shell has already expanded a tilde that means a home directory."""
    (near / "file").write_text("it")
    run = lambda *places: cp(net.alpha, *places, as_json=False, cwd=near)  # noqa: E731
    run("file", "~")
    run("~", "copy")
    run("~", "~root")
    assert names(near) == "copy file ~ ~root"
    assert run("~", "-").stdout == b"it"
