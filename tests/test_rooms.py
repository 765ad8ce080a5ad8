"""Which crate uses which: the arrows in ARCHITECTURE.md and the dependencies in the Cargo files must be the
same. Which files import one another in a circle. And which crates are compiled with overflow checks.

Dependencies that a crate needs only for its own tests do not count.
"""

import graphlib
import pathlib
import re
import tomllib

from circles import Crate, circles

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
    crates = {folder.parent.name for above in ("crates", "bindings") for folder in (ROOT / above).glob("*/Cargo.toml")}
    assert crates == checked | UNCHECKED.keys()
    assert not checked & UNCHECKED.keys()


def test_a_module_with_children_is_a_folder_with_mod_rs():
    """There is one form of modules: `noun/mod.rs` joins, its children compute."""
    files = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if path.with_suffix("").is_dir()]
    assert not files, f"move each to mod.rs in the folder of its name: {[str(path.relative_to(ROOT)) for path in files]}"


#: A circle of this many files can still be read at once.
CIRCLE_MAX = 3
#: Wider circles that are allowed, and why each has to be.
WIDE_CIRCLES: dict[frozenset[str], str] = {}


def test_no_more_than_three_files_of_session_import_one_another_in_a_circle():
    session = Crate(ROOT / "crates/session/src")
    found = [[session.name(module) for module in circle] for circle in circles(session.arrows())]
    wide = [circle for circle in found if len(circle) > CIRCLE_MAX and frozenset(circle) not in WIDE_CIRCLES]
    assert not wide, "\n".join(f"{len(circle)} files import one another: {', '.join(circle)}" for circle in wide)
    gone = WIDE_CIRCLES.keys() - {frozenset(circle) for circle in found}
    assert not gone, f"these circles are allowed and exist no longer: {[sorted(circle) for circle in gone]}"


def test_a_circle_is_found_through_names_that_are_passed_on(tmp_path):
    files = {
        "lib.rs": "mod one;\nmod two;\npub use one::{One, Other as Else};\n",
        "one.rs": "use super::two::three::{Three, four};\n",
        "two/mod.rs": "mod three;\n#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}\n",
        "two/three.rs": "// use crate::two::Two;\nfn three() -> crate::One { \"crate::two::Two\" }\n",
        "two/tests.rs": "use super::*;\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circles(Crate(tmp_path).arrows()) == [[("one",), ("two", "three")]]


#: The words of services that `session` must not name, beside misbehaviours that others find.
WORDS_OF_SERVICES = re.compile(r"Event::(Entry|More|NotEntered|MetadataNotSet)\w*|EntryAction|(?i:\bssh)|files_(?:total|done)|\bvanished\b")


def test_session_names_no_words_of_services():
    """`session` passes on what services say as values of `words`."""
    tables = ROOT / "crates/words/src/error/misbehaviour"
    rows = {name: set(re.findall(r"^ +(\w+) = 0x", (tables / f"{name}.rs").read_text(), re.M)) for name in ("transport", "session")}
    assert all(rows.values()), rows
    faults = []
    for path in sorted((ROOT / "crates/session/src").glob("**/*.rs")):
        if path.name == "options.rs":
            continue  # It says to users what an option does.
        text = path.read_text().split("#[cfg(test)]\nmod tests {")[0] if not path.name.endswith("tests.rs") else ""
        found = {match[0] for match in WORDS_OF_SERVICES.finditer(text)}
        found |= set(re.findall(r"\bMisbehaviour::([A-Z]\w+)", text)) - rows["transport"] - rows["session"] - {"ALL"}
        faults += [f"{path.relative_to(ROOT)}: {word}" for word in sorted(found)]
    assert not faults, "\n".join(faults)


#: How JSON of unknown shape is held and looked into.
HOLDS = re.compile(r"\bValue\b")
LOOKS = re.compile(r"""\.as_(u64|i64|f64|bool|array|object)(_mut)?\(\)|\w\["[a-z_]+"\]|\.get\("[a-z_]+"\)""")


def test_the_command_line_reads_the_service_by_the_types_of_api():
    """What the service says has types, in `api`: a field that is renamed there must not compile elsewhere, and a
    mistyped name must not be read as nothing."""
    folder = ROOT / "crates/cli/src/commands/service"
    files = [path for path in folder.rglob("*.rs") if path.name != "tests.rs"]
    assert len(files) > 15
    # A document of the user's is passed on as it is.
    holders = {"submit.rs"}
    faults = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LOOKS.search(line) or (path.name not in holders and HOLDS.search(line))
    ]
    assert not faults, "read it as a type of farhaul-api:\n" + "\n".join(faults)


def test_the_page_has_no_types_of_the_service_by_hand():
    """They are made from docs/reference/openapi.json."""
    text = (ROOT / "web/src/lib/api.ts").read_text()
    types = re.findall(r"^export (?:interface|type) (.*)", text, re.M)
    by_hand = [line for line in types if not re.search(r'= Schemas\["\w+"\];$', line)]
    assert len(types) > 20 and not by_hand, f"made from the description of the API: {by_hand}"
