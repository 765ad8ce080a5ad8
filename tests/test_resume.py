"""After any interruption, the same command goes on where it stopped."""

import contextlib
import os
import random
import signal
import time

import pytest

from conftest import road_to
from harness.hosts import wait_until
from harness.product import EXIT_LOST, cp, finish
from harness.trees import differences, leftovers, make_file, make_tree, sha256

MIB = 1 << 20
SEED = int(os.environ.get("FARHAUL_TEST_SEED", "20261121"))


def kill_after(seconds, process):
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_bytes(host, count):
    """Waits until `count` more bytes have come to the host."""
    begin = host.counter("rx_bytes")
    wait_until(lambda: host.counter("rx_bytes") - begin > count, seconds=60, what=f"{count / MIB:.0f} MiB come")


def kill_receiver(road):
    """kill -9 of the program that serves the far end."""
    if road.name == "daemon":
        road.net.daemon.kill()
    else:
        for pid in road.net.beta.pids("farhaul"):
            if pid != road.net.daemon.process.pid:
                os.kill(pid, signal.SIGKILL)


def revive(road):
    if road.name == "daemon":
        road.net.daemon.restart()


@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_killed_push_goes_on(own_road, end):
    road = own_road
    source = make_file(road.net.folder("near") / "file", 400 * MIB)
    chance = random.Random(f"{SEED}{end}{road.name}")
    beta = road.net.beta
    clean = beta.counter("rx_bytes")
    resumed = 0
    for kill in range(3):
        process = road.start("--rate", "800M", source, road.url("file"))
        wait_for_bytes(beta, chance.randint(25, 75) * MIB)
        if end == "sender":
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        else:
            kill_receiver(road)
            outcome = finish(process, timeout=400)
            assert outcome.code == EXIT_LOST, f"seed {SEED}, kill {kill}: {outcome}"
            assert outcome.error_line and "\n" not in outcome.error_line
            revive(road)
        assert not (road.far / "file").exists(), "a file must not appear before it is complete"
    report = road.cp(source, road.url("file")).report
    resumed = report["bytes_resumed"]
    assert resumed > 50 * MIB, report
    # A chunk that was written, but not yet in the journal when the receiver died, is compared and not sent.
    assert report["bytes"] + resumed + report["bytes_matched"] == 400 * MIB
    wire = beta.counter("rx_bytes") - clean
    assert wire < 400 * MIB * 1.1 + 3 * 32 * MIB, f"{wire / MIB:.0f} MiB on the wire"
    assert sha256(road.far / "file") == sha256(source)
    assert not leftovers(road.far)


def test_killed_pull_goes_on(own_road):
    road = own_road
    near = road.net.folder("near")
    source = make_file(road.far / "file", 300 * MIB)
    process = road.start("--rate", "800M", road.url("file"), near / "file")
    kill_after(1.5, process)
    report = road.cp(road.url("file"), near / "file").report
    assert report["bytes_resumed"] > 20 * MIB
    assert sha256(near / "file") == sha256(source)
    assert not leftovers(near)


@pytest.mark.parametrize("more", [["--verify", "readback"], ["--checksum-extra", "sha256"], []])
def test_what_came_without_digests_is_not_trusted_by_a_run_that_has_them(own_road, more):
    road = own_road
    near = road.net.folder("near")
    source = make_file(near / "file", 100 * MIB + 5)
    process = road.start("--verify", "transit", "--rate", "400M", source, road.url("file"))
    wait_for_bytes(road.net.beta, 40 * MIB)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    report = road.cp(*more, "--manifest", near / "m", source, road.url("file")).report
    assert report["bytes_resumed"] == 0 and report["files"] == 1
    assert report["bytes_matched"] > 20 * MIB, "the content that is there is compared, not sent again"
    assert sha256(road.far / "file") == sha256(source) and not leftovers(road.far)
    checked = road.net.beta.run(["farhaul", "verify", near / "m", road.far])
    assert checked.returncode == 0, checked


def test_killed_tree_goes_on(own_road):
    road = own_road
    near = road.net.folder("near")
    tree = make_tree(near / "tree", seed=11, files=400)
    for n in range(30):
        make_file(tree / f"big{n}", 5 * MIB, seed=n)
    chance = random.Random(SEED)
    for _ in range(2):
        process = road.start("--rate", "400M", tree, road.url("copy/"))
        wait_for_bytes(road.net.beta, chance.randint(20, 60) * MIB)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    report = road.cp(tree, road.url("copy/")).report
    assert report["skipped"] > 0, "files that had arrived are not sent again"
    assert differences(tree, road.far / "copy/tree") == []
    assert not leftovers(road.far)


