"""The product as a user runs it: `farhaul cp`, `farhaul sync`, `farhaul keygen`, `farhaul serve`.

Always true: the report is the JSON on stdout and nothing else was on stdout; every run has a time limit.
"""

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from .hosts import USER_ID, HarnessError, call, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT = 33001

EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, EXIT_CONNECT, EXIT_AUTH, EXIT_INCOMPATIBLE = 0, 1, 2, 3, 4, 5
EXIT_FILES, EXIT_LOST, EXIT_PROTOCOL, EXIT_INTERNAL = 6, 7, 8, 9
EXIT_METADATA, EXIT_VANISHED, EXIT_INTERRUPTED, EXIT_TERMINATED = 10, 11, 130, 143


def binary():
    """The binary under test: $FARHAUL_BIN or the release build."""
    path = pathlib.Path(os.environ.get("FARHAUL_BIN", ROOT / "target/release/farhaul"))
    if not path.exists():
        raise HarnessError(f"{path} does not exist: run ./x build first")
    return path


def tls_pipe():
    """The example `tls_pipe`, for peers without TLS with raw public keys, as Python has none."""
    built = [path for path in ROOT.glob("target/*/examples/tls_pipe") if path.exists()]
    if not built:
        raise HarnessError("no tls_pipe: run `cargo build --release -p farhaul-connect --example tls_pipe` first")
    return max(built, key=lambda path: path.stat().st_mtime)


@dataclasses.dataclass
class Outcome:
    """How a run of `farhaul` ended."""

    code: int
    stdout: bytes
    stderr: str
    seconds: float
    report: dict | None = None

    @property
    def error_line(self):
        """The line that tells the user what went wrong."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("error")]
        return lines[0] if lines else ""

    def __str__(self):
        report = {name: value for name, value in (self.report or {}).items() if name != "stages"}
        return f"exit {self.code} after {self.seconds:.2f} s\nstderr: {self.stderr}\nreport: {json.dumps(report)}"


def cp(host, *arguments, verb="cp", as_json=True, check=True, timeout=120, expect=EXIT_OK, hooks=(), **options):
    """Runs `farhaul cp` (or `verb`) to its end on `host`. With `check`, another exit code than `expect` fails the test.
    `hooks` are those of `hooks.prefix`."""
    argv = [*hooks, "farhaul", verb] + (["--json"] if as_json else []) + [os.fspath(part) for part in arguments]
    begin = time.monotonic()
    done = host.run(argv, timeout=timeout, **options)
    out = done.stdout or b""
    outcome = Outcome(done.returncode, out, (done.stderr or b"").decode(errors="replace"), time.monotonic() - begin)
    if as_json and out.strip():
        outcome.report = json.loads(out)
    if check and outcome.code != expect:
        raise AssertionError(f"{' '.join(argv)}: expected exit {expect}, got {outcome}")
    return outcome


def start_cp(host, *arguments, verb="cp", as_json=True, hooks=(), **options):
    """Starts `farhaul cp --json` (or `verb`) and leaves it running."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    return host.start([*hooks, "farhaul", verb] + (["--json"] if as_json else []) + [os.fspath(part) for part in arguments], **options)


def finish(process, timeout=120):
    """Waits for a run that `start_cp` began. Its stderr may have been redirected."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise TimeoutError(f"no end within {timeout} s; stderr: {err.decode(errors='replace')[-2000:]}") from None
    outcome = Outcome(process.returncode, out, (err or b"").decode(errors="replace"), time.monotonic() - begin)
    if out.strip():
        outcome.report = json.loads(out)
    return outcome


def keygen(host, user=None):
    """Makes the client's key on a host and returns the line for the server's authorized keys."""
    host.run(["farhaul", "keygen"], user=user, check=True)
    home = host.home if user is None else host.user_home
    return (home / ".config/farhaul/id_ed25519.pub").read_text()


class Daemon:
    """`farhaul serve` on a host, with a root and authorized keys of its own."""

    def __init__(self, pair, host, keys, port=PORT, user=None, root=None, arguments=(), listen=None, env=None,
                 mask=("--mask", "000"), sockets=(), hooks=()):
        self.pair = pair
        self.host = host
        self.user = user
        self.port = port
        self.root = pathlib.Path(root) if root else pair.folder("served")
        self.directory = pair.folder("daemon")
        self.keys = self.directory / "authorized_keys"
        self.keys.write_text("".join(keys))
        self.identity = self.directory / "identity"
        os.chmod(self.directory, 0o755)
        if user is not None:
            call("chown", "-R", user_id(user), str(self.root), str(self.directory))
        # Without a mask, copies have the modes of their sources and can be compared with them. `mask=()`
        # leaves the daemon's default mask, for tests that are about it.
        self.arguments = [*mask, *arguments]
        self.env = env
        #: Those of `hooks.prefix`.
        self.hooks = hooks
        #: The sockets that `activation.py` binds and hands over, as its arguments.
        self.sockets = sockets
        self.listen = listen or f"[::]:{port}"
        self.log = self.directory / "log"
        self.process = None
        self.start()
        pair.on_close(self.kill)

    def start(self):
        if not self.identity.exists():
            done = self.host.run(["farhaul", "keygen", "-f", self.identity], user=self.user, check=True)
            #: The server's fingerprint, as keygen tells it to the administrator.
            self.fingerprint = re.search(r"SHA256:[A-Za-z0-9+/]{43}", (done.stdout + done.stderr).decode()).group(0)
        argv = [*self.hooks, "farhaul", "serve", "--listen", self.listen, "--root", self.root, "--authorized-keys", self.keys,
                "--identity", self.identity, "--state", self.directory / "state", *self.arguments]
        # A daemon ends at once by default; tests of the drain set a time.
        env = {"FARHAUL_SERVE_DRAIN": "0s", **(self.env or {})}
        user = self.user
        if self.sockets:
            become = [] if user is None else ["--user", USER_ID]
            argv = ["python3", os.fspath(ROOT / "tests/harness/activation.py"), *map(str, become), *self.sockets, "--", *argv]
            env, user = {**self.host.environment(user), **env}, None
        with open(self.log, "ab") as log:
            self.process = self.host.start(argv, user=user, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.process.poll() is not None or self.is_listening(), what="the daemon listens")
        if self.process.poll() is not None:
            raise AssertionError(f"farhaul serve ended with {self.process.returncode}: {self.log_text()}")

    def is_listening(self):
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                for line in pathlib.Path(f"/proc/{self.process.pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if int(fields[1].rpartition(":")[2], 16) == self.port and fields[3] == "0A":
                        return self.port in self.host.udp_ports(self.process.pid)
        return False

    def log_text(self):
        return self.log.read_text(errors="replace")

    def url(self, path="", host=None):
        return f"fh://{host or self.host.name}:{self.port}/{path}"

    def kill(self):
        """kill -9."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """SIGTERM, and wait for the end."""
        self.process.terminate()
        return self.process.wait(timeout=15)

    def restart(self):
        self.kill()
        self.start()


def user_id(_name):
    return f"{USER_ID}:{USER_ID}"


def public_key_line(seed=0):
    """A well-formed key line that belongs to nobody."""
    prefix = bytes.fromhex("302a300506032b6570032100")
    return f"farhaul-ed25519 {base64.b64encode(prefix + bytes([seed] * 32)).decode()} nobody\n"
