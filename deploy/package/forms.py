"""Makes the packages: deb, rpm, tarball, wheel, and the recipe for conda.

Always true: the same files make the same bytes. All times are the source's, all owners root, all names sorted.
"""

import base64
import dataclasses
import hashlib
import io
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

from . import binaries, scripts
from .layout import Entry, entries, lay_out
from .product import DESCRIPTION, HERE, MAINTAINER, NAME, SUMMARY, source_time, version, workspace


@dataclasses.dataclass(frozen=True)
class Effort:
    """How hard each form is compressed. One thread each: more of them cut the data elsewhere."""

    deb: tuple[str, ...]
    rpm: str
    xz: int
    zip: int


THOROUGH = Effort(deb=("-Zxz", "--threads-max=1"), rpm="w6.xzdio", xz=6, zip=9)
#: For looking at the packages.
QUICK = Effort(deb=("-Zgzip", "-z1"), rpm="w1.gzdio", xz=0, zip=1)


def deb(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    fields = {
        "Depends": f"{libraries_of_debian(made / 'farhaul')}, passwd", "Recommends": "openssh-client", "Section": "net",
        "Description": f"{SUMMARY[0].lower()}{SUMMARY[1:]}",
    }
    return write_deb(NAME, fields, DESCRIPTION, entries("deb", made), scripts.DEB, out, effort)


def libraries_of_debian(program: pathlib.Path) -> str:
    """Debian's packages that a program or a library needs."""
    libraries, glibc = binaries.needs_of(program)
    return f"libc6 (>= {glibc})" + (", libgcc-s1" if "libgcc_s.so.1" in libraries else "")


def write_deb(name: str, fields: dict[str, str], description: str, files: list[Entry], control_files: dict[str, str],
              out: pathlib.Path, effort: Effort) -> pathlib.Path:
    """A package for Debian. `fields` are those that differ from package to package; what begins with #! in `control_files` is a
    script."""
    size = sum(-(-len(entry.content) // 1024) for entry in files)
    common = {
        "Package": name, "Source": NAME, "Version": version(), "Architecture": "amd64", "Maintainer": MAINTAINER,
        "Installed-Size": str(size), "Priority": "optional", "Homepage": workspace()["repository"],
    }
    if name == NAME:
        del common["Source"]
    control = "".join(f"{field}: {value}\n" for field, value in (common | fields).items())
    control += "".join(f" {line}\n" for line in description.splitlines())
    target = out / f"{name}_{version()}_amd64.deb"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        lay_out(files, root)
        meta = root / "DEBIAN"
        meta.mkdir()
        (meta / "control").write_text(control)
        if any(entry.is_config for entry in files):
            (meta / "conffiles").write_text("".join(f"/{entry.place}\n" for entry in files if entry.is_config))
        (meta / "md5sums").write_text(
            "".join(f"{hashlib.md5(e.content, usedforsecurity=False).hexdigest()}  {e.place}\n" for e in files if not e.is_config and not e.link)
        )
        for file, text in control_files.items():
            (meta / file).write_text(text)
        for path in meta.iterdir():
            path.chmod(0o755 if control_files.get(path.name, "").startswith("#!") else 0o644)
            os.utime(path, (source_time(), source_time()))
        meta.chmod(0o755)
        for path in (meta, root):
            os.utime(path, (source_time(), source_time()))
        run("dpkg-deb", "--root-owner-group", *effort.deb, "--build", root, target)
    return target


def rpm(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    fields = {"Summary": SUMMARY, "Requires(pre)": "shadow-utils", "Recommends": "openssh-clients"}
    return write_rpm(NAME, fields, DESCRIPTION, entries("rpm", made), scripts.RPM, out, effort)


def write_rpm(name: str, fields: dict[str, str], description: str, files: list[Entry], parts: dict[str, str],
              out: pathlib.Path, effort: Effort) -> pathlib.Path:
    """A package for rpm. `fields` are those that differ from package to package, `parts` its scripts."""
    listed = []
    for entry in files:
        kind = "%config(noreplace) " if entry.is_config else ""
        mode = "-" if entry.link else f"{entry.mode:04o}"
        listed.append(f'{kind}%attr({mode}, root, root) "/{entry.place}"')
    # Directories that belong to no other package.
    listed += [f"%dir %attr(0755, root, root) {own}" for own in own_directories(files, name)]
    common = {
        "Name": name, "Version": version(), "Release": "1", "License": workspace()["license"], "URL": workspace()["repository"],
    }
    head = "".join(f"{field}: {value}\n" for field, value in (common | fields).items())
    scripted = "".join(f"%{part}\n{text}" for part, text in parts.items())
    spec = f"{head}%description\n{description}\n{scripted}%files\n" + "\n".join(listed)
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder)
        lay_out(files, top / "root")
        (top / "farhaul.spec").write_text(spec + "\n")
        settings = {
            "_topdir": top, "_rpmdir": top, "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
            # The files are finished: nothing is stripped, compressed or moved.
            "__os_install_post": "%{nil}", "debug_package": "%{nil}", "_build_id_links": "none",
            "_buildhost": "reproducible", "use_source_date_epoch_as_buildtime": "1", "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": effort.rpm, "__spec_install_pre": "%{nil}", "_use_internal_dependency_generator": "1",
            "_dbpath": top / "db", "_unpackaged_files_terminate_build": "1",
        }
        defined = [part for name, value in settings.items() for part in ("--define", f"{name} {value}")]
        run("rpmbuild", "-bb", "--quiet", "--target", "x86_64-linux", "--buildroot", top / "root", *defined, top / "farhaul.spec")
        file = f"{name}-{version()}-1.x86_64.rpm"
        shutil.copy(top / file, out / file)
    return out / file


def debian_changelog() -> str:
    """The changes in the form that Debian's tools read; CHANGELOG.md beside it has them."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(source_time()))
    return f"{NAME} ({version()}) unstable; urgency=medium\n\n  * CHANGELOG.md.gz says what changed.\n\n -- {MAINTAINER}  {date}\n"


def own_directories(files: list[Entry], name: str) -> list[str]:
    """Directories named after the package, and what is below them."""
    found = set()
    for entry in files:
        for above in pathlib.PurePosixPath("/" + entry.place).parents:
            if name in above.parts:
                found.add(str(above))
    return sorted(found)


def tarball(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    name = f"{NAME}-{version()}-x86_64-linux"
    return write_tar(entries("tar", made), out / f"{name}.tar.xz", name, effort)


def debug_tarball(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    """The debug information of the programs and of the C library."""
    name = f"{NAME}-{version()}-x86_64-debug"
    files = [Entry(path.name, path.read_bytes(), 0o644, False) for path in sorted(made.glob("*.debug"))]
    return write_tar(files, out / f"{name}.tar.xz", name, effort)


def write_tar(files: list[Entry], target: pathlib.Path, above: str, effort: Effort) -> pathlib.Path:
    """A tar file below one directory, so that unpacking it fills no other."""
    places = {entry.place: entry for entry in files}
    directories = {str(parent) for place in places for parent in pathlib.PurePosixPath(place).parents}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for place in sorted(directories | places.keys()):
            entry = places.get(place)
            info = tarfile.TarInfo(above if place == "." else f"{above}/{place}")
            info.type = tarfile.DIRTYPE if not entry else tarfile.SYMTYPE if entry.link else tarfile.REGTYPE
            info.linkname = entry.link or "" if entry else ""
            info.size = len(entry.content) if entry else 0
            info.mode = entry.mode if entry else 0o755
            info.mtime = source_time()
            info.uname = info.gname = "root"
            archive.addfile(info, io.BytesIO(entry.content) if entry and not entry.link else None)
    target.write_bytes(lzma.compress(packed.getvalue(), preset=effort.xz))
    return target


def wheel(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    """The command and the Python package in a wheel: pip puts the command into bin/ of the environment. The extension works
    with each Python from 3.11 on, as it uses nothing but the stable interface.
    """
    versions = [binaries.needs_of(made / name)[1] for name in ("farhaul", "_native.abi3.so")]
    glibc = max((version for version in versions if version), key=lambda version: [int(part) for part in version.split(".")])
    tag = f"cp311-abi3-manylinux_{glibc.replace('.', '_')}_x86_64"
    name = f"{NAME}-{version()}"
    roots = {"scripts": f"{name}.data/scripts", "data": f"{name}.data/data", "info": f"{name}.dist-info", "packages": ""}
    files = {}
    for entry in entries("wheel", made):
        root, rest = entry.place.split("/", 1)
        files[f"{roots[root]}/{rest}".lstrip("/")] = entry
    licences = [entry.place.rsplit("/", 1)[1] for entry in files.values() if entry.place.startswith("info/licenses/")]
    metadata = (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {version()}\nSummary: {SUMMARY}\n"
        f"License-Expression: {workspace()['license']}\n" + "".join(f"License-File: {licence}\n" for licence in sorted(licences))
        + f"Project-URL: Homepage, {workspace()['repository']}\nRequires-Python: >=3.11\n"
        "Provides-Extra: fsspec\nRequires-Dist: fsspec>=2025.3.0; extra == \"fsspec\"\n"
        "Classifier: Operating System :: POSIX :: Linux\nDescription-Content-Type: text/plain\n\n" + DESCRIPTION + "\n"
    )
    described = f"Wheel-Version: 1.0\nGenerator: farhaul ({version()})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    for path, text in (("METADATA", metadata), ("WHEEL", described)):
        files[f"{roots['info']}/{path}"] = Entry(path, text.encode(), 0o644, False)
    record = []
    target = out / f"{name}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, entry in sorted(files.items()):
            add_to_zip(archive, place, entry, effort)
            digest = base64.urlsafe_b64encode(hashlib.sha256(entry.content).digest()).rstrip(b"=").decode()
            record.append(f"{place},sha256={digest},{len(entry.content)}\n")
        place = f"{roots['info']}/RECORD"
        add_to_zip(archive, place, Entry(place, ("".join(record) + f"{place},,\n").encode(), 0o644, False), effort)
    return target


def add_to_zip(archive: zipfile.ZipFile, place: str, entry: Entry, effort: Effort) -> None:
    info = zipfile.ZipInfo(place, time.gmtime(source_time())[:6])
    info.create_system = 3  # Unix: the mode counts
    info.external_attr = (0o100000 | entry.mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, entry.content, compresslevel=effort.zip)


def conda_recipe(tar: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """The recipe, which packs the tarball that it names with its digest. Nothing here builds it."""
    values = {
        "version": version(), "repository": workspace()["repository"], "tarball": tar.name, "summary": SUMMARY,
        "sha256": hashlib.sha256(tar.read_bytes()).hexdigest(), "licence": workspace()["license"],
    }
    text = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], (HERE / "conda/meta.yaml").read_text())
    target = out / "conda-recipe" / "meta.yaml"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    return target


def run(*command: object) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source_time()), "LC_ALL": "C"}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"error: {command[0]} failed: {done.stdout}{done.stderr}")
