"""The commands of docs/start and docs/guide, typed as they stand there, in a new home, on machines that have the names of
the pages. Every run types the first block of each page; `--full` types all blocks."""

import json
import pathlib
import re
import sys
import time
import tomllib

import pytest

from harness import c_library, extension, guide, product
from harness.hosts import wait_until
from harness.town import Town

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOT_RUN = tomllib.loads((ROOT / "tests/not_run.toml").read_text())["not_run"]
#: The pages that have commands.
PAGES = [page for page in guide.pages() if guide.commands(page)]
#: What a reader answers.
ANSWERS = [(r"Trust it from now on \(yes/no\)\? ", "yes")]
#: Commands that keep the terminal: the next ones are typed in another one.
STAYS = re.compile(r"farhaul (serve|gateway|tunnel) (?!.*&\s*(#|$))")
#: The comment behind a command.
COMMENT = re.compile(r"\s+# ")


def plain(text):
    """A command without the comment behind it."""
    for comment in COMMENT.finditer(text) if "\n" not in text else ():
        before = text[:comment.start()]
        if before.count("'") % 2 == 0 and before.count('"') % 2 == 0:
            return before.strip()
    return text.strip()


def is_run(command):
    return not any(command.page == entry["page"] and plain(command.text) in entry["commands"] for entry in NOT_RUN)


# ---- what there is before somebody types --------------------------------------------------------------------------


def tree(machine, path, owner="alice"):
    """A directory with a few files, as the pages have one."""
    for name, size in (("a.h5", 300_000), ("b.h5", 20), ("empty", 0), ("sub/c.h5", 70_000), ("sub/left.tmp", 9)):
        machine.put(f"{path}/{name}", name.encode()[:1] * size, owner)


def far_data(town):
    for machine in (town.far, town.other):
        machine.folder("/data", "user", 0o777)


def run7(town):
    far_data(town)
    tree(town.here, "/home/alice/run7")


def with_daemon(town):
    """A daemon on the far machine that knows the reader's key; it serves /srv/data."""
    run7(town)
    town.far.folder("/srv/data/incoming", "user")
    town.daemon(town.far)


def with_service(town):
    """The reader's own service, which knows the far daemon."""
    with_daemon(town)
    town.here.run(["farhaul", "ls", "--accept-new", "fh://hpc/"], "alice")
    town.terminal().leave_running("farhaul serve", "serving")


def of_automate(town):
    with_service(town)
    tree(town.here, "/data/run7")


def of_bench(town):
    far_data(town)
    for machine in (town.here, town.far):
        machine.put("/data/some.bam", b"x" * (8 << 20), "alice")


def of_browser(town):
    town.here.folder("/srv/data", "alice")


def of_copy(town):
    run7(town)
    town.here.folder("/data", "alice")
    for machine in (town.here, town.far):
        for place in ("/nvme0", "/nvme1", "/a", "/b", "/c"):
            machine.folder(place, "alice", 0o777)
    tree(town.here, "/nvme0/run7")
    # A directory is in the place of a file, so that this file fails.
    town.far.put("/data/run7/a.h5/in the way", b"", "alice")


def of_daemon_guide(town):
    run7(town)
    town.far.folder("/srv/data/incoming", "user")
    town.far.folder("/srv/data", "user")
    town.far.put("/etc/farhaul/authorized_keys", "")


def of_first_transfer(town):
    run7(town)
    town.here.put("/home/alice/big.bam", b"b" * 1_000_000, "alice")


def of_install(town):
    """The source tree, as it is after the build."""
    town.here.put("/home/alice/farhaul/target/release/farhaul", product.binary().read_bytes(), "alice", 0o755)
    for machine in (town.here, town.far):
        machine.at("/usr/local/bin/farhaul").unlink()
        machine.folder("/usr/local/bin", "root", 0o777)
    town.here.folder("/etc/bash_completion.d", mode=0o777)


def of_from_c(town):
    """The source tree, as it is after `./x bindings`."""
    library = c_library.assembled()
    for path in ["include/farhaul.h", "lib/pkgconfig/farhaul.pc", *(f"lib/{path.name}" for path in (library / "lib").glob("*.so*"))]:
        content = (library / path).read_bytes().replace(f"prefix={library}".encode(), b"prefix=/home/alice/target/bindings")
        town.here.put(f"/home/alice/target/bindings/{path}", content, "alice", 0o755)
    for source in (ROOT / "bindings/c/examples").glob("*.c"):
        town.here.put(f"/home/alice/bindings/c/examples/{source.name}", source.read_bytes(), "alice")


