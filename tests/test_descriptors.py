"""Standard input and output that are closed, full or without a reader: output that is asked for and lost is
an error."""

import json
import os
import signal

import pytest

from harness.product import EXIT_FILES, EXIT_SOME_FAILED
from harness.trees import make_file

MIB = 1 << 20


def shell(road, near, script, *arguments):
    """Runs a line of a shell, in which `$F` is `farhaul VERB` and `"$@"` are the words that follow."""
    return road.alpha.run(["bash", "-c", script, "sh", *arguments], cwd=near)


def assert_refused(done, words=("standard output",)):
    assert done.returncode == EXIT_FILES, done
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("error")]
    assert len(errors) == 1 and all(word in errors[0] for word in words), done


@pytest.mark.parametrize("output", [">&-", "1<source", ">/dev/full"])
def test_a_file_for_which_there_is_no_output(road, near, output):
    make_file(near / "source", 100)
    for size in (100, 3 * MIB):
        make_file(road.far / "file", size)
        done = shell(road, near, f'farhaul cp "$@" - {output}', *road.arguments, road.url("file"))
        assert_refused(done)


@pytest.mark.parametrize("given", ["<&-", "0>there"])
def test_a_file_for_which_there_is_no_input(road, near, given):
    for name in ("-", "/dev/stdin"):
        done = shell(road, near, f'farhaul cp {name} "$@" {given}', road.url("copy"), *road.arguments)
        assert_refused(done, ["standard input"])
    assert not (road.far / "copy").exists()


@pytest.mark.parametrize("option", ["--files-from -", "--exclude-from -", "--include-from -", "--filter '. -'"])
def test_a_list_for_which_there_is_no_input(ssh_road, near, option):
    (near / "tree").mkdir()
    make_file(near / "tree/file", 100)
    done = shell(ssh_road, near, f'farhaul cp {option} tree "$@" <&-', ssh_road.url("copy"))
    assert_refused(done, ["standard input"])
    assert not (ssh_road.far / "copy").exists()


@pytest.mark.parametrize("output", [">&-", ">/dev/full"])
def test_a_report_that_nobody_gets(road, near, output):
    source = make_file(near / "file", 100)
    done = shell(road, near, f'farhaul cp -q --json "$@" {output}', *road.arguments, source, road.url("copy"))
    assert_refused(done)
    assert (road.far / "copy").exists() == (output == ">/dev/full"), "a run without an output for its report does not begin"


def test_the_null_device_is_an_output_and_an_input(ssh_road, near):
    make_file(ssh_road.far / "file", 3 * MIB)
    for words in ('--json "$1/file" copy >/dev/null', '"$1/file" - >/dev/null', '- "$1/empty" </dev/null',
                  '-q "$1/file" again 2>&-', '"$1/file" third <&-'):
        done = shell(ssh_road, near, f"farhaul cp {words}", ssh_road.url())
        assert done.returncode == 0, (words, done)
    assert (ssh_road.far / "empty").read_bytes() == b"" and os.path.getsize(near / "third") == 3 * MIB


@pytest.mark.parametrize("words", [
    "completions bash", "man", "man cp", "--help", "cp --help", "--version", "verify --json m.jsonl .", "verify m.jsonl .",
    "bench cpu --seconds 0.01", "bench cpu --seconds 0.01 --json", "keygen --json -f key", "lab stats", "help sync",
])
@pytest.mark.parametrize("output", [">&-", ">/dev/full", "| true"])
def test_what_is_asked_for_and_lost_is_an_error(net, near, words, output):
    for name in ("missing", "changed"):
        (near / name).write_text("x")
    net.alpha.run(["farhaul", "cp", "-q", "--manifest", near / "m.jsonl", near / "missing", near / "changed",
                   f"{near}/copies/"], cwd=near, check=True)
    (near / "missing").unlink()
    # The reader's end of the pipe is closed before farhaul starts, so that the reader has gone for sure.
    line = f"farhaul {words} {output}" if output != "| true" else \
        f"mkfifo reader; exec 3<>reader; exec 4>reader; exec 3>&-; farhaul {words} >&4; exit $?"
    if "lab" in words:
        line = f"farhaul lab run -- bash -c 'farhaul {words} {output.replace('| true', '>/dev/full')}'"
    done = net.alpha.run(["bash", "-c", line], cwd=near)
    if output == "| true" and "lab" not in words:
        # A reader that goes early, as `head` does, is no error that anybody wants to read of.
        assert done.returncode == 128 + signal.SIGPIPE and b"error:" not in done.stderr, done
        return
    assert done.returncode == EXIT_FILES, done
    assert b"cannot write to standard output" in done.stderr, done
    assert done.stderr.count(b"error:") == 1, done


@pytest.mark.parametrize("words", ["check --json", "check"])
def test_a_check_of_the_store_that_nobody_hears_of_is_not_begun(net, near, words):
    """There is no service, which would be the error of a check that begins."""
    assert_refused(net.alpha.run(["bash", "-c", f"farhaul store {words} >&-"], cwd=near))


def test_what_was_found_is_written_whole(net, near):
    """The same commands with an output succeed."""
    for words in ("completions bash", "man", "--help", "cp --help", "--version"):
        done = net.alpha.run(["bash", "-c", f"farhaul {words}"], cwd=near)
        assert done.returncode == 0 and done.stdout and not done.stderr, words
    done = net.alpha.run(["farhaul"], cwd=near)
    assert done.returncode == 2 and b"Usage" in done.stderr and not done.stdout
    (near / "m.jsonl").write_text("")
    done = net.alpha.run(["farhaul", "verify", "--json", near / "m.jsonl", near], cwd=near)
    assert done.returncode in (0, EXIT_SOME_FAILED, 2, EXIT_FILES) and json.loads(done.stdout)["schema"] == 1


def test_a_daemon_whose_log_nobody_gets_does_not_begin(net, near):
    done = net.alpha.run(["bash", "-c", "farhaul serve --json --listen 127.0.0.1:0 --root . >&-"], cwd=near, timeout=30)
    assert_refused(done)
