"""The base class of the tools that are measured.

A peer says which programs it needs, starts its servers on host B, and gives the command that the user of host
A types. The clock runs from the start of that command to its end, and on through `finish` if the tool's
receiver is known to end later than its sender.

Always true: a command is built, and what it needs on disk is written, before the clock starts; nothing here looks at
the clock or judges what arrived.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess

from harness.hosts import USER_ID, HarnessError, wait_until

GCM = "aes128-gcm@openssh.com"


@dataclasses.dataclass
class Job:
    """One file or tree to move to `target`, which does not exist yet; its folder exists and is empty.

    If `source` is a tree, `list` is a file of its relative names, one a line. `notes` is for what a peer has
    to remember of the job, `limit` is the number of seconds that it may take.
    """

    source: pathlib.Path
    target: pathlib.Path
    size: int
    is_tree: bool = False
    list: pathlib.Path | None = None
    limit: float = 20.0
    notes: dict = dataclasses.field(default_factory=dict)

    @property
    def into(self):
        return self.target.parent


class Site:
    """Both ends as a peer sees them: hosts, folders, servers. `root` holds everything that servers may touch."""

    def __init__(self, link, root, profile):
        self.link = link
        self.root = root
        self.profile = profile
        self.a = link.a
        self.b = link.b
        self.address = link.b.v4
        self.processes = []
        self._shared = {}
        self._stack = contextlib.ExitStack()

    def scratch(self, name, user=False):
        """A folder for a server's own files."""
        folder = self.link.pair.folder(name)
        os.chmod(folder, 0o755)
        if user:
            os.chown(folder, USER_ID, USER_ID)
        return folder

    def serve(self, argv, port=None, user=None, udp=False, host=None, env=None, seconds=15):
        """Starts a server, waits until it listens on `port`, and ends it with the site. Returns the process."""
        host = host or self.b
        log = open(self.link.pair.folder("log") / pathlib.Path(argv[0]).name, "wb")
        with log:
            process = host.start(argv, user=user, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env)
        self._stack.callback(end, process)
        self.processes.append(process)
        said = lambda: pathlib.Path(log.name).read_text(errors="replace")[-1500:]  # noqa: E731
        if port is not None:
            try:
                wait_until(lambda: process.poll() is not None or listening(host, port, udp), seconds, 0.05,
                           f"{argv[0]} listens")
            except HarnessError as error:
                raise HarnessError(f"{error}: {said()}") from None
        if process.poll() is not None:
            raise HarnessError(f"{argv[0]} ended with {process.returncode}: {said()}")
        return process

    def shared(self, name, make):
        """Makes what several peers use, once."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def on_close(self, function):
        self._stack.callback(function)

    def close(self):
        self._stack.close()


class Peer:
    """One tool with one set of options."""

    name = ""
    #: The packages of Debian that bring the programs.
    packages = ()
    #: Programs that must be found.
    programs = ()
    #: The options that were chosen, and why.
    options = ""
    #: Where the tool's own documentation recommends or explains them.
    reference = ""
    #: Whether it runs over the kernel's TCP: then it runs once for each congestion control.
    over_tcp = True
    #: What it can move.
    moves = frozenset({"file", "tree"})
    #: Whether the client on A fetches from B instead of sending to it.
    pulls = False
    #: Whether content is sealed on the wire.
    sealed = True
    #: Whether several of its clients can run at once.
    concurrent = True
    #: Whether it says what has arrived when it is interrupted.
    tells_when_interrupted = False
    #: A yardstick moves memory to memory: there is no file to verify.
    yardstick = False

    def missing(self):
        """Why it cannot run on this machine, or None."""
        absent = [program for program in self.programs if not shutil.which(program, path=search_path())]
        return f"not installed: {', '.join(absent)}" if absent else None

    def build(self):
        """Compiles what has to be compiled; raises HarnessError if that fails."""

    def start(self, site):
        """Starts its servers."""

    def before(self, site, job):
        """Prepares what the user's command needs, before the clock starts."""

    def command(self, site, job):
        """The command on host A."""
        raise NotImplementedError

    def environment(self, site):
        return {}

    def finish(self, site, job, seconds):
        """Waits until the receiver is done, for `seconds` at most, while the clock runs. False if it was not
        done by then."""
        return True

    def after(self, site, job):
        """Cleans up after each run, also a failed one."""

    def measured(self, out):
        """(bytes, seconds) that a yardstick prints on stdout; None for other tools, for which the clock and
        the file count."""
        return None

    def arrived(self, job, out):
        """Bytes that had arrived when a run was stopped. `out` is what the command wrote to stdout."""
        return min(job.size, stored(job.into))


def search_path():
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def stored(folder):
    """Bytes on disk in a folder, holes not counted."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(path, name))
                total += min(status.st_size, status.st_blocks * 512)
    return total


def end(process):
    """Ends a process that we started, by its pid."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listening(host, port, udp=False):
    """Whether something on the host listens on the port."""
    process = next(iter(host.pids()), None)
    if process is None:
        return False
    for table in ("udp", "udp6") if udp else ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and (udp or fields[3] == "0A"):
                    return True
    return False
