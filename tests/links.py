#!/usr/bin/env python3
"""Checks without a network that links between pages lead to files and headings that exist, that pages named
in the code exist, and that the index has a link to every page."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INDEX = "docs/README.md"
#: Results of old measurements keep the page names of their time. The test of this program names pages that do
#: not exist.
LEFT_OUT = ("bench/results/", "tests/test_docs.py")
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
MENTION = re.compile(r"(?:^|[^\w/.-]|\.\./|/blob/main/)((?:docs|bench/notes)/[\w/.-]*\.(?:md|json|svg|png))(?:#([\w-]+))?")


def slug(heading):
    """The anchor that GitHub gives a heading."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(text):
    """A page without its fenced blocks, in which brackets and # mean something else. Lines keep their
    numbers."""
    fenced, lines = False, []
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        fenced = fenced != is_fence
        lines.append("" if fenced or is_fence else line)
    return lines


def anchors(text):
    """What a link to this page may lead to: its headings, and the places that it names itself."""
    found = {}
    for line in prose(text):
        found.update((name, 0) for name in re.findall(r'<a id="([^"]*)">', line))
        heading = re.match(r"#+ (.*)", line)
        if heading:
            name = slug(heading[1])
            found[name] = found.get(name, -1) + 1
    return {name if number == 0 else f"{name}-{number}" for name, last in found.items() for number in range(last + 1)}


def faults_of(page, texts, root):
    """What is wrong with the links of one page; `texts` has the text of each Markdown file by its path."""
    for number, line in enumerate(prose(texts[page]), 1):
        line = re.sub(r"`[^`]*`", "", line)
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (root / page).parent / path if path else root / page
            if not file.exists():
                yield f"{page}:{number}: {target} leads to nothing"
            elif anchor and file.suffix == ".md":
                to = str(file.resolve().relative_to(root))
                if anchor not in anchors(texts.get(to) or file.read_text()):
                    yield f"{page}:{number}: {target}: {to} has no such heading"


def mentions(path, text, texts, root):
    """The faults of pages that a file names in its text, as a comment or a message does."""
    for number, line in enumerate(text.splitlines(), 1):
        for name, anchor in MENTION.findall(line):
            if not (root / name).exists():
                yield f"{path}:{number}: there is no {name}"
            elif anchor and name in texts and anchor not in anchors(texts[name]):
                yield f"{path}:{number}: {name} has no heading {anchor}"


def unlisted(texts):
    """Pages of docs/ to which the index has no link: nobody would find them."""
    linked = {str(pathlib.PurePosixPath("docs") / target.partition("#")[0]) for target in LINK.findall(texts[INDEX])}
    return sorted(page for page in texts if page.startswith("docs/") and page != INDEX and page not in linked)


def main():
    tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                             stdout=subprocess.PIPE, cwd=ROOT)
    names = [name for name in tracked.stdout.decode().split("\0") if (ROOT / name).is_file() and not name.startswith(LEFT_OUT)]
    texts, faults = {}, []
    for name in names:
        if name.endswith(".md"):
            texts[name] = (ROOT / name).read_text()
    for page in texts:
        faults += faults_of(page, texts, ROOT)
    for name in names:
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        # The links of a page were checked above; here come the pages that its text names.
        faults += mentions(name, LINK.sub("](-)", text) if name in texts else text, texts, ROOT)
    faults += [f"{INDEX} has no link to {page}" for page in unlisted(texts)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(texts)} pages in Markdown, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
