"""What users and their scripts are told: the JSON report, the summary, progress, help."""

import json
import os
import pathlib
import pty
import re
import select
import sys
import time

import pytest

from harness.product import EXIT_SOME_FAILED, ROOT, cp
from harness.trees import make_file, make_tree

MIB = 1 << 20
FIELDS = {
    "schema": int, "ok": bool, "bytes": int, "files": int, "skipped": int, "failed": list, "seconds": float,
    "goodput_bps": float, "wire_bytes_sent": int, "segments_sent": int, "segments_retransmitted": int,
    "segments_proactive": int, "segments_duplicate": int, "content_bytes_resent": int, "rtt_min_ms": float,
    "rtt_mean_ms": float, "loss_fraction": float, "flows": int, "cipher": str, "transport": str,
    "cpu_seconds_local": float, "cpu_seconds_remote": float, "peak_rss_bytes_local": int,
    "peak_rss_bytes_remote": int, "bottleneck": str, "limit_id": str,
}


def check_fields(report):
    for name, kind in FIELDS.items():
        assert name in report, name
        value = report[name]
        assert isinstance(value, (int, float) if kind is float else kind), (name, value)


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_report_is_complete_and_true(road, near, direction):
    source = make_file((near if direction == "push" else road.far) / "file", 80 * MIB)
    ends = (source, road.url("copy")) if direction == "push" else (road.url("file"), near / "copy")
    report = road.cp(*ends).report
    check_fields(report)
    assert report["ok"] and report["bytes"] == 80 * MIB and report["files"] == 1 and report["failed"] == []
    assert report["wire_bytes_sent"] > 80 * MIB and report["wire_bytes_sent"] < 100 * MIB
    assert report["segments_sent"] > 80 * MIB / 9000
    assert report["transport"] == "udp" and report["flows"] == 1 and report["cipher"] == "aes-128-gcm"
    assert 0 < report["rtt_min_ms"] <= report["rtt_mean_ms"] < 1000
    assert 0 <= report["loss_fraction"] < 0.05
    assert report["cpu_seconds_local"] > 0 and report["cpu_seconds_remote"] > 0
    assert MIB < report["peak_rss_bytes_local"] < 2048 * MIB and MIB < report["peak_rss_bytes_remote"] < 2048 * MIB
    assert abs(report["goodput_bps"] - 8 * 80 * MIB / report["seconds"]) < 0.02 * report["goodput_bps"]
    assert len(report["bottleneck"].split()) >= 1


@pytest.mark.parametrize("target", ["null:", "copy"])
def test_short_transfers_are_counted_exactly(road, near, target):
    """The end of a transfer may overtake the last acknowledgements."""
    for size in (1, 1000, MIB, MIB + 1, 5 * MIB) * 3:
        source = make_file(near / "file", size)
        report = road.cp("--overwrite", "always", "--flows", "4", source, road.url(target)).report
        counted = report["bytes"] + report["bytes_resumed"] + report["bytes_matched"]
        assert (counted, report["files"], report["content_bytes_resent"]) == (size, 1, 0), (size, report)
        assert report["bytes_matched"] > 0 or report["content_bytes_sent"] == size, (size, report)


def test_a_file_that_is_refused_counts_nothing(daemon_road, near):
    """A refused file and a complete one, both small: only the complete one counts."""
    road = daemon_road
    whole, failed = make_file(near / "whole", 1000), make_file(near / "failed", 3 * MIB)
    for round in range(10):
        (road.far / f"copy{round}/failed").mkdir(parents=True)
        outcome = road.cp(whole, failed, road.url(f"copy{round}"), expect=EXIT_SOME_FAILED)
        assert outcome.report["bytes"] == whole.stat().st_size and outcome.report["files"] == 1, outcome


