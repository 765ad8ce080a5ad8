"""The life of a package in whole systems: the packages that `./x package` has made are installed, used, replaced by a newer
version and by the older one again, removed and purged in roots of Debian 11, 12 and 13, and in a root that has an RPM database
only. The roots have no service manager."""

import pathlib
import re
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "target/package/out"
VERSION = "0.1.0"
NEWER = "0.1.1"
RELEASES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (OUT / "SHA256SUMS").exists(), reason="./x package has made no packages"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="there is no debootstrap; ./x package --check installs it"),
]


def run(*command, check=True, **options) -> subprocess.CompletedProcess:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


class System:
    """A root of Debian. Each command runs in namespaces of its own, with a network that has only the loopback."""

    def __init__(self, release: str, root: pathlib.Path, *include: str) -> None:
        self.root = root
        sites = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").stdout.split()
        mirror = next(site for site in sites if "security" not in site)
        keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
        more = [f"--include={','.join(include)}"] if include else []
        run("debootstrap", "--variant=minbase", f"--keyring={keys}", *more, release, root, mirror)

    def shell(self, script: str, check=True) -> subprocess.CompletedProcess:
        entered = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root}/proc"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        within = ["chroot", str(self.root), "sh", "-ec", script]
        # The host's ip, before the root is entered: a small system has none.
        return run(*entered, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *within, check=check, env={**environment})

    def install(self, package: pathlib.Path) -> str:
        shutil.copy(package, self.root / "tmp" / package.name)
        done = self.shell(f"dpkg --install /tmp/{package.name}")
        return done.stdout + done.stderr


@pytest.fixture(params=RELEASES, ids=RELEASES.values())
def system(request, tmp_path):
    made = System(request.param, tmp_path / "root")
    yield made
    shutil.rmtree(made.root)


@pytest.fixture
def newer(tmp_path) -> pathlib.Path:
    """The same package under a higher version."""
    folder = tmp_path / "newer"
    run("dpkg-deb", "--raw-extract", OUT / f"farhaul_{VERSION}_amd64.deb", folder)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {NEWER}", control.read_text(), flags=re.MULTILINE))
    package = tmp_path / f"farhaul_{NEWER}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", folder, package)
    return package


SERVE = """
cd /tmp && rm -rf from to served && mkdir -p from/sub served && seq 100000 >from/sub/file
farhaul cp from to && diff -r from to
/usr/lib/farhaul/farhaul-static cp from to-static && diff -r from to-static
chown farhaul /tmp/served && install -d -o farhaul -m 700 /run/farhaul
farhaul keygen >/dev/null 2>&1 || true
cp ~/.config/farhaul/id_ed25519.pub /etc/farhaul/authorized_keys
setpriv --reuid farhaul --regid farhaul --clear-groups env HOME=/var/lib/farhaul farhaul serve --state /var/lib/farhaul \
    --root /tmp/served --authorized-keys /etc/farhaul/authorized_keys >/tmp/log 2>&1 &
for try in $(seq 100); do grep -q serving /tmp/log && break; sleep 0.1; done
farhaul cp --accept-new from fh://127.0.0.1/ || { cat /tmp/log; exit 1; }
diff -r from served/from
rm -rf to-static ~/.config/farhaul/known* ~/.local/state/farhaul
"""


def test_a_deb_is_installed_used_replaced_removed_and_purged(system, newer):
    old = OUT / f"farhaul_{VERSION}_amd64.deb"
    began = time.monotonic()
    system.install(old)
    print(f"installed after {time.monotonic() - began:.1f} s")
    assert system.shell("farhaul --version").stdout == f"farhaul {VERSION}\n"
    assert system.shell("stat -c '%U %a' /var/lib/farhaul").stdout == "farhaul 700\n"
    system.shell("dpkg --verify farhaul && test -f /etc/farhaul/farhaul.toml")
    system.shell(SERVE)
    # What the operator has written stays through an upgrade and back.
    system.shell("printf '[serve]\\nread_only = true\\n' >/etc/farhaul/farhaul.toml; touch /var/lib/farhaul/kept")
    for package, version in ((newer, NEWER), (old, VERSION)):
        system.install(package)
        assert system.shell("dpkg-query -W -f '${Version} ${Status}' farhaul").stdout == f"{version} install ok installed"
        system.shell("grep -q read_only /etc/farhaul/farhaul.toml && test -e /var/lib/farhaul/kept && farhaul config check")
    system.shell("dpkg --remove farhaul")
    system.shell("! command -v farhaul && test -e /var/lib/farhaul/kept && test -e /etc/farhaul/farhaul.toml")
    system.shell("dpkg --purge farhaul")
    left = system.shell("ls -d /var/lib/farhaul /etc/farhaul/* /usr/lib/farhaul /usr/share/doc/farhaul 2>/dev/null || true").stdout
    assert left.split() == ["/etc/farhaul/authorized_keys"], left
    # Files elsewhere may belong to the user.
    system.shell("getent passwd farhaul >/dev/null")


PROGRAM = """
#include <farhaul.h>
#include <stdio.h>
int main(void) {
    const char *sources[] = {"/etc/hostname"};
    fh_context *context;
    fh_job *job;
    fh_options options = {.size = sizeof options};
    fh_copy_options copy = {.size = sizeof copy};
    int code = fh_open(&options, &context);
    if (code == FH_OK && (code = fh_copy(context, sources, 1, "/tmp/copied", &copy, &job)) == FH_OK)
        code = fh_wait(job, FH_WAIT, NULL);
    printf("%s %s\\n", fh_version(), fh_error_name(code));
    return code;
}
"""


