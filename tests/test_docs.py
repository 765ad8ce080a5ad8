"""Each claim of the pages on robustness and security names tests that exist; links that lead nowhere are
found."""

import pathlib
import re
import subprocess

import links

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_each_claim_names_tests_that_are_there():
    functions = set()
    for folder, pattern, suffix in (("tests", r"^def (test_\w+)", "*.py"), ("crates", r"^ *(?:async )?fn (\w+)", "*.rs")):
        for path in (ROOT / folder).rglob(suffix):
            functions.update(re.findall(pattern, path.read_text(), re.M))
    for page in ("reference/robustness.md", "design/security.md"):
        tables = re.findall(r"^\| (?:promise|claim) \| test \|\n\| --- \| --- \|\n((?:\| .*\n)+)", (ROOT / "docs" / page).read_text(), re.M)
        rows = [row for table in tables for row in table.splitlines()]
        assert len(tables) > 3 and len(rows) > 10
        for row in rows:
            names = re.findall(r"`(\w+)`", row.split("|")[-2])
            assert names, f"{page}: no test beside: {row}"
            missing = [name for name in names if name not in functions]
            assert not missing, f"{page}: {missing}"


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    pages = {
        "docs/README.md": "# Index\n[one](one.md) [no page](gone.md) [elsewhere](https://example.org/x.md)\n",
        "docs/one.md": "# One\n## What `it` is, and why\n[there](#what-it-is-and-why) [gone](#what-it-was) `[code](x.md)`\n"
                       "```\n# Fenced\n[no link](y.md)\n```\n[index](README.md#index) [fenced](#fenced)\n",
        "docs/alone.md": "# Alone\n## Twice\n## Twice\n[second](#twice-1) [third](#twice-2)\n",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    faults = [fault for page in pages for fault in links.faults_of(page, pages, tmp_path)]
    assert faults == ["docs/README.md:2: gone.md leads to nothing",
                      "docs/one.md:3: #what-it-was: docs/one.md has no such heading",
                      "docs/one.md:8: #fenced: docs/one.md has no such heading",
                      "docs/alone.md:4: #twice-2: docs/alone.md has no such heading"]
    assert links.unlisted(pages) == ["docs/alone.md"]


def test_a_page_that_a_comment_names_must_be_there(tmp_path):
    (tmp_path / "docs").mkdir()
    pages = {"docs/one.md": "# One\n"}
    (tmp_path / "docs/one.md").write_text(pages["docs/one.md"])
    source = ("//! See docs/one.md, docs/one.md#one,\n//! docs/one.md#two and docs/two.md. Not notdocs/two.md.\n"
              'include_str!("../../docs/one.md"); include_str!("../docs/three.md")\n')
    assert list(links.mentions("lib.rs", source, pages, tmp_path)) == [
        "lib.rs:2: docs/one.md has no heading two", "lib.rs:2: there is no docs/two.md", "lib.rs:3: there is no docs/three.md"]


def test_the_glossarys_words_are_the_only_ones_for_the_transport():
    """"The engine" was the transport, a session, a copy or the crate `farhaul`. The glossary has a word for each."""
    files = subprocess.run(["git", "ls-files", "crates", "docs", "web/src", "deploy", "tests", "*.md"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    word = re.compile(r"\b_?engines?(?![\w:])(?!.*base64)", re.I)
    others = ("CHANGELOG.md", "docs/glossary.md", "tests/test_docs.py")
    found = [f"{name}:{number}: {line.strip()}" for name in files
             if name.endswith((".rs", ".md", ".py", ".ts", ".svelte", ".toml")) and name not in others
             for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
             if word.search(line) and "base64::Engine" not in line]
    assert not found, "\n".join(found)


def test_no_file_has_the_marks_of_an_unfinished_merge():
    found = subprocess.run(["git", "grep", "-nE", "^(<{7}|>{7}|={7}$)", "--", "."], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr
