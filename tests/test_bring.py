"""A farhaul is brought to a far end that has none: over the one connection of ssh, once, and into a folder that is
the user's alone.

The test's own binary plays the static one that a package has beside its own (`/usr/lib/farhaul/farhaul-static`).
"""

import os
import pty
import select
import shlex
import shutil
import stat

import pytest

from harness import product
from harness.hosts import USER, USER_ID, Pair, call
from harness.product import EXIT_CONNECT, EXIT_INTERRUPTED, keygen
from harness.ssh import SshServer

#: Puts the static program into its place, for one command only.
WITH_STATIC = """
mount -t overlay overlay -o lowerdir=/usr/lib,upperdir="$1/over",workdir="$1/work" /usr/lib &&
mkdir -p /usr/lib/farhaul && ln -sf "$2" /usr/lib/farhaul/farhaul-static && shift 2 && exec "$@"
"""


class Bare:
    """Two hosts; the far one has sshd and no farhaul."""

    def __init__(self):
        self.pair = Pair(product.binary())
        try:
            self.alpha, self.beta = self.pair.alpha, self.pair.beta
            (self.beta.bin / "farhaul").unlink()
            self.ssh = SshServer(self.pair)
            keygen(self.alpha)
            disk = self.pair.mount_memory(self.pair.folder("over"), 64)
            (disk / "over").mkdir()
            (disk / "work").mkdir()
            self.prefix = ["unshare", "--mount", "sh", "-c", WITH_STATIC, "sh", disk, self.pair.directory / "farhaul"]
            self.source = self.pair.folder("source")
            self.fill()
        except BaseException:
            self.pair.close()
            raise

    def fill(self):
        (self.source / "tree/sub").mkdir(parents=True)
        (self.source / "tree/sub/file").write_bytes(os.urandom(100_000))

    def cp(self, target, *options, bring=True, prefix=None, user=None, **more):
        words = ["--bring"] if bring else []
        host = f"{user}@beta" if user else "beta"
        return product.cp(self.alpha, *words, *options, self.source / "tree", f"{host}:{target}",
                          hooks=self.prefix if prefix is None else prefix, **more)

    def kept(self, home):
        folder = home / ".cache/farhaul"
        return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


@pytest.fixture
def bare():
    made = Bare()
    yield made
    made.pair.close()


@pytest.mark.parametrize("user", [None, USER])
def test_it_is_sent_once_kept_for_the_user_alone_and_used_again(bare, user):
    home = bare.beta.home if user is None else bare.beta.user_home
    target = home / "there"
    first = bare.cp(target, user=user)
    assert "bringing farhaul to beta" in first.stderr, first
    [kept] = bare.kept(home)
    for place in (kept, kept.parent, kept.parent.parent):
        status = place.stat()
        assert stat.S_IMODE(status.st_mode) == 0o700, place
        assert status.st_uid == (0 if user is None else USER_ID)
    # What the shell there does for the program changes nothing for files.
    assert stat.S_IMODE((target / "sub").stat().st_mode) == stat.S_IMODE((bare.source / "tree/sub").stat().st_mode)
    assert (target / "sub/file").read_bytes() == (bare.source / "tree/sub/file").read_bytes()
    again = bare.cp(home / "again", user=user)
    assert "bringing" not in again.stderr and bare.kept(home) == [kept], again


def test_all_of_it_takes_one_connection(bare):
    log = bare.pair.folder("ssh")
    wrapper = log / "ssh"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = -G ] || echo run >>{log}/runs\nexec /usr/bin/ssh "$@"\n')
    wrapper.chmod(0o755)
    bare.cp("/tmp/" + log.name, "-S", wrapper)
    assert (log / "runs").read_text().count("run") == 1


def test_without_being_asked_nothing_is_brought(bare):
    outcome = bare.cp(bare.beta.home / "there", bring=False, expect=EXIT_CONNECT)
    assert outcome.report["error_detail"]["code"] == "FH-NOT-INSTALLED"
    assert "--bring" in outcome.stderr, outcome
    assert not bare.kept(bare.beta.home)


@pytest.mark.parametrize("answer", ["yes", "no", "\x03"])
def test_at_a_terminal_the_user_is_asked(bare, answer):
    """And only there; with `-B` and `-q` nobody is asked either."""
    argv = bare.alpha.command([*bare.prefix, "farhaul", "cp", bare.source / "tree", f"beta:{bare.beta.home}/there"])
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, {**os.environ, **bare.alpha.environment()})
    said, is_answered = b"", False
    try:
        while select.select([terminal], [], [], 60)[0] and (more := read(terminal)):
            said += more
            if not is_answered and b"yes/no)?" in said:
                os.write(terminal, answer.encode() + (b"" if answer == "\x03" else b"\n"))
                is_answered = True
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert is_answered and b"beta has no farhaul. Send it this one" in said, said
    assert os.waitstatus_to_exitcode(status) == {"yes": 0, "no": EXIT_CONNECT, "\x03": EXIT_INTERRUPTED}[answer], said
    assert (bare.beta.home / "there").exists() == bool(bare.kept(bare.beta.home)) == (answer == "yes")


