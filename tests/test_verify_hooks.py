"""A program of the receiver's looks at each file that has arrived, before the file gets its name."""

import json
import os
import pathlib
import re
import signal
import time

import pytest

from harness.hosts import USER, wait_until
from harness.product import EXIT_FILES, EXIT_INTERRUPTED, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, ROOT, Daemon, cp, finish, start_cp
from harness.service import Service
from harness.trees import leftovers, make_file

MIB = 1 << 20
#: Refuses what contains `virus`, hangs at `hang`, dies at `crash`, changes what contains `mend`, and notes each file.
SCANNER = r"""#!/bin/sh
read -r line
echo "$line" >> SEEN
has() { head -c 100 "$FARHAUL_CONTENT" | grep -q "$1"; }
has virus && { echo "looked at it"; printf 'Eicar\033[31m-Test\r FOUND\n'; exit 1; }
has hang && { echo $$ >> PIDS; sleep 300 & echo $! >> PIDS; wait; }
has crash && kill -SEGV $$
has mend && printf good >> /proc/self/fd/${FARHAUL_CONTENT##*/}
has away && { echo "the scanner is away"; exit 75; }
exit 0
"""
#: The same for several files at a time.
CLERK = r"""#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    with open("SEEN", "a") as seen:
        seen.write(line)
    with open(told["content"], "rb") as content:
        bad = b"virus" in content.read(100)
    print("a note of the program's own")
    print(json.dumps({"id": told["id"], "accept": not bad, "reason": "no valid header"}), flush=True)
"""


class Checked:
    """A daemon on beta whose files a program looks at; alpha may send to it."""

    def __init__(self, net, program=SCANNER, user=USER, settings="", port=34001, env=None):
        self.net = net
        self.folder = net.folder("hook")
        self.seen, self.pids, self.quarantine = self.folder / "seen", self.folder / "pids", self.folder / "quarantine"
        self.program = self.folder / "scan"
        self.program.write_text(program.replace("SEEN", str(self.seen)).replace("PIDS", str(self.pids)))
        self.program.chmod(0o755)
        self.quarantine.mkdir()
        self.config = self.folder / "farhaul.toml"
        self.config.write_text(f'[hooks.scan]\non = ["verify"]\nprogram = "{self.program}"\n{settings}\n')
        os.chmod(self.folder, 0o777)
        os.chmod(self.quarantine, 0o777)
        self.daemon = Daemon(net.pair, net.beta, [net.key], port=port, user=user, arguments=("--config", self.config), env=env)
        self.root = self.daemon.root

    def told(self):
        """What the program was told of each file, in its order."""
        return [json.loads(line) for line in self.seen.read_text().splitlines()] if self.seen.exists() else []

    def names(self):
        return sorted(told["name"] for told in self.told())

    def running(self):
        """The processes of the program that are still there."""
        pids = self.pids.read_text().split() if self.pids.exists() else []
        return [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]

    def send(self, *arguments, expect=EXIT_OK, **options):
        return cp(self.net.alpha, "--accept-new", *arguments, self.daemon.url("in/"), expect=expect, **options)


def tree(folder):
    """Small and large files, of which two are refused."""
    (folder / "d").mkdir(parents=True)
    (folder / "fine").write_text("fine")
    (folder / "empty").write_text("")
    (folder / "d/bad").write_text("a virus")
    make_file(folder / "d/large", 6 * MIB)
    make_file(folder / "large-bad", 5 * MIB)
    with open(folder / "large-bad", "r+b") as file:
        file.write(b"virus")
    os.chmod(folder / "fine", 0o200)
    return folder


def failed(outcome):
    return {entry["path"]: (entry["code"], entry["reason"]) for entry in outcome.report["failed"]}


