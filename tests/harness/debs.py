"""Changes finished packages, so that tests have two versions of one."""

import pathlib
import re
import subprocess


def with_version(package: pathlib.Path, version: str, folder: pathlib.Path, scripts: dict[str, str] | None = None) -> pathlib.Path:
    """The same package under another version, in `folder`; `scripts` replaces some of its scripts."""
    whole = folder / f"deb-{version}"
    run("dpkg-deb", "--raw-extract", package, whole)
    control = whole / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    for name, text in (scripts or {}).items():
        (whole / "DEBIAN" / name).write_text(text)
    made = folder / f"farhaul_{version}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", whole, made)
    return made


def run(*command) -> None:
    argv = [str(part) for part in command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}"
