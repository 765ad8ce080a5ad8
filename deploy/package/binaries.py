"""Builds the two programs, the Python extension and the C library that packages hold, and says how large they are.

The crates of the programs are compiled once. Their last crate is compiled and linked twice: against the C library of 2018 (2.28), which every
supported system has or replaces by a newer one, and together with a C library. docs/design/packages.md says why both.

Always true: no path of this machine gets into a program, so that a build elsewhere makes the same bytes.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import venv

from .product import ROOT, source_time, version

#: The oldest C library that the dynamic program runs with.
GLIBC = "2.28"
TOOLS = {"cargo-zigbuild": "0.24.1", "ziglang": "0.17.1"}
#: A static program finds no function by its name at run time, so the crate getrandom would take /dev/urandom in place of the
#: system call, and an empty root has no such file.
RANDOM = '--cfg=getrandom_backend="linux_getrandom"'
#: Where the C library lies in each form: the prefix, and the directory of libraries below it. The tarball lies anywhere.
PKG_CONFIG = {"deb": ("/usr", "lib/x86_64-linux-gnu"), "rpm": ("/usr", "lib64"), "tar": ("${pcfiledir}/../..", "lib")}
SIZE_MAX = 30 << 20
COMPRESSED_MAX = 10 << 20


def build(work: pathlib.Path, made: pathlib.Path) -> None:
    """Leaves farhaul and farhaul-static, each with its .debug file, in `made`."""
    tools = linker_tools(work / "tools")
    target = work / "build"
    environment = build_environment(target)
    link = made.parent / "link-with-old-glibc"
    link.write_text(
        f'#!/bin/sh\nPATH="{tools}:$PATH" exec "{tools}/cargo-zigbuild" zig cc -- -target x86_64-linux-gnu.{GLIBC} "$@"\n'
    )
    link.chmod(0o755)
    kinds = {"farhaul-static": ["-C", "target-feature=+crt-static"], "farhaul": ["-C", f"linker={link}"]}
    for name, options in kinds.items():
        command = ["cargo", "rustc", "--release", "--locked", "-p", "farhaul-cli", "--bin", "farhaul", "--", *options]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        split(target / "release/farhaul", made / name)
    # Crates that the program has with other features are compiled again. Only one package at a time can be given a linker, and
    # a linker for all of them would compile everything again.
    extension = ["cargo", "rustc", "--release", "--locked", "-p", "farhaul-python", "--lib", "--", *kinds["farhaul"]]
    subprocess.run(extension, cwd=ROOT, env=environment, check=True)
    split(target / "release/libfarhaul_native.so", made / "_native.abi3.so")
    # An archive is not linked, the shared library that is made of it is.
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "farhaul-c"], cwd=ROOT, env=environment, check=True)
    assemble(target / "release/libfarhaul_c.a", made, {**environment, "CC": str(link)}, made / "libfarhaul.so.debug")


def assemble(archive: pathlib.Path, made: pathlib.Path, environment: dict[str, str], debug: pathlib.Path | None = None) -> None:
    """Makes the shared library of an archive, and what tells compilers where both are, in `made`/library."""
    folder = made / "library"
    command = [ROOT / "bindings/c/assemble.sh", archive, folder, *([debug] if debug else [])]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    template = (ROOT / "bindings/c/farhaul.pc.in").read_text().replace("@VERSION@", version())
    for form, (prefix, library) in PKG_CONFIG.items():
        (folder / f"{form}.pc").write_text(template.replace("@PREFIX@", prefix).replace("@LIBDIR@", library))


def linker_tools(folder: pathlib.Path) -> pathlib.Path:
    """A directory with a linker that knows the symbols of old C libraries."""
    stamp = folder / "versions"
    wanted = " ".join(f"{name}=={version}" for name, version in TOOLS.items())
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {wanted} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *wanted.split()], check=True)
        stamp.write_text(wanted)
    return folder / "bin"


def build_environment(target: pathlib.Path) -> dict[str, str]:
    """Of the settings of a test run (no debug information, no optimisation across crates) none holds here."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_PROFILE_")}
    cargo = environment.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo"))
    # AWS-LC takes its own variable in place of CFLAGS, and .cargo/config.toml has a setting for it.
    config = (ROOT / ".cargo/config.toml").read_text()
    tuning = re.search(r'^AWS_LC_SYS_CFLAGS_x86_64_unknown_linux_gnu = "(.*)"$', config, re.MULTILINE)
    assert tuning, ".cargo/config.toml does not say how AWS-LC is tuned"
    maps = f"-ffile-prefix-map={target}=/build/target -ffile-prefix-map={cargo}=/build/cargo"
    environment |= {
        "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": str(target),
        "SOURCE_DATE_EPOCH": str(source_time()),
        "CFLAGS": maps,
        "AWS_LC_SYS_CFLAGS_x86_64_unknown_linux_gnu": f"{tuning[1]} {maps}",
        "RUSTFLAGS": f"--remap-path-prefix={cargo}=/build/cargo --remap-path-prefix={ROOT}=/build/farhaul {RANDOM}",
    }
    return environment


