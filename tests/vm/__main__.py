"""`./x vm`: a command, or a shell, in a guest."""

import argparse
import pathlib
import shlex
import shutil
import sys

from . import accelerator, image
from .agent import AgentError
from .guest import Guest, GuestError, at_the_console
from .releases import FOLDER, RELEASES

EPILOG = """\
A guest is Debian 11 (Linux 5.10), 12 (6.1) or 13 (6.12), with systemd. It sees this source tree as /repository, read-only, and the
folder of --share as /share. What it writes elsewhere is gone when it ends. Its network is its own: it has only a loopback.

  ./x vm 11 /repository/target/package/made/farhaul-static --version
  ./x vm 13 'modprobe sch_netem && tc qdisc add dev lo root netem delay 50ms && ping -c 3 127.0.0.1'
  ./x vm shell 12
  ./x vm build            makes the systems that are not there, in target/vm (from Debian's mirror, minutes)
  ./x vm clean            removes them
"""


def main() -> int:
    options = arguments()
    try:
        return act(options)
    except (image.ImageError, GuestError, AgentError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 1


def act(options: argparse.Namespace) -> int:
    match options.what, options.command:
        case "build", chosen:
            build(chosen or list(RELEASES))
            return 0
        case "clean", []:
            shutil.rmtree(FOLDER, ignore_errors=True)
            return 0
        case "shell", [version] if version in RELEASES:
            return at_the_console(version, options.share)
        case version, [_, *_] if version in RELEASES:
            script = options.command[0] if len(options.command) == 1 else shlex.join(options.command)
            with Guest(version, options.share) as guest:
                done = guest.run(script, options.seconds)
            sys.stdout.write(done.stdout)
            sys.stderr.write(done.stderr)
            return done.code
    print("error: ./x vm VERSION COMMAND, ./x vm shell VERSION, ./x vm build or clean; VERSION is 11, 12 or 13", file=sys.stderr)
    return 2


def build(versions: list[str]) -> None:
    for version in versions:
        if version not in RELEASES:
            raise image.ImageError(f"there is no Debian {version} here: {', '.join(RELEASES)}")
        release = RELEASES[version]
        image.make(release)
        blocks = sum(path.stat().st_blocks for path in release.folder.iterdir())
        runs = "by KVM" if accelerator.options(release) is accelerator.KVM else "emulated"
        print(f"Debian {version}: {release.folder}, {blocks * 512 / 2**20:.0f} MiB, runs {runs}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./x vm", description="Runs a command in a system of its own.", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=pathlib.Path, metavar="FOLDER", help="a folder that the guest sees as /share and may write to")
    parser.add_argument("--seconds", type=float, default=3600, help="how long a command may take")
    parser.add_argument("what", metavar="VERSION | shell | build | clean")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a script of sh, or a program and its arguments")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
