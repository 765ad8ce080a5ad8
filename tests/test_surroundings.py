"""The tests give the same results on every machine: its programs, settings and limits do not reach them."""

import os
import shutil
import subprocess
import sys

from harness import product
from harness.hosts import NETNS_ETC, PREFIX, netns_exists

#: One test of each kind: without a farhaul at the far end, over ssh and to a daemon with modes, without a far
#: end, in the lab, without hosts.
SAMPLE = [
    "test_trust.py::test_ssh_without_the_binary_there",
    "test_copy.py::test_a_destination_made_for_several_sources_is_an_ordinary_directory",
    "test_machine.py::test_cores_that_are_none_are_refused_in_a_line",
    "test_lab.py::test_streams_and_exit_code_pass_through",
    "test_filters.py::test_a_rule_that_makes_no_sense_is_one_line_and_wrong_usage",
]
#: Runs in a mount namespace of its own, so that no other process sees these changes.
SCRIPT = """
    set -e
    mount --bind "$ODD/bin" /usr/local/bin
    mount --bind "$ODD/ssh" /etc/ssh
    if [ -e /etc/bash.bashrc ]; then mount --bind "$ODD/home/.bashrc" /etc/bash.bashrc; fi
    umask 077
    ulimit -S -n 256
    ulimit -f 400000
    unset ODD
    exec "$@"
"""


def test_on_an_odd_machine(tmp_path):
    odd = tmp_path / "odd"
    for name in ("bin", "ssh", "home/.ssh", "home/.config/farhaul", "home/.local/state/farhaul"):
        (odd / name).mkdir(parents=True)
    called = tmp_path / "called"
    program = odd / "bin/farhaul"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> {called}\nexit 42\n")
    program.chmod(0o755)
    nobody = "Host *\n    ProxyCommand false\n    User nobody\n"
    for path in ("ssh/ssh_config", "home/.ssh/config"):
        (odd / path).write_text(nobody)
    (odd / "home/.config/farhaul/id_ed25519").write_text("no key")
    (odd / "home/.local/state/farhaul/paths.json").write_text("{")
    (odd / "home/.bashrc").write_text(f"PATH={odd}/bin\n")
    home = odd / "home"
    variables = {
        "ODD": str(odd), "HOME": str(home), "PATH": f"{odd}/bin:{os.environ['PATH']}", "BASH_ENV": str(home / ".bashrc"),
        "XDG_CONFIG_HOME": str(home / ".config"), "XDG_STATE_HOME": str(home / ".local/state"), "XDG_RUNTIME_DIR": "/nonexistent",
        "SSH_AUTH_SOCK": "/nonexistent", "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22", "RSYNC_RSH": "false", "LC_ALL": "tr_TR.UTF-8",
        "FARHAUL_LOG": "trace", "FARHAUL_LAB": "/nonexistent",
    }
    tests = [str(product.ROOT / "tests" / name) for name in SAMPLE]
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh",
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", f"--basetemp={tmp_path / 'inner'}", *tests]
    inner = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    inner["FARHAUL_BIN"] = shutil.copy(product.binary(), tmp_path / "farhaul")
    done = subprocess.run(argv, env={**inner, **variables}, cwd=product.ROOT / "tests", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert not called.exists(), called.read_text()
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == [
        ".bashrc", "config", "id_ed25519", "paths.json"], "the tests leave nothing in the home of the user who runs them"


def test_runs_that_start_together_sweep_up_what_one_that_was_killed_has_left(tmp_path):
    left = [f"{PREFIX}{os.getpid()}-1-{number}-a" for number in range(40)]
    for name in left:
        subprocess.run(["ip", "netns", "add", name], check=True)
        (NETNS_ETC / name).mkdir(parents=True)
    sweep = [sys.executable, "-c", "from harness.hosts import sweep; sweep()"]
    runs = [subprocess.Popen(sweep, cwd=product.ROOT / "tests", stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(run.communicate(timeout=120)[1], run.returncode) for run in runs] == [("", 0)] * 3
    assert not [name for name in left if netns_exists(name) or (NETNS_ETC / name).exists()]