def test_changed_source_is_sent_anew(own_road):
    road = own_road
    near = road.net.folder("near")
    source = make_file(near / "file", 200 * MIB, seed=1)
    process = road.start("--rate", "800M", source, road.url("file"))
    kill_after(1.5, process)
    with open(source, "r+b") as out:
        out.seek(5 * MIB)
        out.write(os.urandom(3 * MIB))
    road.cp(source, road.url("file"))
    assert sha256(road.far / "file") == sha256(source)


def test_damaged_partial_never_gets_the_name(own_road):
    """Another program changes bytes of the partial file: the digest shows this, and the file arrives right or
    not at all."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 200 * MIB)
    process = road.start("--rate", "800M", source, road.url("file"))
    kill_after(1.5, process)
    [journal] = [path for path in leftovers(road.far) if path.suffix == ".fhjournal"]
    with open(journal, "r+b") as out:
        out.seek(-7, os.SEEK_END)
        out.write(b"\xaa" * 7)
    road.cp(source, road.url("file"))
    assert sha256(road.far / "file") == sha256(source)


def test_what_another_program_has_written_to_a_partial_file_does_not_arrive(own_road):
    """It changes content that counts already, some time after the run."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 200 * MIB)
    process = road.start("--rate", "800M", source, road.url("file"))
    kill_after(1.5, process)
    [partial] = [path for path in leftovers(road.far) if path.suffix == ".fhpart"]
    with open(partial, "r+b") as out:
        out.write(b"evil" * 1000)
    os.utime(partial, (time.time() + 5, time.time() + 5))
    outcome = road.cp(source, road.url("file"))
    assert sha256(road.far / "file") == sha256(source)
    assert outcome.report["bytes_resumed"] > 0, "the other chunks count"


def test_truncated_and_foreign_journals_are_survived(own_road):
    road = own_road
    source = make_file(road.net.folder("near") / "file", 100 * MIB)
    for damage in (b"", b"\x00" * 4096, os.urandom(5000)):
        process = road.start("--rate", "400M", source, road.url("file"))
        kill_after(1.2, process)
        for journal in leftovers(road.far):
            if journal.suffix == ".fhjournal":
                journal.write_bytes(damage)
    road.cp(source, road.url("file"))
    assert sha256(road.far / "file") == sha256(source)


@pytest.mark.slow
def test_two_writers_of_one_file(own_net):
    """The second run waits 15 s for the first to end, as it would after a kill; then it fails, and says why. The
    first run has to last longer than that, so both roads are tried at once."""
    roads = [road_to(own_net, name) for name in ("ssh", "daemon")]
    source = make_file(own_net.folder("near") / "file", 540 * MIB)
    firsts = [road.start("--rate", "200M", source, road.url("file")) for road in roads]
    for road in roads:
        wait_until(lambda road=road: leftovers(road.far), what="the first run writes the file")
    seconds = [road.start(source, road.url("file")) for road in roads]
    for second in seconds:
        outcome = finish(second, timeout=60)
        assert outcome.code != 0
        assert "another transfer" in outcome.stderr or "in use" in outcome.stderr or "being written" in outcome.stderr
    for road, first in zip(roads, firsts, strict=True):
        assert finish(first).code == 0
        assert sha256(road.far / "file") == sha256(source)


def test_second_writer_finds_it_done(own_road):
    """The first run ends while the second waits: the file is then what the second would have sent."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 100 * MIB)
    first = road.start("--rate", "200M", source, road.url("file"))
    wait_for_bytes(road.net.beta, 5 * MIB)
    report = road.cp(source, road.url("file")).report
    assert finish(first).code == 0
    assert report["skipped"] == 1 and report["bytes"] == 0, report
    assert sha256(road.far / "file") == sha256(source)
    assert not leftovers(road.far)


def test_network_gone_and_back(own_road):
    """The path is silent for some seconds; the running transfer goes on by itself."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 200 * MIB)
    process = road.start("--rate", "600M", source, road.url("file"))
    time.sleep(1.0)
    with road.net.beta.dropping("meta l4proto { tcp, udp }"), road.net.alpha.dropping("meta l4proto { tcp, udp }"):
        time.sleep(4)
    outcome = finish(process, timeout=60)
    assert outcome.code == 0, outcome
    assert sha256(road.far / "file") == sha256(source)