def of_gateway(town):
    far_data(town)
    tree(town.far, "/data/run7")
    town.far.put("/data/run7/readme.txt", b"read me\n", "alice")
    town.far.put("/data/run7.root", bytes(range(256)) * 40, "alice")


def of_farm_cache(town):
    of_gateway(town)
    # A file that has just changed is not kept.
    wait_until(lambda: time.time() > town.far.at("/data/run7.root").stat().st_ctime + 6.5, what="the file is old enough")


def of_jobs(town):
    with_daemon(town)
    tree(town.here, "/home/alice/data/run7")


def of_node(town):
    town.here.put("/root/farhaul/target/release/farhaul", product.binary().read_bytes(), mode=0o755)
    for path in filter(pathlib.Path.is_file, (ROOT / "deploy").iterdir()):
        town.here.put(f"/root/farhaul/deploy/{path.name}", path.read_bytes())
    town.here.at("/usr/local/bin/farhaul").unlink()


def of_pandas(town):
    """The reader's Python has the package, and fsspec."""
    extension.needed()
    pytest.importorskip("fsspec", reason="fsspec is not installed: ./x bindings")
    far_data(town)
    town.far.folder("/data/run7", "alice")
    town.here.put("/usr/local/bin/python3", f"#!/bin/sh\nPYTHONPATH={extension.PACKAGE} exec {sys.executable} \"$@\"\n", mode=0o755)


def of_names(town):
    far_data(town)
    town.far.folder("/data/old", "alice")
    for path in ("/data/old/run7.log", "/data/a.tmp", "/data/b.tmp"):
        town.far.put(path, b"x", "alice")
    town.far.put("/srv/data/in/a.dat", b"content", "user")
    town.far.folder("/srv/data/out", "user")
    town.daemon(town.far)


def of_read(town):
    far_data(town)
    tree(town.far, "/data/run7")
    town.far.put("/data/run7.root", bytes(range(256)) * 40, "alice")
    town.far.put("/data/some.bam", b"x" * 1000, "alice")
    tree(town.far, "/home/alice/data")
    tree(town.far, "/srv/data/run7", "user")
    town.daemon(town.far)


def of_receipts(town):
    with_daemon(town)
    town.here.put("/home/alice/dtn2.pub", town.far.at("/home/user/.config/farhaul/id_ed25519.pub").read_bytes(), "alice")
    town.far.folder("/srv/data/data", "user")


def of_sync(town):
    with_daemon(town)
    tree(town.far, "/srv/data/run7", "user")


def of_third_party(town):
    tree(town.other, "/srv/data/run7", "user")
    town.far.folder("/srv/data/incoming", "user")
    tree(town.far, "/srv/data/run7/old", "user")
    town.daemon(town.other)
    town.daemon(town.far)


def of_verify(town):
    run7(town)
    lines = town.here.run(["farhaul", "sum", "-r", "run7"], "alice"), town.here.run(["farhaul", "sum", "-r", "--algorithm", "blake3", "run7"], "alice")
    for name, said in zip(("SHA256SUMS", "B3SUMS"), lines):
        digests = re.findall(r"^([0-9a-f]{64})  run7/(.*)$|^BLAKE3 \(run7/(.*)\) = ([0-9a-f]{64})$", said, re.M)
        assert len(digests) == 5, said
        town.far.put(f"/home/alice/{name}", "".join(f"{one or other}  {path or name}\n" for one, path, name, other in digests), "alice")


def of_tunnel(town):
    """A web server on the far machine that only that machine reaches."""
    town.far.put("/www/index.html", b"from inside\n")
    town.far.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "/www", "80"], log="/tmp/www.log")
    wait_until(lambda: town.far.run(["curl", "-s", "http://127.0.0.1/"], check=False) == "from inside\n", what="the web server answers")


def of_watch(town):
    with_service(town)
    for place in ("/instrument/out", "/camera/frames"):
        town.here.folder(place, "alice")
        town.here.put(f"{place}/1.h5", b"1" * 1000, "alice")
    town.far.folder("/srv/data/frames", "user")


