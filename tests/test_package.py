"""The packages of deploy/package, made of the program under test: what is in them, what they do, and how a user checks them.

Real packages take a build of half an hour. Here the program of the other tests is packed, which the same code does. With
`--full` the packages that `./x package` has made are installed, replaced and removed in systems of their own.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import pytest

from deploy.package import binaries, components, forms, layout, release, shell_help
from deploy.package import library as make_library
from harness import extension, product

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = "0.1.0"
#: Cargo lies in the home of the user who runs the tests, which no test sees otherwise.
CALLER = {"HOME": pwd.getpwuid(os.getuid()).pw_dir}
#: The C library that was built beside the program under test, if it was.
ARCHIVE = product.binary().resolve().with_name("libfarhaul_c.a")
#: What `./x package` has made, if it ran.
RELEASE = ROOT / "target/package"


def run(*command, check=True, **options) -> subprocess.CompletedProcess:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)
    assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def make_packages(work: pathlib.Path, *options: str) -> pathlib.Path:
    native = extension.PACKAGE / "farhaul/_native.abi3.so"
    built = ["--program", product.binary(), "--extension", native, "--archive", ARCHIVE]
    command = [sys.executable, "-m", "deploy.package", "--work", work, *built, *options]
    run(*command, cwd=ROOT, env={**os.environ, **CALLER})
    return work


def needs(command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}; ./x package installs it")


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> pathlib.Path:
    """A directory with `made` and `out`, that all workers share; the digests are signed by a test key."""
    run_of_workers = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = tmp_path_factory.getbasetemp()
    work = (base.parent if run_of_workers else base) / "packages"
    with open(work.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (work / "whole").exists():
            work.mkdir()
            key, _ = release.throw_away_key(work)
            make_packages(work, "--key", str(key), "--test-key")
            (work / "whole").touch()
    return work


def form(packages: pathlib.Path, pattern: str) -> pathlib.Path:
    found = list((packages / "out").glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


# ---- what is in them ----------------------------------------------------------------------------------------------


def test_a_deb_holds_the_files_of_the_table_and_no_others(packages):
    listed = run("dpkg-deb", "--contents", form(packages, "farhaul_*.deb")).stdout
    found = {}
    for line in listed.splitlines():
        mode, owner, _, _, _, place = line.split(maxsplit=5)
        assert owner == "root/root", line
        if not mode.startswith("d"):
            # A link stands there with where it leads.
            found[place.removeprefix("./").split(" -> ")[0]] = mode
    expected = {entry.place: entry.mode for entry in layout.entries("deb", packages / "made")}
    assert found.keys() == expected.keys()
    assert {place for place, mode in found.items() if "x" in mode} == {place for place, mode in expected.items() if mode in (0o755, 0o777)}
    fields = run("dpkg-deb", "--field", form(packages, "farhaul_*.deb"), "Package", "Version", "Architecture", "Depends").stdout
    assert re.search(r"^Depends: libc6 \(>= 2\.\d+\)", fields, re.MULTILINE), fields


def test_an_rpm_holds_the_files_of_the_table_and_no_others(packages):
    needs("rpm")
    listed = run("rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\\n]", form(packages, "farhaul-0*.rpm")).stdout
    found = {line.split()[2].removeprefix("/") for line in listed.splitlines() if not line.startswith("d")}
    assert found == {entry.place for entry in layout.entries("rpm", packages / "made")}
    assert {line.split()[1] for line in listed.splitlines()} == {"root"}
    config = run("rpm", "-qp", "--configfiles", form(packages, "farhaul-0*.rpm")).stdout.split()
    assert config == ["/etc/farhaul/farhaul.toml"]


def test_a_tarball_holds_the_files_of_the_table_below_one_directory(packages):
    above = f"farhaul-{VERSION}-x86_64-linux"
    with tarfile.open(form(packages, "farhaul-*-linux.tar.xz")) as archive:
        members = archive.getmembers()
    files = {member.name.removeprefix(f"{above}/") for member in members if member.isfile()}
    assert files == {entry.place for entry in layout.entries("tar", packages / "made")}
    assert {(member.uid, member.uname) for member in members} == {(0, "root")}
    assert [member.name for member in members if member.isfile() and member.mode == 0o755] == [f"{above}/farhaul"]


def test_a_wheel_brings_the_command_and_the_python_package(packages, tmp_path):
    extension.needed()
    wheel = form(packages, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read(f"farhaul-{VERSION}.dist-info/RECORD").decode()
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())
    run("/usr/bin/python3", "-m", "venv", tmp_path / "environment")
    run(tmp_path / "environment/bin/pip", "install", "--no-index", "--no-deps", wheel)
    assert run(tmp_path / "environment/bin/farhaul", "--version").stdout == f"farhaul {VERSION}\n"
    assert re.fullmatch(rf"farhaul-{VERSION}-cp311-abi3-manylinux_2_\d+_x86_64\.whl", wheel.name)
    (tmp_path / "source").write_bytes(b"content")
    script = "import farhaul; print(farhaul.copy('source', 'copy').files, farhaul.__version__)"
    assert run(tmp_path / "environment/bin/python", "-I", "-c", script, cwd=tmp_path).stdout == f"1 {VERSION}\n"
    assert (tmp_path / "copy").read_bytes() == b"content"
    assert (tmp_path / "environment/share/man/man1/farhaul-cp.1").exists()
    # fsspec finds the file systems by these.
    found = "import importlib.metadata as m; print(*sorted(point.name for point in m.entry_points(group='fsspec.specs')))"
    assert run(tmp_path / "environment/bin/python", "-I", "-c", found).stdout == "fh fh+ssh\n"


def test_each_verb_has_a_man_page_that_man_reads_without_a_warning(packages):
    verbs = shell_help.verbs(product.binary())
    assert {"cp", "sync", "serve", "cap set"} <= set(verbs)
    pages = sorted((packages / "made/man").iterdir())
    assert {page.stem for page in pages} == {"-".join(["farhaul", *verb.split()]) for verb in ["", *verbs]}
    for page in pages:
        read = run("man", "--warnings", "-l", page, env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C.UTF-8"})
        assert not read.stderr, f"{page.name}: {read.stderr}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_scripts_that_the_shell_understands(packages, shell):
    needs(shell)
    run(shell, "-n", packages / "made/completions" / shell_help.SHELLS[shell])


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_scripts_of_the_deb_are_scripts_that_sh_understands(packages, tmp_path, name):
    run("dpkg-deb", "--control", form(packages, "farhaul_*.deb"), tmp_path / "control")
    run("sh", "-n", tmp_path / "control" / name)


def test_lintian_finds_no_error(packages):
    needs("lintian")
    # Without the tags that say how the test program was linked.
    lintian_is_content(form(packages, "farhaul_*.deb"))


# ---- the C library ------------------------------------------------------------------------------------------------

#: The forms of the C library, and their files: what programs load, and what a compiler needs.
LIBRARY = {
    "deb-library": f"libfarhaul0_{VERSION}_amd64.deb", "deb-development": f"libfarhaul-dev_{VERSION}_amd64.deb",
    "rpm-library": f"farhaul-libs-{VERSION}-1.x86_64.rpm", "rpm-development": f"farhaul-devel-{VERSION}-1.x86_64.rpm",
    "tar-library": f"libfarhaul-{VERSION}-x86_64-linux.tar.xz",
}
USES_LIBRARY = """
#include <farhaul.h>
#include <stdio.h>
int main(void) {
    fh_context *context;
    fh_options options = {.size = sizeof options};
    if (fh_open(&options, &context) != FH_OK || fh_close(context) != FH_OK)
        return 1;
    puts(fh_version());
    return 0;
}
"""


@pytest.fixture
def library(packages) -> pathlib.Path:
    if not ARCHIVE.exists():
        pytest.skip(f"there is no {ARCHIVE}: run ./x bindings c, or cargo build -p farhaul-c")
    return packages / "out"


def unpack(package: pathlib.Path, to: pathlib.Path) -> None:
    to.mkdir(exist_ok=True)
    if package.suffix == ".deb":
        run("dpkg-deb", "--extract", package, to)
    elif package.suffix == ".rpm":
        with tempfile.TemporaryDirectory() as folder:
            archive = pathlib.Path(folder) / "files.tar"
            with archive.open("wb") as file:
                subprocess.run(["rpm2archive", "--nocompression", "-"], stdin=package.open("rb"), stdout=file, check=True)
            run("tar", "-C", to, "-xf", archive)
    else:
        run("tar", "-C", to, "--strip-components=1", "-xf", package)


@pytest.mark.parametrize("form", LIBRARY)
def test_a_package_of_the_library_holds_the_files_of_the_table_and_no_others(library, packages, form, tmp_path):
    needs("rpm2archive") if form.startswith("rpm") else None
    unpack(library / LIBRARY[form], tmp_path / "root")
    found = {}
    for path in (tmp_path / "root").rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(tmp_path / "root"))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(tmp_path / "root"))] = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = layout.entries(form, packages / "made")
    assert found == {entry.place: entry.link or hashlib.sha256(entry.content).hexdigest() for entry in expected}


@pytest.mark.parametrize("system", ["deb", "rpm", "tar"])
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_a_program_is_compiled_by_what_pkg_config_says_of_the_packages(library, system, kind, tmp_path):
    needs("rpm2archive") if system == "rpm" else None
    root = tmp_path / "root"
    for form, file in LIBRARY.items():
        if form.startswith(system):
            unpack(library / file, root)
    above = {"deb": "usr/lib/x86_64-linux-gnu", "rpm": "usr/lib64", "tar": "lib"}[system]
    asked = {**os.environ, "PKG_CONFIG_LIBDIR": str(root / above / "pkgconfig")}
    if system != "tar":
        # The packages lie in a directory that stands for the root.
        asked |= {"PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
    said = ["--cflags", "--libs", *(["--static"] if kind == "static" else [])]
    flags = run("pkg-config", *said, "farhaul", env=asked).stdout.split()
    assert f"-I{root}/{'include' if system == 'tar' else 'usr/include'}" in [os.path.normpath(flag) for flag in flags], flags
    assert run("pkg-config", "--modversion", "farhaul", env=asked).stdout == f"{VERSION}\n"
    if kind == "static":
        flags = [f"-l:lib{flag[2:]}.a" if flag == "-lfarhaul" else flag for flag in flags]
    (tmp_path / "program.c").write_text(USES_LIBRARY)
    run("cc", "-Wall", "-Werror", "-o", tmp_path / "program", tmp_path / "program.c", *flags)
    loads = {"LD_LIBRARY_PATH": str(root / above)} if kind == "shared" else {}
    assert run(tmp_path / "program", env={**os.environ, **loads}).stdout == f"{VERSION}\n"
    assert ("libfarhaul.so.0" in binaries.needs_of(tmp_path / "program")[0]) == (kind == "shared")


def test_packages_say_to_each_other_what_of_the_library_they_have_and_need(library, tmp_path):
    run("dpkg-deb", "--control", library / LIBRARY["deb-library"], tmp_path / "control")
    assert (tmp_path / "control/shlibs").read_text() == f"libfarhaul 0 libfarhaul0 (>= {VERSION})\n"
    assert "ldconfig" in (tmp_path / "control/triggers").read_text()
    depends = run("dpkg-deb", "--field", library / LIBRARY["deb-development"], "Depends").stdout
    assert depends == f"libfarhaul0 (= {VERSION})\n"
    needs("rpm")
    provided = run("rpm", "-qp", "--provides", library / LIBRARY["rpm-library"]).stdout
    assert "libfarhaul.so.0()(64bit)" in provided and "libfarhaul.so.0(FARHAUL_0)(64bit)" in provided, provided
    provided = run("rpm", "-qp", "--provides", library / LIBRARY["rpm-development"]).stdout
    assert f"pkgconfig(farhaul) = {VERSION}" in provided, provided
    asked = run("rpm", "-qp", "--requires", library / LIBRARY["rpm-development"]).stdout
    assert f"farhaul-libs = {VERSION}-1" in asked, asked


def lintian_is_content(package: pathlib.Path) -> None:
    told = run("lintian", "--allow-root", "--fail-on", "error", package, check=False)
    assert told.returncode == 0 and not re.search(r"^[EW]:", told.stdout, re.MULTILINE), told.stdout + told.stderr


def test_lintian_finds_no_error_in_the_library(library):
    needs("lintian")
    lintian_is_content(library / LIBRARY["deb-library"])


def test_lintian_finds_no_error_in_what_a_compiler_needs(library, packages, tmp_path):
    """With a small archive: lintian looks at each of the thousands of objects in the real one."""
    needs("lintian")
    made = tmp_path / "made"
    made.mkdir()
    for path in (packages / "made").iterdir():
        (made / path.name).symlink_to(path)
    (made / "library").unlink()
    shutil.copytree(packages / "made/library", made / "library", ignore=shutil.ignore_patterns("libfarhaul.a"))
    run("cc", "-c", "-x", "c", "-o", tmp_path / "small.o", "-", input="int fh_small(void) { return 0; }")
    run("ar", "rcD", made / "library/lib/libfarhaul.a", tmp_path / "small.o")
    run("strip", "--strip-debug", made / "library/lib/libfarhaul.a")
    lintian_is_content(make_library.deb_development(made, tmp_path, forms.QUICK))


# ---- what is linked -----------------------------------------------------------------------------------------------


def test_the_bill_of_materials_has_each_crate_with_its_digest(packages):
    bill = json.loads((packages / "made/farhaul.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = bill["components"]
    references = [part["bom-ref"] for part in parts]
    assert len(references) == len(set(references)) > 100
    assert set(bill["dependencies"][0]["dependsOn"]) == set(references)
    for part in parts:
        assert part["name"] and part["version"] and part["licenses"][0]["expression"], part
        assert part["purl"].startswith(("pkg:cargo/", "pkg:npm/", "pkg:generic/")), part
        if part["purl"].startswith("pkg:cargo/"):
            assert re.fullmatch(r"[0-9a-f]{64}", part["hashes"][0]["content"]), part
    names = {part["name"] for part in parts}
    assert {"aws-lc-sys", "rustls", "quinn", "libsqlite3-sys", "svelte"} <= names
    # What only builds or generates code is not in the program.
    assert not names & {"cc", "cmake", "syn", "serde_derive", "proptest"}


def test_each_linked_crate_has_the_text_of_its_licence(packages, monkeypatch):
    monkeypatch.setenv("HOME", CALLER["HOME"])
    page = (packages / "made/linked-components.txt").read_text()
    for component in components.linked():
        assert f"{component.name} {component.version}: {component.licence}" in page
        if component.purl.startswith(("pkg:cargo/", "pkg:npm/")):
            assert component.texts, f"{component.name} comes without the text of its licence"


def test_what_only_a_macro_needs_is_not_linked():
    tree = "0a v1.0.0 (/a)\n1serde v1.0.1\n2serde_derive v1.0.1 (proc-macro)\n3syn v2.0.0\n4quote v1.0.0\n2itoa v1.2.3\n1b v0.1.0\n"
    assert {name for name, _ in components.linked_names(tree)} == {"a", "serde", "itoa", "b"}


# ---- how a user checks them ---------------------------------------------------------------------------------------


def test_the_same_source_makes_the_same_bytes(packages, tmp_path):
    again = make_packages(tmp_path / "elsewhere")
    assert (again / "out" / release.SUMS).read_text() == (packages / "out" / release.SUMS).read_text()


def test_digests_are_signed_and_changed_ones_are_noticed(packages, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(packages / "out", out)
    signers = packages / "test_signers"
    release.check(out / release.SUMS, signers)
    # By another key, and by the keys of the repository, which do not have the test's.
    (tmp_path / "other").mkdir()
    for others in (release.throw_away_key(tmp_path / "other")[1], release.SIGNERS):
        with pytest.raises(subprocess.CalledProcessError):
            release.check(out / release.SUMS, others)
    deb = next(out.glob("farhaul_*.deb"))
    deb.write_bytes(deb.read_bytes()[:-1] + b"x")
    with pytest.raises(subprocess.CalledProcessError):
        release.check(out / release.SUMS, signers)
    text = (out / release.SUMS).read_text()
    (out / release.SUMS).write_text(re.sub(r"\S{64}(?=  farhaul_\S+\.deb)", hashlib.sha256(deb.read_bytes()).hexdigest(), text))
    with pytest.raises(subprocess.CalledProcessError):
        release.check(out / release.SUMS, signers)


def test_a_key_that_the_repository_does_not_know_signs_no_release(packages):
    done = run(
        sys.executable, "-m", "deploy.package", "--work", packages / "unused", "--key", packages / "test_key", cwd=ROOT, check=False
    )
    assert done.returncode == 2 and "does not have the public half" in done.stderr


def apt(folder: pathlib.Path, keyring: pathlib.Path, state: pathlib.Path, *command: str) -> subprocess.CompletedProcess:
    """apt with lists and keys of its own, which sees this repository only."""
    for name in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [signed-by={keyring}] file:{folder} ./\n")
    settings = {
        "Dir::Etc": state / "etc", "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists", "Dir::State::status": state / "status", "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root", "APT::Architecture": "amd64",
    }
    return run("apt-get", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}")), *command, check=False)


def test_apt_takes_the_signed_repository_and_refuses_a_changed_one(packages, tmp_path, monkeypatch):
    needs("gpg")
    # gpg's agent makes a socket, whose path must be short.
    home = pathlib.Path("/tmp") / f"farhaul-gpg.{os.getpid()}"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    try:
        key = release.throw_away_gpg_key()
        folder = release.repository([form(packages, "farhaul_*.deb")], tmp_path, key)
    finally:
        run("gpgconf", "--kill", "all", check=False)
        shutil.rmtree(home)
    keyring = folder / "farhaul-archive-keyring.asc"
    good = apt(folder, keyring, tmp_path / "good", "update")
    assert good.returncode == 0 and "W:" not in good.stderr, good.stdout + good.stderr
    shown = apt(folder, keyring, tmp_path / "good", "--print-uris", "download", "farhaul")
    assert f"farhaul_{VERSION}_amd64.deb" in shown.stdout, shown.stdout + shown.stderr
    text = (folder / "InRelease").read_text()
    (folder / "InRelease").write_text(text.replace("Label: farhaul", "Label: another"))
    bad = apt(folder, keyring, tmp_path / "bad", "update")
    assert "signature" in bad.stderr.lower() and bad.returncode != 0 or "not signed" in bad.stderr, bad.stderr


# ---- the static program -------------------------------------------------------------------------------------------


@pytest.fixture
def static_program() -> pathlib.Path:
    program = RELEASE / "made/farhaul-static"
    if not program.exists():
        pytest.skip("./x package has not built the static program")
    assert binaries.needs_of(program) == ([], None)
    return program


@pytest.fixture
def empty_root(static_program, tmp_path) -> pathlib.Path:
    """A file system with the static program and nothing else."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(static_program, root / "farhaul")
    return root


