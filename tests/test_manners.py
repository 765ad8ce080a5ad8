"""How a run starts and ends when something is in its way: it ends when it is told to, says what it waits for,
and does not blame anybody wrongly."""

import contextlib
import os
import pathlib
import pty
import select
import signal
import time

import pytest

from harness import product
from harness.hosts import USER_ID, call, wait_until
from harness.product import EXIT_CONNECT, EXIT_FILES, EXIT_USAGE, cp, finish, start_cp
from harness.ssh import user_target
from harness.trees import make_file

#: A port of beta from which no answer comes.
SILENT_PORT = 33077
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
#: Start files of the far end's shell that keep farhaul from starting.
WAITING = {"a read": "read answer\n", "another program": "exec cat > /dev/null\n"}


@pytest.fixture
def shell(net):
    """Writes the start file of the ordinary user's shell on beta."""
    file = net.beta.user_home / ".bashrc"

    def write(text):
        file.write_text(text)
        os.chown(file, USER_ID, USER_ID)
        return f"{user_target()}:{net.beta.user_home}/x"

    yield write
    file.unlink(missing_ok=True)


def ssh_of(process):
    """The processes of ssh that a run of farhaul has started."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    threads = [children] if not children.exists() else pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    found = [int(pid) for file in threads for pid in file.read_text().split()]
    return [pid for pid in found if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "ssh"]


def waits_for_ssh(net, process, shell_program="bash"):
    """Waits until the far end's shell runs; farhaul has not started there."""
    wait_until(lambda: net.beta.pids(shell_program) or process.poll() is not None, what="the far shell runs")
    assert process.poll() is None, finish(process)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("start_file", WAITING)
def test_a_signal_ends_the_wait_for_a_far_end_that_does_not_answer(net, near, shell, start_file, number, code):
    target = shell(WAITING[start_file])
    process = start_cp(net.alpha, make_file(near / "file", 10), target)
    waits_for_ssh(net, process, "bash" if start_file == "a read" else "cat")
    ssh = ssh_of(process)
    assert ssh, "ssh runs"
    os.kill(process.pid, number)
    outcome = finish(process, timeout=20)
    assert outcome.code == code, outcome
    detail = outcome.report["error_detail"]
    assert (detail["code"], detail["exit_code"], outcome.report["ok"]) == ("FH-INTERRUPTED", code, False), outcome
    assert not [pid for pid in ssh if os.path.exists(f"/proc/{pid}")], "ssh is gone with it"


@pytest.mark.parametrize("verb", ["ls", "cp", "bench"])
def test_a_far_end_that_does_not_answer_is_told_of_and_given_up(net, near, shell, verb):
    target = shell(WAITING["a read"])
    patience = ["--answer-wait", "6s"]
    command = {
        "ls": ["ls", *patience, target],
        "cp": ["cp", *patience, make_file(near / "file", 10), target],
        "bench": ["bench", "link", *patience, user_target()],
    }[verb]
    done = net.alpha.run(["farhaul", *command], timeout=60)
    said = done.stderr.decode()
    assert done.returncode == EXIT_CONNECT, said
    assert "beta has not answered for 6 s" in said and "ssh beta true" in said, said
    if verb != "bench":
        # `bench` reports what it does only on a terminal.
        assert "waiting for beta to answer, for 5 s so far" in said, said


def test_a_program_is_told_that_the_answer_is_awaited(net, near, shell):
    target = shell(WAITING["a read"])
    run = net.alpha.run(["farhaul", "cp", "--events", "--answer-wait", "6s", make_file(near / "file", 10), target], timeout=60)
    assert b'"event":"answer_awaited","peer":"beta","seconds":5' in run.stdout, run


