"""Which stage limited a transfer: each stage is made the slow one in turn, and the report must name it."""

import json
import sys

import pytest

from harness import lab

MB = 1_000_000
#: Passes stdin to stdout at 4 MB/s.
SLOWLY = f"{sys.executable} -c \"import sys, time\nwhile b := sys.stdin.buffer.read(200_000):\n sys.stdout.buffer.write(b); sys.stdout.flush(); time.sleep(.05)\""


@pytest.fixture(scope="module")
def link():
    with lab.Up("--rtt", "4ms", "--rate", "200m") as up:
        yield up


CASES = {
    "network": (f"farhaul cp --json $FARHAUL_LAB_CP_OPTIONS random:{60 * MB} ${{FARHAUL_LAB_URL}}null:", "network: "),
    "rate": (f"farhaul cp --json --rate 50M $FARHAUL_LAB_CP_OPTIONS random:{40 * MB} ${{FARHAUL_LAB_URL}}null:",
             "the rate that was set: it came to "),
    "source": (f"head -c {12 * MB} /dev/urandom | {SLOWLY} | "
               "farhaul cp --json $FARHAUL_LAB_CP_OPTIONS - ${FARHAUL_LAB_URL}piped",
               "sender's reading of the source: "),
}


@pytest.mark.parametrize("case", CASES)
def test_the_slow_stage_is_named(link, case):
    script, words = CASES[case]
    report = json.loads(link.execute("a", "bash", "-ec", script, timeout=120).stdout)
    assert report["bottleneck"].startswith(words), report
    assert report["limit_id"] == {"network": "slow-network", "rate": "rate-limit", "source": "slow-sender-disk"}[case]


def test_a_slow_destination_is_named(link):
    """A pull to standard output has no report there, so the test reads the summary line."""
    script = (f"farhaul cp --memory 16M $FARHAUL_LAB_CP_OPTIONS ${{FARHAUL_LAB_URL}}random:{48 * MB} - | {SLOWLY} > /dev/null")
    done = link.execute("a", "bash", "-ec", script, timeout=120)
    assert b"receiver's writing of the destination: " in done.stderr, done.stderr.decode()


def test_a_long_path_without_loss_never_waits_for_the_receiver():
    """The receiver grants a new block at once for each that arrives, and more if the path holds more than the
    first grant."""
    with lab.Up("--rtt", "600ms", "--rate", "400m") as link:
        script = f"farhaul cp --json $FARHAUL_LAB_CP_OPTIONS random:{250 * MB} ${{FARHAUL_LAB_URL}}null:"
        report = json.loads(link.execute("a", "bash", "-ec", script, timeout=120).stdout)
    waits = [stage["busy"] for stage in report["stages"] if (stage["end"], stage["name"]) == ("sender", "wait-receiver")]
    assert sum(waits) < 0.1, report
    assert report["bottleneck"].startswith("network: "), report
