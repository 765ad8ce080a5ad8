"""Hosts: network namespaces joined by a veth pair, each with its own home, users, names and keys.

Always true: names are unique per test process, so that several runs can go on at once; only processes inside
our own namespaces are ever signalled, by pid; everything is taken down when the process ends, and the next
run takes down what a killed run has left behind.

A host's /etc/passwd, shadow, group and hosts are files under /etc/netns/NAME, which `ip netns exec` mounts over the
real ones. So `root` and `fhuser` have homes of their own on each host, and ssh's configuration, keys and known hosts
work as they do for a user. `surroundings` says what else of the machine a host does not see.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from . import surroundings
from .surroundings import PREFIX, start_time

NETNS_ETC = pathlib.Path("/etc/netns")
SWEEPING = "/run/farhaul-tests.lock"
USER = "fhuser"
USER_ID = 54321
LINK_MTU = 1500


class HarnessError(Exception):
    """The surroundings of a test could not be made. This says nothing about the product."""


def call(*argv, **options):
    """Runs a command of the surroundings and returns its output; a failure is a HarnessError."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise HarnessError(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def wait_until(condition, seconds=10.0, every=0.02, what="condition"):
    """Polls until `condition()` is true and returns its value. A file that goes while the condition looks at it
    is no reason to stop: files of a run that goes on are renamed and removed at any time."""
    end = time.monotonic() + seconds
    while True:
        try:
            value, gone = condition(), ""
        except FileNotFoundError as error:
            value, gone = None, f" ({error})"
        if value:
            return value
        if time.monotonic() > end:
            raise HarnessError(f"timed out after {seconds} s: {what}{gone}")
        time.sleep(every)