@pytest.mark.parametrize("road_name", ["ssh", "daemon"])
def test_a_signal_that_comes_twice_at_once_is_one(road_of, near, road_name):
    road = road_of(road_name)
    source = make_file(near / "file", 100 << 20)
    process = road.start("--rate", "100M", source, road.url("file"))
    wait_until(lambda: any(path.stat().st_size for path in road.far.iterdir()), what="content has come")
    os.kill(process.pid, signal.SIGINT)
    # Long enough for the first signal to be handled by itself.
    time.sleep(0.03)
    os.kill(process.pid, signal.SIGINT)
    outcome = finish(process, timeout=30)
    assert outcome.code == 130 and outcome.report["error_detail"]["code"] == "FH-INTERRUPTED", outcome
    assert "same command" in outcome.stderr


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_the_wait_for_a_daemon(net, near, number, code):
    with net.beta.dropping(f"th dport {SILENT_PORT}"):
        process = start_cp(net.alpha, make_file(near / "file", 10), f"fh://beta:{SILENT_PORT}/x")
        wait_until(lambda: net.alpha.udp_ports(process.pid) or process.poll() is not None, what="the daemon is looked for")
        assert process.poll() is None, finish(process)
        os.kill(process.pid, number)
        outcome = finish(process, timeout=9)
    assert outcome.code == code and outcome.report["error_detail"]["exit_code"] == code, outcome


def heard(terminal):
    """The next output of a terminal; empty when its last process has ended."""
    ready, _, _ = select.select([terminal], [], [], 30)
    assert ready, "it says something, or ends"
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""


def test_ctrl_c_at_the_question_about_a_daemons_key_ends_the_run(own_net):
    source = make_file(own_net.folder("near") / "file", 10)
    host = own_net.alpha
    argv = host.command(["farhaul", "cp", source, own_net.daemon.url("x")])
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, {**os.environ, **host.environment()})
    said = b""
    try:
        while b"(yes/no)?" not in said:
            said += heard(terminal)
        os.write(terminal, b"\x03")
        while more := heard(terminal):
            said += more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, said
    assert b"interrupted" in said and b"panicked" not in said


@pytest.mark.parametrize(("start_file", "shown"), [
    ("echo hi\n", 'text before farhaul could answer: "hi"'),
    ("printf '> '\n", 'text before farhaul could answer: ">"'),
    ("printf '> '\nread answer\n", 'text before farhaul could answer: ">"'),
    ("printf '\\033]0;beta\\007'\n", 'text before farhaul could answer: " ]0;beta "'),
    ("echo\n", "an empty line"),
])
def test_whatever_a_shell_prints_is_shown(net, near, shell, start_file, shown):
    outcome = cp(net.alpha, make_file(near / "file", 10), shell(start_file), expect=EXIT_CONNECT)
    assert f"beta printed {shown}" in outcome.error_line, outcome
    assert outcome.report["error_detail"]["code"] == "FH-NOT-FARHAUL", outcome


def test_ssh_is_not_said_to_have_failed_to_connect_where_it_did_connect(net, near, shell):
    source = make_file(near / "file", 10)
    outcome = cp(net.alpha, source, shell("exit 255\n"), expect=EXIT_CONNECT)
    assert "ssh could not connect, or the program on" in outcome.error_line, outcome
    process = start_cp(net.alpha, source, shell(WAITING["a read"]))
    waits_for_ssh(net, process)
    os.kill(ssh_of(process)[0], signal.SIGKILL)
    outcome = finish(process, timeout=20)
    assert outcome.code == EXIT_CONNECT and "ssh was ended by signal 9 before beta answered" in outcome.error_line, outcome


@pytest.mark.parametrize(("start_file", "code"), [("exit 0\n", 0), ("exec true\n", 0), ("exec false\n", 1)])
def test_a_start_file_that_ends_the_shell_is_named_in_the_hint(net, near, shell, start_file, code):
    outcome = cp(net.alpha, make_file(near / "file", 10), shell(start_file), expect=EXIT_CONNECT)
    assert outcome.error_line == f"error: the far end on beta ended with code {code} before it answered", outcome
    hint = outcome.report["error_detail"]["hint"]
    assert "start files" in hint and "--version` must print" in hint and "see its message" not in hint, outcome


