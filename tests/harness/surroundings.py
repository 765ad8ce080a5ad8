"""What the tests take from the machine on which they run: the kernel and the system's programs, and nothing
else.

Always true: no test sees a farhaul that is installed on the machine, nor the home directory, settings and
limits of the user who runs the tests. Variables that are meant for the tests stay: FARHAUL_BIN,
FARHAUL_TEST_SEED, GOLDEN, TMPDIR and those of Python.
"""

import atexit
import contextlib
import functools
import os
import pathlib
import resource
import shutil
import tempfile

PREFIX = "farhaul-"
SYSTEM_FOLDERS = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
KEPT = {"FARHAUL_BIN", "FARHAUL_TEST_SEED", "GOLDEN", "TMPDIR"}
KEPT_PREFIXES = ("PYTHON", "PYTEST", "PYENV_", "VIRTUAL_ENV", "COVERAGE")
FILES_OPEN = 1024

#: Files below /etc that each host has in place of the machine's, if the machine has such a file. `hosts`
#: writes those with users and names.
ETC = {
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "host.conf": "multi on\n",
    "gai.conf": "",
    "hosts.allow": "",
    "hosts.deny": "",
    "bash.bashrc": "",
    "profile": "",
    "environment": "",
}
#: Folders below /etc, each with its complete content on a host.
ETC_FOLDERS = {"ssh": {"ssh_config": ""}}


def start_time(pid):
    """The start time of a process in clock ticks, or None if there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def own_tag():
    """The prefix of names that belong to this process. It tells another process whether this one has
    ended."""
    return f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-"


@functools.cache
def own_folder():
    """A folder of this process, which is removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=own_tag()))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def programs():
    """A folder with links to all programs of the system and of the caller's PATH, without those of
    farhaul."""
    folder = own_folder() / "programs"
    folder.mkdir(mode=0o755)
    for place in SYSTEM_FOLDERS + os.environ.get("PATH", "").split(":"):
        with contextlib.suppress(OSError):
            for entry in os.scandir(place) if place.startswith("/") else ():
                if not entry.name.startswith("farhaul"):
                    with contextlib.suppress(FileExistsError):
                        os.symlink(entry.path, folder / entry.name)
    return folder


def etc(folder):
    """Writes into `folder` the files that a host has in place of those below /etc."""
    for name, text in ETC.items():
        if os.path.exists(f"/etc/{name}"):
            (folder / name).write_text(text)
    for name, files in ETC_FOLDERS.items():
        if os.path.isdir(f"/etc/{name}"):
            (folder / name).mkdir()
            for file, text in files.items():
                (folder / name / file).write_text(text)


def settle():
    """Gives this process, and so every process that it starts, the surroundings that the tests expect."""
    os.umask(0o022)
    for which in ("FSIZE", "AS", "DATA", "NPROC", "CPU"):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{which}"), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_OPEN, max(most, 1 << 20)))
    # This reads the caller's PATH, so it comes before the environment is replaced.
    path = str(programs())
    home = own_folder() / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_PREFIXES):
            del os.environ[name]
    os.environ.update(HOME=str(home), USER="root", LOGNAME="root", SHELL="/bin/bash", LANG="C.UTF-8", TERM="dumb", PATH=path)