def test_vanished_sender_comes_again(own_road):
    """The sender is killed while the network is cut, so the far end keeps the files for it. The same command
    gets them."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 300 * MIB)
    process = road.start("--rate", "400M", source, road.url("file"))
    time.sleep(2.0)
    ports = [("udp", port) for port in road.alpha.udp_ports(process.pid)]
    ports += [("tcp", port) for port in road.alpha.tcp_ports()]
    with contextlib.ExitStack() as cut:
        for protocol, port in ports:
            cut.enter_context(road.net.beta.dropping(f"{protocol} sport {port}"))
            cut.enter_context(road.net.alpha.dropping(f"{protocol} dport {port}"))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        report = road.cp(source, road.url("file")).report
        assert report["ok"] and report["bytes_resumed"] > 20 * MIB, report
    assert sha256(road.far / "file") == sha256(source)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_ten_kills_of_one_transfer(own_road, end):
    """Kills at ten random moments of one 4 GiB transfer: at most 32 MiB are sent twice for each kill.

    The moments are counted from the first content on: before, the daemon may still hold the file for the
    client that was killed.
    """
    road = own_road
    size = 4 << 30
    source = make_file(road.net.folder("near") / "file", size)
    chance = random.Random(f"{SEED}{end}{road.name}ten")
    beta = road.net.beta
    begin = beta.counter("rx_bytes")
    for _ in range(10):
        before = beta.counter("rx_bytes")
        process = road.start("--rate", "2G", source, road.url("file"))
        wait_until(lambda: beta.counter("rx_bytes") > before + 4 * MIB, what="content flows")
        time.sleep(0.7 + chance.random() * 0.6)
        if end == "sender":
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        else:
            kill_receiver(road)
            finish(process, timeout=400)
            revive(road)
    report = road.cp(source, road.url("file")).report
    wire = beta.counter("rx_bytes") - begin
    overhead = report["wire_bytes_sent"] / max(1, report["content_bytes_sent"])
    sent_twice = wire / (overhead * 1.03) - size
    assert sent_twice < 10 * 32 * MIB, sent_twice / MIB
    assert report["bytes_resumed"] > 10 * 32 * MIB, "the limit above means something only if more than that was resumed"
    assert sha256(road.far / "file") == sha256(source)


def test_resumed_without_reading_everything_again(own_road):
    """After a clean interruption nothing that had arrived is read or sent again."""
    road = own_road
    source = make_file(road.net.folder("near") / "file", 600 * MIB)
    process = road.start("--rate", "1G", source, road.url("file"))
    time.sleep(3.0)
    os.kill(process.pid, signal.SIGINT)
    first = finish(process, timeout=15).report
    report = cp(road.alpha, *road.arguments, source, road.url("file")).report
    assert report["bytes_resumed"] >= first["bytes"] - 32 * MIB
    assert report["content_bytes_sent"] <= 600 * MIB - report["bytes_resumed"] + 32 * MIB
    assert sha256(road.far / "file") == sha256(source)


def after_a_reboot(host, folder):
    """From now on, farhaul on this host finds a new boot id."""
    boot_id = folder / "boot_id"
    boot_id.write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    program = host.bin / "farhaul"
    real = program.resolve()
    program.unlink()
    program.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c '"
        f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec {real} \"$@\"' farhaul \"$@\"\n")
    program.chmod(0o755)


def interrupted_at(road, folder, chunks, *ends):
    """Starts a copy into `folder` and kills both ends when the journal has `chunks` chunks; returns the
    partial file."""
    def journal_bytes():
        return sum(path.stat().st_size for path in leftovers(folder) if path.suffix == ".fhjournal")

    process = road.start("--rate", "400M", *ends)
    wait_until(lambda: journal_bytes() > 64 + 56 * chunks, seconds=60, what="the journal grows")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kill_receiver(road)
    wait_until(lambda: set(road.net.beta.pids("farhaul")) <= {road.net.daemon.process.pid}, what="the far end is gone")
    [partial] = [path for path in leftovers(folder) if path.suffix == ".fhpart"]
    return partial


def damage(path, at):
    """Changes one byte."""
    with open(path, "r+b") as out:
        out.seek(at)
        [byte] = out.read(1)
        out.seek(at)
        out.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_reboot_of_the_receiver(own_road, direction):
    """After a reboot, data that were not synced may be lost: with another boot id they are read back and
    checked. Only chunks that are not right are sent again."""
    road, size = own_road, 128 * MIB
    near = road.net.folder("near")
    if direction == "push":
        receiver, folder = road.net.beta, road.far
        ends = make_file(near / "file", size), road.url("file")
    else:
        receiver, folder = road.alpha, near
        make_file(road.far / "file", size)
        ends = road.url("file"), near / "file"
    partial = interrupted_at(road, folder, 40, *ends)
    damage(partial, 5 * MIB + 4711)
    damage(partial, 17 * MIB)
    after_a_reboot(receiver, road.net.folder("boot"))
    revive(road)
    report = road.cp(*ends).report
    assert 30 * MIB < report["bytes_resumed"] < size - 2 * MIB, report
    # Only the damaged parts of the damaged chunks are sent.
    assert report["bytes"] + report["bytes_resumed"] + report["bytes_matched"] == size, report
    assert report["bytes_matched"] > MIB // 2, report
    assert report["content_bytes_sent"] < size - 30 * MIB, report
    assert sha256(near / "file") == sha256(road.far / "file")
    assert not leftovers(folder)
