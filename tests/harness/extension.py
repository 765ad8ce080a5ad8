"""The Python package as `./x bindings` puts it together, and scripts that use it."""

import os
import pathlib
import sys
import textwrap

import pytest

from .product import ROOT

PACKAGE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "python"
EXAMPLES = ROOT / "bindings/python/examples"


def needed():
    """For tests that cannot run without the package."""
    if not (PACKAGE / "farhaul/_native.abi3.so").exists():
        pytest.skip("there is no Python package: run ./x bindings")


def environment(**more):
    return {"PYTHONPATH": os.fspath(PACKAGE), **more}


def start(host, script, *arguments, **options):
    """Starts a script, a text or a path, on a host."""
    argv = [script] if isinstance(script, pathlib.Path) else ["-c", textwrap.dedent(script)]
    return host.start([sys.executable, "-X", "faulthandler", *argv, *map(str, arguments)], env=environment(), **options)


def run(host, script, *arguments, expect=0, timeout=120):
    """Runs a script to its end; returns what it has printed."""
    argv = [script] if isinstance(script, pathlib.Path) else ["-c", textwrap.dedent(script)]
    done = host.run([sys.executable, "-X", "faulthandler", *argv, *map(str, arguments)], env=environment(), timeout=timeout)
    said = f"{done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
    assert done.returncode == expect and b"panicked" not in done.stderr, said
    return done.stdout.decode()
