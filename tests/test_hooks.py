"""Test hooks: only a test harness can set them, and only for the process that it starts."""

import dataclasses
import datetime
import os
import sys

import pytest

from harness import hooks, product
from harness.hosts import USER_ID
from harness.node import Node
from harness.product import EXIT_INTERNAL, EXIT_LOST, EXIT_USAGE, cp
from harness.trees import make_file

MIB = 1 << 20
#: A transfer of any size that this reaches ends with EXIT_INTERNAL.
PANIC = "panic_after=1"
DAY = 86_400


def handing_down(text, seals=hooks.SEALS, owner=0):
    """The words before a command line whose program gets this text at the number of the hooks."""
    script = (f"import os, sys; sys.path.insert(0, {str(product.ROOT / 'tests')!r})\nfrom harness import hooks\n"
              f"os.seteuid({owner})\nhooks.hand_down({text!r}, {seals})\nos.seteuid(0)\n"
              "os.execvp(sys.argv[1], sys.argv[1:])")
    return [sys.executable, "-c", script]


def test_variables_and_options_do_nothing(ssh_road, near, tmp_path):
    source = make_file(near / "file", 8 * MIB)
    variables = {"FARHAUL_FAULT": PANIC, "FARHAUL_EPOCH_BITS": "nonsense", "FARHAUL_CLOCK": "/nonexistent"}
    ssh_road.cp(source, ssh_road.url("copy"), env=variables)
    for option in (["--fault", PANIC], ["--epoch-bits", "6"]):
        ssh_road.cp(*option, source, ssh_road.url("copy"), expect=EXIT_USAGE)
    (tmp_path / "clock").write_text(f"{400 * DAY} 0")
    node = Node(tmp_path, listens=False)
    node.stop()
    node.env["FARHAUL_CLOCK"] = os.fspath(tmp_path / "clock")
    node.start()
    try:
        job = node.run("submit", "zero:10", "null:", "--wait").split()[0]
        submitted = datetime.datetime.fromisoformat(node.json("job", job)["submitted"]).timestamp()
        assert abs(submitted - datetime.datetime.now(datetime.UTC).timestamp()) < DAY
    finally:
        node.stop()


def test_hooks_act_at_the_end_that_has_them(ssh_road, near):
    source = make_file(near / "file", 8 * MIB)
    with ssh_road.failing(PANIC) as bad:
        bad.cp(source, bad.url("copy"), expect=EXIT_INTERNAL)
        dataclasses.replace(bad, hooks=[]).cp(source, bad.url("copy"), expect=EXIT_LOST)
    ssh_road.cp(source, ssh_road.url("copy"))


@pytest.mark.parametrize("handed_down", [
    handing_down(f"fault={PANIC}\n"),
    handing_down(f"farhaul test hooks: fault={PANIC}\n"),
    handing_down(f"{hooks.FIRST_LINE}\nfault={PANIC}\n", seals=0),
    handing_down(f"{hooks.FIRST_LINE}\nfault={PANIC}\n", owner=USER_ID),
], ids=["without the first line", "with another first line", "not sealed", "of another user"])
def test_a_descriptor_that_no_harness_has_made_does_nothing(ssh_road, near, handed_down):
    cp(ssh_road.alpha, make_file(near / "file", MIB), ssh_road.url("copy"), hooks=handed_down)


def test_a_hook_that_does_not_exist_is_refused_in_a_line(ssh_road, near):
    outcome = cp(ssh_road.alpha, make_file(near / "file", MIB), ssh_road.url("copy"),
                 hooks=handing_down(f"{hooks.FIRST_LINE}\nfault=lass=1\n"), expect=EXIT_USAGE)
    assert "test hooks: unknown fault \"lass\"" in outcome.error_line
