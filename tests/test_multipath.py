"""Several paths at once: each carries a part; a path that dies costs only its share; a path that returns is
used again.

The lab counts what each link has carried; no test looks at the clock.
"""

import json
import re
import subprocess
import time

import pytest

from harness import lab, trees
from harness.hosts import wait_until

#: Options for a shell on host A: both links as paths.
PATHS = "--path $FARHAUL_LAB_A=$FARHAUL_LAB_B --path $FARHAUL_LAB_A_LINK2=$FARHAUL_LAB_B_LINK2"
TARGETS = {"ssh": "$FARHAUL_LAB_B:", "daemon": "$FARHAUL_LAB_CP_OPTIONS ${FARHAUL_LAB_URL}"}
MB = 1_000_000


def cp(arguments):
    return ["sh", "-c", f"exec farhaul cp --json {arguments}"]


def carried(up, way):
    """The bytes that have got through each link so far."""
    return [link[way]["passed_bytes"] for link in up.stats()["links"]]


@pytest.fixture
def two_links(tmp_path):
    with lab.Up("--home", str(tmp_path), "--rtt", "10ms", "--rate", "100m", "--link", "rtt=20ms") as up:
        yield up


def reports_of_both_ways(two_links, tmp_path, road, options):
    """Copies a file there and back; both links must carry a part of it each way, even if a busy machine
    starts one late."""
    source = trees.make_file(tmp_path / "source", 60 * MB)
    ends = {"forward": f"{source} {TARGETS[road]}there", "backward": f"{TARGETS[road]}there {tmp_path}/back"}
    reports = []
    for way, arguments in ends.items():
        before = carried(two_links, way)
        report = json.loads(two_links.execute("a", *cp(f"{options} {arguments}"), timeout=120).stdout)
        assert report["ok"] and report["transport"] == "udp", report
        parts = [now - then for now, then in zip(carried(two_links, way), before, strict=True)]
        assert min(parts) > 6 * MB, parts
        reports.append(report)
    assert trees.sha256(tmp_path / "back") == trees.sha256(source)
    return reports


@pytest.mark.parametrize("road", TARGETS)
def test_both_links_carry_a_push_and_a_pull(two_links, tmp_path, road):
    for report in reports_of_both_ways(two_links, tmp_path, road, PATHS):
        assert report["flows"] == 2, report


@pytest.mark.parametrize("road", TARGETS)
def test_short_transfers_are_counted_exactly(two_links, road):
    """The receiver says over the short link that it has everything, before the long link has acknowledged its
    part."""
    two_links.set("--only", "2", "--rtt", "400ms")
    for size in (1000, 20 << 20, 20 << 20, 20 << 20):
        report = json.loads(two_links.execute("a", *cp(f"{PATHS} random:{size} {TARGETS[road]}null:")).stdout)
        assert (report["bytes"], report["files"], report["content_bytes_resent"]) == (size, 1, 0), report


@pytest.mark.parametrize("road", TARGETS)
def test_paths_are_found_and_both_carry_their_part(two_links, tmp_path, road):
    addresses = two_links.environment
    expected = [(addresses[f"FARHAUL_LAB_A{link}"], addresses[f"FARHAUL_LAB_B{link}"], True) for link in ("", "_LINK2")]
    for report in reports_of_both_ways(two_links, tmp_path, road, "--path auto --flows 2"):
        assert report["flows"] == 4, report
        assert [(path["local"], path["remote"], path["answered"]) for path in report["paths"]] == expected, report


@pytest.mark.parametrize("road", TARGETS)
def test_a_path_that_is_found_and_never_answers_is_left(two_links, road):
    two_links.set("--only", "2", "--loss", "100%")
    before = carried(two_links, "forward")
    done = two_links.execute("a", *cp(f"--path auto --rate 80m random:{60 * MB} {TARGETS[road]}there"), timeout=120)
    report = json.loads(done.stdout)
    assert report["ok"] and report["transport"] == "udp" and report["bytes"] == 60 * MB, report
    assert [path["answered"] for path in report["paths"]] == [True, False], report
    assert any("nothing comes back by the path" in warning for warning in report["warnings"]), report
    assert carried(two_links, "forward")[1] == before[1]


def test_one_link_is_one_path(tmp_path):
    with lab.Up("--home", str(tmp_path), "--rtt", "10ms", "--rate", "100m") as up:
        for target in TARGETS.values():
            report = json.loads(up.execute("a", *cp(f"--path auto random:{MB} {target}there")).stdout)
            assert report["ok"] and report["flows"] == 1 and "paths" not in report, report