def test_a_remote_program_that_is_not_farhaul_is_named_in_the_hint(net, near):
    outcome = cp(net.alpha, "--remote-program", "/bin/true", make_file(near / "file", 10), f"beta:{near}/x", expect=EXIT_CONNECT)
    assert "/bin/true --version` must print" in outcome.report["error_detail"]["hint"], outcome


def test_a_host_without_descriptors_is_not_one_without_ssh(net, near):
    """If the limit on open files keeps ssh from starting, the error does not advise to install OpenSSH."""
    source = make_file(near / "file", 10)
    seen = set()
    for limit in range(8, 30):
        run = net.alpha.run(["bash", "-c", f"ulimit -n {limit}; exec farhaul cp {source} beta:/nonexistent/x"])
        said = run.stderr.decode()
        assert "install OpenSSH" not in said, (limit, said)
        seen.add("cannot start ssh" in said)
    assert seen == {True, False}, "one of these limits is in the way of ssh itself"


def long_names(count):
    """`count` long names, more than half a MiB together."""
    return [f"{number:06}-{'x' * 90}" for number in range(count)]


def test_any_number_of_remote_names(road, near):
    names = long_names(5000)
    for name in names:
        (road.far / name).write_text(name)
    outcome = road.cp(*(road.url(name) for name in names), f"{near}/into/", timeout=100)
    assert outcome.report["files"] == len(names), outcome
    assert {path.name: path.read_text() for path in (near / "into").iterdir()} == {name: name for name in names}


def test_what_is_wrong_with_the_last_of_many_remote_names_is_found_before_anything_is_sent(road, near):
    names = long_names(3000)
    for name in (*names, "one/end", "other/end"):
        path = road.far / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    sources = [road.url(name) for name in (*names, "one/e*", "other/e?d")]
    outcome = road.cp(*sources, f"{near}/into/", expect=EXIT_USAGE)
    assert outcome.report["error_detail"]["code"] == "FH-SOURCES-COLLIDE", outcome
    assert not any((near / "into").iterdir())
    outcome = road.cp(*sources[:-2], road.url("missing"), f"{near}/into/", check=False)
    assert outcome.code == 1 and outcome.report["files"] == len(names), outcome
    assert [entry["path"].rpartition("/")[2] for entry in outcome.report["failed"]] == ["missing"]


@pytest.mark.parametrize("size", [1, 5 << 20])
def test_the_same_failure_ends_with_the_same_code(road, near, size):
    """A file cannot be replaced, as something is mounted on it. Its content may come before or after that is
    known."""
    source = make_file(near / "file", size, seed=1)
    target = make_file(road.far / "file", 10)
    call("mount", "--bind", str(target), str(target))
    try:
        for _ in range(6):
            outcome = road.cp(source, road.url("file"), check=False)
            assert outcome.code == EXIT_FILES, outcome
    finally:
        call("umount", str(target))


def test_a_file_system_with_as_many_files_as_it_can_have_is_not_said_to_be_full(net, near):
    tree = near / "tree"
    tree.mkdir()
    for number in range(100):
        make_file(tree / f"f{number:02}", 100)
    disk = net.folder("disk")
    call("mount", "-t", "tmpfs", "-o", "nr_inodes=60,size=64m,mode=0755", "tmpfs", str(disk))
    outcome = cp(net.alpha, tree, f"beta:{disk}/", expect=product.EXIT_SOME_FAILED)
    reasons = {entry["reason"] for entry in outcome.report["failed"]}
    assert reasons and all("no inodes left" in reason and "no space" not in reason for reason in reasons), reasons
    assert {entry["code"] for entry in outcome.report["failed"]} == {"FH-NO-SPACE"}


