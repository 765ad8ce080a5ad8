"""Which crate uses which: the arrows in ARCHITECTURE.md and the dependencies in the Cargo files must be the
same. And which crates are compiled with overflow checks.

Dependencies that a crate needs only for its own tests do not count.
"""

import graphlib
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINE = re.compile(r"(\w+)(?: -> (\w+(?:, \w+)*))?")


def stated(page: str) -> dict[str, list[str]]:
    """The arrows of the fenced block below the line that begins with `Arrows`, in the order of the page."""
    block = re.search(r"^Arrows\b.*?^```\n(.*?)^```$", page, re.M | re.S)
    assert block, "ARCHITECTURE.md has no fenced block of arrows"
    arrows: dict[str, list[str]] = {}
    for line in block[1].splitlines():
        parts = LINE.fullmatch(line)
        assert parts, f"ARCHITECTURE.md: this is no line of arrows: {line!r}"
        crate, used = parts.groups()
        assert crate not in arrows, f"ARCHITECTURE.md: {crate} has two lines of arrows"
        arrows[crate] = used.split(", ") if used else []
    return arrows


def made(root: pathlib.Path) -> dict[str, set[str]]:
    """The arrows of the Cargo files. A crate has the name of its folder."""
    members = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["members"]
    folders = [folder for member in members for folder in root.glob(member) if (folder / "Cargo.toml").is_file()]
    manifests = {folder.name: tomllib.loads((folder / "Cargo.toml").read_text()) for folder in folders}
    crates = {manifest["package"]["name"]: folder for folder, manifest in manifests.items()}
    return {
        folder: {crates[name] for name in dependencies(manifest) if name in crates}
        for folder, manifest in manifests.items()
    }


def dependencies(manifest: dict) -> set[str]:
    """The packages that a crate is built with, on any system."""
    names = set()
    for table in (manifest, *manifest.get("target", {}).values()):
        for kind in ("dependencies", "build-dependencies"):
            for key, value in table.get(kind, {}).items():
                names.add(value.get("package", key) if isinstance(value, dict) else key)
    return names


def test_the_arrows_of_the_page_are_those_of_the_cargo_files():
    page = {crate: set(used) for crate, used in stated((ROOT / "ARCHITECTURE.md").read_text()).items()}
    cargo = made(ROOT)
    assert len(cargo) > 10, f"only these crates were found: {sorted(cargo)}"
    faults = [f"ARCHITECTURE.md has no line for {crate}" for crate in sorted(cargo.keys() - page.keys())]
    faults += [f"ARCHITECTURE.md has a line for {crate}, which is no crate" for crate in sorted(page.keys() - cargo.keys())]
    for crate in sorted(cargo.keys() & page.keys()):
        faults += [f"{crate} uses {used}, which ARCHITECTURE.md does not say" for used in sorted(cargo[crate] - page[crate])]
        faults += [f"{crate} does not use {used}, which ARCHITECTURE.md says" for used in sorted(page[crate] - cargo[crate])]
    assert not faults, "\n".join(faults)


def test_no_arrow_leads_back():
    """On the page each crate uses only crates above it, so neither the page nor the Cargo files have a
    circle."""
    above: set[str] = set()
    for crate, used in stated((ROOT / "ARCHITECTURE.md").read_text()).items():
        back = [name for name in used if name not in above]
        assert not back, f"ARCHITECTURE.md: {crate} uses {back}, which is not above it"
        above.add(crate)
    graphlib.TopologicalSorter(made(ROOT)).prepare()


#: The crates whose arithmetic is not checked in the released program, and why.
UNCHECKED = {
    "proto": "on the path of every packet; fuzzed with checks",
    "net": "on the path of every packet; it knows no byte of what it moves",
    "clear": "on the path of every packet; it knows no byte of what it moves",
    "handover": "on the path of every block; it knows no byte of what it moves",
    "child": "starts programs; it reads nothing",
    "bench": "measures this host; its loops are what is measured",
    "motion": "for simulations", "sim": "for simulations", "wanem": "for simulations",
}


def test_what_reads_bytes_of_others_is_compiled_with_overflow_checks():
    profile = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]["release"]["package"]
    checked = {name.removeprefix("farhaul-") for name, keys in profile.items() if keys.get("overflow-checks")}
    crates = {folder.parent.name for folder in (ROOT / "crates").glob("*/Cargo.toml")}
    assert crates == checked | UNCHECKED.keys()
    assert not checked & UNCHECKED.keys()


def test_a_module_with_children_is_a_folder_with_mod_rs():
    """There is one form of modules: `noun/mod.rs` joins, its children compute."""
    files = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if path.with_suffix("").is_dir()]
    assert not files, f"move each to mod.rs in the folder of its name: {[str(path.relative_to(ROOT)) for path in files]}"