def test_a_failed_file_is_counted_by_what_has_arrived_of_it(daemon_road, near):
    """The receiver's disk is full when a part of the files has arrived."""
    road, size, count = daemon_road, 8192, 300
    (near / "tree").mkdir()
    for number in range(count):
        make_file(near / f"tree/{number}", size, seed=number)
    road.net.pair.mount_memory(road.far, 1)
    report = road.cp(near / "tree", road.url("copy"), expect=EXIT_SOME_FAILED).report
    assert 0 < report["files"] < count and report["failed_count"] == count - report["files"], report
    assert report["files"] * size <= report["bytes"] <= count * size, report


def test_report_of_a_tree_counts(road, near):
    tree = make_tree(near / "tree", seed=41, files=60)
    report = road.cp(tree, road.url("copy")).report
    check_fields(report)
    files = [path for path in pathlib.Path(tree).rglob("*") if path.is_file() and not path.is_symlink()]
    inodes = {path.stat().st_ino: path.stat().st_size for path in files}
    assert report["files"] in (len(files), len(inodes))
    assert report["bytes"] <= sum(path.stat().st_size for path in files)


def test_the_chosen_cores_are_told(road, near):
    """On a host with one memory node, only the user chooses cores."""
    source = make_file(near / "file", 1000)
    plain = road.cp(source, road.url("file"))
    if not pathlib.Path("/sys/devices/system/node/node1").exists():
        assert "cpus" not in plain.report, plain
    first = str(min(os.sched_getaffinity(0)))
    chosen = road.cp("-v", "--cpus", first, source, road.url("file"))
    assert chosen.report["cpus"] == {"list": first, "node": None, "interface": None}
    assert f"on CPUs {first}" in chosen.stderr


HUGE = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
#: Runs a command for which the kernel uses no huge pages (PR_SET_THP_DISABLE).
WITHOUT_HUGE_PAGES = [sys.executable, "-c",
                      "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0; os.execvp(sys.argv[1], sys.argv[1:])"]


@pytest.mark.parametrize("pages", ["huge", "ordinary"])
def test_the_report_says_which_pages_blocks_lie_in(road, near, pages):
    source = make_file(near / "file", 80 * MIB)
    road.hooks = WITHOUT_HUGE_PAGES if pages == "ordinary" else road.hooks
    memory = road.cp(source, road.url("file")).report["block_memory"]
    assert MIB < memory["bytes"] < 512 * MIB, memory
    if pages == "ordinary":
        assert memory["huge_bytes"] == 0
    elif HUGE.exists() and "[never]" not in HUGE.read_text():
        assert 0 < memory["huge_bytes"] <= memory["bytes"]


def test_report_schema_is_published(net):
    text = (ROOT / "docs/reference/report.md").read_text()
    missing = [name for name in FIELDS if f"`{name}`" not in text]
    assert not missing


def test_stdout_is_only_the_report(road, near):
    source = make_file(near / "file", 1000)
    outcome = road.cp("-v", source, road.url("file"))
    assert json.loads(outcome.stdout) == outcome.report
    quiet = road.cp("-q", source, road.url("file2"), as_json=False)
    assert quiet.stdout == b"" and quiet.stderr == ""


def test_summary_line_and_no_progress_without_a_terminal(road, near):
    source = make_file(near / "file", 20 * MIB)
    outcome = road.cp(source, road.url("file"), as_json=False)
    assert outcome.stdout == b""
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) == 1 and "\r" not in outcome.stderr and "\x1b" not in outcome.stderr
    assert "20" in lines[0] and "s" in lines[0]


def on_terminal(host, argv, seconds=60):
    """Runs a command with a terminal of 100 columns as its stderr and returns what it drew and its exit code."""
    import fcntl
    import struct
    import termios
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = host.start(argv, stdin=child, stdout=child, stderr=child, env={"TERM": "xterm"})
    os.close(child)
    drawn = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ready, _, _ = select.select([parent], [], [], 0.2)
        if ready:
            try:
                data = os.read(parent, 65536)
            except OSError:
                break
            if not data:
                break
            drawn += data
        elif process.poll() is not None:
            break
    os.close(parent)
    if process.poll() is None:
        process.wait(timeout=10)
    return drawn.decode(errors="replace"), process.returncode


