"""Messages below the command line name options plainly, and never as flags.

A message writes an option as its plain name between backquotes (`crates/words/src/option_name.rs`); the command line
adds the dashes, the service's API has its own fields.
"""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent

# These crates are the command line, tools that have one of their own, or say which commands a person types (doctor).
ABOVE = {"cli", "bench", "doctor", "sim", "wanem"}

# A line with one of these is no message of ours, each for the reason beside it.
EXCEPTIONS = {
    r"--version`": "a command that the user runs by hand",
    r"\$r --version": "a script that a shell at the far end runs",
    r"gpg --verify": "a command of another program",
    r'\[\\"--quiet\\"\]': "an example of the arguments of a hook",
    r"^\s*(row|not)\(|^\s*&\[\"--": "the table that `farhaul submit` compares with the command line",
    r"with_flag\(": "the command line hands its own flags to the configuration",
}

# The beginning of a file of the service's configuration says which flags of the service go before it.
FILES = {"crates/service/src/config/example.rs"}

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
FLAG = re.compile(r"(?<![-\w])--[a-z]")


def code_without_tests(path: Path) -> list[str]:
    """Return the lines of a file up to the tests at its end."""
    return path.read_text().split("#[cfg(test)]\nmod tests", 1)[0].split("\n")


def sources() -> list[Path]:
    found = []
    for path in sorted((PROJECT / "crates").glob("*/src/**/*.rs")):
        inside = path.relative_to(PROJECT / "crates")
        is_test = "tests" in inside.parts or inside.name in {"tests.rs", "fuzzing.rs"}
        if inside.parts[0] not in ABOVE and not is_test and str(path.relative_to(PROJECT)) not in FILES:
            found.append(path)
    return found


def texts(path: Path) -> list[tuple[int, str]]:
    """Return the lines that have text in them, with their numbers: literals and their continuations."""
    lines = enumerate(code_without_tests(path), 1)
    return [(number, line) for number, line in lines if not line.lstrip().startswith("//")]


def test_no_message_below_the_command_line_names_a_flag() -> None:
    wrong = []
    for path in sources():
        for number, line in texts(path):
            if FLAG.search(line.split("//")[0]) and not any(re.search(known, line) for known in EXCEPTIONS):
                wrong.append(f"{path.relative_to(PROJECT)}:{number}: {line.strip()}")
    assert not wrong, "write `name`, not --name:\n" + "\n".join(wrong)


# What stands between backquotes in a text and is no option.
OTHERS = {
    "exit": "a command of a shell",
    "exec": "a command of a shell",
    "socket": "a key of the service's configuration",
    "hpc": "an example of a host, in the description of the API",
}


def test_options_that_messages_name_are_in_the_list() -> None:
    listed = (PROJECT / "crates/words/src/option_name.rs").read_text()
    body = listed.split("pub enum OptionName {", 1)[1].split("}", 1)[0]
    variants = re.findall(r"^    (\w+),$", body, re.MULTILINE)
    names = {re.sub(r"(?<!^)(?=[A-Z])", "-", variant).lower() for variant in variants}
    unknown = []
    for path in sources():
        for number, line in texts(path):
            for text in STRING.findall(line):
                for name in re.findall(r"`([a-z][a-z0-9-]*)`", text):
                    if name not in names | OTHERS.keys():
                        unknown.append(f"{path.relative_to(PROJECT)}:{number}: {name}")
    assert not unknown, "add them to OptionName, or say them without backquotes:\n" + "\n".join(unknown)
