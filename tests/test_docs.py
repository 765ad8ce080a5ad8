"""What the pages on robustness and security claim has a test of the name that stands beside it."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_each_claim_names_tests_that_are_there():
    functions = set()
    for folder, pattern, suffix in (("tests", r"^def (test_\w+)", "*.py"), ("crates", r"^ *(?:async )?fn (\w+)", "*.rs")):
        for path in (ROOT / folder).rglob(suffix):
            functions.update(re.findall(pattern, path.read_text(), re.M))
    for page in ("reference/robustness.md", "design/security.md"):
        rows = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| ")]
        rows = [row for row in rows if not re.match(r"\| (---|promise|claim)", row)]
        assert len(rows) > 10
        for row in rows:
            names = re.findall(r"`(\w+)`", row.split("|")[-2])
            assert names, f"{page}: no test beside: {row}"
            missing = [name for name in names if name not in functions]
            assert not missing, f"{page}: {missing}"
