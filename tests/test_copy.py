"""What `farhaul cp` moves, both ways, on both roads: files, trees, pipes, globs, and where they land."""

import json
import os
import shutil
import signal
import stat
import subprocess
import time

import pytest

from harness.hosts import USER
from harness.product import EXIT_FILES, EXIT_SOME_FAILED, EXIT_USAGE, cp, finish, start_cp
from harness.trees import (content_differences, data_ranges, differences, fill, leftovers, make_file, make_tree, names,
                            sha256)

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 1200, MIB - 1, MIB, MIB + 1, 4 * MIB + 17, 200 * MIB])
def test_file_push_and_pull(road, near, size):
    source = make_file(near / "file", size, seed=size)
    os.utime(source, ns=(1, 1_234_567_890_123_456_789))
    os.chmod(source, 0o640)
    report = road.cp(source, road.url("there")).report
    assert report["ok"] and report["bytes"] == size and report["files"] == 1
    road.cp(road.url("there"), near / "back")
    for copy in (road.far / "there", near / "back"):
        assert sha256(copy) == sha256(source)
        assert copy.stat().st_mtime_ns == 1_234_567_890_123_456_789
        assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert not leftovers(road.far) and not leftovers(near)


def test_tree_with_everything_push_and_pull(road, near):
    tree = make_tree(near / "tree", seed=3, files=200)
    report = road.cp(tree, road.url("copy")).report
    assert report["ok"] and not report["failed"]
    assert differences(tree, road.far / "copy") == []
    road.cp(road.url("copy"), near / "back")
    assert differences(tree, near / "back") == []
    assert not leftovers(road.far) and not leftovers(near)


def test_ipv6_is_as_good(road, near):
    source = make_file(near / "file", 3 * MIB)
    assert road.cp(source, road.url("six", host="beta6")).report["transport"] == "udp"
    address = f"[{road.net.beta.v6}]"
    trusting = ["-o", "StrictHostKeyChecking=no"] if road.name == "ssh" else []
    road.cp(source, road.url("literal", host=address), *trusting)
    for name in ("six", "literal"):
        assert sha256(road.far / name) == sha256(source)


def test_several_sources_into_a_directory(road, near):
    names = ["a.dat", "b.dat"]
    for name in names:
        make_file(near / name, 10_000, seed=name)
    make_tree(near / "dir", seed=5)
    road.cp(*(near / name for name in names), near / "dir", road.url("into/"))
    for name in names:
        assert sha256(road.far / "into" / name) == sha256(near / name)
    assert differences(near / "dir", road.far / "into/dir") == []


def test_directory_into_existing_directory_keeps_its_name(road, near):
    tree = make_tree(near / "run7", seed=6, files=20)
    (road.far / "there").mkdir()
    road.cp(tree, road.url("there"))
    assert differences(tree, road.far / "there/run7") == []


def test_trailing_slash_means_the_contents(road, near):
    tree = make_tree(near / "run7", seed=7, files=20)
    (road.far / "there").mkdir()
    (road.far / "there").chmod(0o701)
    road.cp(f"{tree}/", road.url("there/"))
    assert differences(tree, road.far / "there", root_too=False) == []
    there = (road.far / "there").stat()
    assert there.st_mtime_ns == tree.stat().st_mtime_ns, "as rsync does it"
    assert there.st_mode & 0o777 == 0o701, "a directory that was there for other things keeps its mode"


def test_contents_into_a_new_place_make_it_the_same_directory(road, near):
    tree = make_tree(near / "run7", seed=7, files=20)
    tree.chmod(0o750)
    road.cp(f"{tree}/", road.url("new/"))
    assert differences(tree, road.far / "new") == []
    back = near / "back"
    road.cp(road.url("new/"), f"{back}/")
    assert differences(road.far / "new", back) == []