PREPARED = {
    "guide/automate.md": of_automate,
    "guide/bench.md": of_bench,
    "guide/browser.md": of_browser,
    "guide/copy.md": of_copy,
    "guide/daemon.md": of_daemon_guide,
    "guide/detector.md": lambda town: None,
    "guide/from-c.md": of_from_c,
    "guide/fast-node.md": lambda town: None,
    "guide/farm-cache.md": of_farm_cache,
    "guide/gateway.md": of_gateway,
    "guide/jobs.md": of_jobs,
    "guide/limit-rate.md": with_service,
    "guide/node.md": of_node,
    "guide/mount.md": lambda town: None,
    "guide/names.md": of_names,
    "guide/pandas.md": of_pandas,
    "guide/read.md": of_read,
    "guide/receipts.md": of_receipts,
    "guide/sync.md": of_sync,
    "guide/third-party.md": of_third_party,
    "guide/tunnel.md": of_tunnel,
    "guide/verify.md": of_verify,
    "guide/watch-folder.md": of_watch,
    "start/daemon.md": run7,
    "start/first-transfer.md": of_first_transfer,
    "start/install.md": of_install,
}

#: Where commands are typed that their page does not put a machine before: user, machine, directory.
AS_ROOT = {"guide/node.md": "/root/farhaul"}
IN_FOLDER = {"start/install.md": "farhaul"}
#: Pages whose first block takes long: each run types only the first command.
LONG = {"guide/bench.md"}
#: Commands that end with another code than 0, as their page says.
CODES = {"farhaul cp --json run7 host:/data/ > report.json": 1}


# ---- a reader ------------------------------------------------------------------------------------------------------


class Reader:
    """Types the commands of a page one after the other, and remembers what each printed."""

    def __init__(self, town, page):
        self.town, self.page = town, page
        self.terminals, self.typed = {}, {}
        self.is_asking = False

    def terminal(self, command):
        is_root = command.is_root or self.page in AS_ROOT and command.block == 0
        machine = self.town.far if command.place == "server" or self.is_far(command) else self.town.here
        machine = self.town.other if self.is_asking else machine
        user = "root" if is_root else "user" if command.place == "server" else "alice"
        place = (machine.name, user)
        if place not in self.terminals:
            folder = AS_ROOT.get(self.page) if is_root else IN_FOLDER.get(self.page)
            self.terminals[place] = self.town.terminal(machine, user, folder)
        return place, self.terminals[place]

    def is_far(self, command):
        # The page says that these are for the far host.
        return self.page == "guide/verify.md" and "farhaul verify" in plain(command.text)

    def type(self, command):
        if self.page == "guide/node.md" and command.block == 1 and not self.is_asking:
            # The rest of the page asks a node: here one of the reader's own, on another machine.
            self.is_asking = True
            self.town.terminal(self.town.other).leave_running("farhaul serve --api-listen 127.0.0.1:33080", "serving")
        line = self.filled(command.text)
        place, terminal = self.terminal(command)
        if STAYS.search(plain(command.text)) and " -- " not in line:
            said = terminal.leave_running(line, "serving|connected to")
            # The reader goes on in another terminal.
            del self.terminals[place]
        else:
            typed = terminal.type(line, answers=ANSWERS)
            if line.startswith("farhaul serve "):
                # It is in the background, and a reader goes on when it is there.
                terminal.sees("serving")
            assert typed.code == CODES.get(plain(command.text), 0), f"{command}\n{typed}"
            said = typed.text
        self.typed[plain(command.text)] = said
        self.act_after(command, said)
        return said

    def filled(self, line):
        """The command with what stood in the output of earlier ones in place of the page's examples."""
        for example, value in (("01m8fp01fsd593pz", self.id_in("farhaul submit")), ("93253d806f", self.token()),
                               ("farhaul-ed25519 MCow... alice@lab", self.last(r"cat ~/.config/farhaul"))):
            if example in line:
                assert value, f"{self.page}: nothing stands for {example}"
                line = line.replace(example, value.strip())
        if re.search(r"farhaul watch \w+ ID\b", line):
            line = line.replace(" ID", f" {self.id_in('farhaul watch add /instrument')}")
        return line

    def last(self, pattern):
        found = [said for line, said in self.typed.items() if re.match(pattern, line)]
        return found[-1] if found else ""

    def id_in(self, pattern):
        """The id of a job or a watch that a command has printed."""
        return next(iter(re.findall(r"^[0-9a-z]{16}$|^[0-9a-z]{10}$", self.last(pattern), re.M)), "")

    def token(self):
        return next(iter(re.findall(r"^(\w{10}) ", self.last("farhaul token list"), re.M)), "")

    def act_after(self, command, said):
        """What the page's words ask for between its commands."""
        if command.page == "guide/daemon.md" and plain(command.text).startswith("cat "):
            self.town.far.put("/etc/farhaul/authorized_keys", said)
        if plain(command.text) == "farhaul cp --json run7 host:/data/ > report.json":
            self.town.far.run(["rm", "-r", "/data/run7/a.h5"])
        if plain(command.text).startswith("install -D -m 644 deploy/farhaul.toml"):
            # The page has the keys to set below.
            text = (ROOT / "docs/guide/node.md").read_text()
            settings = re.search(r"^```toml\n(\[serve\].*?)^```", text, re.M | re.S)[1]
            self.town.here.put("/etc/farhaul/farhaul.toml", settings)
            self.town.here.put("/etc/farhaul/authorized_keys", "")


