"""`farhaul ls`, `stat`, `cat`, `du` and `sum` look at files where they are, over both roads and on this
host."""

import contextlib
import hashlib
import json
import os
import re
import subprocess

import pytest

from harness.hosts import USER
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, Daemon
from harness.trees import make_file, make_tree

MIB = 1 << 20


class Place:
    """A folder, and the location by which the command line names it."""

    def __init__(self, net, folder, url):
        self.net, self.folder, self.url = net, folder, url

    def run(self, verb, *arguments, expect=EXIT_OK, **options):
        done = self.net.alpha.run(["farhaul", verb, "--accept-new", *map(os.fspath, arguments)], timeout=120, **options)
        assert done.returncode == expect, done
        return done.stdout

    def lines(self, verb, *arguments, **options):
        return self.run(verb, *arguments, **options).decode().splitlines()

    def objects(self, verb, *arguments, **options):
        return [json.loads(line) for line in self.lines(verb, "--json", *arguments, **options)]

    def error(self, verb, *arguments, expect):
        done = self.net.alpha.run(["farhaul", verb, "--accept-new", *map(os.fspath, arguments)], timeout=120)
        assert done.returncode == expect, done
        (line,) = [line for line in done.stderr.decode().splitlines() if line.startswith("error: ")]
        return line


@pytest.fixture(params=["ssh", "daemon", "local"])
def place(request, net):
    if request.param == "local":
        folder = net.folder("here")
        return Place(net, folder, lambda path: os.path.join(folder, path))
    road = request.getfixturevalue("road_of")(request.param)
    return Place(net, road.far, road.url)


def unescaped(text):
    """The bytes of a name from its form in reports, where \\n and \\u{1b} stand for characters that are not
    printable, and \\xff for a byte that belongs to no character."""
    plain = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "'": b"'", '"': b'"', "0": b"\0"}
    out, at = b"", 0
    for found in re.finditer(r"\\(?:u\{([0-9a-f]+)\}|x([0-9a-f]{2})|(.))", text):
        character, byte, letter = found.groups()
        out += text[at:found.start()].encode()
        out += chr(int(character, 16)).encode() if character else bytes.fromhex(byte) if byte else plain[letter]
        at = found.end()
    return out + text[at:].encode()


def paths(objects, place):
    base = os.fspath(place.url("x"))
    base = base.split(":", 1)[1] if base.startswith("beta:") else base
    base = base.split("/", 3)[3] if base.startswith("fh://") else base
    return [entry["path"].removeprefix(base[:-1]) for entry in objects]


def test_a_directory_is_listed_sorted_and_without_dots(place):
    for name in ("b", "a", ".hidden", "c d"):
        make_file(place.folder / name, 3)
    (place.folder / "dir").mkdir()
    make_file(place.folder / "dir/inside", 5)
    assert place.lines("ls", place.url("")) == ["a", "b", "c d", "dir"]
    assert place.lines("ls", "-a", place.url("")) == [".hidden", "a", "b", "c d", "dir"]
    assert sorted(place.lines("ls", "-U", place.url(""))) == ["a", "b", "c d", "dir"]
    assert [line.split("/")[-1] for line in place.lines("ls", place.url("dir/inside"))] == ["inside"]
    assert [line.rsplit("/", 1)[-1] for line in place.lines("ls", "-d", place.url("dir"))] == ["dir"]
    found = place.lines("ls", "-R", place.url("dir"))
    assert found[0].endswith("dir:") and found[1:] == ["inside"]


def test_a_long_listing_says_what_each_is(place):
    make_file(place.folder / "file", 1234)
    os.chmod(place.folder / "file", 0o640)
    os.utime(place.folder / "file", (951782400, 951782400))
    os.symlink("file", place.folder / "link")
    os.mkfifo(place.folder / "pipe")
    found = {line.split()[3]: line.split() for line in place.lines("ls", "-l", place.url(""))}
    assert found["file"] == ["-rw-r-----", "1234", "2000-02-29T00:00:00Z", "file"]
    assert found["link"][0] == "lrwxrwxrwx" and found["link"][3:] == ["link", "->", "file"]
    assert found["pipe"][0].startswith("p")
    assert any(line.split()[1:3] == ["1.21", "KiB"] for line in place.lines("ls", "-lh", place.url("")))


