#!/usr/bin/env python3
"""Checks without a network that every crate in the build has a licence that fits Apache-2.0, comes from the
registry, and is pinned with a checksum in Cargo.lock."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALLOWED = {"Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "0BSD", "CC0-1.0", "Unlicense",
           "BSL-1.0", "Unicode-3.0", "Unicode-DFS-2016", "CDLA-Permissive-2.0", "OpenSSL"}


def is_allowed(expression):
    """Judges an SPDX expression: one allowed side of an OR is enough, an AND needs both."""
    text = re.sub(r"\s+WITH\s+\S+", "", (expression or "").replace("/", " OR "))
    words = re.findall(r"\(|\)|[^\s()]+", text)
    if not words:
        return False
    python = [word if word in "()" else word.lower() if word in ("AND", "OR") else str(word in ALLOWED) for word in words]
    return bool(eval(" ".join(python), {"__builtins__": {}}))  # it can contain only True, False, and, or, ( and )


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)["packages"]
    faults = [f"{p['name']} {p['version']}: licence {p['license']!r}" for p in packages if not is_allowed(p["license"])]
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    for package in lock["package"]:
        ours = package["name"].startswith("farhaul")
        if not ours and ("checksum" not in package or not package.get("source", "").startswith("registry+")):
            faults.append(f"{package['name']} {package['version']}: not pinned to the registry")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if not faults:
        print(f"licences: {len(packages)} crates, all fit", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
