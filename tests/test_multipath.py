"""Several paths at once: each carries a part, one that dies costs its share alone, one that returns is used again.

What a link has carried is the lab's own count; no test looks at the clock.
"""

import json
import subprocess

import pytest

from harness import lab, trees
from harness.hosts import wait_until

#: For a shell on host A.
PATHS = "--path $FARHAUL_LAB_A=$FARHAUL_LAB_B --path $FARHAUL_LAB_A_LINK2=$FARHAUL_LAB_B_LINK2"
TARGETS = {"ssh": "$FARHAUL_LAB_B:", "daemon": "${FARHAUL_LAB_URL}"}
MB = 1_000_000


def cp(arguments):
    return ["sh", "-c", f"exec farhaul cp --json $FARHAUL_LAB_CP_OPTIONS {arguments}"]


def carried(up, way):
    """Bytes that have got through so far, by link."""
    return [link[way]["passed_bytes"] for link in up.stats()["links"]]


@pytest.fixture
def two_links(tmp_path):
    with lab.Up("--home", str(tmp_path), "--rtt", "10ms", "--rate", "100m", "--link", "rtt=20ms") as up:
        yield up


@pytest.mark.parametrize("road", TARGETS)
def test_both_links_carry_a_push_and_a_pull(two_links, tmp_path, road):
    source = trees.make_file(tmp_path / "source", 30 * MB)
    ends = {"forward": f"{source} {TARGETS[road]}there", "backward": f"{TARGETS[road]}there {tmp_path}/back"}
    for way, arguments in ends.items():
        before = carried(two_links, way)
        report = json.loads(two_links.execute("a", *cp(f"{PATHS} {arguments}"), timeout=120).stdout)
        assert report["ok"] and report["flows"] == 2 and report["transport"] == "udp", report
        parts = [now - then for now, then in zip(carried(two_links, way), before, strict=True)]
        assert min(parts) > 6 * MB, parts
    assert trees.sha256(tmp_path / "back") == trees.sha256(source)


@pytest.mark.parametrize("road", TARGETS)
def test_paths_are_found_and_both_carry_their_part(two_links, tmp_path, road):
    source = trees.make_file(tmp_path / "source", 30 * MB)
    ends = {"forward": f"{source} {TARGETS[road]}there", "backward": f"{TARGETS[road]}there {tmp_path}/back"}
    addresses = two_links.environment
    expected = [(addresses[f"FARHAUL_LAB_A{link}"], addresses[f"FARHAUL_LAB_B{link}"]) for link in ("", "_LINK2")]
    for way, arguments in ends.items():
        before = carried(two_links, way)
        report = json.loads(two_links.execute("a", *cp(f"--path auto --flows 2 {arguments}"), timeout=120).stdout)
        assert report["ok"] and report["flows"] == 4 and report["transport"] == "udp", report
        assert [(path["local"], path["remote"], path["answered"]) for path in report["paths"]] == [
            (*pair, True) for pair in expected], report
        parts = [now - then for now, then in zip(carried(two_links, way), before, strict=True)]
        assert min(parts) > 6 * MB, parts
    assert trees.sha256(tmp_path / "back") == trees.sha256(source)


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


def test_a_path_that_makes_no_sense_is_one_line(two_links):
    for paths, exit_code, words in [
        ("--path auto --path $FARHAUL_LAB_A=$FARHAUL_LAB_B", 2, "finds the paths itself"),
        ("--path 192.0.2.1=$FARHAUL_LAB_B", 2, "192.0.2.1 is no address of this host"),
        ("--path $FARHAUL_LAB_A", 2, "is not LOCAL=REMOTE"),
        ("--path $FARHAUL_LAB_A=$FARHAUL_LAB_B --path $FARHAUL_LAB_A=$FARHAUL_LAB_B", 2, "given twice"),
    ]:
        done = two_links.execute("a", *cp(f"{paths} random:1000 $FARHAUL_LAB_B:there"), check=False)
        assert done.returncode == exit_code and words in done.stderr.decode(), (paths, done)
        assert "panicked" not in done.stderr.decode()
