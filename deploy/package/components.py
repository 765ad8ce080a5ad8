"""Which libraries a program contains, under which licences: a bill of materials (CycloneDX 1.5) and the texts of the licences.

Always true: each crate that cargo links is in both, with the digest that Cargo.lock has.
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import tomllib
import uuid

from .product import NAME, ROOT, SUMMARY, source_time, version, workspace

PLATFORM = "x86_64-unknown-linux-gnu"
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Component:
    name: str
    version: str
    licence: str
    purl: str
    texts: tuple[str, ...]
    checksum: str | None = None
    #: Where it is, if not in both programs.
    note: str = ""


def linked() -> list[Component]:
    """Everything that is in a program and is not Farhaul's own."""
    return [*crates(), *page_packages(), *runtime()]


def crates() -> list[Component]:
    """The crates that cargo links into the program, the Python extension or the C library, without what only builds or generates code."""
    wanted = dict.fromkeys(crates_of("farhaul-c"), "in the C library")
    wanted |= dict.fromkeys(crates_of("farhaul-python"), "in the Python extension of the wheel")
    wanted |= dict.fromkeys(crates_of("farhaul-cli"), "")
    asked = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", PLATFORM]
    packages = json.loads(subprocess.run(asked, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    found = []
    for package in packages:
        key = package["name"], package["version"]
        if key in wanted and package["source"]:
            folder = pathlib.Path(package["manifest_path"]).parent
            licence = re.sub(r"\s*/\s*", " OR ", package["license"])
            purl = f"pkg:cargo/{key[0]}@{key[1]}"
            found.append(Component(*key, licence, purl, texts_in(folder), checksums[key], wanted[key]))
    return sorted(found, key=lambda component: (component.name, component.version))


def crates_of(package: str) -> set[tuple[str, str]]:
    """Names and versions of what cargo links into one of our packages."""
    tree = ["cargo", "tree", "--locked", "--offline", "-p", package, "-e", "normal", "--target", PLATFORM, "--prefix", "depth"]
    return linked_names(subprocess.run(tree, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def linked_names(tree: str) -> set[tuple[str, str]]:
    """Names and versions of `cargo tree --prefix depth`, without macros and what only these need."""
    found, below = set(), None
    for line in tree.splitlines():
        parts = re.match(r"(\d+)(\S+) v(\S+)(.*)", line)
        assert parts, f"this is no line of a tree: {line!r}"
        depth, name, number, rest = int(parts[1]), parts[2], parts[3], parts[4]
        if below is not None and depth > below:
            continue
        below = depth if "(proc-macro)" in rest else None
        if below is None:
            found.add((name, number))
    return found


def page_packages() -> list[Component]:
    """What the page for browsers is compiled from. Icons are copied into it, so they count."""
    asked = json.loads((ROOT / "web/package.json").read_text())
    names = {*asked["dependencies"], "@lucide/svelte"}
    locked = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    found = []
    for name in sorted(names):
        entry = locked[f"node_modules/{name}"]
        folder = ROOT / "web/node_modules" / name
        texts = texts_in(folder) if folder.is_dir() else ()
        purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
        found.append(Component(name, entry["version"], entry["license"], purl, texts, note="in the page for browsers"))
    return found


def runtime() -> list[Component]:
    """What the linkers add."""
    shown = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rust = shown.split()[1]
    glibc = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libc6-dev"], capture_output=True, text=True).stdout or "unknown"
    gcc = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    lgpl = pathlib.Path("/usr/share/common-licenses/LGPL-2.1")
    return [
        Component("rust standard library", rust, "MIT OR Apache-2.0", f"pkg:generic/rust-std@{rust}", ()),
        Component(
            "glibc", glibc, "LGPL-2.1-or-later", f"pkg:generic/glibc@{glibc}", (lgpl.read_text(),) if lgpl.exists() else (),
            note="in farhaul-static only. You may link that program again with another version of this library: the source of"
            " Farhaul, with `./x package`, does it",
        ),
        Component(
            "libgcc", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1", f"pkg:generic/libgcc@{gcc}", (),
            note="in farhaul-static only; the exception permits programs under other terms",
        ),
        Component(
            "llvm libunwind and compiler-rt", "21", "Apache-2.0 WITH LLVM-exception", "pkg:generic/llvm-runtime@21", (),
            note="in the dynamic program, the Python extension and the shared C library only",
        ),
    ]


def texts_in(folder: pathlib.Path) -> tuple[str, ...]:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and LICENCE_FILE.match(path.name)]
    return tuple(path.read_text(errors="replace").strip().replace("\r\n", "\n") for path in files if path.suffix != ".rs")


def bill(components: list[Component]) -> dict:
    """A bill of materials. It has no serial number by chance, so that the same source makes the same bytes."""
    own = {
        "type": "application", "bom-ref": f"pkg:generic/{NAME}@{version()}", "name": NAME, "version": version(),
        "description": SUMMARY, "licenses": [{"expression": workspace()["license"]}], "purl": f"pkg:generic/{NAME}@{version()}",
    }
    parts = []
    for component in components:
        part = {
            "type": "library", "bom-ref": component.purl, "name": component.name, "version": component.version,
            "licenses": [{"expression": component.licence}], "purl": component.purl,
        }
        if component.checksum:
            part["hashes"] = [{"alg": "SHA-256", "content": component.checksum}]
        if component.note:
            part["description"] = component.note
        parts.append(part)
    seed = json.dumps(parts) + str(source_time())
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        "metadata": {"component": own}, "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def licences_page(components: list[Component]) -> str:
    """The list of what is linked, then each text once, with the names that it holds for."""
    lines = [f"What is in Farhaul {version()} beside its own code, and under which terms.", ""]
    for component in components:
        lines.append(f"{component.name} {component.version}: {component.licence}" + (f" ({component.note})" if component.note else ""))
    by_text: dict[str, tuple[str, list[str]]] = {}
    for component in components:
        for text in component.texts:
            # The same licence, though its lines are broken elsewhere.
            _, names = by_text.setdefault(" ".join(text.split()), (text, []))
            if component.name not in names:
                names.append(component.name)
    for text, names in by_text.values():
        lines += ["", "-" * 100, ", ".join(names), "-" * 100, "", text]
    return "\n".join(lines) + "\n"


def copyright_page(components: list[Component]) -> str:
    """The short page that Debian wants; texts that every Debian system has are named and not repeated."""
    counted: dict[str, list[str]] = {}
    for component in components:
        counted.setdefault(component.licence, []).append(component.name)
    lines = [
        f"Farhaul {version()}, from {workspace()['repository']}", "",
        "Copyright: 2026 the developers of Farhaul", "",
        "Licensed under the Apache License, Version 2.0. On Debian systems the full text is in",
        "/usr/share/common-licenses/Apache-2.0.", "",
        "The programs and the C library contain libraries of others. linked-components.txt.gz in this directory has the",
        "version of each, and the texts of their licences:", "",
    ]
    for licence, names in sorted(counted.items()):
        lines.append(f"{licence}:")
        line = "   "
        for name in names:
            if len(line) + len(name) > 98:
                lines.append(line)
                line = "   "
            line += f" {name}"
        lines.append(line)
    return "\n".join(lines) + "\n"