@pytest.mark.parametrize("user", [USER, None], ids=["of its own user", "of root"])
def test_a_file_that_the_program_refuses_gets_no_name_and_the_rest_goes_on(own_net, user):
    checked = Checked(own_net, user=user)
    source = tree(own_net.folder("source") / "t")
    done = checked.send("-r", source, expect=EXIT_SOME_FAILED)
    reason = "the receiver's check refused it: Eicar [31m-Test  FOUND"
    assert failed(done) == {"t/d/bad": ("FH-CONTENT-REFUSED", reason), "t/large-bad": ("FH-CONTENT-REFUSED", reason)}
    assert done.report["failed_count"] == 2 and "\x1b" not in done.stderr
    there = checked.root / "in/t"
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()) == ["d/large", "empty", "fine"]
    assert (there / "d/large").read_bytes() == (source / "d/large").read_bytes()
    assert (there / "fine").stat().st_mode & 0o777 == 0o200, "the mode is the source's again"
    assert leftovers(checked.root) == [] and not list(checked.root.rglob(".*.fh*"))
    # What the program was told.
    large = next(told for told in checked.told() if told["name"] == "large")
    assert (large["event"], large["schema"], large["bytes"], large["path"]) == ("verify", 1, 6 * MIB, f"{there}/d/large")
    assert re.fullmatch(r"SHA256:\S{43}", large["sender"]) and re.fullmatch("blake3-tree-1MiB:[0-9a-f]{64}", large["digest"])
    # For people: one line for each.
    lines = checked.send("-r", source, expect=EXIT_SOME_FAILED, as_json=False).stderr.splitlines()
    assert len([line for line in lines if "d/bad" in line and "Eicar" in line]) == 1, lines
    assert "refuses a file" in checked.daemon.log_text()
    # What was accepted is not checked again, as it does not come again.
    assert checked.names() == ["bad", "bad", "empty", "fine", "large", "large-bad", "large-bad"]


def test_a_program_without_a_verdict_accepts_nothing(own_net):
    checked = Checked(own_net, settings='time_limit = "2s"')
    source = own_net.folder("source")
    for name in ("hang", "crash", "mend", "away"):
        (source / name).write_text(f"{name} fine")
    make_file(source / "large", 5 * MIB)
    with open(source / "large", "r+b") as file:
        file.write(b"mend")
    (source / "ok").write_text("ok")
    done = checked.send(*sorted(source.iterdir()), expect=EXIT_SOME_FAILED)
    reasons = failed(done)
    assert {name: code for name, (code, _) in reasons.items()} == {
        "hang": "FH-CHECK-FAILED", "crash": "FH-CHECK-FAILED", "away": "FH-CHECK-FAILED",
        "mend": "FH-CONTENT-REFUSED", "large": "FH-CONTENT-REFUSED"}
    for name, word in (("hang", "took longer than its limit of 2 s"), ("crash", "ended by signal 11"), ("mend", "has changed it"),
                       ("large", "has changed it"), ("away", "the scanner is away")):
        assert word in reasons[name][1], reasons
    wait_until(lambda: checked.running() == [], 10, 0.1, "the whole group of the program was ended")
    assert sorted(os.listdir(checked.root / "in")) == ["ok"]
    # A program that is not there, or cannot be run.
    checked.program.chmod(0o644)
    again = checked.send(source / "crash", expect=EXIT_FILES)
    assert "it is not executable" in failed(again)["crash"][1]
    checked.program.unlink()
    again = checked.send(source / "crash", expect=EXIT_FILES)
    assert "cannot run" in failed(again)["crash"][1], again
    assert sorted(os.listdir(checked.root / "in")) == ["ok"]


def test_a_large_file_without_a_verdict_stays_to_be_checked_by_the_next_run(own_net):
    checked = Checked(own_net)
    source = own_net.folder("source") / "large"
    make_file(source, 8 * MIB)
    checked.program.chmod(0o644)
    checked.send(source, expect=EXIT_FILES)
    assert not (checked.root / "in/large").exists()
    checked.program.chmod(0o755)
    done = checked.send(source)
    assert (done.report["bytes_resumed"], checked.names()) == (8 * MIB, ["large"]), done
    assert (checked.root / "in/large").read_bytes() == source.read_bytes()
    assert os.listdir(checked.root / "in") == ["large"]