class Host:
    """One host. `home` is root's home there; `user_home` belongs to an ordinary user."""

    def __init__(self, name, netns, interface, directory, v4, v6):
        self.name = name
        self.netns = netns
        self.interface = interface
        self.directory = directory
        self.v4 = v4
        self.v6 = v6
        self.home = directory / "root"
        self.user_home = directory / USER
        self.bin = directory / "bin"
        self._rules = 0

    def prepare(self, names):
        """Writes the host's own /etc files and homes. `names` maps addresses to host names."""
        for path in (self.home, self.user_home, self.bin):
            path.mkdir(parents=True)
        os.chmod(self.home, 0o700)
        os.chown(self.user_home, USER_ID, USER_ID)
        etc = NETNS_ETC / self.netns
        etc.mkdir(parents=True)
        surroundings.etc(etc)
        (etc / "passwd").write_text(
            f"root:x:0:0:root:{self.home}:/bin/bash\n"
            f"sshd:x:108:65534::/run/sshd:/usr/sbin/nologin\n"
            f"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            f"{USER}:x:{USER_ID}:{USER_ID}::{self.user_home}:/bin/bash\n"
        )
        (etc / "shadow").write_text(f"root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n{USER}:*:19000:0:99999:7:::\n")
        os.chmod(etc / "shadow", 0o600)
        (etc / "group").write_text(f"root:x:0:\nnogroup:x:65534:\n{USER}:x:{USER_ID}:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(
            f"{address} {' '.join(aliases)}\n" for address, aliases in names.items()))

    def environment(self, user=None):
        home = self.home if user is None else self.user_home
        return {
            "HOME": str(home),
            "USER": user or "root",
            "LOGNAME": user or "root",
            "SHELL": "/bin/bash",
            "PATH": f"{self.bin}:{surroundings.programs()}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            # Most daemons of the tests run as root; a daemon refuses that unless this is set.
            "FARHAUL_ALLOW_ROOT": "1",
        }

    def command(self, argv, user=None):
        """The full command line that runs `argv` on this host. Each step is an exec, so the pid is that of
        `argv` itself."""
        prefix = ["ip", "netns", "exec", self.netns]
        if user is not None:
            prefix += ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "--"]
        return prefix + [os.fspath(part) for part in argv]

    def start(self, argv, user=None, cwd=None, env=None, **options):
        """Starts a process on this host."""
        home = self.home if user is None else self.user_home
        return subprocess.Popen(
            self.command(argv, user),
            cwd=cwd or home,
            env={**self.environment(user), **(env or {})},
            start_new_session=True,
            **options,
        )

    def run(self, argv, user=None, cwd=None, env=None, timeout=120, check=False, **options):
        """Runs a process on this host to its end; output is bytes. On a time-out it is killed by its pid."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        data = options.pop("input", None)
        options.setdefault("stdin", subprocess.DEVNULL if data is None else subprocess.PIPE)
        process = self.start(argv, user, cwd, env, **options)
        try:
            out, err = process.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            tail = (err or b"")[-2000:].decode(errors="replace")
            raise TimeoutError(f"{argv} did not end within {timeout} s; stderr so far:\n{tail}") from None
        except BaseException:
            process.kill()
            process.wait()
            raise
        if check and process.returncode != 0:
            raise HarnessError(f"{argv} on {self.name}: exit {process.returncode}: {err.decode(errors='replace')}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def pids(self, name=None):
        """Pids of the processes on this host, of those called `name` if given."""
        pids = [int(pid) for pid in call("ip", "netns", "pids", self.netns).split()]
        return [pid for pid in pids if name is None or command_name(pid) == name]

    def nft(self, script):
        call("ip", "netns", "exec", self.netns, "nft", "-f", "-", input=script)

    @contextlib.contextmanager
    def dropping(self, match, hook="prerouting"):
        """While it lasts, packets that arrive at this host and match the nft expression are dropped without
        an answer."""
        self._rules += 1
        table = f"fh{self._rules}"
        self.nft(f"table inet {table} {{ chain c {{ type filter hook {hook} priority -350; policy accept; "
                 f"{match} counter drop; }}; }}")
        try:
            yield
        finally:
            self.nft(f"delete table inet {table}")

    def counter(self, name):
        """An interface counter, for example tx_bytes."""
        text = call("ip", "netns", "exec", self.netns, "cat", f"/sys/class/net/{self.interface}/statistics/{name}")
        return int(text)

    def device_bytes(self):
        """What the host's link has carried so far, both ways."""
        folder = f"/sys/class/net/{self.interface}/statistics"
        done = self.run(["cat", f"{folder}/rx_bytes", f"{folder}/tx_bytes"], check=True)
        return sum(map(int, done.stdout.split()))

    def udp_ports(self, pid=None):
        """Local UDP ports in use on this host, those of one process if a pid is given."""
        process = pid or next(iter(self.pids()), None)
        if process is None:
            return set()
        inodes = None if pid is None else socket_inodes(pid)
        ports = set()
        for table in ("udp", "udp6"):
            with contextlib.suppress(OSError):
                for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if inodes is None or fields[9] in inodes:
                        ports.add(int(fields[1].rpartition(":")[2], 16))
        return ports

    def tcp_ports(self):
        """Local ports of this host's TCP connections."""
        lines = call("ip", "netns", "exec", self.netns, "ss", "-tnH").splitlines()
        return {int(line.split()[3].rpartition(":")[2]) for line in lines}

    def end_processes(self):
        """Ends everything that still runs on this host."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            pids = [] if not netns_exists(self.netns) else self.pids()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            end = time.monotonic() + 2
            while pids and time.monotonic() < end and netns_exists(self.netns) and self.pids():
                time.sleep(0.02)


def command_name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def socket_inodes(pid):
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def netns_exists(name):
    return os.path.exists(f"/run/netns/{name}")


class Pair:
    """Two hosts, `alpha` and `beta`, joined by a link with IPv4 and IPv6, in a directory of their own.

    `binary` is copied, so that a build beside the run changes nothing in it.
    """

    serial = 0

    def __init__(self, binary=None, base=None, mtu=LINK_MTU):
        require_root()
        sweep(base)
        Pair.serial += 1
        tag = f"{os.getpid()}-{start_time(os.getpid())}-{Pair.serial}"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{tag}-", dir=base))
        os.chmod(self.directory, 0o755)
        short = f"{os.getpid() % 10**7}x{Pair.serial}"
        self._closers = []
        self.alpha = Host("alpha", f"{PREFIX}{tag}-a", f"f{short}a", self.directory / "alpha", "10.77.0.1", "fd77::1")
        self.beta = Host("beta", f"{PREFIX}{tag}-b", f"f{short}b", self.directory / "beta", "10.77.0.2", "fd77::2")
        _open_pairs.append(self)
        try:
            self._share_mounts()
            self._build(binary, mtu)
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self):
        return (self.alpha, self.beta)

    def _share_mounts(self):
        """Lets processes that run on the hosts already see what is mounted below the directory later."""
        call("mount", "--bind", str(self.directory), str(self.directory))
        call("mount", "--make-shared", str(self.directory))

    def _build(self, binary, mtu):
        self._join(mtu)
        names = {self.alpha.v4: ["alpha"], self.beta.v4: ["beta"],
                 self.alpha.v6: ["alpha6"], self.beta.v6: ["beta6"]}
        for host in self.hosts:
            host.prepare(names)
        if binary is not None:
            copy = self.directory / "farhaul"
            shutil.copyfile(binary, copy)
            os.chmod(copy, 0o755)
            for host in self.hosts:
                (host.bin / "farhaul").symlink_to(copy)

    def _join(self, mtu):
        """Makes the two network namespaces and the link between them. A subclass joins its hosts in another
        way, and may give them other addresses."""
        for host in self.hosts:
            call("ip", "netns", "add", host.netns)
        call("ip", "link", "add", self.alpha.interface, "netns", self.alpha.netns, "mtu", str(mtu), "type", "veth",
             "peer", "name", self.beta.interface, "netns", self.beta.netns, "mtu", str(mtu))
        for host in self.hosts:
            inside = ("ip", "-n", host.netns)
            call(*inside, "link", "set", "lo", "up")
            call(*inside, "addr", "add", f"{host.v4}/24", "dev", host.interface)
            call(*inside, "addr", "add", f"{host.v6}/64", "dev", host.interface, "nodad")
            call(*inside, "link", "set", host.interface, "up")

    def folder(self, name):
        """A fresh folder in the pair's directory."""
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def small_disk(self, megabytes):
        """Mounts a small file system in memory, which is soon full."""
        return self.mount_memory(self.folder("disk"), megabytes)

    def mount_memory(self, folder, megabytes):
        """Puts a file system in memory at `folder`. Many small files belong on one: ext4 looks for free inodes slowly
        for minutes after many were deleted, as they are at the end of a test."""
        call("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder))
        return folder

    def mount_folding(self, folder, megabytes=64):
        """Mounts a file system at `folder` that does not tell names apart by the case of their letters,
        returns them in lower case, and refuses names that Windows does not allow: NTFS in an image file, by
        lowntfs-3g."""
        image = self.directory / f"{folder.name}.ntfs"
        with open(image, "wb") as file:
            file.truncate(megabytes << 20)
        call("mkntfs", "--fast", "--force", "--quiet", "--sector-size", "512", str(image))
        call("lowntfs-3g", "-o", "ignore_case,windows_names", str(image), str(folder))
        return folder

    def on_close(self, function):
        self._closers.append(function)

    def plain_link(self):
        """Makes the link carry each datagram by itself with a full checksum, as a cable would."""
        for host in self.hosts:
            call("ip", "netns", "exec", host.netns, "ethtool", "-K", host.interface, "tx", "off", "gso", "off",
                 "tso", "off", "gro", "off", "tx-udp-segmentation", "off")

    def close(self):
        for function in reversed(self._closers):
            with contextlib.suppress(Exception):
                function()
        self._closers.clear()
        for host in self.hosts:
            with contextlib.suppress(Exception):
                host.end_processes()
        for host in self.hosts:
            remove_host(host.netns)
        remove_folder(self.directory)
        if self in _open_pairs:
            _open_pairs.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def remove_host(netns):
    if netns_exists(netns):
        with contextlib.suppress(HarnessError):
            call("ip", "netns", "del", netns)
    shutil.rmtree(NETNS_ETC / netns, ignore_errors=True)
    with contextlib.suppress(OSError):
        NETNS_ETC.rmdir()


def mounted_in(folder):
    """What is mounted at this directory and below it, the latest last."""
    mounts = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    return [target for target in mounts if target == str(folder) or target.startswith(f"{folder}/")]


def remove_folder(folder):
    """Removes a pair's directory and what is mounted in it."""
    for target in reversed(mounted_in(folder)):
        with contextlib.suppress(HarnessError):
            call("umount", "-l", target)
    # What is still mounted may be a part of this machine, and is not removed.
    if not mounted_in(folder):
        shutil.rmtree(folder, ignore_errors=True)


def owner_is_gone(name):
    """Whether a name made by `Pair` belongs to a process that has ended."""
    parts = name[len(PREFIX):].split("-")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return start_time(int(parts[0])) != int(parts[1])


def sweep(base=None):
    """Takes down what killed runs have left behind, in `base` too. The runs of a machine do this one after
    another: otherwise a run could look for something that another run has just taken down."""
    with open(SWEEPING, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_alone(base)


def sweep_alone(base):
    folders = [pathlib.Path("/run/netns"), NETNS_ETC]
    for name in {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}:
        if name.startswith(PREFIX) and owner_is_gone(name):
            Host(name, name, "", pathlib.Path("/nonexistent"), "", "").end_processes()
            remove_host(name)
    for entry in (entry for folder in {tempfile.gettempdir(), base or tempfile.gettempdir()}
                  for entry in pathlib.Path(folder).glob(f"{PREFIX}*")):
        if owner_is_gone(entry.name):
            remove_folder(entry)


def require_root():
    if os.geteuid() != 0:
        raise HarnessError("network namespaces need root: run this as root")


_open_pairs = []


def _close_all():
    for pair in list(_open_pairs):
        pair.close()


def _end_on_signal(_number, _frame):
    raise KeyboardInterrupt  # pytest ends at this, too, and does not take it for a failed test


def install_signal_handlers():
    """Turns SIGTERM and SIGHUP into an orderly end, so that clean-up runs. A process that a shell starts in
    the background ignores SIGINT, and so would everything that we start; this restores the default. A worker
    of a parallel run may be a thread, which cannot handle signals: the next run sweeps up what it leaves."""
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_on_signal)


atexit.register(_close_all)
