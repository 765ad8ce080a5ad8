"""The systemd units in deploy/: systemd finds no fault in them, and they take from the service what it does
not need."""

import pathlib
import re
import shutil
import subprocess

import pytest

DEPLOY = pathlib.Path(__file__).resolve().parents[1] / "deploy"
EXPOSURE_MAX = 2.0

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


@pytest.fixture
def units(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """Copies of the units, in which a program that exists stands in place of farhaul."""
    copies = []
    for unit in (DEPLOY / "farhaul.service", DEPLOY / "farhaul.socket"):
        copy = tmp_path / unit.name
        copy.write_text(re.sub(r"^(Exec\w+=)farhaul ", r"\1true ", unit.read_text(), flags=re.MULTILINE))
        copies.append(copy)
    return copies


def test_systemd_understands_every_line(units: list[pathlib.Path]):
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_service_is_shut_in(units: list[pathlib.Path]):
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", units[0]]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in told.stderr:
        pytest.skip("this systemd-analyze judges only units that are loaded")
    exposure = re.search(r"exposure level for farhaul.service: ([0-9.]+)", told.stdout)
    assert exposure, told.stdout + told.stderr
    assert float(exposure[1]) <= EXPOSURE_MAX
