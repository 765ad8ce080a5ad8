"""`farhaul bench`: runs every part with tiny sizes, checks the shape of the JSON, and that nothing is left
behind.

No test judges a figure: how fast a part is depends on the machine and on its other load.
"""

import json
import os
import re
import signal
import subprocess

import pytest

from harness.hosts import wait_until
from harness.product import EXIT_CONNECT, EXIT_FILES, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ROOT
from harness.trees import make_file

MIB = 1 << 20
FINDINGS = {"schema", "ok", "error", "error_detail", "bench", "here", "there", "rows", "expected", "skipped", "warnings"}
HOST = {"name", "version", "cores", "processor", "kernel"}
ROWS = {
    "cipher": {"cipher", "segment_bytes", "seal_bps", "open_bps", "seal_ns", "open_ns"},
    "digest": {"segment_bytes", "bps"},
    "copy": {"how", "segment_bytes", "working_set_bytes", "bps"},
    "disk": {"operation", "way", "block_bytes", "depth", "bytes", "seconds", "bps", "block_ms", "cpu"},
    "link": {"direction", "packet_bytes", "datagram_bytes", "cipher", "flows", "seconds", "bps", "lost", "sender_cpu",
             "receiver_cpu", "sender_bps_per_core", "receiver_bps_per_core", "limit"},
    "transfer": {"from", "to", "direction", "bytes", "seconds", "bps", "lost", "cpu_seconds_here", "cpu_seconds_there",
                 "transport", "bottleneck", "cut"},
}


def bench(host, *arguments, expect=EXIT_OK):
    """Runs `farhaul bench --json` and returns what it found."""
    argv = ["farhaul", "bench", arguments[0], "--json", *map(str, arguments[1:])]
    done = host.run(argv, timeout=120)
    assert done.returncode == expect, (argv, done)
    findings = json.loads(done.stdout)
    check(findings)
    assert findings["ok"] == (expect == EXIT_OK) and (findings["error"] is None) == findings["ok"]
    return findings


def check(findings):
    assert set(findings) == FINDINGS and findings["schema"] == 1
    assert set(findings["here"]) == HOST and findings["here"]["cores"] >= 1
    for row in findings["rows"]:
        assert set(row) == ROWS[row["what"]] | {"what"}
        for name in row:
            if name == "bps" or name.endswith("_bps"):
                assert row[name] > 0, row
    if findings["expected"] is not None:
        assert set(findings["expected"]) == {"bps", "limit", "of"} and findings["expected"]["bps"] > 0
    for skipped in findings["skipped"]:
        assert skipped["what"] and skipped["why"]


def files_below(*folders):
    return [path for folder in folders for path in folder.rglob("*")]


def test_cpu(net):
    findings = bench(net.alpha, "cpu", "--seconds", "0.001")
    assert {row["what"] for row in findings["rows"]} >= {"cipher", "digest", "copy"}
    ciphers = {(row["cipher"], row["segment_bytes"]) for row in findings["rows"] if row["what"] == "cipher"}
    assert len(ciphers) == 9 and ("aes-128-gcm", 1430) in ciphers
    assert findings["expected"]["limit"]


def test_disk_reads_a_file_and_leaves_it_alone(net, near):
    source = make_file(near / "file", 3 * MIB)
    before = (source.read_bytes(), source.stat().st_mtime_ns)
    findings = bench(net.alpha, "disk", source, "--size", "2M")
    assert {row["operation"] for row in findings["rows"]} == {"read"}
    assert all(row["bytes"] == 2 * MIB for row in findings["rows"])
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before and files_below(near) == [source]


def test_disk_writes_only_when_it_may(net, near):
    assert "--write" in bench(net.alpha, "disk", near, expect=EXIT_USAGE)["error"]
    assert files_below(near) == []
    findings = bench(net.alpha, "disk", near, "--write", "--size", "2M")
    assert {row["operation"] for row in findings["rows"]} == {"read", "write"}
    assert {"buffered"} <= {row["way"] for row in findings["rows"]}
    assert files_below(near) == []