def test_a_destination_made_for_several_sources_is_an_ordinary_directory(road, near):
    for name in "ab":
        (near / name).write_text(name)
    road.cp(near / "a", near / "b", road.url("made"))
    # The daemon of these tests has no mask; over ssh the user's usual umask applies.
    ordinary = 0o777 if road.name == "daemon" else 0o755
    assert (road.far / "made").stat().st_mode & 0o777 == ordinary


def test_same_command_again_sends_nothing(road, near):
    tree = make_tree(near / "tree", seed=8, files=60)
    road.cp(tree, road.url("copy/"))
    again = road.cp(tree, road.url("copy/")).report
    assert again["files"] == 0 and again["bytes"] == 0 and again["skipped"] > 0
    assert differences(tree, road.far / "copy/tree") == []


def test_pipes_at_either_end(road, near):
    data = make_file(near / "data", 5 * MIB + 3).read_bytes()
    report = road.cp("-", road.url("piped"), input=data, as_json=False)
    assert (road.far / "piped").read_bytes() == data, report
    back = road.cp(road.url("piped"), "-", as_json=False)
    assert back.stdout == data


def test_pipe_carries_tar(road, near):
    tree = make_tree(near / "tree", seed=9)
    tar = subprocess.run(["tar", "-C", near, "-c", "tree"], stdout=subprocess.PIPE, check=True).stdout
    road.cp("-", road.url("tree.tar"), input=tar, as_json=False)
    subprocess.run(["tar", "-C", road.far, "-xf", road.far / "tree.tar"], check=True)
    assert content_differences(tree, road.far / "tree") == []


def test_empty_pipe(road):
    road.cp("-", road.url("nothing"), input=b"", as_json=False)
    assert (road.far / "nothing").read_bytes() == b""


def test_ends_without_files(road, near):
    far = lambda name: f"beta:{name}" if road.name == "ssh" else road.net.daemon.url(name)  # noqa: E731
    report = road.cp("random:300M", far("null:")).report
    assert (report["bytes"], report["files"]) == (300 * MIB, 1)
    report = road.cp(far("zero:2M"), "null:").report
    assert report["bytes"] == 2 * MIB
    road.cp(far("random:3M"), near / "made")
    assert (near / "made").stat().st_size == 3 * MIB
    tree = make_tree(near / "tree", seed=12, files=40)
    report = road.cp(tree, far("null:")).report
    assert report["ok"] and report["files"] > 30
    assert not list(road.far.glob("**/*tree*")) and not (road.far / "null:").exists()


def test_globs_of_the_far_end(road, near):
    for name in ("x1.bam", "x2.bam", "x3.txt", ".x4.bam"):
        make_file(road.far / name, 1000, seed=name)
    road.cp(road.url("x*.bam"), f"{near}/")
    assert sorted(path.name for path in near.iterdir()) == ["x1.bam", "x2.bam"]
    road.cp(road.url("x[3-9].???"), f"{near}/")
    assert (near / "x3.txt").exists()


def test_a_glob_character_in_an_existing_name_is_that_name(road, near):
    make_file(road.far / "a*", 10)
    make_file(road.far / "ab", 10)
    road.cp(road.url("a*"), f"{near}/")
    assert [path.name for path in near.iterdir()] == ["a*"]
    for name in ("photo[1].jpg", "{b", "c?", "d*"):
        source = make_file(road.far / name, 10, seed=name)
        road.cp(road.url(name), near / "new")
        assert sha256(near / "new") == sha256(source), name


def test_what_matches_alone_takes_the_destinations_name(road, near):
    source = make_file(road.far / "x1", 10)
    fill(road.far, "dir1/file")
    road.cp(road.url("x*"), near / "new")
    assert sha256(near / "new") == sha256(source)
    road.cp(road.url("dir?"), near / "tree")
    assert (near / "tree/file").exists()
    (near / "into").mkdir()
    road.cp(road.url("x[1]"), near / "into")
    assert (near / "into/x1").exists()