@pytest.mark.parametrize("verify", ["transit", "digest", "readback"])
def test_content_that_the_program_changes_is_never_vouched_for(own_net, verify):
    checked = Checked(own_net)
    source = own_net.folder("source")
    (source / "small").write_text("mend")
    make_file(source / "large", 5 * MIB)
    with open(source / "large", "r+b") as file:
        file.write(b"mend")
    done = checked.send("--verify", verify, source / "small", source / "large", expect=EXIT_FILES)
    assert {code for code, _ in failed(done).values()} == {"FH-CONTENT-REFUSED"} and len(failed(done)) == 2
    assert os.listdir(checked.root / "in") == [], "nothing of it is kept"
    assert done.report["bytes_kept"] == 0, done


def test_several_files_go_to_one_run_of_a_program_that_answers_in_lines(own_net):
    checked = Checked(own_net, program=CLERK, settings="files_each = 500\nat_once = 2")
    source = own_net.folder("source") / "many"
    source.mkdir()
    for number in range(1000):
        (source / f"{number}").write_text("virus" if number % 100 == 7 else f"{number}")
    done = checked.send("-r", source, expect=EXIT_SOME_FAILED)
    assert sorted(failed(done)) == sorted(f"many/{number}" for number in range(7, 1000, 100))
    assert set(failed(done).values()) == {("FH-CONTENT-REFUSED", "the receiver's check refused it: no valid header")}
    assert len(os.listdir(checked.root / "in/many")) == 990
    runs = {re.match(r"/proc/(\d+)/", told["content"])[1] for told in checked.told()}
    assert len(checked.told()) == 1000 and len(runs) < 200, len(runs)


def test_what_is_refused_can_be_kept_in_quarantine(own_net):
    checked = Checked(own_net, settings=f'quarantine = "{own_net.folder("kept")}"')
    kept = pathlib.Path(re.search('quarantine = "(.*)"', checked.config.read_text())[1])
    os.chmod(kept, 0o777)
    source = tree(own_net.folder("source") / "t")
    (source / "d/../sub..;rm -rf").write_text("virus")
    checked.send("-r", source, expect=EXIT_SOME_FAILED)
    contents = [path for path in kept.iterdir() if path.suffix != ".json"]
    assert sorted(path.read_bytes()[:5] for path in contents) == [b"a vir", b"virus", b"virus"]
    assert all(re.fullmatch(r"[\w.-]+", path.name) and path.stat().st_mode & 0o777 == 0o600 for path in kept.iterdir())
    notes = [json.loads(path.read_text()) for path in kept.glob("*.json")]
    assert {note["file"]["name"] for note in notes} == {"bad", "large-bad", "sub..;rm -rf"}
    assert {note["hook"] for note in notes} == {"scan"}


def test_links_of_a_refused_file_fail_and_what_has_no_content_is_not_checked(own_net):
    checked = Checked(own_net)
    source = own_net.folder("source") / "t"
    source.mkdir()
    (source / "bad").write_text("virus")
    os.link(source / "bad", source / "bad-too")
    (source / "good").write_text("good")
    os.link(source / "good", source / "good-too")
    os.symlink("good", source / "link")
    done = checked.send("-r", source, expect=EXIT_SOME_FAILED)
    assert sorted(failed(done)) == ["t/bad", "t/bad-too"]
    assert sorted(os.listdir(checked.root / "in/t")) == ["good", "good-too", "link"]
    assert len(checked.names()) == 2, "one of the names of each file"
    # What is taken from an earlier copy does not arrive.
    (checked.root / "next").mkdir(mode=0o777)
    os.chmod(checked.root / "next", 0o777)
    earlier = cp(own_net.alpha, "-r", "--link-dest", "../in/t", source / "good", checked.daemon.url("next/"))
    assert earlier.report["failed_count"] == 0
    assert (checked.root / "next/good").stat().st_ino == (checked.root / "in/t/good").stat().st_ino
    assert len(checked.names()) == 2, "one of the names of each file"


def test_nothing_is_changed_in_place_where_files_are_checked(own_net):
    checked = Checked(own_net)
    source = own_net.folder("source") / "f"
    make_file(source, 5 * MIB)
    checked.send(source)
    before = (checked.root / "in/f").stat()
    make_file(source, 5 * MIB, seed=2)
    done = checked.send("--inplace", source, expect=EXIT_USAGE)
    assert "--inplace" in done.stderr, done
    assert (checked.root / "in/f").stat() == before
    checked.send(source)
    assert (checked.root / "in/f").read_bytes() == source.read_bytes()
    assert checked.names() == ["f", "f"]