def follow(page, blocks=None):
    """Types the commands of a page; `blocks` are the first ones to type."""
    commands = [command for command in guide.commands(page) if blocks is None or command.block < blocks]
    if blocks is not None and page in LONG:
        commands = commands[:1]
    with Town() as town:
        PREPARED[page](town)
        reader = Reader(town, page)
        for command in filter(is_run, commands):
            reader.type(command)
        if check := CHECKS.get(page):
            check(town, reader.typed)


# ---- what a reader sees --------------------------------------------------------------------------------------------


def same(machine, path, other, there):
    """Whether two files are one and the same content."""
    return machine.at(path).read_bytes() == other.at(there).read_bytes()


def saw_automate(town, typed):
    assert "done" in typed["""farhaul job "$id" --json | jq -r '.state'"""]
    assert same(town.here, "/data/run7/a.h5", town.far, "/srv/data/incoming/run7/a.h5")


def saw_link(town, typed):
    assert re.search(r"http://127\.0\.0\.1:33080/#code=\S+", typed["farhaul open"]), typed


def saw_detector(town, typed):
    assert re.search(r"tile-3 to server: 48 frames, 48 arrived", list(typed.values())[5]), typed
    names = [path.name for path in town.far.at("/home/user/tile-3").iterdir()]
    assert sorted(names) == [f"frame-{number:08}" for number in range(48)], names


def saw_from_c(_town, typed):
    if "wait ; cat told" in typed:
        (sent,) = (said for line, said in typed.items() if line.startswith("./frames_send"))
        digests = [re.search(r"50 frames, digest (\w{16})", said)[1] for said in (sent, typed["wait ; cat told"])]
        assert digests[0] == digests[1], typed


def saw_daemon(town, typed):
    assert same(town.here, "/home/alice/run7/sub/c.h5", town.far, "/srv/data/incoming/run7/sub/c.h5")


def saw_first_transfer(town, typed):
    assert same(town.here, "/home/alice/big.bam", town.far, "/data/big.bam")
    if any(line.startswith("farhaul cp run7/") for line in typed):
        assert same(town.here, "/home/alice/run7/sub/c.h5", town.far, "/data/run7/sub/c.h5")
        assert not town.far.at("/data/run7/run7").exists()


def saw_gateway(town, typed):
    asked = {line: said for line, said in typed.items() if line.startswith("curl")}
    file, _, page, listed = asked.values()
    assert file.strip() == "read me", file
    assert town.here.at("/home/alice/head").read_bytes() == bytes(range(100))
    assert "<h1>/run7</h1>" in page and '"name":"readme.txt"' in listed, (page, listed)


def saw_farm_cache(town, typed):
    assert same(town.here, "/home/alice/run7.root", town.far, "/data/run7.root")
    assert town.here.at("/home/alice/head").read_bytes() == bytes(range(256)) * 16
    listed = next(said for line, said in typed.items() if line.startswith("farhaul cache ls"))
    assert "10.0 KiB of 10.0 KiB  host:/data/run7.root" in listed, listed


def saw_jobs(town, typed):
    assert "done" in typed["farhaul wait 01m8fp01fsd593pz"], typed
    assert "run=7" in typed["farhaul jobs"] or "run7" in typed["farhaul jobs"], typed
    assert same(town.here, "/home/alice/data/run7/a.h5", town.far, "/srv/data/incoming/run7/a.h5")


def saw_caps(town, typed):
    # The page shows this list with figures of its own: names, places and columns are the same.
    shown = re.search(r"^```console\n\$ farhaul cap list\n(.*?)^```", (ROOT / "docs/guide/limit-rate.md").read_text(), re.M | re.S)[1]
    here = typed["farhaul cap list"].splitlines()
    assert here[0].split() == shown.splitlines()[0].split()
    begins = lambda lines: sorted(line.split()[:2] for line in lines)  # noqa: E731
    assert begins(here[1:]) == begins(shown.splitlines()[1:]), here


def saw_node(town, typed):
    assert "error" not in typed["runuser -u farhaul -- farhaul jobs"], typed


