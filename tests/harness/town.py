"""Machines as a reader of the guide has them: each with a file system, users, homes and names of its own, so that
commands can be typed as the pages have them, `/data`, `user@host` and `useradd` among them.

Always true: a machine's files lie in memory over those of this machine, which stay as they are; what runs on a machine is
ended with it. Nobody has a service manager: `systemctl` there starts what a unit says (see `SYSTEMCTL`).
"""

import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time

from . import product
from .hosts import HarnessError, call, wait_until
from .surroundings import ETC, ETC_FOLDERS
from .three import Trio

#: The reader, and the user whom the pages call `user`. Both have accounts on all machines.
PEOPLE = {"alice": 61000, "user": 61001}
#: The names by which the pages call machines.
NAMES = {
    "alpha": ["laptop", "client"],
    "beta": ["host", "server", "hpc", "dtn", "dtn2", "archive"],
    "gamma": ["dtn1", "dtn1.example.org"],
}
#: Directories of the pages, which are new on each machine even if this one has them.
OF_PAGES = ("/data", "/nvme0", "/nvme1", "/a", "/b", "/c", "/instrument", "/camera", "/projects")
#: A prompt that a page's command cannot print.
# What a program in the background says may come behind it.
PROMPT = re.compile(r"\{\{(\d+)\}\} (?=$|\d{4}-\d\d-\d\dT)")

#: Does what the pages ask of systemd: starts the program of a unit as the unit's user, with the unit's directories.
SYSTEMCTL = r"""#!/usr/bin/python3
import configparser, os, pwd, shlex, socket, subprocess, sys
verb, unit = sys.argv[1], sys.argv[-1]
if verb == "edit":
    sys.exit(0)
if verb not in ("enable", "start"):
    sys.exit(f"systemctl {verb}: this machine has no service manager")
parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
parser.optionxform = str
parser.read(f"/etc/systemd/system/{unit}.service")
service = parser["Service"]
user = pwd.getpwnam(service["User"])
env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name}
for key, place in (("State", "/var/lib"), ("Runtime", "/run"), ("Configuration", "/etc")):
    if name := service.get(f"{key}Directory"):
        os.makedirs(f"{place}/{name}", mode=0o755, exist_ok=True)
        if key != "Configuration":
            os.chown(f"{place}/{name}", user.pw_uid, user.pw_gid)
        env[f"{key.upper()}_DIRECTORY"] = f"{place}/{name}"
def become():
    os.setsid(); os.initgroups(user.pw_name, user.pw_gid); os.setgid(user.pw_gid); os.setuid(user.pw_uid); os.umask(0o027)
options = {"env": env, "cwd": "/", "preexec_fn": become, "stdin": subprocess.DEVNULL}
log = open(f"/var/log/{unit}", "ab")
if before := service.get("ExecStartPre"):
    subprocess.run(shlex.split(before), stdout=log, stderr=log, check=True, **options)
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
env["NOTIFY_SOCKET"] = f"/run/notify-{os.getpid()}"
ready.bind(env["NOTIFY_SOCKET"])
os.chmod(env["NOTIFY_SOCKET"], 0o777)
ready.settimeout(30)
subprocess.Popen(shlex.split(service["ExecStart"]), stdout=log, stderr=log, **options)
while b"READY=1" not in ready.recv(4096):
    pass
"""