@pytest.mark.skipif(not (OUT / f"libfarhaul0_{VERSION}_amd64.deb").exists(), reason="./x package has made no C library")
def test_a_program_is_compiled_and_runs_where_the_library_is_installed(tmp_path):
    """As the guide says it. The program runs without what a compiler needs, and the linker's cache knows the library."""
    system = System("bookworm", tmp_path / "root", "gcc", "libc6-dev", "pkg-config")
    (system.root / "tmp/program.c").write_text(PROGRAM)
    (system.root / "etc/hostname").write_text("system\n")
    for name in (f"libfarhaul0_{VERSION}_amd64.deb", f"libfarhaul-dev_{VERSION}_amd64.deb"):
        system.install(OUT / name)
    flags = "$(pkg-config --cflags --libs farhaul)"
    static = "-l:libfarhaul.a -Wl,--as-needed $(pkg-config --static --cflags --libs farhaul)"
    system.shell(f"cd /tmp && cc -Wall -Werror -o shared program.c {flags} && cc -o static program.c {static}")
    system.shell("dpkg --remove libfarhaul-dev && test ! -e /usr/include/farhaul.h")
    assert system.shell("cd /tmp && ./shared && cmp copied /etc/hostname && rm copied").stdout == f"{VERSION} FH-OK\n"
    system.shell("dpkg --purge libfarhaul0 && ! ldconfig -p | grep farhaul")
    assert system.shell("/tmp/static").stdout == f"{VERSION} FH-OK\n"
    shutil.rmtree(system.root)


WITH_PYTHON = """
import asyncio, os, sys, farhaul
assert not any(name.startswith(("numpy", "typing_extensions")) for name in sys.modules)
os.makedirs("from/sub")
with open("from/sub/file", "wb") as file:
    file.write(bytes(range(256)) * 20_000)
report = farhaul.copy("from", "to", verify="end-to-end")
assert report.ok and report.files == 1, report
with farhaul.open("to/sub/file") as file:
    assert file.read_at(255, 3) == bytes((255, 0, 1))
farhaul.mkdir("to/made")
assert [entry.path for entry in farhaul.list("to")] == ["made", "sub"]
assert asyncio.run(farhaul.aio.stat("to/sub/file")).size == 256 * 20_000
sender, receiver = farhaul.pair("frames")
block = sender.claim()
block.data[:5] = b"frame"
sender.put(block, 5, b"first")
block = receiver.next()
assert bytes(block.data) == b"frame" and block.metadata == b"first"
try:
    farhaul.stat("none")
except farhaul.FarhaulError as error:
    assert error.code == "FH-NOT-FOUND"
print(farhaul.__version__)
"""


@pytest.mark.skipif(not list(OUT.glob("*.whl")), reason="./x package has made no wheel")
def test_the_wheel_works_on_a_fresh_debian_that_has_only_python(tmp_path):
    """Debian's python3 has no pip: what pip would do is to unpack the wheel, and to put the command into bin."""
    system = System("bookworm", tmp_path / "root", "python3-minimal", "python3")
    [wheel] = OUT.glob("*.whl")
    shutil.copy(wheel, system.root / "tmp")
    (system.root / "tmp/program.py").write_text(WITH_PYTHON)
    system.shell(f"python3 -m zipfile -e /tmp/{wheel.name} /opt/wheel && ! python3 -m pip --version 2>/dev/null")
    glibc = tuple(map(int, system.shell("ldd --version").stdout.splitlines()[0].rsplit(" ", 1)[1].split(".")))
    asked = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_x86_64", wheel.name).groups()))
    assert asked <= glibc, f"the wheel asks for glibc {asked}, and Debian 12 has {glibc}"
    assert system.shell("cd /tmp && PYTHONPATH=/opt/wheel python3 -X faulthandler program.py").stdout == f"{VERSION}\n"
    command = f"/opt/wheel/farhaul-{VERSION}.data/scripts/farhaul"
    assert system.shell(f"chmod 755 {command} && {command} --version").stdout == f"farhaul {VERSION}\n"
    shutil.rmtree(system.root)


def test_an_rpm_asks_for_no_newer_c_library_than_rhel_8_has():
    asked = run("rpm", "-qp", "--requires", OUT / f"farhaul-{VERSION}-1.x86_64.rpm").stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", asked)]
    assert versions and max(versions) <= (2, 28), asked
    libraries = set(re.findall(r"^(\S+\.so\S*?)\(", asked, re.MULTILINE))
    known = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert libraries <= known, libraries


def test_an_rpm_is_installed_and_erased(tmp_path):
    """In a root of Debian, whose programs rpm's scripts find; what the package asks for is known to no database there."""
    system = System("bookworm", tmp_path / "root")
    package = OUT / f"farhaul-{VERSION}-1.x86_64.rpm"
    rpm = ["rpm", "--root", system.root, "--nodeps"]
    run("rpm", "--root", system.root, "--initdb")
    run(*rpm, "--install", package)
    assert system.shell("farhaul --version").stdout == f"farhaul {VERSION}\n"
    assert system.shell("stat -c '%U %a' /var/lib/farhaul").stdout == "farhaul 700\n"
    system.shell(SERVE)
    changed = run(*rpm, "--verify", "farhaul", check=False).stdout
    assert not changed, changed
    system.shell("echo '[serve]' >/etc/farhaul/farhaul.toml")
    run(*rpm, "--upgrade", "--force", package)
    assert system.shell("cat /etc/farhaul/farhaul.toml").stdout == "[serve]\n"
    run(*rpm, "--erase", "farhaul")
    system.shell("! command -v farhaul && test -d /var/lib/farhaul && test -e /etc/farhaul/farhaul.toml.rpmsave")
    shutil.rmtree(system.root)