def test_a_slow_program_holds_up_no_other_file_and_no_other_copy(own_net):
    checked = Checked(own_net, settings='at_once = 2\ntime_limit = "60s"')
    source = own_net.folder("source")
    (source / "hang").write_text("hang")
    (source / "other").mkdir()
    for number in range(50):
        (source / f"other/{number}").write_text(str(number))
    make_file(source / "other/large", 20 * MIB)
    running = start_cp(own_net.alpha, "--accept-new", "-r", source / "hang", source / "other", checked.daemon.url("in/"))
    wait_until(lambda: (checked.root / "in/other/large").exists() and len(os.listdir(checked.root / "in/other")) == 51, 60, 0.1)
    assert not (checked.root / "in/hang").exists() and len(checked.running()) == 2
    (source / "quick").write_text("quick")
    cp(own_net.alpha, source / "quick", checked.daemon.url("in/"), timeout=30)
    # Ending the copy ends the program and all that it has started.
    running.send_signal(signal.SIGINT)
    assert finish(running).code == EXIT_INTERRUPTED
    wait_until(lambda: checked.running() == [], 20, 0.1, "the program is ended")
    assert not (checked.root / "in/hang").exists()


def test_a_daemon_that_is_killed_between_verdict_and_name_has_the_file_checked_again(own_net):
    """The program itself kills the daemon, at the moment of its verdict."""
    checked = Checked(own_net, user=None)
    source = own_net.folder("source") / "large"
    make_file(source, 8 * MIB)
    checked.program.write_text(checked.program.read_text().replace("exit 0", f"[ -e {checked.folder}/once ] || {{ touch {checked.folder}/once; kill -9 $PPID; }}; exit 0"))
    cp(own_net.alpha, "--accept-new", source, checked.daemon.url("in/"), check=False)
    assert not (checked.root / "in/large").exists() and checked.names() == ["large"]
    checked.daemon.restart()
    done = checked.send(source)
    assert done.report["bytes_resumed"] > 0 and checked.names() == ["large", "large"]
    assert (checked.root / "in/large").read_bytes() == source.read_bytes()


def test_a_daemon_that_ends_stops_the_program(own_net):
    checked = Checked(own_net)
    source = own_net.folder("source") / "hang"
    source.write_text("hang")
    running = start_cp(own_net.alpha, "--accept-new", source, checked.daemon.url("in/"))
    wait_until(lambda: len(checked.running()) == 2, 30, 0.1, "the program runs")
    checked.daemon.stop()
    wait_until(lambda: checked.running() == [], 20, 0.1, "the program is ended")
    running.kill()
    assert not (checked.root / "in/hang").exists()


class Node(Service):
    """A service on alpha whose own files a program looks at."""

    def __init__(self, net, settings=""):
        checked = Checked.__new__(Checked)
        checked.folder = net.folder("hook")
        checked.seen, checked.pids = checked.folder / "seen", checked.folder / "pids"
        checked.program = checked.folder / "scan"
        checked.program.write_text(SCANNER.replace("SEEN", str(checked.seen)).replace("PIDS", str(checked.pids)))
        checked.program.chmod(0o755)
        config = checked.folder / "farhaul.toml"
        config.write_text(f'[hooks.scan]\non = ["verify"]\nprogram = "{checked.program}"\n{settings}\n')
        config.chmod(0o600)
        self.checked = checked
        super().__init__(net, net.alpha, arguments=("--config", config), far=net.daemon)


