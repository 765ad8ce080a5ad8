"""What the tests take from the machine that they run on: the kernel and the system's programs, and nothing else.

Always true: no test sees a farhaul that is installed here, nor the home directory, the settings and the limits of whoever runs
the tests. Choices that are meant for the tests themselves stay: FARHAUL_BIN, FARHAUL_TEST_SEED, TMPDIR and Python's own.
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
KEPT = {"FARHAUL_BIN", "FARHAUL_TEST_SEED", "TMPDIR"}
KEPT_PREFIXES = ("PYTHON", "PYTEST", "PYENV_", "VIRTUAL_ENV", "COVERAGE")
FILES_OPEN = 1024

#: What each host has in the place of the machine's files below /etc, where the machine has such a file. Hosts write users and
#: names themselves.
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
#: What a process that is to fail for a test is told; over ssh its far end hears it as well.
TESTING = ("FARHAUL_FAULT", "FARHAUL_EPOCH_BITS")
#: Folders below /etc, with all that is in them on a host.
ETC_FOLDERS = {"ssh": {"ssh_config": f"Host *\n    SendEnv {' '.join(TESTING)}\n"}}


def start_time(pid):
    """The start time of a process in clock ticks, or None if there is none."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def own_tag():
    """Names with it belong to this process; who finds one can tell whether that has ended."""
    return f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-"


@functools.cache
def own_folder():
    """A folder of this process, which goes when it ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=own_tag()))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def programs():
    """A folder with a link to each program of the system, and to what else whoever runs the tests can call, but for farhaul."""
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
    """Puts into `folder` what a host has in the place of files below /etc."""
    for name, text in ETC.items():
        if os.path.exists(f"/etc/{name}"):
            (folder / name).write_text(text)
    for name, files in ETC_FOLDERS.items():
        if os.path.isdir(f"/etc/{name}"):
            (folder / name).mkdir()
            for file, text in files.items():
                (folder / name / file).write_text(text)


def settle():
    """Gives this process, and so all that it starts, the surroundings that the tests are made for."""
    os.umask(0o022)
    for which in ("FSIZE", "AS", "DATA", "NPROC", "CPU"):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{which}"), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_OPEN, max(most, 1 << 20)))
    # The programs are looked for while the caller's PATH is there.
    path = str(programs())
    home = own_folder() / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_PREFIXES):
            del os.environ[name]
    os.environ.update(HOME=str(home), USER="root", LOGNAME="root", SHELL="/bin/bash", LANG="C.UTF-8", TERM="dumb", PATH=path)