def test_json_is_what_the_system_says(place):
    tree = make_tree(place.folder / "tree", seed=5, files=60)
    found = place.objects("ls", "-aR", place.url("tree"))
    for entry, path in zip(found, paths(found, place)):
        there = os.lstat(os.fsencode(place.folder) + b"/" + unescaped(path))
        kind = {0o100000: "file", 0o040000: "directory", 0o120000: "symlink"}[there.st_mode & 0o170000]
        assert (entry["kind"], entry["mode"], entry["mtime_ns"]) == (kind, f"{there.st_mode & 0o7777:04o}", there.st_mtime_ns)
        assert (entry["inode"], entry["device"], entry["ctime_ns"]) == (there.st_ino, there.st_dev, there.st_ctime_ns)
        assert kind == "directory" or entry["size"] == there.st_size
    assert len(found) == sum(len(directories) + len(files) for _, directories, files in os.walk(os.fsencode(tree)))


def test_contents_and_ranges_are_the_bytes_of_the_file(place):
    content = make_file(place.folder / "file", 5 * MIB + 77).read_bytes()
    make_file(place.folder / "empty", 0)
    assert place.run("cat", place.url("file")) == content
    assert place.run("cat", place.url("empty"), place.url("file"), place.url("file")) == content + content
    for words, part in (("0-0", content[:1]), ("100-2000000", content[100:2000001]), (f"{5 * MIB}-", content[5 * MIB:]),
                        ("-10", content[-10:]), (f"{1 << 62}-", b""), (f"-{1 << 62}", content), ("5-99999999", content[5:])):
        assert place.run("cat", "--range", words, place.url("file")) == part, words


@pytest.mark.parametrize("words", ["", "a-b", "5-3", "-", "--5", "1", "1-2-3", str(1 << 64) + "-", "+1-2"])
def test_a_range_that_makes_no_sense_is_refused(place, words):
    place.run("cat", f"--range={words}", place.url("file"), expect=EXIT_USAGE)


def test_sums_are_what_the_tools_check(place):
    tree = make_tree(place.folder / "tree", seed=6, files=40)
    make_file(tree / "large", 20 * MIB + 5)
    (tree / "back\\slash").write_text("x")
    listed = place.run("sum", "-r", place.url("tree"))
    assert len(listed.splitlines()) >= 40
    # The list names files as the command did: below the daemon's root, in the home directory, or on this
    # host.
    with open(place.folder / "SUMS", "wb") as out:
        for line in listed.splitlines(keepends=True):
            at = line.index(b"tree/")
            out.write(line[:66 + line.startswith(b"\\")] + line[at:])
    check = subprocess.run(["sha256sum", "-c", "--quiet", "SUMS"], cwd=place.folder, capture_output=True)
    assert check.returncode == 0, check
    (large,) = place.objects("sum", "--algorithm", "md5", place.url("tree/large"))
    assert large["digest"] == hashlib.md5((tree / "large").read_bytes()).hexdigest() and large["bytes"] == 20 * MIB + 5
    assert "directory" in place.error("sum", place.url("tree"), expect=EXIT_FILES)