def test_disk_that_is_too_small(net):
    disk = net.pair.small_disk(4)
    bench(net.alpha, "disk", disk, "--write", "--size", "64M", expect=EXIT_FILES)
    assert files_below(disk) == []


def test_disk_leaves_nothing_when_it_is_killed(net, near):
    for how, code in ((signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)):
        argv = ["farhaul", "bench", "disk", near, "--write", "--size", "64M", "--seconds", "60", "--json"]
        process = net.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: writes(process.pid) > MIB, what="something is written")
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
        # On a fast disk it may have ended before the signal.
        assert process.returncode in (code, EXIT_OK), err
        assert files_below(near) == []
        if process.returncode == EXIT_INTERRUPTED:
            findings = json.loads(out)
            check(findings)
            assert findings["error"] == "interrupted"


def writes(pid):
    with open(f"/proc/{pid}/io") as file:
        return int(re.search(r"^wchar: (\d+)", file.read(), re.M).group(1))


LINK = ("--seconds", "0.1", "--rate", "20M")


def test_link_both_ways(net):
    findings = bench(net.alpha, "link", *LINK, "beta")
    cases = {(row["direction"], row["cipher"], row["flows"]) for row in findings["rows"]}
    assert cases == {(direction, cipher, flows) for direction in ("to", "from")
                     for cipher in (None, "aes-128-gcm") for flows in (1, 2)}
    # Sealed datagrams are as long as those of a transfer: 8 bytes of header, whole blocks of the cipher, 16
    # of tag.
    assert {(row["packet_bytes"], bool(row["cipher"]), row["datagram_bytes"]) for row in findings["rows"]} in (
        {(1500, False, 1472), (1500, True, 1464)}, {(1500, False, 1452), (1500, True, 1448)})
    assert any("9000" in skipped["what"] for skipped in findings["skipped"])
    assert findings["there"]["name"] == "beta" and findings["there"]["cores"] >= 1
    assert findings["expected"]["limit"]
    no_processes(net)


def test_link_keeps_to_its_rate(net):
    before = net.alpha.counter("tx_bytes")
    bench(net.alpha, "link", "--seconds", "0.5", "--rate", "8M", "--direction", "to", "--flows", "1", "beta")
    sent = net.alpha.counter("tx_bytes") - before
    # Two cases of half a second at 1 MB/s each; the rest is for ssh, the first batches and headers.
    assert sent < 3 * MIB, sent


def test_link_of_one_size_over_ipv6(net):
    findings = bench(net.alpha, "link", *LINK, "--direction", "from", "--flows", "3", "--packet", "1280",
                     "--cipher", "chacha20-poly1305", "beta6")
    assert [(row["cipher"], row["flows"], row["packet_bytes"], row["datagram_bytes"]) for row in findings["rows"]] == [
        (None, 3, 1280, 1232), ("chacha20-poly1305", 3, 1280, 1224)]


def test_link_through_a_firewall_says_which_port(net):
    with net.beta.dropping("meta l4proto udp"):
        findings = bench(net.alpha, "link", *LINK, "beta", expect=EXIT_CONNECT)
    assert "UDP port 33" in findings["error"] and findings["rows"] == []
    no_processes(net)