def test_of_three_bytes_no_stage_is_the_slowest(net, near, ssh_road):
    source = make_file(near / "file", 3)
    for target in (near / "copy", ssh_road.url("copy")):
        outcome = cp(net.alpha, source, target)
        assert outcome.report["bottleneck"] == "" and "slowest" not in outcome.stderr, outcome


def test_a_program_of_ssh_config_runs_once(net, near, ssh_road):
    count = near / "count"
    config = near / "config"
    config.write_text(f'Match exec "echo x >> {count}"\n    Compression no\n')
    cp(net.alpha, "-F", config, make_file(near / "file", 10), ssh_road.url("copy"))
    assert count.read_text() == "x\n"


def test_options_of_the_other_road_are_refused(net, near, ssh_road, daemon_road):
    """A jump host that is passed by, or a fingerprint that nobody looks at, is not what was asked for."""
    source = make_file(near / "file", 10)
    for option, value in [("-J", "bastion"), ("-F", "/dev/null"), ("-o", "ProxyCommand=x"), ("-S", "ssh"),
                          ("--remote-program", "farhaul")]:
        for verb, ends in [("cp", [source, daemon_road.url("copy")]), ("ls", [daemon_road.url("")])]:
            done = net.alpha.run(["farhaul", verb, option, value, *ends])
            assert done.returncode == EXIT_USAGE and f"{option} is for SSH".encode() in done.stderr, done
    outcome = ssh_road.cp("--fingerprint", "SHA256:x", source, ssh_road.url("copy"), expect=EXIT_USAGE)
    assert "--fingerprint is for daemons" in outcome.error_line, outcome


def test_options_may_stand_between_the_locations(net, near, ssh_road):
    one, two = make_file(near / "one", 10), make_file(near / "two", 10)
    ssh_road.cp(one, "-q", two, "--rate", "100M", "-q", ssh_road.url("./"), "--verify", "digest")
    assert (ssh_road.far / "one").exists() and (ssh_road.far / "two").exists()
    outcome = cp(net.alpha, one, "-q", expect=EXIT_USAGE)
    assert "name a source and a destination" in outcome.error_line, outcome


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_cp_compares_contents_if_it_is_asked_to(road, near, direction):
    here, there = near / "file", road.far / "file"
    make_file(here, 3 << 20, seed=1)
    make_file(there, 3 << 20, seed=2)
    for path in (here, there):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    ends = (here, road.url("file")) if direction == "push" else (road.url("file"), here)
    source, target = (here, there) if direction == "push" else (there, here)
    before = target.read_bytes()
    assert road.cp(*ends).report["skipped"] == 1 and target.read_bytes() == before, "size and time are the same"
    assert road.cp("-c", *ends).report["files"] == 1
    assert target.read_bytes() == source.read_bytes()
    os.utime(source, (1_700_000_000, 1_700_000_000))
    report = road.cp("--checksum", *ends).report
    assert (report["files"], report["skipped"], report["bytes"]) == (0, 1, 0), report
    assert target.stat().st_mtime == 1_700_000_000, "the next run finds it by its time"


def test_a_cipher_behind_c_is_explained(net, near):
    source = make_file(near / "file", 10)
    for verb in ("cp", "sync"):
        outcome = cp(net.alpha, "-c", "aes128-ctr", source, "beta:/x", verb=verb, expect=EXIT_USAGE)
        assert "here -c is --checksum" in outcome.error_line and "--cipher" in outcome.stderr, outcome


def test_one_file_by_two_names_is_called_so(net, near):
    source = make_file(near / "file", 10)
    (near / "folder").mkdir()
    os.link(source, near / "folder/file")
    (near / "link").symlink_to("file")
    for target in (source, near / "folder", near / "link"):
        outcome = cp(net.alpha, source, target, expect=EXIT_USAGE)
        assert "are the same file" in outcome.error_line, outcome
    assert (near / "link").is_symlink() and source.stat().st_nlink == 2
