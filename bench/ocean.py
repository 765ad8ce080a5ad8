"""One file across an emulated intercontinental link, by farhaul and, for a bounded time, by scp."""

import dataclasses
import json
import pathlib
import time

from ground import GIB, MIB, remove

from harness import lab, trees

#: Cubic is the default of Linux. Another default of this machine's kernel would make scp look better or
#: worse.
LINK = ["--rtt", "100ms", "--loss", "1%", "--rate", "1g", "--tcp", "cubic"]
LINK_NAME = "100 ms, 1 % loss, 1 Gbit/s"
#: How long scp runs. At about 1 Mbit/s it would need hours; what it has moved by then shows its rate.
SCP_SECONDS = 30


@dataclasses.dataclass
class Crossing:
    """How much one tool has moved across, and how long that took."""

    tool: str
    seconds: float
    size: int
    verdict: str

    @property
    def rate(self):
        return 8 * self.size / self.seconds


def cross(folder, source, digest):
    """Runs both tools, each over a link of its own with the same losses. `folder` is the home of host B."""
    folder = pathlib.Path(folder)
    return [by_farhaul(folder, source, digest), by_scp(folder, source)]


def by_farhaul(folder, source, digest):
    target = folder / "by-farhaul"
    remove(target)
    done = lab.run([*LINK, "--home", folder], ["farhaul", "cp", "--json", source, f"lab-b:{target.name}"], timeout=900)
    report = json.loads(done.stdout)
    verdict = "equal" if trees.sha256(target) == digest else "DIFFERS"
    crossing = Crossing("farhaul ssh", report["seconds"], target.stat().st_size, verdict)
    remove(target)
    return crossing


def by_scp(folder, source):
    target = folder / "by-scp"
    remove(target)
    begin = time.monotonic()
    done = lab.run([*LINK, "--home", folder], ["timeout", str(SCP_SECONDS), "scp", "-q", source, f"lab-b:{target.name}"],
                   check=False, timeout=SCP_SECONDS + 60)
    seconds = min(time.monotonic() - begin, SCP_SECONDS)
    size = target.stat().st_size if target.exists() else 0
    share = size / source.stat().st_size
    crossing = Crossing("scp", seconds, size, "-" if done.returncode == 0 else f"stopped, {share:.1%} had arrived")
    remove(target)
    return crossing


def table(crossings, size):
    whole = f"{size / GIB:g} GiB" if size >= GIB else f"{size / MIB:g} MiB"
    print(f"\nThe same across an emulated ocean ({LINK_NAME}), one file of {whole}:\n")
    for crossing in crossings:
        print(f"{crossing.tool:<12} {crossing.seconds:8.2f} s  {crossing.size / MIB:8.1f} MiB  "
              f"{crossing.rate / 1e6:8.1f} Mbit/s  {crossing.verdict}")
    fast, slow = crossings
    if slow.size:
        print(f"\nfarhaul is {fast.rate / slow.rate:.0f} times as fast there. `farhaul lab run {' '.join(LINK)} -- CMD` runs "
              "any other tool on that link.")