def saw_read(town, typed):
    assert "run7.root" in typed["farhaul ls host:/data"] and "c.h5" in typed["farhaul ls -R 'fh://dtn/run7'"], typed
    assert len(re.findall(r"^[0-9a-f]{64}  ", town.here.at("/home/alice/SUMS").read_text(), re.M)) == 5


def saw_names(town, typed):
    assert town.far.at("/data/old/run7").is_dir() and town.far.at("/srv/data/out/b.dat").read_bytes() == b"content"
    assert sorted(path.name for path in town.far.at("/data").iterdir()) == ["old"]
    assert sorted(path.name for path in town.far.at("/data/old").iterdir()) == ["run7"]


def saw_receipt(town, typed):
    receipt = json.loads(town.here.at("/home/alice/r.json").read_text())
    assert receipt["receipt"] == 1 and same(town.here, "/home/alice/run7/a.h5", town.far, "/srv/data/data/run7/a.h5")


def saw_sync(town, typed):
    assert not town.here.at("/home/alice/run7/gone").exists() and same(town.here, "/home/alice/run7/a.h5", town.far, "/data/run7/a.h5")


def saw_third_party(town, typed):
    for place in ("incoming/run7", "run7"):
        assert same(town.other, "/srv/data/run7/a.h5", town.far, f"/srv/data/{place}/a.h5")
    assert not town.far.at("/srv/data/run7/old").exists()


def saw_tunnel(town, typed):
    assert typed["curl -s http://localhost:8080/"].strip() == "from inside", typed


def saw_verify(town, typed):
    assert "farhaul verify m.jsonl /data" in typed


def saw_watch(town, typed):
    assert re.search(r"/instrument/out", typed["farhaul watch list"]), typed


def saw_pandas(town, typed):
    assert town.far.at("/data/run7/table.csv").read_text() == "run,energy\n7,91.2\n8,125.1\n"
    (said,) = typed.values()
    assert "b'run,energy\\n'" in said and "['/data/run7/table.csv'] b'125.1\\n'" in said, said


CHECKS = {
    "guide/automate.md": saw_automate,
    "guide/browser.md": saw_link,
    "guide/daemon.md": saw_daemon,
    "guide/detector.md": saw_detector,
    "guide/from-c.md": saw_from_c,
    "guide/farm-cache.md": saw_farm_cache,
    "guide/gateway.md": saw_gateway,
    "guide/jobs.md": saw_jobs,
    "guide/limit-rate.md": saw_caps,
    "guide/node.md": saw_node,
    "guide/names.md": saw_names,
    "guide/pandas.md": saw_pandas,
    "guide/read.md": saw_read,
    "guide/receipts.md": saw_receipt,
    "guide/sync.md": saw_sync,
    "guide/third-party.md": saw_third_party,
    "guide/tunnel.md": saw_tunnel,
    "guide/verify.md": saw_verify,
    "guide/watch-folder.md": saw_watch,
    "start/first-transfer.md": saw_first_transfer,
}


@pytest.mark.parametrize("page", PAGES)
def test_the_first_commands_of_a_page_do_what_it_says(page):
    follow(page, blocks=1)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page in LONG or guide.commands(page)[-1].block > 0])
def test_all_commands_of_a_page_do_what_it_says(page):
    follow(page)


def test_what_is_not_typed_is_listed_with_a_reason_and_stands_on_its_page():
    for entry in NOT_RUN:
        there = [plain(command.text) for command in guide.commands(entry["page"])]
        assert [one for one in entry["commands"] if one not in there] == [], entry["page"]
        assert len(entry["reason"]) > 20
    # Everything else is typed by the tests above.
    assert set(PREPARED) == set(PAGES)
    left_out = sum(len(entry["commands"]) for entry in NOT_RUN)
    assert left_out < len([command for page in PAGES for command in guide.commands(page)]) / 3
    for tests in re.findall(r"tests/\w+\.py", (ROOT / "tests/not_run.toml").read_text()):
        assert (ROOT / tests).exists(), tests


def test_a_command_is_what_somebody_types():
    text = """# Page
```
client$ one --with 'a # b'      # a comment
# a line of nothing but a comment
server# two \\
    --more
```
```toml
no = "command"
```
```sh
cat > file <<'END'
text

END
case $x in
  0) three ;;
esac
```
"""
    commands = guide.commands_of("guide/x.md", text)
    assert [(one.block, one.place, one.is_root, plain(one.text)) for one in commands] == [
        (0, "client", False, "one --with 'a # b'"),
        (0, "server", True, "two \\\n    --more"),
        (1, "", False, "cat > file <<'END'\ntext\n\nEND"),
        (1, "", False, "case $x in\n  0) three ;;\nesac"),
    ]