def test_link_stops_when_the_near_end_is_gone(net):
    argv = ["farhaul", "bench", "link", "--seconds", "60", "--rate", "8M", "--direction", "from", "--flows", "1", "beta"]
    for how in (signal.SIGINT, signal.SIGKILL):
        process = net.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = net.beta.counter("tx_bytes")
        wait_until(lambda: net.beta.counter("tx_bytes") > before + MIB // 2, what="datagrams come")
        process.send_signal(how)
        _, err = process.communicate(timeout=30)
        assert process.returncode == (EXIT_INTERRUPTED if how == signal.SIGINT else -how), err
        no_processes(net)


def no_processes(net):
    """Waits until no process of a far end is left on beta; the daemon stays."""
    daemons = {net.daemon.process.pid}
    wait_until(lambda: set(net.beta.pids("farhaul")) <= daemons, what="the far end ends")


@pytest.mark.parametrize("pull", [False, True])
def test_transfer_of_all_four_kinds(net, near, pull):
    far = net.folder("far")
    ways = ["--pull"] if pull else []
    findings = bench(net.alpha, "transfer", "beta", "--write", "--here", near, "--there", far, "--size", "3M", *ways)
    kinds = [(row["from"], row["to"]) for row in findings["rows"]]
    assert kinds == [("memory", "memory"), ("memory", "disk"), ("disk", "memory"), ("disk", "disk")]
    assert all(row["bytes"] == 3 * MIB and not row["cut"] for row in findings["rows"])
    assert {row["direction"] for row in findings["rows"]} == {"from" if pull else "to"}
    assert findings["expected"]["of"].startswith("a transfer from disk to disk")
    no_processes(net)
    assert files_below(near, far) == []


def test_transfer_writes_nothing_unless_it_may(net, near):
    far = net.folder("far")
    source = make_file(near / "file", 2 * MIB)
    findings = bench(net.alpha, "transfer", "beta", "--here", near, "--there", far, "--size", "1M", "--from", source)
    assert [(row["from"], row["to"], row["bytes"]) for row in findings["rows"]] == [
        ("memory", "memory", MIB), ("disk", "memory", 2 * MIB)]
    assert len(findings["skipped"]) == 2 and files_below(near, far) == [source]


def test_transfer_to_a_daemon(net, near):
    # Trees of other tests in it may be too deep to walk.
    there = lambda: sorted(os.listdir(net.daemon.root))  # noqa: E731
    before = there()
    findings = bench(net.alpha, "transfer", "--accept-new", f"fh://beta:{net.daemon.port}", "--write", "--here", near,
                     "--size", "1M")
    assert [(row["from"], row["to"]) for row in findings["rows"]] == [("memory", "memory"), ("disk", "memory")], findings
    assert files_below(near) == [] and there() == before


def test_transfer_ends_when_time_is_up(net):
    findings = bench(net.alpha, "transfer", "beta", "--size", "100G", "--seconds", "0.5", "--rate", "100M")
    [row] = findings["rows"]
    assert row["cut"] and 0 < row["bytes"] < 1 << 30


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_transfer_that_is_ended_leaves_nothing_at_the_far_end(net, near, how):
    far = net.folder("far")
    argv = ["farhaul", "bench", "transfer", "beta", "--write", "--here", near, "--there", far, "--size", "20M", "--rate", "16M"]
    process = net.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The first case is memory to memory; after it a file appears in the far folder.
    wait_until(lambda: len(files_below(far)) > 1, seconds=60, what="a file arrives")
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == (EXIT_INTERRUPTED if how == signal.SIGINT else -how), err
    wait_until(lambda: files_below(far) == [], seconds=40, what="the far folder is empty")
    if how == signal.SIGINT:
        assert files_below(near) == []


def test_a_host_without_the_verb_is_a_clear_error(net):
    findings = bench(net.alpha, "link", "--remote-program", "/no/such/farhaul", "beta", expect=EXIT_CONNECT)
    assert "cannot be started on beta" in findings["error"]
    findings = bench(net.alpha, "link", "--remote-program", "echo hello;", "beta", expect=EXIT_CONNECT)
    assert "printed text" in findings["error"]


def test_the_table_is_for_people(net, near):
    done = net.alpha.run(["farhaul", "bench", "disk", near, "--write", "--size", "1M"])
    text = done.stdout.decode()
    assert done.returncode == 0 and not done.stderr
    assert "bit/s" in text and re.search(r"^expected: .*bit/s", text, re.M) and re.search(r"^limit: +\w", text, re.M)
    quiet = net.alpha.run(["farhaul", "bench", "disk", near, "--write", "--size", "1M", "-q"])
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")


def test_the_schema_is_published(net):
    text = (ROOT / "docs/guide/bench.md").read_text()
    names = FINDINGS | HOST | {"what"}.union(*ROWS.values())
    assert not [name for name in names if f"`{name}`" not in text]
