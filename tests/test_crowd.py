"""Many clients at once from one address, as from an array job or from a laboratory behind a NAT."""

import contextlib
import json
import pathlib

import pytest

from harness.hosts import wait_until
from harness.product import PORT, cp
from harness.trees import make_file

#: A script that starts all clients at once, and notes how each has ended.
CROWD = """
cd {folder}
mkfifo go
exec 9<>go
for n in $(seq {count}); do
  (read -r -N 1 -u 9; farhaul cp --json {source} {url}$n >$n.json 2>$n.err; echo $? >$n.code) &
done
sleep 1
printf '%{count}s' '' >&9
wait
"""
#: How much memory the daemon may take for the crowd: far less than the sum of what the clients could ask for.
MEMORY_MAX_MIB = 1024


def resident_mib(pid):
    """The peak of a process's resident memory."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError(f"process {pid} has no memory")


def crowd(net, count, transport):
    """Copies one file by `count` clients at once. Each copy must arrive."""
    near = net.folder("crowd")
    source = make_file(near / "source", 50_000)
    cp(net.alpha, "--accept-new", source, net.daemon.url("first"))
    blocked = net.beta.dropping(f"udp dport {PORT}") if transport == "tcp" else contextlib.nullcontext()
    script = CROWD.format(folder=near, count=count, source=source, url=net.daemon.url("crowd-"))
    with blocked:
        net.alpha.run(["bash", "-c", script], timeout=400)
    codes = {n: int((near / f"{n}.code").read_text()) for n in range(1, count + 1)}
    failed = {n: (code, (near / f"{n}.err").read_text()) for n, code in codes.items() if code}
    assert not failed, f"{len(failed)} of {count}: {list(failed.items())[:5]}"
    content = source.read_bytes()
    assert all((net.daemon.root / f"crowd-{n}").read_bytes() == content for n in codes)
    ways = [json.loads((near / f"{n}.json").read_text())["transport"] for n in codes]
    assert ways.count(transport) >= count // 2, {way: ways.count(way) for way in set(ways)}
    assert resident_mib(net.daemon.process.pid) < MEMORY_MAX_MIB


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_two_hundred_clients_at_once_are_all_done(own_net, transport):
    crowd(own_net, 200, transport)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_five_hundred_clients_at_once_are_all_done(own_net, transport):
    crowd(own_net, 500, transport)


def test_who_finds_a_daemon_full_is_told_so(own_net):
    """Silent connections take all places of their address. A client is told that the daemon is busy, or waits
    its turn."""
    source = make_file(own_net.folder("near") / "source", 1000)
    holder = own_net.alpha.start(["python3", "-c", HOLDER, own_net.beta.v4, str(PORT)], stdout=-1)
    assert holder.stdout.readline() == b"held\n"

    def are_taken():
        """Whether the daemon has accepted all connections; for a moment they wait in the kernel."""
        table = own_net.beta.run(["ss", "-Hltn", f"sport = :{PORT}"]).stdout.decode()
        return all(line.split()[1] == "0" for line in table.splitlines())
    wait_until(are_taken, what="the daemon has all connections")
    try:
        outcome = cp(own_net.alpha, "--accept-new", "--busy-wait", "0", source, own_net.daemon.url("hasty", own_net.beta.v4),
                     expect=3)
        assert "is busy" in outcome.error_line, outcome
        cp(own_net.alpha, "--accept-new", source, own_net.daemon.url("patient", own_net.beta.v4))
    finally:
        holder.kill()
        holder.wait()


HOLDER = """
import socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(300)]
print("held", flush=True)
time.sleep(100)
"""