@pytest.mark.parametrize("road", TARGETS)
def test_a_path_that_dies_is_left_and_used_again_when_it_returns(two_links, road):
    command = lab.command("exec", "--lab", two_links.name, "a", "--", *cp(f"{PATHS} random:{250 * MB} {TARGETS[road]}there"))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        def grows(link, by):
            start = carried(two_links, "forward")[link]
            wait_until(lambda: running.poll() is not None or carried(two_links, "forward")[link] > start + by,
                       seconds=60, what=f"link {link + 1} carries something")
            assert running.poll() is None, running.communicate()

        grows(1, 5 * MB)
        two_links.set("--only", "2", "--loss", "100%")
        grows(0, 70 * MB)
        two_links.set("--only", "2", "--loss", "0%")
        grows(1, 10 * MB)
        out, _ = running.communicate(timeout=120)
    report = json.loads(out)
    assert report["ok"] and report["transport"] == "udp" and report["bytes"] == 250 * MB, report
    assert any("nothing comes back by the path" in warning for warning in report["warnings"]), report


def rate_of(up, way, links, size):
    """The rate at which some links together carry their next `size` bytes, in bits a second."""
    def now():
        return sum(part for link, part in enumerate(carried(up, way)) if link in links)

    begin, start = time.monotonic(), now()
    wait_until(lambda: now() >= start + size, seconds=60, what="the links carry something")
    return 8 * (now() - start) / (time.monotonic() - begin)


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("road", TARGETS)
def test_the_rate_is_shared_by_the_paths_that_live(two_links, road, way):
    """The path that is left gets the whole --rate. The sum is never more than that, also when the other path
    returns."""
    up, rate = two_links, 40e6
    ends = {"forward": f"random:1T {TARGETS[road]}null:", "backward": f"{TARGETS[road]}random:1T null:"}
    command = lab.command("exec", "--lab", up.name, "a", "--", *cp(f"--rate 40m {PATHS} {ends[way]}"))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            rate_of(up, way, [0, 1], 5 * MB)
            half = rate_of(up, way, [0], 5 * MB)
            up.set("--only", "2", "--loss", "100%")
            whole = 0.0
            # The sender takes a while to notice, and a busy machine falls behind now and then.
            for _ in range(10):
                whole = rate_of(up, way, [0], 10 * MB)
                if whole > 0.7 * rate:
                    break
            up.set("--only", "2", "--loss", "0%")
            returned = carried(up, way)[1]
            wait_until(lambda: carried(up, way)[1] > returned + 2 * MB, seconds=60, what="the path is used again")
            both = rate_of(up, way, [0, 1], 10 * MB)
        finally:
            running.terminate()
            _, errors = running.communicate(timeout=60)
    rates = (half, whole, both)
    assert half < 0.6 * rate and 0.7 * rate < whole < 1.1 * rate and both < 1.1 * rate, (rates, errors)


@pytest.mark.parametrize("road", TARGETS)
def test_a_path_lives_as_long_as_one_of_its_flows(two_links, road):
    """The path with the failed flow keeps its share of --rate, and the other path gets no more."""
    up, rate = two_links, 40e6
    arguments = f"--rate 40m --flows 2 {PATHS} random:1T {TARGETS[road]}null:"
    command = lab.command("exec", "--lab", up.name, "a", "--", *cp(arguments))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            rate_of(up, "forward", [0, 1], 5 * MB)
            address = up.environment["FARHAUL_LAB_A_LINK2"]
            sockets = up.execute("a", "ss", "-Huan", "src", address).stdout.decode()
            port = int(re.search(rf"{re.escape(address)}:(\d+)", sockets).group(1))
            up.execute("a", "nft", "add table inet t; add chain inet t out { type filter hook output priority 0; }; "
                                   f"add rule inet t out udp sport {port} drop")
            rate_of(up, "forward", [0, 1], 20 * MB)
            one, both = rate_of(up, "forward", [1], 5 * MB), rate_of(up, "forward", [0, 1], 10 * MB)
        finally:
            running.terminate()
            _, errors = running.communicate(timeout=60)
    assert 0.35 * rate < one < 0.6 * rate and both < 1.1 * rate, (one, both, errors)
    assert b"nothing comes back" not in errors


def test_a_path_that_makes_no_sense_is_one_line(two_links):
    for paths, exit_code, words in [
        ("--path auto --path $FARHAUL_LAB_A=$FARHAUL_LAB_B", 2, "finds the paths itself"),
        ("--path 192.0.2.1=$FARHAUL_LAB_B", 2, "192.0.2.1 is no address of this host"),
        ("--path $FARHAUL_LAB_A", 2, "is not a path; write LOCAL=REMOTE"),
        ("--path $FARHAUL_LAB_A=$FARHAUL_LAB_B --path $FARHAUL_LAB_A=$FARHAUL_LAB_B", 2, "given twice"),
    ]:
        done = two_links.execute("a", *cp(f"{paths} random:1000 $FARHAUL_LAB_B:there"), check=False)
        assert done.returncode == exit_code and words in done.stderr.decode(), (paths, done)
        assert "panicked" not in done.stderr.decode()