@pytest.mark.parametrize("pattern", ["x*", "*/x1"])
def test_several_that_match_need_a_directory(road, near, pattern):
    fill(road.far, "x1 x2 a/x1 b/x1")
    outcome = road.cp(road.url(pattern), near / "new", expect=EXIT_USAGE)
    assert "several files match" in outcome.error_line
    assert list(near.iterdir()) == []
    road.cp(road.url("x*"), f"{near}/new/")
    assert names(near / "new") == "x1 x2"


def test_glob_without_match_fails_and_says_so(road, near):
    outcome = road.cp(road.url("nothing*"), f"{near}/", expect=EXIT_FILES)
    assert "nothing*" in outcome.stderr


def test_far_home_over_ssh(ssh_road, near):
    source = make_file(near / "file", 1000)
    beta = ssh_road.net.beta
    ssh_road.cp(source, "beta:relative")
    ssh_road.cp(source, "beta:~/tilde")
    ssh_road.cp(source, f"beta:~{USER}/other")
    ssh_road.cp(source, "beta:")
    for path in (beta.home / "relative", beta.home / "tilde", beta.user_home / "other", beta.home / "file"):
        assert sha256(path) == sha256(source), path


def test_ssh_options_as_scp_has_them(ssh_road, near):
    source = make_file(near / "file", 1000)
    net = ssh_road.net
    key = near / "key"
    key.write_bytes(net.ssh.client_key.read_bytes())
    key.chmod(0o600)
    ssh_road.cp("-P", "2222", source, ssh_road.url("port"))
    ssh_road.cp("-i", key, "-o", "IdentitiesOnly=yes", source, ssh_road.url("identity"))
    ssh_road.cp("-o", f"User={USER}", source, "beta:as-user")
    ssh_road.cp(source, f"{USER}@beta:as-user2")
    for name in ("as-user", "as-user2"):
        assert (net.beta.user_home / name).stat().st_uid != 0
    limited = ssh_road.cp("-l", "8000", make_file(near / "limited", 2 * MIB), ssh_road.url("limited")).report
    assert limited["goodput_bps"] < 1.1 * 8_000_000
    config = near / "config"
    config.write_text(f"Host elsewhere\n  HostName {net.beta.v6}\n  Port 2222\n  HostKeyAlias beta\n")
    ssh_road.cp("-F", config, source, f"elsewhere:{ssh_road.far}/config")
    (net.alpha.home / ".ssh/config").write_text(
        "Host alias\n  HostName beta\n  User root\nHost jumped\n  HostName beta6\n  ProxyJump beta\n")
    report = ssh_road.cp(source, f"alias:{ssh_road.far}/alias").report
    assert report["transport"] == "udp"
    ssh_road.cp(source, f"jumped:{ssh_road.far}/jumped")
    ssh_road.cp("-J", "beta6", source, ssh_road.url("jump"))
    (net.alpha.home / ".ssh/config").unlink()
    for name in ("port", "identity", "config", "alias", "jumped", "jump"):
        assert sha256(ssh_road.far / name) == sha256(source), name