def test_a_job_that_fetches_files_has_them_checked_and_says_what_was_refused(own_net):
    node = Node(own_net)
    far = own_net.daemon.root / "out"
    tree(far)
    near = own_net.folder("near")
    id = node.submit(*node.to_far("out"), near, expect=EXIT_OK)
    node.wait(id, expect=EXIT_SOME_FAILED)
    assert sorted(str(path.relative_to(near)) for path in near.rglob("*") if path.is_file()) == ["out/d/large", "out/empty", "out/fine"]
    assert {told["job"] for told in node.checked.told()} == {id}
    assert {told["sender"] for told in node.checked.told()} == {f"fh://beta:{own_net.daemon.port}"}
    job = node.job(id)
    assert job["state"] == "partly_failed" and "FH-CONTENT-REFUSED" in json.dumps(job), job
    # It is not tried again by itself, and whoever reads the history finds the reason.
    assert job["attempt"] == 1 and "Eicar" in json.dumps(job), job
    shown = node.json("history")
    assert "FH-CONTENT-REFUSED" in json.dumps(shown), shown
    # Within this host, too.
    copied = own_net.folder("copied")
    id = node.submit(near / "out/fine", far / "d/bad", copied)
    node.wait(id, expect=EXIT_SOME_FAILED)
    assert os.listdir(copied) == ["fine"]


def test_a_pause_ends_the_program_and_the_file_is_checked_when_the_job_goes_on(own_net):
    node = Node(own_net)
    (own_net.daemon.root / "hang").write_text("hang")
    near = own_net.folder("near") / "hang"
    id = node.submit(*node.to_far("hang"), near)
    wait_until(lambda: len(node.checked.running()) == 2, 30, 0.1, "the program runs")
    node.run("pause", id)
    wait_until(lambda: node.checked.running() == [], 20, 0.1, "the program is ended")
    wait_until(lambda: node.job(id)["state"] == "paused", 20, 0.1, "the job is paused")
    time.sleep(1)
    assert node.checked.running() == [] and len(node.checked.told()) == 1 and not near.exists()
    # From now on the program accepts it.
    node.checked.program.write_text(node.checked.program.read_text().replace("has hang", "false"))
    node.run("resume", id)
    node.wait(id)
    assert near.read_text() == "hang" and len(node.checked.told()) == 2


def test_a_cancelled_job_leaves_no_program_and_no_file(own_net):
    node = Node(own_net)
    (own_net.daemon.root / "hang").write_text("hang")
    near = own_net.folder("near") / "hang"
    id = node.submit(*node.to_far("hang"), near)
    wait_until(lambda: len(node.checked.running()) == 2, 30, 0.1, "the program runs")
    node.run("cancel", id)
    wait_until(lambda: node.checked.running() == [], 20, 0.1, "the program is ended")
    wait_until(lambda: node.job(id)["state"] == "cancelled", 20, 0.1, "the job is cancelled")
    assert not near.exists() and leftovers(near.parent) == []


def test_a_watched_folder_hears_that_a_file_was_refused_and_keeps_it(own_net):
    """The receiver of a watch's files refuses one: that file is neither marked nor deleted."""
    checked = Checked(own_net)
    folder = own_net.folder("instrument")
    node = Service(own_net, own_net.alpha, port=34002, far=checked.daemon)
    (folder / "good").write_text("good")
    (folder / "bad").write_text("virus")
    node.run("watch", "add", folder, "--to", checked.daemon.url("in"), "--fingerprint", checked.daemon.fingerprint, "--settle", "1s", "--after", "delete")
    wait_until(lambda: not (folder / "good").exists(), 60, 0.2, "what has arrived is deleted")
    assert (checked.root / "in/good").read_text() == "good"
    wait_until(lambda: checked.names().count("bad") >= 1, 60, 0.2, "the other one was looked at")
    assert (folder / "bad").read_text() == "virus" and not (checked.root / "in/bad").exists()


def test_a_reload_brings_a_hook_for_what_comes_after_it(own_net):
    checked = Checked(own_net, user=None)
    text = checked.config.read_text()
    checked.config.write_text("")
    checked.daemon.restart()
    source = own_net.folder("source")
    (source / "bad").write_text("virus")
    checked.send(source / "bad")
    (checked.root / "in/bad").unlink()
    checked.config.write_text(text)
    checked.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "was reloaded" in checked.daemon.log_text(), 20, 0.1, "the configuration is reloaded")
    # A copy of one file ends with the code of that file.
    checked.send(source / "bad", expect=EXIT_FILES)
    assert os.listdir(checked.root / "in") == []