def test_progress_on_a_terminal(road, near):
    source = make_file(near / "file", 200 * MIB)
    argv = ["farhaul", "cp", *road.arguments, "--rate", "500M", source, road.url("file")]
    drawn, code = on_terminal(road.alpha, argv)
    assert code == 0, drawn
    assert drawn.count("\r") > 3
    low = drawn.lower()
    for word in ("/s", "loss", "rtt", "eta"):
        assert word in low, (word, drawn[-600:])


def test_help_and_version(net):
    for argv in (["farhaul", "--help"], ["farhaul", "cp", "--help"], ["farhaul", "serve", "--help"],
                 ["farhaul", "--version"]):
        done = net.alpha.run(argv)
        assert done.returncode == 0 and done.stdout and not done.stderr
    text = net.alpha.run(["farhaul", "cp", "--help"]).stdout.decode()
    for flag in ("--overwrite", "--rate", "--cipher", "--flows", "--mtu", "--udp-ports", "--memory", "--verify",
                 "--dry-run", "--policy", "--json", "--udp-only", "-P", "-i", "-F", "-J", "-o", "-l", "-q", "-v"):
        assert flag in text, flag
    readme = (ROOT / "README.md").read_text()
    assert "xit code" in readme


def test_keygen_json(net):
    file = net.folder("key") / "id"
    done = net.alpha.run(["farhaul", "keygen", "--json", "-f", file])
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["private_key"] == str(file) and made["fingerprint"].startswith("SHA256:")


def test_completions_and_man_page(net):
    for argv in (["completions", "bash"], ["completions", "zsh"], ["man"], ["man", "cp"]):
        done = net.alpha.run(["farhaul", *argv])
        assert done.returncode == 0 and b"farhaul" in done.stdout, argv


ENDINGS = {
    "options that contradict each other": (["--inplace", "--whole-file", "SOURCE", "beta:/data/"], "FH-BAD-OPTION", "user", 2, False),
    "no address": (["SOURCE", "smtp://host/x"], "FH-BAD-LOCATION", "user", 2, False),
    "into itself": (["FOLDER", "FOLDER/below"], "FH-INTO-ITSELF", "user", 2, False),
    "two of one name": (["SOURCE", "SOURCE", "FOLDER/below/"], "FH-SOURCES-COLLIDE", "user", 2, False),
    "one file by two names": (["SOURCE", "FOLDER"], "FH-SAME-FILE", "user", 2, False),
    "no daemon there": (["SOURCE", "fh://beta:9/"], "FH-NOT-LISTENING", "user", 3, True),
    "no place for a directory": (["SOURCE", "/nonexistent/place/"], "FH-NOT-FOUND", "user", 6, False),
    "no program of that name there": (["--remote-program", "/nonexistent", "SOURCE", "beta:/data/"], "FH-NOT-INSTALLED", "user", 3, False),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_an_error_has_its_code_in_the_report_and_below_its_line(net, near, case):
    arguments, code, blame, exit_code, is_retryable = ENDINGS[case]
    folder = near / "folder"
    folder.mkdir()
    source = make_file(folder / "file", 10)
    arguments = [part.replace("FOLDER", str(folder)).replace("SOURCE", str(source)) for part in arguments]
    outcome = cp(net.alpha, "--accept-new", "-v", *arguments, check=False)
    detail = outcome.report["error_detail"]
    found = (detail["code"], detail["blame"], detail["exit_code"], detail["retryable"])
    assert found == (code, blame, exit_code, is_retryable) and outcome.code == exit_code, outcome
    assert f"code: {code}" in outcome.stderr.splitlines(), outcome
    # The terminal shows options as they are typed.
    wanted = re.sub("`([a-z-]+)`", r"--\1", detail["hint"] or "")
    hint = [line for line in outcome.stderr.splitlines() if line.startswith("hint: ")]
    assert hint == ([f"hint: {wanted}"] if wanted else []), outcome
    assert f"`{code}`" in (ROOT / "docs/reference/errors.md").read_text()


def test_a_copy_that_went_well_has_no_error_detail(net, near):
    assert cp(net.alpha, make_file(near / "file", 10), near / "copy").report["error_detail"] is None