def test_du_counts_each_file_once(place):
    (place.folder / "tree/sub").mkdir(parents=True)
    make_file(place.folder / "tree/a", 1000)
    make_file(place.folder / "tree/sub/b", 500)
    os.link(place.folder / "tree/a", place.folder / "tree/sub/a-again")
    (whole,) = place.objects("du", place.url("tree"))
    assert (whole["files"], whole["directories"], whole["bytes"]) == (3, 1, 1500)
    both = place.objects("du", "-d", "1", place.url("tree"))
    assert [(one["path"].rsplit("/", 1)[-1], one["files"]) for one in both] == [("sub", 2), ("tree", 3)]
    assert place.lines("du", "-sh", place.url("tree")) == place.lines("du", place.url("tree"))
    (line,) = place.lines("du", "-b", place.url("tree"))
    assert line.split()[0] == "1500"
    os.symlink("a", place.folder / "tree/link")
    os.mkfifo(place.folder / "tree/pipe")
    for name in ("link", "pipe"):
        (named,) = place.objects("du", place.url(f"tree/{name}"))
        assert (named["files"], named["bytes"]) == (1, 0), named
    (whole,) = place.objects("du", place.url("tree"))
    assert (whole["files"], whole["bytes"]) == (5, 1500)
    os.symlink("tree", place.folder / "way")
    (named,) = place.objects("du", place.url("way"))
    (followed,) = place.objects("du", place.url("way/"))
    assert (named["files"], named["bytes"]) == (1, 0) and (followed["files"], followed["bytes"]) == (5, 1500), (named, followed)


def test_stat_names_what_a_link_is_and_where_it_leads(place):
    make_file(place.folder / "file", 12)
    os.symlink("file", place.folder / "link")
    (link,) = place.objects("stat", place.url("link"))
    (file,) = place.objects("stat", "-L", place.url("link"))
    assert (link["kind"], link["target"]) == ("symlink", "file") and (file["kind"], file["size"]) == ("file", 12)
    assert "symlink" in place.run("stat", place.url("link")).decode()


def test_what_is_missing_is_one_line_and_the_rest_is_looked_at(place):
    make_file(place.folder / "there", 3)
    for verb in ("ls", "stat", "cat", "du", "sum"):
        line = place.error(verb, place.url("missing"), expect=EXIT_FILES)
        assert "missing" in line and "no such file" in line
        line = place.error(verb, place.url("missing"), place.url("there"), expect=EXIT_SOME_FAILED)
        assert "missing" in line
    (failed, _) = place.objects("ls", place.url("missing"), place.url("there"), expect=EXIT_SOME_FAILED)
    assert failed["code"] == "FH-NOT-FOUND" and failed["failed"].endswith("missing")


def test_a_file_that_has_more_than_its_size_is_refused(road_of, net):
    """The size of most files of /proc is 0; `cp` reads them to their end."""
    road = road_of("ssh")
    place = Place(net, road.far, road.url)
    for verb in ("cat", "sum"):
        for version in ("beta:/proc/version", "/proc/version"):
            assert "does not say how large it is" in place.error(verb, version, expect=EXIT_FILES)
    (road.far / "empty").write_bytes(b"")
    assert place.run("cat", road.url("empty")) == b""
    assert net.alpha.run(["farhaul", "cp", "beta:/proc/version", "-"]).stdout.startswith(b"Linux version")


def test_patterns_are_looked_up_there(road_of, net):
    for name in ("ssh", "daemon"):
        road = road_of(name)
        place = Place(net, road.far, road.url)
        for file in ("run1.root", "run2.root", "notes"):
            make_file(road.far / file, 10)
        assert len(place.objects("stat", road.url("*.root"))) == 2
        assert place.run("cat", road.url("run[12].root")) == 2 * (road.far / "run1.root").read_bytes()
        place.error("stat", road.url("*.none"), expect=EXIT_FILES)


def test_files_come_before_what_is_in_directories(road):
    make_file(road.far / "z-file", 3)
    make_file(road.far / "y-file", 3)
    (road.far / "a-dir").mkdir()
    make_file(road.far / "a-dir/inside", 3)
    os.symlink("a-dir", road.far / "b-link")
    place = Place(road.net, road.far, road.url)
    lines = [line.rsplit("/", 1)[-1] for line in place.lines("ls", road.url("*"))]
    assert lines == ["y-file", "z-file", "a-dir:", "inside", "", "b-link:", "inside"]
    assert [line.rsplit("/", 1)[-1] for line in place.lines("ls", "-d", road.url("*"))] == ["a-dir", "b-link", "y-file", "z-file"]


