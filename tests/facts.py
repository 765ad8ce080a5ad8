#!/usr/bin/env python3
"""Prints facts about the shape of the code: types whose `impl` blocks are spread over many files, and large structs that
are more than data. They are no failures: somebody should look there first for a seam.
"""

import collections
import pathlib
import re
import sys

from circles import NO_CODE, TESTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: A type with more files of `impl` blocks is printed.
FILES_MAX = 5
#: A struct with more fields is printed if it is more than data: a method changes it, or threads share its fields.
FIELDS_MAX = 20
IMPL = re.compile(r"^impl\b(?P<head>[^{;]*)\{(?P<body>.*?)^\}", re.M | re.S)
STRUCT = re.compile(r"^(?:pub(?:\([^)]*\))?\s+)?struct\s+(?P<name>\w+)[^;{(]*\{(?P<body>.*?)^\}", re.M | re.S)
SHARED = re.compile(r"\b(?:Mutex|RwLock|OnceLock|Atomic\w+)\b")
FIELD = re.compile(r"^ {4}(?:pub(?:\([^)]*\))?\s+)?\w+\s*:", re.M)


def type_of(head: str) -> str:
    """The type of an `impl`: `<T> Trait<T> for a::Type<T> where ..` is of `Type`."""
    depth, plain = 0, ""
    for letter in head.replace("->", ""):
        depth += (letter == "<") - (letter == ">")
        plain += letter if depth == 0 and letter != ">" else ""
    plain = re.split(r"\bwhere\b", plain)[0]
    return re.split(r"\bfor\b", plain)[-1].strip().lstrip("&").split("::")[-1].strip()


def facts(crate: pathlib.Path):
    """The files of each type's `impl` blocks, and the number of fields of each struct that is more than data."""
    files, fields, changed = collections.defaultdict(set), {}, set()
    for path in sorted((crate / "src").rglob("*.rs")):
        if "tests" in path.with_suffix("").parts:
            continue
        code = TESTS.sub("", NO_CODE.sub("", path.read_text()))
        for found in IMPL.finditer(code):
            name = type_of(found["head"])
            files[name].add(path)
            if re.search(r"\(\s*&(?:'\w+\s+)?mut self\b", found["body"]):
                changed.add(name)
        for found in STRUCT.finditer(code):
            fields[found["name"]] = len(FIELD.findall(found["body"]))
            if SHARED.search(found["body"]):
                changed.add(found["name"])
    return files, {name: count for name, count in fields.items() if name in changed}


def main() -> None:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    spread, large = [], []
    for crate in sorted((root / "crates").iterdir()):
        files, fields = facts(crate)
        spread += [(len(paths), crate.name, name) for name, paths in files.items() if len(paths) > FILES_MAX]
        large += [(count, crate.name, name) for name, count in fields.items() if count > FIELDS_MAX]
    print(f"types whose impl blocks are in more than {FILES_MAX} files:")
    for count, crate, name in sorted(spread, reverse=True):
        print(f"  {count:3} files   {crate}: {name}")
    print(f"structs with more than {FIELDS_MAX} fields that are more than data:")
    for count, crate, name in sorted(large, reverse=True):
        print(f"  {count:3} fields  {crate}: {name}")


if __name__ == "__main__":
    main()