def read(terminal):
    """What a terminal says next; empty when its last process has ended."""
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""


def test_clean_removes_what_was_brought(bare):
    bare.cp(bare.beta.home / "there")
    [kept] = bare.kept(bare.beta.home)
    clean = [bare.pair.directory / "farhaul", "clean", "--cache"]
    for options, left in ((["--dry-run"], True), ([], False), ([], False)):
        done = bare.beta.run([*clean, *options], check=True)
        assert kept.exists() == left
        assert (str(kept).encode() in done.stdout) == (left or not options and b"0 leftovers" not in done.stderr), done
    assert b"0 leftovers" in done.stderr, done


def test_an_old_farhaul_there_is_passed_over_and_one_that_talks_is_used(bare):
    other = bare.beta.bin / "farhaul"
    other.write_text("#!/bin/sh\necho farhaul 0.0.9\n")
    other.chmod(0o755)
    bare.cp(bare.beta.home / "one")
    assert len(bare.kept(bare.beta.home)) == 1
    call("rm", "-r", str(bare.beta.home / ".cache"))
    other.unlink()
    other.symlink_to(bare.pair.directory / "farhaul")
    bare.cp(bare.beta.home / "two")
    assert not bare.kept(bare.beta.home)


def test_a_program_that_needs_libraries_is_not_sent(bare):
    outcome = bare.cp(bare.beta.home / "there", prefix=[], expect=EXIT_CONNECT)
    assert outcome.report["error_detail"]["code"] == "FH-CANNOT-BRING"
    assert "farhaul-static" in outcome.error_line


def refused(bare, words, **options):
    outcome = bare.cp(bare.beta.home / "there", expect=EXIT_CONNECT, **options)
    assert outcome.report["error_detail"]["code"] == "FH-CANNOT-BRING", outcome
    assert words in outcome.error_line, outcome
    assert not (bare.beta.home / "there").exists()
    return outcome


def test_where_others_can_write_nothing_is_started(bare):
    cache = bare.beta.home / ".cache"
    cache.mkdir()
    for place, mode in ((cache, 0o777), (bare.beta.home, 0o770)):
        before = stat.S_IMODE(place.stat().st_mode)
        place.chmod(mode)
        refused(bare, f"others may write in {place}")
        place.chmod(before)
    os.chown(cache, USER_ID, USER_ID)
    refused(bare, "belongs to somebody else")
    assert not bare.kept(bare.beta.home)


def test_a_folder_that_leads_elsewhere_is_refused(bare):
    (bare.beta.home / ".cache").symlink_to(bare.pair.folder("elsewhere"))
    refused(bare, "is not in the home")


@pytest.mark.parametrize("options, words", [
    ("noexec,size=200m", "no program may be started"),
    ("size=2m", "does not fit"),
    ("ro", "cannot be made"),
])
def test_a_home_that_cannot_keep_it_is_told(bare, options, words):
    # The home itself has to stay as it is: sshd finds the key there.
    cache = bare.beta.home / ".cache"
    cache.mkdir(mode=0o700)
    call("mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(cache))
    refused(bare, words)
    assert not bare.kept(bare.beta.home), "what was not started does not stay"


def test_another_architecture_is_named(bare):
    other = bare.beta.bin / "uname"
    other.write_text('#!/bin/sh\n[ "$1" = -m ] && echo sparc64 || echo Linux\n')
    other.chmod(0o755)
    refused(bare, "beta is sparc64 Linux")
    assert not (bare.beta.home / ".cache").exists()


def test_a_kept_program_that_was_changed_is_not_used(bare):
    bare.cp(bare.beta.home / "one")
    [kept] = bare.kept(bare.beta.home)
    with open(kept, "ab") as file:
        file.write(b"more")
    refused(bare, "not what was sent")
    bare.cp(bare.beta.home / "two")
    assert "bringing" not in bare.cp(bare.beta.home / "three").stderr


def test_runs_that_race_share_one_program(bare):
    running = [
        product.start_cp(bare.alpha, "--bring", bare.source / "tree", f"beta:{bare.beta.home}/{number}", hooks=bare.prefix)
        for number in range(4)
    ]
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert len(bare.kept(bare.beta.home)) == 1


def test_without_gzip_and_sums_it_comes_all_the_same(bare):
    """On a host that has only what POSIX names and `head -c`."""
    tools = bare.pair.folder("tools")
    for name in ("sh", "uname", "mkdir", "id", "ls", "head", "chmod", "rm", "date"):
        (tools / name).symlink_to(shutil.which(name))
    (bare.beta.home / ".bashrc").write_text(f"PATH={shlex.quote(str(tools))}\n")
    bare.cp(bare.beta.home / "there")
    assert len(bare.kept(bare.beta.home)) == 1