def test_names_do_not_steer_a_terminal_and_programs_get_them_as_they_are(place):
    name = b"evil\x1b[2J\xff"
    with open(os.fsencode(place.folder) + b"/" + name, "wb"):
        pass
    assert place.run("ls", place.url("")) == name + b"\n"
    (entry,) = place.objects("ls", place.url(""))
    assert entry["path"].endswith("evil\\u{1b}[2J\\xff")


def test_a_daemon_shows_nothing_outside_its_root(net, daemon_road):
    road = daemon_road
    place = Place(net, road.far, road.url)
    secret = net.folder("secret") / "secret"
    secret.write_text("secret")
    os.symlink(secret, road.far / "link")
    os.symlink(secret.parent, road.far / "folder")
    for path in ("link", "folder/secret", "../../secret/secret", "/../../../etc/passwd"):
        done = net.alpha.run(["farhaul", "cat", "--accept-new", road.url(path)], timeout=60)
        assert done.returncode == EXIT_FILES and b"secret" not in done.stdout, done
    (entry,) = place.objects("stat", road.url("link"))
    assert entry["kind"] == "symlink"


@contextlib.contextmanager
def daemon_with(net, rights):
    root = net.folder("served")
    daemon = Daemon(net.pair, net.beta, [f"{rights.format(root=root)} {net.key}"], port=33070, root=root)
    try:
        yield daemon
    finally:
        daemon.stop()


def test_rights_hold_for_reading(net):
    with daemon_with(net, "write-only") as daemon:
        place = Place(net, daemon.root, daemon.url)
        assert "only write" in place.error("ls", daemon.url(""), expect=EXIT_AUTH)
    with daemon_with(net, "root={root}/mine,read-only") as daemon:
        (daemon.root / "mine").mkdir()
        make_file(daemon.root / "mine/file", 10)
        make_file(daemon.root / "others", 10)
        place = Place(net, daemon.root, daemon.url)
        assert place.lines("ls", daemon.url("")) == ["file"]
        place.error("stat", daemon.url("../others"), expect=EXIT_FILES)
        assert "direction=\"read\"" in daemon.log_text() or "direction=read" in daemon.log_text()


def test_where_nobody_listens_that_is_said(net):
    place = Place(net, None, None)
    place.error("ls", "fh://beta:9/", expect=EXIT_CONNECT)


def test_a_reader_that_goes_away_is_no_fault(place):
    make_file(place.folder / "file", 30 * MIB)
    url = os.fspath(place.url("file"))
    done = place.net.alpha.run(["sh", "-c", f"farhaul cat --accept-new '{url}' | head -c 10 | wc -c"], timeout=60)
    assert done.stdout.split() == [b"10"] and b"panic" not in done.stderr


def test_where_udp_is_blocked_files_are_read_over_the_other_carrier(own_road):
    road = own_road
    place = Place(road.net, road.far, road.url)
    content = make_file(road.far / "file", 20 * MIB).read_bytes()
    with road.net.alpha.dropping("meta l4proto udp"), road.net.beta.dropping("meta l4proto udp"):
        assert place.run("cat", road.url("file")) == content
        assert place.lines("ls", road.url("")) == ["file"]
        assert "3300" in place.error("cat", "--udp-only", road.url("file"), expect=EXIT_CONNECT)


def test_a_path_that_is_refused_or_cannot_be_listed_is_named_once(net, road, near):
    """A directory is named as it was asked for, and a reason does not have the path again."""
    if road.name == "daemon":
        for verb in ("ls", "stat", "cat", "du", "sum"):
            done = net.alpha.run(["farhaul", verb, road.url("..")], timeout=60)
            assert done.returncode == EXIT_FILES, done
            assert done.stderr.decode().splitlines()[0].count("..") == 2, "once in the path, once in the rule"
    (near / "shut").mkdir(mode=0o700)
    near.chmod(0o755)
    for verb in (["ls"], ["ls", "-R"], ["du"], ["sum", "-r"]):
        done = net.alpha.run(["farhaul", *verb, near / "shut"], user=USER, timeout=60)
        (line,) = done.stderr.decode().splitlines()
        assert line == f"error: {near}/shut: cannot list: permission denied", done