class Machine:
    """One machine of a town. `root` is where its file system lies on this one."""

    def __init__(self, host, folder):
        self.host, self.name = host, host.name
        self.root = folder / "root"
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True)
        layers = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
        call("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        for place in ("/proc", "/sys", "/dev"):
            call("mount", "--rbind", "--make-rslave", place, f"{self.root}{place}")
        for place in ("/tmp", "/run", "/home", "/root", "/srv", *(place for place in OF_PAGES if self.at(place).exists())):
            self.at(place).mkdir(exist_ok=True)
            call("mount", "-t", "tmpfs", "-o", f"size=1g,mode={'1777' if place == '/tmp' else '0755'}", "tmpfs", f"{self.root}{place}")
        # A build for tests reads the page from the source tree.
        self.at(product.ROOT).mkdir(parents=True, exist_ok=True)
        call("mount", "--bind", str(product.ROOT), f"{self.root}{product.ROOT}")
        call("mount", "-o", "remount,bind,ro", f"{self.root}{product.ROOT}")

    def at(self, path):
        """A path of this machine, as this process reaches it."""
        return self.root / str(path).lstrip("/")

    def furnish(self, binary, names):
        etc = self.at("/etc")
        for name, text in ETC.items():
            (etc / name).write_text(text)
        for name, files in ETC_FOLDERS.items():
            (etc / name).mkdir(exist_ok=True)
            for file, text in files.items():
                (etc / name / file).write_text(text)
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{address} {' '.join(all)}\n" for address, all in names))
        shutil.rmtree(etc / "farhaul", ignore_errors=True)
        for place in ("passwd", "group", "shadow"):
            lines = [line for line in (etc / place).read_text().splitlines() if line.split(":")[0] not in (*PEOPLE, "farhaul")]
            for person, number in PEOPLE.items():
                lines.append({"passwd": f"{person}:x:{number}:{number}::/home/{person}:/bin/bash", "group": f"{person}:x:{number}:",
                              "shadow": f"{person}:*:19000:0:99999:7:::"}[place])
            if place == "passwd" and not any(line.startswith("sshd:") for line in lines):
                lines.append("sshd:x:108:65534::/run/sshd:/usr/sbin/nologin")
            (etc / place).write_text("\n".join(lines) + "\n")
        for person, number in PEOPLE.items():
            self.folder(f"/home/{person}", person)
            self.folder(f"/run/user/{number}", person, 0o700)
        self.put("/usr/local/bin/farhaul", pathlib.Path(binary).read_bytes(), mode=0o755)
        self.put("/usr/local/sbin/systemctl", SYSTEMCTL, mode=0o755)

    def folder(self, path, owner="root", mode=0o755):
        place = self.at(path)
        place.mkdir(parents=True, exist_ok=True)
        os.chmod(place, mode)
        os.chown(place, PEOPLE.get(owner, 0), PEOPLE.get(owner, 0))
        return place

    def put(self, path, content, owner="root", mode=0o644):
        """Writes a file there, and its directories."""
        place = self.at(path)
        missing = [folder for folder in reversed(place.parents) if not folder.exists()]
        for folder in missing:
            folder.mkdir()
            os.chown(folder, PEOPLE.get(owner, 0), PEOPLE.get(owner, 0))
        place.unlink(missing_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        os.chmod(place, mode)
        os.chown(place, PEOPLE.get(owner, 0), PEOPLE.get(owner, 0))
        return place

    def command(self, argv, user="root", session=True):
        """The command line that runs `argv` there, in a new session of this user."""
        home = "/root" if user == "root" else f"/home/{user}"
        number = PEOPLE.get(user, 0)
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" if user == "root" else "/usr/local/bin:/usr/bin:/bin"
        env = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", "PAGER": "cat"}
        if user != "root" and session:
            env["XDG_RUNTIME_DIR"] = f"/run/user/{number}"
        become = [] if user == "root" else ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]
        return ["ip", "netns", "exec", self.host.netns, "chroot", str(self.root), "/usr/bin/env", "-i", f"--chdir={home}",
                *(f"{name}={value}" for name, value in env.items()), *become, *map(str, argv)]

    def run(self, argv, user="root", check=True, timeout=60):
        done = subprocess.run(self.command(argv, user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        if check and done.returncode != 0:
            raise HarnessError(f"{argv} on {self.name}: exit {done.returncode}: {done.stdout.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def start(self, argv, user="root", log="/tmp/log"):
        """Starts something that goes on; its output is in `log` there."""
        with open(self.at(log), "ab") as output:
            return subprocess.Popen(self.command(argv, user), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


class Typed:
    """What a command printed, and how it ended."""

    def __init__(self, line, code, text):
        self.line, self.code, self.text = line, code, text

    def __str__(self):
        return f"$ {self.line}\n{self.text}\n(exit {self.code})"


class Terminal:
    """A terminal with a shell in which somebody types."""

    def __init__(self, machine, user="alice", cwd=None):
        self.machine = machine
        self.master, slave = pty.openpty()
        command = machine.command(["bash", "--noprofile", "--norc", "--noediting", "-i"], user)
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(slave)
        self.said = ""
        self._send("stty -echo columns 160; PS2=; PROMPT_COMMAND=; PS1='{{$?}} '\n")
        self._until_prompt(20)
        if cwd:
            self.type(f"cd {cwd}")

    def _send(self, text):
        os.write(self.master, text.encode())

    def _hear(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            data = b""
        self.said += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def _until_prompt(self, seconds, answers=()):
        begin, answered = time.monotonic(), 0
        while True:
            self._hear(0.2)
            found = PROMPT.search(self.said)
            if found:
                text, self.said = self.said[:found.start()], self.said[found.end():]
                return int(found[1]), text
            for question, answer in answers:
                if re.search(question, self.said[answered:]):
                    answered = len(self.said)
                    self._send(f"{answer}\n")
            if time.monotonic() - begin > seconds:
                raise HarnessError(f"no end after {seconds} s: {self.said[-2000:]}")

    def type(self, line, seconds=120, answers=()):
        """Types a command and waits for the prompt. `answers` are typed where a question is asked."""
        self._send(f"{line}\n")
        code, text = self._until_prompt(seconds, answers)
        return Typed(line, code, text)

    def sees(self, pattern, seconds=30):
        """Waits until something in the background has said this, and asks for a new prompt."""
        begin = time.monotonic()
        while not re.search(pattern, self.said):
            self._hear(0.2)
            if time.monotonic() - begin > seconds:
                raise HarnessError(f"nobody said {pattern}: {self.said[-2000:]}")
        self.type("true")

    def leave_running(self, line, until, seconds=30):
        """Types a command that keeps the terminal, and waits until it has said something."""
        self._send(f"{line}\n")
        begin = time.monotonic()
        while not re.search(until, self.said):
            self._hear(0.2)
            found = PROMPT.search(self.said)
            if found or time.monotonic() - begin > seconds:
                raise HarnessError(f"{line} did not say {until}: {self.said[-2000:]}")
        return self.said

    def close(self):
        os.close(self.master)
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGHUP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)


class Town:
    """Three machines on a switch: the reader's, and two far ones with SSH, of which each can have a daemon."""

    def __init__(self):
        self.pair = Trio(None)
        try:
            call("mount", "-t", "tmpfs", "-o", "size=4g,mode=0755", "tmpfs", str(self.pair.folder("town").resolve()))
            folder = pathlib.Path(call("findmnt", "-rno", "TARGET", "-T", str(next(self.pair.directory.glob("town-*")))).strip())
            self.here, self.far, self.other = (Machine(host, folder / host.name) for host in self.pair.hosts)
            names = [(host.v4, [host.name, *NAMES[host.name]]) for host in self.pair.hosts]
            for machine in self.machines:
                machine.furnish(product.binary(), names)
            self.terminals, self.processes = [], []
            self._join_by_ssh()
        except BaseException:
            self.close()
            raise

    @property
    def machines(self):
        return (self.here, self.far, self.other)

    def _join_by_ssh(self):
        """The reader's key opens both accounts of the far machines."""
        self.here.folder("/home/alice/.ssh", "alice", 0o700)
        self.here.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/home/alice/.ssh/id_ed25519"], "alice")
        key = self.here.at("/home/alice/.ssh/id_ed25519.pub").read_text()
        known = ""
        for machine in (self.far, self.other):
            for person in PEOPLE:
                machine.put(f"/home/{person}/.ssh/authorized_keys", key, person, 0o600)
            machine.folder("/run/sshd")
            machine.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/host_key"])
            machine.put("/etc/ssh/sshd_config", "HostKey /etc/ssh/host_key\nUsePAM no\nStrictModes no\nUseDNS no\nPrintMotd no\n"
                        "PrintLastLog no\nPidFile none\nSubsystem sftp internal-sftp\nMaxStartups 100\n")
            names = ",".join([machine.name, *NAMES[machine.name], machine.host.v4])
            known += f"{names} {' '.join(machine.at('/etc/ssh/host_key.pub').read_text().split()[:2])}\n"
            self.processes.append(machine.start(["/usr/sbin/sshd", "-D", "-e"], log="/var/log/sshd"))
        self.here.put("/etc/ssh/ssh_known_hosts", known)
        for machine in (self.far, self.other):
            wait_until(lambda machine=machine: self.here.run(["ssh", machine.name, "echo up"], "alice", check=False).strip() == "up",
                       20, 0.1, "sshd answers")

    def terminal(self, machine=None, user="alice", cwd=None):
        terminal = Terminal(machine or self.here, user, cwd)
        self.terminals.append(terminal)
        return terminal

    def daemon(self, machine, *arguments):
        """A daemon on a far machine that serves /srv/data and lets the reader's key in, as docs/start/daemon.md makes it."""
        key = self.here.at("/home/alice/.config/farhaul/id_ed25519.pub")
        if not key.exists():
            self.here.run(["farhaul", "keygen"], "alice")
        keys = machine.at("/etc/farhaul/authorized_keys")
        machine.put("/etc/farhaul/authorized_keys", (keys.read_text() if keys.exists() else "") + key.read_text())
        machine.folder("/srv/data", "user")
        self.processes.append(machine.start(["farhaul", "serve", "--root", "/srv/data", "--authorized-keys", "/etc/farhaul/authorized_keys",
                                             *arguments], "user", log="/var/log/daemon"))
        self.serves(machine, "/var/log/daemon")

    def serves(self, machine, log):
        wait_until(lambda: "serving" in machine.at(log).read_text(), 20, 0.05, "the daemon serves")

    def close(self):
        for terminal in getattr(self, "terminals", ()):
            with contextlib.suppress(OSError):
                terminal.close()
        self.pair.close()
        for process in getattr(self, "processes", ()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