def test_ssh_agent(ssh_road, near):
    source = make_file(near / "file", 1000)
    alpha = ssh_road.alpha
    key = ssh_road.net.ssh.client_key
    hidden = key.with_name("hidden")
    socket = near / "agent"
    agent = alpha.start(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    env = {"SSH_AUTH_SOCK": str(socket)}
    try:
        time.sleep(0.2)
        alpha.run(["ssh-add", key], env=env, check=True)
        key.rename(hidden)
        ssh_road.cp(source, ssh_road.url("agent"), env=env)
    finally:
        if hidden.exists():
            hidden.rename(key)
        agent.terminate()
        agent.wait()
    assert sha256(ssh_road.far / "agent") == sha256(source)


def test_jump_host_that_udp_cannot_pass_uses_the_channel(own_net, near):
    """Behind a jump host the far end's address may not be reachable; the copy goes on through the ssh
    channel."""
    source = make_file(near / "file", 3 * MIB)
    far = own_net.folder("far")
    with own_net.beta.dropping("meta l4proto udp"), own_net.beta.dropping("tcp dport 33001-33100"):
        report = cp(own_net.alpha, "-J", "beta6", source, f"beta:{far}/x").report
    assert report["transport"] == "ssh"
    assert sha256(far / "x") == sha256(source)


@pytest.mark.parametrize("rule, newer, older, same", [
    ("always", True, True, True), ("older", True, False, False),
    ("different", True, True, False), ("never", False, False, False)])
def test_overwrite_rules(road, near, rule, newer, older, same):
    cases = {"newer": (2000, newer), "older": (500, older), "same": (1000, same)}
    for name, (when, _) in cases.items():
        size = 100 if name == "same" else 150
        make_file(near / name, size, seed="source" + name)
        os.utime(near / name, (when, when))
        make_file(road.far / name, 100, seed="target" + name)
        os.utime(road.far / name, (1000, 1000))
    report = road.cp("--overwrite", rule, *(near / name for name in cases), road.url("/")).report
    for name, (_, replaced) in cases.items():
        assert (sha256(road.far / name) == sha256(near / name)) == replaced, name
    assert report["skipped"] == sum(not replaced for _, replaced in cases.values())


@pytest.mark.parametrize("rule", ["never", "older"])
def test_a_link_to_a_file_that_was_kept_is_not_made(road, near, rule):
    """Each pair of names is one file at the source. At the destination its first name has another content,
    which stays."""
    tree = near / "tree"
    (tree / "same").mkdir(parents=True)
    for name in ("a", "c", "e", "same/a"):
        make_file(tree / name, 100, seed=f"new {name}")
        os.utime(tree / name, (1000, 1000))
    for name, other in (("a", "b"), ("c", "d"), ("e", "f"), ("same/a", "same/b")):
        os.link(tree / name, tree / other)
    there = road.far / "tree"
    (there / "same").mkdir(parents=True)
    for name, when in (("a", 2000), ("c", 2000), ("d", 2000), ("e", 2000), ("f", 500)):
        make_file(there / name, 100, seed=f"old {name}")
        os.utime(there / name, (when, when))
    shutil.copy2(tree / "same/a", there / "same/a")
    before = {path.name: sha256(path) for path in there.iterdir() if path.is_file()}
    # This list fixes the order; a directory would be listed in its own.
    (near / "names").write_text("a b c d e f same/a same/b".replace(" ", "\n"))
    manifest = near / "manifest"
    outcome = road.cp("--overwrite", rule, "--manifest", manifest, "--files-from", near / "names", f"{tree}/",
                      road.url("tree/"), expect=EXIT_SOME_FAILED)
    failed = {one["path"]: one["reason"] for one in outcome.report["failed"]}
    assert failed.keys() == ({"b"} if rule == "never" else {"b", "f"})
    assert all(reason == "the file that it links to was not overwritten" for reason in failed.values())
    assert {path.name: sha256(path) for path in there.iterdir() if path.is_file()} == before
    assert os.path.samefile(there / "same/a", there / "same/b"), "the kept file equals the source, so the link is made"
    results = {line["path"]: line["result"] for line in map(json.loads, manifest.read_text().splitlines()[1:-1])}
    kept = {name for name, result in results.items() if result == "kept"}
    assert kept == {"a", "c", "d", "e", "same/a"} | ({"f"} if rule == "never" else set())


def test_skipping_is_told(road, near):
    source = make_file(near / "file", 1000)
    road.cp(source, road.url("file"))
    outcome = road.cp(source, road.url("file"), as_json=False)
    assert "already there" in outcome.stderr


@pytest.mark.parametrize("size", [0, 1, 5000, MIB, MIB + 1, 40 * MIB])
def test_files_of_any_size_go_to_standard_output(road, near, size):
    source = make_file(road.far / "file", size)
    done = road.cp(road.url("file"), "-", as_json=False)
    assert done.stdout == source.read_bytes()


def test_sparse_file_to_standard_output_has_its_zeros(road, near):
    with open(road.far / "holes", "wb") as out:
        out.seek(20 * MIB)
        out.write(b"middle")
        out.truncate(45 * MIB)
    done = road.cp(road.url("holes"), "-", as_json=False)
    assert done.stdout == (road.far / "holes").read_bytes()


def test_dry_run_does_not_make_the_destination(road, near):
    first, second = make_file(near / "a", 10), make_file(near / "b", 10)
    road.cp("--dry-run", first, second, road.url("new"), as_json=False)
    assert list(road.far.iterdir()) == []


def test_directory_where_a_file_stands_leaves_it_alone(road, near):
    (near / "tree").mkdir(mode=0o711)
    make_file(near / "tree/x", 10)
    standing = make_file(road.far / "tree", 100)
    standing.chmod(0o640)
    before = standing.stat()
    road.cp(near / "tree", str(road.url("")) + "/", check=False)
    after = standing.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, 100)