def test_the_configuration_of_a_verify_hook_is_judged(own_net):
    file = own_net.folder("settings") / "farhaul.toml"
    for text, word in (('on = ["verify", "post"]', "verify stands alone"), ('on = ["verify"]\nlabels = { a = "b" }', "is not for verify"),
                       ('on = ["verify"]\ndry_run = true', "is not for verify"),
                       ('on = ["verify"]\nat_once = 100', "at most 64"), ('on = ["verify"]\nfiles_each = 5000', "at most 1000")):
        file.write_text(f'[hooks.h]\nprogram = "/bin/true"\n{text}\n')
        said = own_net.alpha.run(["farhaul", "config", "check", "--config", file])
        assert said.returncode == EXIT_USAGE and word in (said.stdout + said.stderr).decode(), (text, said)


def recipe(name):
    """The program of the page on hooks that is to stand in /usr/local/libexec under this name."""
    page = (ROOT / "docs/guide/hooks.md").read_text()
    return re.search(rf"`/usr/local/libexec/{name}`.*?^```text\n(.*?)^```", page, re.M | re.S)[1]


#: In place of ClamAV's client: it reads the file that it is given by descriptor, as the daemon does.
CLAMDSCAN = r"""#!/bin/sh
[ "$1" = --fdpass ] && [ "$2" = --no-summary ] || { echo "usage" >&2; exit 2; }
[ -e AWAY ] && { echo "ERROR: Could not connect to clamd" >&2; exit 2; }
grep -q virus "$3" && { echo "$3: Win.Test.EICAR_HDB-1 FOUND"; exit 1; }
echo "$3: OK"
"""


def test_the_program_of_the_page_for_clamdscan_does_what_the_page_says(own_net):
    tools = own_net.folder("tools")
    os.chmod(tools, 0o755)
    away = tools / "away"
    (tools / "clamdscan").write_text(CLAMDSCAN.replace("AWAY", str(away)))
    (tools / "clamdscan").chmod(0o755)
    path = f"{tools}:{own_net.beta.environment()['PATH']}"
    checked = Checked(own_net, program=recipe("farhaul-clamdscan"), env={"PATH": path})
    source = own_net.folder("source")
    (source / "bad").write_text("a virus")
    (source / "good").write_text("good")
    done = checked.send(source / "bad", source / "good", expect=EXIT_SOME_FAILED)
    assert failed(done) == {"bad": ("FH-CONTENT-REFUSED", "the receiver's check refused it: Win.Test.EICAR_HDB-1 FOUND")}
    away.touch()
    done = checked.send(source / "bad", source / "good", expect=EXIT_SOME_FAILED)
    assert failed(done) == {"bad": ("FH-CHECK-FAILED", "the receiver could not check it: Could not connect to clamd")}
    assert os.listdir(checked.root / "in") == ["good"]


def test_the_program_of_the_page_for_a_format_does_what_the_page_says(own_net):
    checked = Checked(own_net, program=recipe("farhaul-schema"), settings="files_each = 500")
    source = own_net.folder("source") / "s"
    source.mkdir()
    for name, text in (("a.json", '{"sample": 1}'), ("b.json", "{}"), ("c.json", "no json"), ("d.txt", "no json")):
        (source / name).write_text(text)
    done = checked.send("-r", source, expect=EXIT_SOME_FAILED)
    reasons = {path: reason.partition(": ")[2] for path, (_, reason) in failed(done).items()}
    assert reasons["s/b.json"] == "it has no sample" and reasons["s/c.json"].startswith("it is no JSON: Expecting value")
    assert sorted(os.listdir(checked.root / "in/s")) == ["a.json", "d.txt"]


def test_the_settings_of_the_page_are_right(own_net):
    page = (ROOT / "docs/guide/hooks.md").read_text().partition("\n## Verify hooks\n")[2].partition("\n## Webhooks\n")[0]
    file = own_net.folder("settings") / "farhaul.toml"
    for settings in re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S):
        file.write_text(settings)
        said = own_net.alpha.run(["farhaul", "config", "check", "--config", file])
        assert said.returncode == EXIT_OK, said
