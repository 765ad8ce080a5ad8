"""Test hooks: starts a program of ours so that it fails on purpose, changes its keys often, or has a wrong clock.

`hooks.py NAME=VALUE... -- PROGRAM...` puts the hooks into a memory file that nobody can change any more, gives that
file the number at which the program looks for it (`crates/cli/src/descriptors.rs`), and executes the program. No option and no
variable of the environment does the same. A program that ours starts does not get the hooks: each end of a transfer
that is to have some is started by this file. At the far end of ssh, `--remote-program` names a script that does so.
"""

import fcntl
import os
import shlex
import sys

#: As in `crates/cli/src/descriptors.rs` and `test_hooks.rs`.
DESCRIPTOR = 1000
FIRST_LINE = "farhaul test hooks"
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def prefix(fault=None, epoch_bits=None, clock=None):
    """The words before a command line that give its program these hooks; none if there are no hooks. They act
    at this program's own end only."""
    given = {"fault": fault, "epoch_bits": epoch_bits, "clock": clock}
    words = [f"{name}={value}" for name, value in given.items() if value is not None]
    return [sys.executable, os.path.abspath(__file__), *words, "--"] if words else []


def far_end(folder, hooks):
    """A program for `--remote-program` that gives the far end of ssh these hooks, which `prefix` has made."""
    script = folder / "farhaul"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(hooks)} farhaul \"$@\"\n")
    script.chmod(0o755)
    return script


def hand_down(text, seals=SEALS):
    """Puts a memory file with this text at the number at which a program of ours looks for hooks."""
    memory = os.memfd_create("hooks", os.MFD_ALLOW_SEALING)
    os.write(memory, text.encode())
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    os.dup2(memory, DESCRIPTOR)


def main(words):
    at = words.index("--")
    hand_down("".join(f"{line}\n" for line in (FIRST_LINE, *words[:at])))
    os.execvp(words[at + 1], words[at + 1:])


if __name__ == "__main__":
    main(sys.argv[1:])
