"""A host that limits the number of threads: whichever thread cannot be started, the command ends, says so in
one line, and does not wait for its other threads.

The limit is the kernel's (RLIMIT_NPROC). It counts all threads of a user and does not hold for root, so the
binary runs as a user of its own.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

import pytest

from harness import product
from harness.hosts import wait_until
from harness.product import EXIT_INTERNAL, EXIT_OK

#: A user id that nothing else uses.
USER = 61_717
SECONDS_MAX = 60


@pytest.fixture
def folder():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="few-threads") as path:
        path = pathlib.Path(path)
        path.chmod(0o755)
        shutil.copy(product.binary(), path / "farhaul")
        home = path / "home"
        home.mkdir()
        os.chown(home, USER, USER)
        yield path


def start(folder, threads, *arguments, **options):
    """Starts farhaul as that user, who may have `threads` threads in all."""
    environment = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
    return subprocess.Popen([folder / "farhaul", *map(str, arguments)], user=USER, group=USER, extra_groups=[],
                            env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads)), **options)


def run(folder, threads, *arguments):
    process = start(folder, threads, *arguments)
    try:
        stderr = process.communicate(timeout=SECONDS_MAX)[1].decode()
    finally:
        process.kill()
        process.wait()
    return process.returncode, stderr


def tree(folder):
    source = folder / "source"
    source.mkdir()
    for number in range(3):
        (source / f"file{number}").write_bytes(os.urandom(3_000_000))
    return source


def ends_whatever_is_missing(folder, command, enough=64):
    """Runs the command with one more thread each time until it succeeds; returns how many threads it
    needed."""
    failed = 0
    for threads in range(1, enough):
        code, stderr = run(folder, threads, *command(threads))
        assert "panicked" not in stderr and "farhaul has failed" not in stderr, stderr
        if code == EXIT_OK:
            assert failed > 0
            return threads
        errors = [line for line in stderr.splitlines() if line.startswith("error")]
        assert code == EXIT_INTERNAL and len(errors) == 1, (threads, code, stderr)
        assert "temporarily unavailable" in errors[0], (threads, stderr)
        failed += 1
    raise AssertionError(f"it does not even work with {enough} threads")


def destination(folder, threads):
    path = folder / "home" / f"destination{threads}"
    path.mkdir()
    os.chown(path, USER, USER)
    return f"{path}/"


@pytest.mark.parametrize("options", [[], ["--checksum"]], ids=["cp", "sync -c"])
def test_a_copy_ends_whichever_thread_is_missing(folder, options):
    source = tree(folder)
    verb = "sync" if options else "cp"
    ends_whatever_is_missing(
        folder, lambda threads: [verb, *options, f"{source}/", destination(folder, threads)])


def test_a_verification_ends_whichever_thread_is_missing(folder):
    source = tree(folder)
    manifest = folder / "home" / "manifest"
    code, stderr = run(folder, 1000, "cp", "--manifest", manifest, f"{source}/", destination(folder, 0))
    assert code == EXIT_OK, stderr
    ends_whatever_is_missing(folder, lambda _: ["verify", manifest, folder / "home" / "destination0"])


def test_a_daemon_goes_on_when_a_session_gets_no_threads(folder):
    """Each client ends in time. When there are threads again, the daemon serves as before."""
    source = tree(folder)
    run(folder, 1000, "keygen", "-f", folder / "home" / "daemon_key")
    client = folder / "client_key"
    subprocess.run([folder / "farhaul", "keygen", "-f", client], check=True, capture_output=True)
    authorized = folder / "authorized_keys"
    authorized.write_text((folder / "client_key.pub").read_text())
    serve = ["serve", "--root", source, "--listen", "127.0.0.1:0", "--authorized-keys", authorized,
             "--identity", folder / "home" / "daemon_key"]
    daemon = start(folder, 1000, *serve)
    try:
        lines = []
        os.set_blocking(daemon.stderr.fileno(), False)

        def log():
            lines.append(daemon.stderr.read() or b"")
            return b"".join(lines).decode()

        wait_until(lambda: "serving" in log(), what="the daemon serves")
        port = log().split("127.0.0.1:")[1].split()[0].strip('"')
        own = len(os.listdir(f"/proc/{daemon.pid}/task"))

        def pull(threads):
            # Root may lack the right to change limits of another user; that user may change them.
            subprocess.run(["prlimit", f"--nproc={threads}:1000", f"--pid={daemon.pid}"], check=True, user=USER, group=USER,
                           extra_groups=[])
            target = folder / f"pulled{threads}"
            target.mkdir()
            return subprocess.run(
                [folder / "farhaul", "cp", "--accept-new", "--known-hosts", folder / "known_hosts", "-i", client,
                 f"fh://127.0.0.1:{port}/", f"{target}/"],
                capture_output=True, timeout=SECONDS_MAX, env={"HOME": str(folder), "PATH": os.environ["PATH"]})

        for more in (0, 1, 3):
            outcome = pull(own + more)
            # A thread that ended meanwhile may have made room for the session: then the copy must be
            # complete.
            if outcome.returncode == EXIT_OK:
                subprocess.run(["diff", "-r", source, folder / f"pulled{own + more}"], check=True)
            assert b"panicked" not in outcome.stderr, outcome
            wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/task")) <= own, what="the session's threads end")
        assert pull(1000).returncode == EXIT_OK
        assert daemon.poll() is None and "panicked" not in log()
    finally:
        daemon.kill()
        daemon.wait()
