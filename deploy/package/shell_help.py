"""Man pages and completions, as the program itself prints them."""

import pathlib
import re
import subprocess

#: Shells, and the file that each looks for.
SHELLS = {"bash": "farhaul.bash", "zsh": "_farhaul", "fish": "farhaul.fish"}


def write(program: pathlib.Path, made: pathlib.Path) -> None:
    (made / "man").mkdir()
    for verb in ["", *verbs(program)]:
        name = "-".join(["farhaul", *verb.split()])
        (made / "man" / f"{name}.1").write_bytes(printed(program, "man", *verb.split()))
    (made / "completions").mkdir()
    for shell, name in SHELLS.items():
        (made / "completions" / name).write_bytes(printed(program, "completions", shell))


def verbs(program: pathlib.Path, above: str = "") -> list[str]:
    """All verbs, as `cap set`: what each page lists, and what the pages of these list."""
    page = printed(program, "man", *above.split()).decode()
    prefix = "-".join(["farhaul", *above.split()])
    found = []
    for name in re.findall(rf"^{prefix}-(\S+)\(1\)$", page.replace("\\-", "-"), re.MULTILINE):
        verb = f"{above} {name}".strip()
        found += [verb, *verbs(program, verb)]
    return found


def printed(program: pathlib.Path, *arguments: str) -> bytes:
    return subprocess.run([program, *arguments], check=True, capture_output=True).stdout
