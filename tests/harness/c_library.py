"""The C library as a user has it: header, shared library and archive in one folder, and programs that use them."""

import fcntl
import os
import pathlib
import subprocess

import pytest

from . import product

ROOT = product.ROOT
C = ROOT / "tests/c"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined")
#: The library is not compiled with sanitizers: what it keeps until the process ends is no leak of the program.
SANITIZED = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1"}


def archive():
    """The archive that `cargo build -p farhaul-c` makes beside the binary under test."""
    path = pathlib.Path(os.environ.get("FARHAUL_BIN", ROOT / "target/release/farhaul")).resolve().with_name("libfarhaul_c.a")
    if not path.exists():
        pytest.skip(f"no {path}: run ./x bindings c, or cargo build -p farhaul-c")
    return path


def assembled():
    """The folder with include/ and lib/, made anew if the archive is newer. Workers of one run share it."""
    made = archive()
    folder = made.parent / "bindings"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, parts = folder / "stamp", [made, *(ROOT / "bindings/c").glob("*"), ROOT / "bindings/c/include/farhaul.h"]
        if not stamp.exists() or stamp.stat().st_mtime < max(part.stat().st_mtime for part in parts):
            subprocess.run([ROOT / "bindings/c/assemble.sh", made, folder], check=True)
            stamp.touch()
    return folder


def compile_program(source, to, *flags, include=None, compiler="gcc"):
    """Compiles a program as a user does, by what pkg-config says."""
    folder = assembled()
    env = {**os.environ, "PKG_CONFIG_PATH": str(folder / "lib/pkgconfig")}
    said = subprocess.run(["pkg-config", "--cflags", "--libs", "farhaul"], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    before = [f"-I{include}"] if include else []
    subprocess.run([compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", *flags, *before, source, "-o", to, *said.split(),
                    "-lpthread", f"-Wl,-rpath,{folder / 'lib'}"], check=True)
    return to
