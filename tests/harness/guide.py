"""The commands of the guide, taken from its pages.

A block without a language, or of the language `sh`, is what somebody types; all other blocks are something else and name
their language. `console` is an example with what it prints, whose figures are those of no test.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("start", "guide")
FENCE = re.compile(r"^```(\w*)$")
#: What stands before a command that is typed on a certain machine: `client$`, or `server#` for root.
PLACE = re.compile(r"^(\w*)([$#]) (.*)$", re.S)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command as a page has it. `place` is the machine that the page names, or empty."""

    page: str
    number: int
    block: int
    place: str
    is_root: bool
    text: str

    def __str__(self):
        return f"{self.page}:{self.number}: {self.text}"


def pages():
    """The pages of the guide, such as guide/copy.md."""
    return sorted(f"{folder}/{path.name}" for folder in FOLDERS for path in (ROOT / "docs" / folder).glob("*.md"))


def blocks(text):
    """The blocks of commands of a page: for each, its lines with their numbers."""
    found, lines, language = [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence is None:
            if lines is not None:
                lines.append((number, line))
        elif lines is None:
            lines, language = [], fence[1]
        else:
            if language in ("", "sh"):
                found.append(lines)
            lines = None
    return found


def is_whole(text):
    """Whether a command ends here: no line that goes on, no open quote, here-document, function or `case`."""
    if text.endswith("\\"):
        return False
    document = re.search(r"<<'(\w+)'", text)
    if document and not re.search(rf"^{document[1]}$", text, re.M):
        return False
    return not re.match(r"case ", text) or text.endswith("esac")


def commands_of(page, text):
    """All commands of a page, in their order."""
    commands = []
    for block, lines in enumerate(blocks(text)):
        pending, begin = "", 0
        for number, line in lines:
            begin = begin if pending else number
            pending = f"{pending}\n{line}" if pending else line
            if not pending.strip() or not is_whole(pending):
                continue
            place = PLACE.match(pending)
            name, sign, line = (place[1], place[2], place[3]) if place else ("", "$", pending)
            # A line that begins with `#` alone is a comment.
            if not (place and place[1] == "" and place[2] == "#"):
                commands.append(Command(page, begin, block, name, sign == "#", line))
            pending = ""
        assert not pending.strip(), f"{page}: a command has no end: {pending}"
    return commands


def commands(page):
    return commands_of(page, (ROOT / "docs" / page).read_text())
