#!/usr/bin/env python3
"""header.py CBINDGEN [FILE]: makes farhaul.h from the functions and types in src. `./x bindings --header` runs it.

cbindgen gets one file with all of them, in the order of the header: given a crate, it asks cargo for the dependencies
of the whole workspace.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("codes", "context", "streams", "blocks", "copies", "reads", "names")


def make(cbindgen, to):
    lines = [line for name in SOURCES for line in (HERE / f"src/{name}.rs").read_text().splitlines() if not line.startswith("//!")]
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "whole.rs"
        whole.write_text("\n".join(lines) + "\n")
        subprocess.run([cbindgen, "--quiet", "--config", HERE / "cbindgen.toml", "--output", to, whole], check=True)
    header = pathlib.Path(to)
    header.write_text(shortened(header.read_text()))


def shortened(text):
    """Numbers and opaque types take one line each, with their comment behind them."""
    one = re.compile(r"^// (.*)\n(#define FH_.*|typedef struct (\w+) \3;)\n\n", re.M)
    text = one.sub(lambda found: f"{found[2]:<{40 if found[3] else 30}} // {found[1]}\n", text)
    # A kind ends with an empty line.
    lines = text.splitlines()
    kinds = [next((kind for kind in ("#define FH_", "typedef struct") if line.startswith(kind) and "//" in line), None) for line in lines]
    for at in reversed(range(len(lines) - 1)):
        if kinds[at] and kinds[at] != kinds[at + 1]:
            lines.insert(at + 1, "")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else HERE / "include/farhaul.h")