def test_dry_run_changes_nothing(road, near):
    tree = make_tree(near / "tree", seed=10, files=20)
    outcome = road.cp("--dry-run", tree, road.url("copy"), as_json=False)
    assert list(road.far.iterdir()) == []
    assert "tree/sparse" in outcome.stdout.decode(errors="replace") + outcome.stderr


def test_terabyte_hole_costs_neither_bytes_nor_seconds(road, near):
    source = near / "hole"
    with open(source, "wb") as out:
        out.truncate(1 << 40)
        for at in (0, (1 << 39) + 12345, (1 << 40) - 5000):
            out.seek(at)
            out.write(os.urandom(5000))
    begin = time.monotonic()
    report = road.cp(source, road.url("hole")).report
    assert time.monotonic() - begin < 10
    assert report["wire_bytes_sent"] < 16 * MIB
    copy = road.far / "hole"
    assert copy.stat().st_size == 1 << 40
    assert copy.stat().st_blocks * 512 < 16 * MIB
    with open(source, "rb") as left, open(copy, "rb") as right:
        for begin_at, end_at in data_ranges(source) + data_ranges(copy):
            left.seek(begin_at)
            right.seek(begin_at)
            assert left.read(end_at - begin_at) == right.read(end_at - begin_at)
    road.cp(road.url("hole"), near / "back")
    assert (near / "back").stat().st_size == 1 << 40 and (near / "back").stat().st_blocks * 512 < 16 * MIB


def test_sparse_file_stays_sparse(road, near):
    source = near / "sparse"
    with open(source, "wb") as out:
        for at in range(0, 400 * MIB, 50 * MIB):
            out.seek(at)
            out.write(os.urandom(70_000))
        out.truncate(400 * MIB)
    road.cp(source, road.url("sparse"))
    copy = road.far / "sparse"
    assert sha256(copy) == sha256(source)
    assert copy.stat().st_blocks <= source.stat().st_blocks + 2 * 8 * 2048


def test_longest_path_and_component(road, near):
    parts = [b"d" * 200] * 15
    folder = os.fsencode(near) + b"/deep"
    os.mkdir(folder)
    start = os.open(folder, os.O_RDONLY)
    at = start
    for part in parts:
        os.mkdir(part, dir_fd=at)
        at = os.open(part, os.O_RDONLY, dir_fd=at)
    with os.fdopen(os.open(b"leaf", os.O_CREAT | os.O_WRONLY, dir_fd=at), "wb") as out:
        out.write(b"deep")
    os.close(at)
    road.cp(near / "deep", road.url("deep"))
    found = subprocess.run(["find", ".", "-name", "leaf"], cwd=road.far, stdout=subprocess.PIPE, check=True).stdout
    assert found.count(b"\n") == 1 and found.count(b"d" * 200) == 15


def test_special_files_are_named_and_left_out(road, near):
    """As with rsync this is no failure, but the user is told."""
    folder = near / "dir"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    make_file(folder / "file", 100)
    outcome = road.cp(folder, road.url("copy"))
    assert "fifo" in outcome.stderr
    assert (road.far / "copy/file").exists() and not (road.far / "copy/fifo").exists()