def test_the_static_program_copies_a_tree_where_nothing_else_is(empty_root):
    for number in range(50):
        path = empty_root / f"from/{number % 7}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 1000))
    run("/usr/sbin/chroot", empty_root, "/farhaul", "cp", "/from", "/to", env={})
    run("diff", "-r", empty_root / "from", empty_root / "to")


def test_a_tree_is_copied_in_a_root_without_proc(tmp_path):
    """The program under test with its libraries: a mode is set by a name in /proc where there is one."""
    root = tmp_path / "root"
    shutil.copytree(ROOT / "deploy", root / "from")
    (root / "from/package").chmod(0o751)
    for path in [*re.findall(r"(/\S+) \(0x", run("ldd", product.binary()).stdout), str(product.binary())]:
        place = root / (path.removeprefix("/") if ".so" in path else "farhaul")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    run("/usr/sbin/chroot", root, "/farhaul", "cp", "/from", "/to", env={})
    run("diff", "-r", root / "from", root / "to")
    assert (root / "to/package").stat().st_mode == (root / "from/package").stat().st_mode


def test_the_static_program_loads_no_plug_in_that_nsswitch_names(empty_root):
    etc = empty_root / "etc"
    etc.mkdir()
    (etc / "nsswitch.conf").write_text("passwd: sss files\ngroup: sss files\nhosts: mymachines files dns\n")
    (etc / "passwd").write_text("root:x:0:0::/:/bin/sh\nalice:x:7001:7001::/home:/bin/sh\n")
    (etc / "group").write_text("alice:x:7001:\n")
    (empty_root / "file").write_text("content")
    traced = ["strace", "-f", "-e", "trace=openat,open", "-o", empty_root / "trace"] if shutil.which("strace") else []
    run(*traced, "/usr/sbin/chroot", empty_root, "/farhaul", "cp", "--chown", "alice:alice", "/file", "/copy", env={})
    assert (empty_root / "copy").stat().st_uid == 7001
    if traced:
        # What chroot itself loads comes before the change of root.
        after = (empty_root / "trace").read_text().split("/etc/passwd")[-1]
        assert "libnss" not in after


@pytest.mark.parametrize("name", ["farhaul", "farhaul-static"])
def test_programs_start_at_once_and_ask_for_no_newer_c_library_than_promised(name):
    program = RELEASE / "made" / name
    if not program.exists():
        pytest.skip("./x package has not built the programs")
    took = []
    for _ in range(20):
        began = time.perf_counter()
        run(program, "--version")
        took.append(time.perf_counter() - began)
    assert min(took) < 0.010, f"{min(took) * 1000:.1f} ms"
    libraries, glibc = binaries.needs_of(program)
    if name == "farhaul":
        assert tuple(map(int, glibc.split("."))) <= (2, 28)
        assert not [library for library in libraries if not re.match(r"(libc|libm|libdl|librt|libpthread|ld-linux)", library)]
