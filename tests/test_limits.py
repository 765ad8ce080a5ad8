"""What a client can make a far end do to itself, and to others: nothing that only tests need, and no more than a host allows."""

import pytest

from harness import peer
from harness.hosts import wait_until
from harness.play import daemon_session


def threads(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


#: What a hello could once ask for, and what somebody may try instead.
TESTING = {
    "stands still": {"fault": "stall_us=1000000000000"},
    "hears nothing": {"fault": "loss=1"},
    "other keys": {"epoch_bits": 4},
    "all of it": {"testing": {"fault": {"stall_us": 1 << 40}, "epoch_bits": 4}},
}


@pytest.mark.parametrize("case", TESTING)
def test_no_client_says_what_goes_wrong_at_a_daemon(net, case):
    before = threads(net.daemon.process)
    target = f"testing-{case.replace(' ', '-')}"
    with daemon_session(net, peer.request("push", target, **TESTING[case])) as (reply, session):
        assert reply["refusal"] is None
        session.message(peer.START)
        # More than an epoch of 2^4 packets holds.
        for _ in range(100):
            session.datagram(peer.frame(peer.PING))
        session.file(target, b"content")
        session.message(peer.ENTRIES_END)
        session.drain()
    assert (net.daemon.root / target).read_bytes() == b"content"
    wait_until(lambda: threads(net.daemon.process) <= before, what="the session's threads are gone")


@pytest.mark.parametrize("options", [{"follow_growth_secs": 1 << 63}, {"udp_ports": [0, 1]}, {"flows": 17}, {"memory_bytes": 1}])
def test_what_makes_no_sense_is_refused_before_a_session_begins(net, options):
    with pytest.raises(peer.Closed):
        with daemon_session(net, peer.request("pull", "x", **options)) as (reply, _session):
            assert reply["refusal"]["code"] == "usage", reply
            raise peer.Closed("as it should be")
    assert net.daemon.process.poll() is None and "panicked" not in net.daemon.log_text()