def test_a_daemon_makes_no_setuid_files(daemon_road, near):
    source = make_file(near / "file", 100)
    os.chmod(source, 0o6755)
    daemon_road.cp(source, daemon_road.url("file"))
    assert stat.S_IMODE((daemon_road.far / "file").stat().st_mode) == 0o755


def test_symlink_on_the_command_line_is_followed(road, near):
    source = make_file(near / "real", 1000)
    (near / "link").symlink_to("real")
    road.cp(near / "link", road.url("copy"))
    assert not (road.far / "copy").is_symlink() and sha256(road.far / "copy") == sha256(source)


def test_interrupted_by_the_user(road, near):
    source = make_file(near / "file", 300 * MIB)
    process = road.start("--rate", "400M", source, road.url("file"))
    time.sleep(1.5)
    os.kill(process.pid, signal.SIGINT)
    outcome = finish(process, timeout=15)
    assert outcome.code == 130, outcome
    assert "same command" in outcome.stderr
    report = road.cp(source, road.url("file")).report
    assert report["bytes_resumed"] > 0
    assert sha256(road.far / "file") == sha256(source)


def test_usage_errors(net, near):
    source = make_file(near / "file", 10)
    for arguments in ([], [source], ["--no-such-flag", source, "beta:x"], ["--flows", "0", source, "beta:x"],
                      ["--cipher", "rot13", source, "beta:x"], ["--policy", "fixed", source, "beta:x"],
                      [source, "-", "beta:x", "--rate", "fast"]):
        outcome = cp(net.alpha, *arguments, expect=EXIT_USAGE)
        assert outcome.stderr


def test_local_to_local_is_said_or_done(net, near):
    source = make_file(near / "file", 10_000)
    outcome = cp(net.alpha, source, near / "copy", check=False)
    if outcome.code == 0:
        assert sha256(near / "copy") == sha256(source)
    else:
        assert outcome.code == EXIT_USAGE and outcome.error_line


def test_eight_clients_one_killed(own_net, near):
    """Pushes and pulls at once. One client is killed, and the others notice nothing."""
    daemon = own_net.daemon
    cp(own_net.alpha, "--accept-new", make_file(near / "first", 10), daemon.url("first"))
    sources = [make_file(near / f"s{n}", 60 * MIB, seed=n) for n in range(8)]
    for n in range(4, 8):
        make_file(daemon.root / f"s{n}", 60 * MIB, seed=n)
    runs = []
    for n in range(8):
        ends = (sources[n], daemon.url(f"s{n}")) if n < 4 else (daemon.url(f"s{n}"), near / f"back{n}")
        runs.append(start_cp(own_net.alpha, "--rate", "150M", *ends))
    time.sleep(1.5)
    os.kill(runs[2].pid, signal.SIGKILL)
    outcomes = [finish(run) for run in runs]
    for n, outcome in enumerate(outcomes):
        if n == 2:
            continue
        assert outcome.code == 0, (n, str(outcome))
        copy = daemon.root / f"s{n}" if n < 4 else near / f"back{n}"
        assert sha256(copy) == sha256(sources[n])
    assert daemon.process.poll() is None


@pytest.mark.parametrize("own_road", ["daemon"], indirect=True)
def test_more_large_files_than_descriptors(own_road):
    """Each large file takes descriptors at the receiver: files for which none are left have to wait."""
    road = own_road
    source = road.net.folder("near") / "tree"
    source.mkdir()
    for number in range(300):
        make_file(source / f"{number:03}", MIB + 1 + number)
    # These are large enough for a journal, and each lies in a directory of its own beside a small file.
    for number in range(40):
        folder = source / f"folder{number:02}"
        folder.mkdir()
        make_file(folder / "large", 5 * MIB + number)
        make_file(folder / "small", 1000 + number)
    daemon = road.net.daemon.process.pid
    subprocess.run(["prlimit", f"--pid={daemon}", "--nofile=128:128"], check=True)
    report = road.cp(f"{source}/", road.url("copy/")).report
    assert report["ok"] and report["files"] == 380
    assert differences(source, road.far / "copy") == []