def split(program: pathlib.Path, to: pathlib.Path) -> None:
    """Takes the debug information out of a program and into a file beside it. The program does not have the checksum of that
    file, which differs by the directory of the build: objects that Zig adds name it."""
    debug = to.with_name(f"{to.name}.debug")
    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections=zlib", program, debug], check=True)
    subprocess.run(["strip", "--strip-all", "-o", to, program], check=True)
    to.chmod(0o755)
    symbols = to.with_name(f"{to.name}.sizes")
    symbols.write_text("".join(f"{size:>12}  {crate}\n" for crate, size in sizes(program).most_common()))


def sizes(program: pathlib.Path) -> collections.Counter[str]:
    """Bytes of code and data by crate, as the symbols say. What has no symbol is not in it."""
    listed = subprocess.run(["nm", "--demangle", "--size-sort", "-S", program], check=True, capture_output=True, text=True).stdout
    found: collections.Counter[str] = collections.Counter()
    seen = set()
    for line in listed.splitlines():
        address, size, _, symbol = line.split(maxsplit=3)
        # Functions that are equal share an address.
        if address not in seen:
            seen.add(address)
            found[crate_of(symbol)] += int(size, 16)
    return found


def crate_of(symbol: str) -> str:
    """The crate that a symbol belongs to: the first one that it names and that is not Rust's own, as a map of Farhaul's
    keys is code of Farhaul. C code counts by its prefix."""
    for prefix, library in (("aws_lc_", "aws-lc (C and assembly)"), ("sqlite3", "sqlite (C)")):
        if symbol.startswith(prefix):
            return library
    named = re.findall(r"(?<![\w:.])([a-z_]\w*)(?=::|\.\.)", symbol)
    others = [name for name in named if name not in ("core", "alloc", "std")]
    return (others or named or ["other (C, tables, no name)"])[0]


def needs_of(program: pathlib.Path) -> tuple[list[str], str | None]:
    """The shared libraries that a program loads, and the newest version of the C library that it asks for."""
    header = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
    libraries = re.findall(r"NEEDED\s+(\S+)", header)
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d[\d.]*)", header)]
    return libraries, ".".join(map(str, max(versions))) if versions else None


def report(made: pathlib.Path) -> None:
    """Prints how large the programs are, and whether that is as small as they should be."""
    for name in ("farhaul", "farhaul-static"):
        program = made / name
        size = program.stat().st_size
        packed = len(subprocess.run(["xz", "-6", "-c", program], check=True, capture_output=True).stdout)
        verdict = "PASS" if size <= SIZE_MAX and packed <= COMPRESSED_MAX else "MISS"
        libraries, glibc = needs_of(program)
        needed = f"{', '.join(libraries)} of glibc {glibc}" if libraries else "nothing"
        print(
            f"{verdict}  {name}: {size / 2**20:.1f} MiB (goal {SIZE_MAX >> 20}), {packed / 2**20:.1f} MiB compressed"
            f" (goal {COMPRESSED_MAX >> 20}); needs {needed}"
        )
    print("the largest parts of farhaul, in bytes:")
    print("\n".join((made / "farhaul.sizes").read_text().splitlines()[:20]))


def strip_for_check(program: pathlib.Path, extension: pathlib.Path, archive: pathlib.Path, made: pathlib.Path) -> None:
    """Takes what was built for tests in the place of programs and extension, so that packages can be looked at without a build."""
    for name, file in (("farhaul", program), ("farhaul-static", program), ("_native.abi3.so", extension)):
        if file == extension and not file.exists():
            continue
        subprocess.run(["strip", "--strip-all", "-o", made / name, file], check=True)
    if archive.exists():
        assemble(archive, made, dict(os.environ))
