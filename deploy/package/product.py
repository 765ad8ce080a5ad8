"""What is packed: name, version, place and time of the source."""

import functools
import os
import pathlib
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
NAME = "farhaul"
SUMMARY = "Moves big data between machines at the speed of the link"
DESCRIPTION = """\
Farhaul copies files and trees like scp, in encrypted UDP that does not slow
down with distance or random loss, checks a digest of every file, and goes on
where it stopped when it is interrupted. It works over SSH without set-up, or
to a daemon; as a service it runs jobs, limits rates and shows them in a
browser."""
MAINTAINER = "Farhaul developers <farhaul@users.noreply.github.com>"


@functools.cache
def workspace() -> dict[str, str]:
    """The table `workspace.package` of Cargo.toml."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


def version() -> str:
    return workspace()["version"]


@functools.cache
def source_time() -> int:
    """The time that all files of a package get, so that the same source makes the same bytes: $SOURCE_DATE_EPOCH, or when the
    commit was made."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(shown.stdout)
