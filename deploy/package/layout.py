"""Reads files.toml: which file lies where in each form of package."""

import dataclasses
import gzip
import os
import pathlib
import tomllib

from .product import HERE, ROOT, source_time, version

FORMS = ("deb", "rpm", "tar", "wheel")
#: The forms of the C library: what a program needs that runs with it, and what a compiler needs. The tarball has both.
LIBRARY_FORMS = ("deb-library", "deb-development", "rpm-library", "rpm-development", "tar-library")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file of a package, or a symbolic link. `place` is relative to the package's root."""

    place: str
    content: bytes
    mode: int
    is_config: bool
    #: Where a symbolic link leads; it has no content.
    link: str | None = None


def entries(form: str, made: pathlib.Path) -> list[Entry]:
    """The files of a form, sorted by place. `made` has what the build has made."""
    found = []
    for row in tomllib.loads((HERE / "files.toml").read_text())["file"]:
        if form not in row:
            continue
        place = row[form].format(version=version())
        if "link" in row:
            found.append(Entry(place, b"", 0o777, False, row["link"].format(version=version())))
            continue
        for source in sources(row["from"].format(version=version()), made):
            file = place + source.name if place.endswith("/") else place
            content = source.read_bytes()
            if form in row.get("gzip", ()):
                file += ".gz"
                content = gzip.compress(content, 9, mtime=0)
            found.append(Entry(file, content, int(row.get("mode", "644"), 8), row.get("config", False)))
    found.sort(key=lambda entry: entry.place)
    places = [entry.place for entry in found]
    assert len(places) == len(set(places)), f"two files of {form} have one place: {places}"
    return found


def sources(given: str, made: pathlib.Path) -> list[pathlib.Path]:
    path = made / given.removeprefix("made:") if given.startswith("made:") else ROOT / given
    return sorted(file for file in path.iterdir() if file.is_file()) if given.endswith("/") else [path]


def lay_out(files: list[Entry], root: pathlib.Path) -> None:
    """Writes the files below a new directory, all with the time of the source."""
    root.mkdir(mode=0o755, parents=True)
    for entry in files:
        path = root / entry.place
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if entry.link:
            path.symlink_to(entry.link)
            continue
        path.write_bytes(entry.content)
        path.chmod(entry.mode)
    for path in (root, *root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        os.utime(path, (source_time(), source_time()), follow_symlinks=False)
