"""`farhaul tunnel`: connections of TCP from alpha to what beta reaches, and back.

Always true: content is random and compared byte for byte; nothing waits for a time where it can wait for a fact.
"""

import contextlib
import hashlib
import itertools
import json
import queue
import random
import socket
import struct
import subprocess
import threading

import pytest

from conftest import make_net
from harness import peer
from harness.hosts import wait_until
from harness.peer import counted, leb
from harness.play import SECONDS_MAX, FarEnd, daemon_session
from harness.product import EXIT_AUTH, EXIT_CONNECT, EXIT_PROTOCOL, EXIT_USAGE
from harness.sampling import resident_bytes
from harness.sockets import Server, connect, listen, read_all

MIB = 1 << 20
#: Codes of the messages of a tunnel (docs/reference/wire.md), and the room of a new channel.
OPEN, OPENED, REFUSED, ROOM, RESET, LISTEN, LISTENING, NOT_LISTENING, ARRIVED = range(120, 129)
START = 64 << 10


class Tunnel:
    """A running `farhaul tunnel` on alpha, and what it says."""

    def __init__(self, net, host, *arguments, accept=True):
        options = ["--accept-new"] if accept and str(host).startswith("fh:") else []
        argv = ["farhaul", "tunnel", "--json", *options, *map(str, arguments), str(host)]
        self.net = net
        self.process = net.alpha.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = queue.Queue()
        self.events = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def next(self, *kinds, seconds=40):
        """The next event of these kinds."""
        while True:
            event = self.said.get(timeout=seconds)
            assert event is not None, f"it has ended: {self.process.stderr.read().decode()}; before that: {self.events}"
            self.events.append(event)
            if event["event"] in kinds:
                return event

    def ready(self):
        """The ports, in the order in which it listens, once there is a session."""
        ports = []
        while (event := self.next("listening", "connected"))["event"] == "listening":
            ports.append(event["port"])
        return ports

    def end(self):
        self.process.terminate()
        return self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def own_net():
    """Hosts of these tests alone, as each writes the list of keys anew."""
    made = make_net()
    yield made
    made.pair.close()


@pytest.fixture
def allow(own_net):
    """A function that writes the options of alpha's key at the daemon."""
    def write(options):
        own_net.daemon.keys.write_text(f"{options} {own_net.key}" if options else own_net.key)
    return write


@pytest.fixture(params=["ssh", "daemon"])
def far(request, own_net, allow):
    """beta, as the command line names it; every tunnel is allowed."""
    allow("tunnel=*:*,tunnel-listen=*:*")
    return "beta" if request.param == "ssh" else own_net.daemon.url()


def content(seed, size):
    return random.Random(seed).randbytes(size)


def exchange(stream, data):
    """Sends data, then its end, and returns what comes back up to the other end's."""
    def send():
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
    sending = threading.Thread(target=send)
    sending.start()
    back = read_all(stream)
    sending.join()
    return back


def is_reset(stream):
    """Whether a connection ends with a reset, not with an end."""
    try:
        read_all(stream)
        return False
    except ConnectionResetError:
        return True


# ---- what is carried -------------------------------------------------------------------------------------------------


def test_a_hundred_connections_at_once_carry_each_its_own_bytes(own_net, far):
    with Server(own_net.beta) as server, Tunnel(own_net, far, "-L", f"0:127.0.0.1:{server.port}") as tunnel:
        [port] = tunnel.ready()
        failed = []

        def one(number):
            data = content(number, random.Random(number).randrange(1, 600_000))
            with connect(own_net.alpha, port) as stream:
                if exchange(stream, data) != data:
                    failed.append(number)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and server.count == 100
        assert tunnel.end() == 0


def test_either_side_may_end_its_direction_first(own_net, far):
    """The server ends its direction at once, and goes on reading; what it has got it says over another connection."""
    digests = queue.Queue()

    def talk(stream):
        stream.sendall(b"that is all")
        stream.shutdown(socket.SHUT_WR)
        digests.put(hashlib.sha256(read_all(stream)).digest())

    data = content(1, 3 * MIB)
    with Server(own_net.beta, talk) as server, Tunnel(own_net, far, "-L", f"0:127.0.0.1:{server.port}") as tunnel:
        [port] = tunnel.ready()
        with connect(own_net.alpha, port) as stream:
            assert read_all(stream) == b"that is all"
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            assert digests.get(timeout=60) == hashlib.sha256(data).digest()


def test_a_reset_is_a_reset_at_the_other_side(own_net, far):
    waiting, ends = threading.Event(), queue.Queue()

    def abort(stream):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()

    def talk(stream):
        if stream.recv(1) == b"r":
            abort(stream)
        else:
            waiting.set()
            ends.put(is_reset(stream))

    with Server(own_net.beta, talk) as server, Tunnel(own_net, far, "-L", f"0:127.0.0.1:{server.port}") as tunnel:
        [port] = tunnel.ready()
        with connect(own_net.alpha, port) as stream:
            stream.sendall(b"r")
            assert is_reset(stream)
        stream = connect(own_net.alpha, port)
        stream.sendall(b"w")
        assert waiting.wait(60)
        abort(stream)
        assert ends.get(timeout=60) is True


def test_a_connection_that_nobody_reads_stops_its_sender_and_nobody_else(own_net, far):
    """The sender is stopped after what the buffers on the way hold. Meanwhile another connection works, and when the
    reader goes on, nothing is missing."""
    may_read, digests = threading.Event(), queue.Queue()

    def talk(stream):
        if stream.recv(1) == b"e":
            Server.echo(stream)
        elif may_read.wait(60):
            digests.put(hashlib.sha256(read_all(stream)).digest())

    data = content(3, 48 * MIB)
    with Server(own_net.beta, talk) as server, Tunnel(own_net, far, "-L", f"0:127.0.0.1:{server.port}") as tunnel:
        [port] = tunnel.ready()
        slow = connect(own_net.alpha, port)
        slow.sendall(b"s")
        slow.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(data):
                sent += slow.send(data[sent:sent + MIB])
        assert sent < len(data), "the sender was never stopped"
        with connect(own_net.alpha, port) as other:
            other.sendall(b"e")
            small = content(4, 100_000)
            assert exchange(other, small) == small
        may_read.set()
        slow.settimeout(60)
        slow.sendall(data[sent:])
        slow.shutdown(socket.SHUT_WR)
        assert digests.get(timeout=60) == hashlib.sha256(data).digest()


def test_the_far_end_listens_on_loopback_and_connections_lead_here(own_net, far):
    with Server(own_net.alpha) as server, Tunnel(own_net, far, "-R", f"0:127.0.0.1:{server.port}") as tunnel:
        [port] = tunnel.ready()
        data = content(5, MIB)
        with connect(own_net.beta, port) as stream:
            assert exchange(stream, data) == data
        with pytest.raises(ConnectionRefusedError):
            connect(own_net.alpha, port, own_net.beta.v4)
        assert tunnel.end() == 0
        # The listener is gone with the tunnel.
        with pytest.raises(OSError):
            connect(own_net.beta, port)


def socks(host, port, request, greeting=b"\x05\x01\x00"):
    """Talks SOCKS 5 as a client; returns the stream and the number of the reply."""
    stream = connect(host, port)
    stream.sendall(greeting)
    assert stream.recv(2, socket.MSG_WAITALL) == b"\x05\x00"
    stream.sendall(b"\x05\x01\x00" + request)
    reply = stream.recv(10, socket.MSG_WAITALL)
    return stream, reply[1]


def test_a_socks_proxy_takes_names_and_addresses_of_both_families(own_net, far):
    beta = own_net.beta
    with Server(beta) as v4, Server(beta, address="::1") as v6, Tunnel(own_net, far, "-D", 0) as tunnel:
        [port] = tunnel.ready()
        data = content(6, 200_000)
        for request in (b"\x01" + socket.inet_aton("127.0.0.1") + struct.pack(">H", v4.port),
                        b"\x04" + socket.inet_pton(socket.AF_INET6, "::1") + struct.pack(">H", v6.port),
                        b"\x03" + counted(b"localhost") + struct.pack(">H", v4.port)):
            stream, reply = socks(own_net.alpha, port, request)
            with stream:
                assert reply == 0 and exchange(stream, data) == data
        free = listen(beta)
        number = free.getsockname()[1]
        free.close()
        for request, expected in ((b"\x01" + socket.inet_aton("127.0.0.1") + struct.pack(">H", number), 5),
                                  (b"\x03" + counted(b"no-such-host.invalid") + struct.pack(">H", 80), 4)):
            stream, reply = socks(own_net.alpha, port, request)
            with stream:
                assert reply == expected and read_all(stream) == b""


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_a_target_that_refuses_resets_the_connection_and_is_told(own_net, far):
    free = listen(own_net.beta)
    port = free.getsockname()[1]
    free.close()
    with Tunnel(own_net, far, "-L", f"0:127.0.0.1:{port}", "-L", "0:no-such-host.invalid:80") as tunnel:
        for here, code in zip(tunnel.ready(), ("FH-TARGET-REFUSED", "FH-HOST-UNKNOWN")):
            with connect(own_net.alpha, here) as stream:
                assert is_reset(stream)
            assert tunnel.next("refused")["why"]["code"] == code


def test_a_port_that_is_taken_is_an_error_at_either_end(own_net, far):
    with listen(own_net.alpha) as here, listen(own_net.beta) as there:
        for option, taken in (("-L", here), ("-R", there)):
            way = f"127.0.0.1:{taken.getsockname()[1]}:localhost:80"
            done = own_net.alpha.run(["farhaul", "tunnel", *([] if far == "beta" else ["--accept-new"]), option, way, far])
            assert done.returncode == EXIT_CONNECT, done.stderr
            assert "cannot listen on 127.0.0.1" in done.stderr.decode()


@pytest.mark.parametrize("arguments", [[], ["-L", "80"], ["-L", "80:host"], ["-D", "a:b:c"], ["-R", "1:h:0"]])
def test_a_command_line_that_makes_no_sense_says_what_is_wanted(net, arguments):
    done = net.alpha.run(["farhaul", "tunnel", *arguments, "beta"])
    assert done.returncode == EXIT_USAGE and b"-L" in done.stderr or b"[BIND:]PORT" in done.stderr


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_a_daemon_carries_no_tunnel_unless_the_keys_line_says_so(own_net, allow):
    for options in ("", "diagnose", "read-only"):
        allow(options)
        done = own_net.alpha.run(["farhaul", "tunnel", "--accept-new", "-L", "0:127.0.0.1:22", own_net.daemon.url()])
        assert done.returncode == EXIT_AUTH and b"may not have tunnels" in done.stderr, done.stderr


def test_targets_are_judged_by_the_address_that_is_connected_to(own_net, allow):
    beta = own_net.beta
    with Server(beta, address=beta.v4) as allowed, Server(beta) as inner:
        # The name `beta` stands for its address on the link, and nothing else.
        allow(f"tunnel=beta:{allowed.port},192.0.2.0/24:80,{beta.v4}/30:{inner.port}")
        ways = [f"beta:{allowed.port}", f"{beta.v4}:{allowed.port}", f"[::ffff:{beta.v4}]:{allowed.port}"]
        others = [f"127.0.0.1:{inner.port}", f"localhost:{inner.port}", f"0.0.0.0:{inner.port}", f"[::ffff:127.0.0.1]:{inner.port}", "127.0.0.1:22",
                  f"no-such-host.invalid:{allowed.port}", f"127.0.0.1:{allowed.port}"]
        arguments = itertools.chain.from_iterable(("-L", f"0:{way}") for way in ways + others)
        with Tunnel(own_net, own_net.daemon.url(), *arguments) as tunnel:
            ports = tunnel.ready()
            for port in ports[:len(ways)]:
                with connect(own_net.alpha, port) as stream:
                    assert exchange(stream, b"through") == b"through"
            for way, port in zip(others, ports[len(ways):]):
                with connect(own_net.alpha, port) as stream:
                    assert is_reset(stream), way
                assert tunnel.next("refused")["why"]["code"] == "FH-FORBIDDEN", way
        assert inner.count == 0 and allowed.count == len(ways)


def test_a_socks_proxy_obeys_the_same_list(own_net, allow):
    beta = own_net.beta
    with Server(beta) as server, Server(beta) as other:
        allow(f"tunnel=127.0.0.0/8:{server.port}")
        with Tunnel(own_net, own_net.daemon.url(), "-D", 0) as tunnel:
            [port] = tunnel.ready()
            for target, expected in ((server, 0), (other, 2)):
                stream, reply = socks(own_net.alpha, port, b"\x03" + counted(b"localhost") + struct.pack(">H", target.port))
                with stream:
                    assert reply == expected
        assert other.count == 0


def test_listening_at_a_daemon_is_a_right_of_its_own(own_net, allow):
    daemon, key_of = own_net.daemon.url(), own_net.alpha
    with listen(own_net.beta) as free:
        port = free.getsockname()[1]
    for options, bind, is_allowed in ((f"tunnel=*:{port}", "", False), (f"tunnel-listen={port}", "", True),
                                      (f"tunnel-listen={port}", "localhost:", True), (f"tunnel-listen=*:{port}", "beta:", False),
                                      (f"tunnel-listen={port}", "*:", False), (f"tunnel-listen={own_net.beta.v4}:{port}", "", False),
                                      (f"tunnel-listen={own_net.beta.v4}:{port}", f"{own_net.beta.v4}:", True)):
        allow(options)
        way = f"{bind}{port}:127.0.0.1:9"
        if is_allowed:
            with Tunnel(own_net, daemon, "-R", way) as tunnel:
                assert tunnel.ready() == [port]
                assert tunnel.end() == 0
        else:
            done = key_of.run(["farhaul", "tunnel", "--accept-new", "-R", way, daemon])
            assert done.returncode == EXIT_AUTH and b"may not listen" in done.stderr, (options, done.stderr)


def test_a_running_session_ends_when_its_key_loses_a_target(own_net, allow):
    with Server(own_net.beta) as server:
        allow(f"tunnel=127.0.0.1:{server.port}")
        with Tunnel(own_net, own_net.daemon.url(), "-L", f"0:127.0.0.1:{server.port}") as tunnel:
            [port] = tunnel.ready()
            with connect(own_net.alpha, port) as stream:
                stream.sendall(b"x")
                assert stream.recv(1) == b"x"
                allow("tunnel=127.0.0.1:9")
                assert is_reset(stream)
            assert tunnel.next("lost")["why"]["code"] == "FH-RIGHTS-NARROWED"


# ---- lost sessions ---------------------------------------------------------------------------------------------------


def test_a_lost_session_is_begun_again_while_the_listeners_stay(own_net, allow):
    allow("tunnel=*:*,tunnel-listen=*:*")
    with Server(own_net.beta) as server, Server(own_net.alpha) as here:
        with listen(own_net.beta) as free:
            there = free.getsockname()[1]
        with Tunnel(own_net, own_net.daemon.url(), "-L", f"0:127.0.0.1:{server.port}", "-R", f"{there}:127.0.0.1:{here.port}") as tunnel:
            ports = tunnel.ready()
            with connect(own_net.alpha, ports[0]) as stream:
                stream.sendall(b"x")
                assert stream.recv(1) == b"x"
                own_net.daemon.kill()
                assert is_reset(stream)
            tunnel.next("lost")
            # The listener stays: this connection waits for the next session.
            with connect(own_net.alpha, ports[0]) as waiting:
                own_net.daemon.start()
                assert exchange(waiting, b"again") == b"again"
            tunnel.next("connected")
            with connect(own_net.beta, there) as back:
                assert exchange(back, b"and back") == b"and back"


def test_a_client_that_is_killed_leaves_no_listener_at_the_far_end(own_net, far):
    with Tunnel(own_net, far, "-R", "0:127.0.0.1:9") as tunnel:
        [port] = tunnel.ready()
        tunnel.process.kill()
        tunnel.process.wait()

        def is_gone():
            try:
                connect(own_net.beta, port).close()
                return False
            except ConnectionRefusedError:
                return True
            except ConnectionResetError:
                # It came before the listener went.
                return False
        wait_until(is_gone, seconds=40, what="the far end's listener goes")


# ---- ends that lie ---------------------------------------------------------------------------------------------------


def pieces(*labels, content=b""):
    """A block: labels are (channel, offset, length, is_last)."""
    encoded = b"".join(leb(channel) + leb(at) + leb(length << 1 | last) for channel, at, length, last in labels)
    return content + encoded + struct.pack("<I", len(encoded))


def open_of(channel, port, room=START, host=b"127.0.0.1"):
    return leb(channel) + leb(room) + counted(host) + leb(port)


@contextlib.contextmanager
def lying_client(net):
    """A session of a client that is none of ours with the daemon."""
    wish = peer.opening("tunnel", b"{}", {"cipher": "chacha20-poly1305"})
    with daemon_session(net, wish) as (reply, session):
        assert reply["refusal"] is None, reply
        session.message(peer.START)
        yield session


def opened(session, port, channel=0):
    session.message(OPEN, open_of(channel, port))
    code, body = session.next(OPENED, REFUSED)
    assert code == OPENED and peer.take_leb(body, 0)[0] == channel


LIES = {
    "data for a channel that was never opened": ("UnknownChannel", lambda session: session.whole_block(pieces((2, 0, 1, 0), content=b"x"))),
    "data for a channel of the server's": ("UnknownChannel", lambda session: session.whole_block(pieces((1, 0, 1, 0), content=b"x"))),
    "room for a channel that was never opened": ("UnknownChannel", lambda session: session.numbers(ROOM, 2, 10)),
    "a reset of a channel that was never opened": ("UnknownChannel", lambda session: session.numbers(RESET, 8)),
    "more than there is room for": ("BeyondRoom", lambda session: session.whole_block(pieces((0, 0, START + 1, 0), content=bytes(START + 1)))),
    "bytes far beyond the room": ("BeyondRoom", lambda session: session.whole_block(pieces((0, 1 << 62, 1, 0), content=b"x"))),
    "an offset that does not fit": ("SenselessTunnelPieces", lambda session: session.whole_block(pieces((0, (1 << 64) - 1, 1, 0), content=b"x"))),
    "a length beyond the block": ("SenselessTunnelPieces", lambda session: session.whole_block(pieces((0, 0, 1 << 40, 0), content=b"x"))),
    "a piece without bytes": ("SenselessTunnelPieces", lambda session: session.whole_block(pieces((0, 0, 0, 0)))),
    "a block without pieces": ("SenselessTunnelPieces", lambda session: session.whole_block(pieces())),
    "labels beyond the block": ("SenselessTunnelPieces", lambda session: session.whole_block(struct.pack("<I", 1 << 30))),
    "pieces that overlap": ("SenselessOffset", lambda session: session.whole_block(pieces((0, 10, 10, 0), (0, 15, 10, 0), content=bytes(20)))),
    "bytes behind the end": ("SenselessOffset", lambda session: session.whole_block(pieces((0, 0, 1, 1), (0, 1, 1, 0), content=b"xy"))),
    "room that is taken back": ("ShrunkRoom", lambda session: session.numbers(ROOM, 0, 5)),
    "room without end": ("ShrunkRoom", lambda session: session.numbers(ROOM, 0, (1 << 64) - 1)),
    "a channel out of turn": ("ChannelOutOfTurn", lambda session: session.message(OPEN, open_of(8, 9))),
    "a channel of the other's numbers": ("ChannelOutOfTurn", lambda session: session.message(OPEN, open_of(1, 9))),
    "a channel twice": ("ChannelOutOfTurn", lambda session: session.message(OPEN, open_of(0, 9))),
    "a name that no host has": ("SenselessMessage", lambda session: session.message(OPEN, open_of(2, 9, host=b"a\nb"))),
    "a port that there is not": ("SenselessMessage", lambda session: session.message(OPEN, open_of(2, 70_000))),
    "an answer to nothing": ("UnexpectedMessage", lambda session: session.numbers(OPENED, 0, 10)),
    "a message of the server's": ("UnexpectedMessage", lambda session: session.numbers(LISTENING, 0, 10)),
}


def test_a_client_that_lies_ends_its_own_session_with_a_code(own_net, allow):
    with Server(own_net.beta) as server:
        allow(f"tunnel=127.0.0.1:{server.port}")
        # alpha's user knows the daemon from here on.
        with Tunnel(own_net, own_net.daemon.url(), "-L", f"0:127.0.0.1:{server.port}") as honest:
            [port] = honest.ready()
            for case, (name, lie) in LIES.items():
                before = own_net.daemon.log_text().count(f'misbehaviour="{name}"')
                with lying_client(own_net) as session:
                    opened(session, server.port)
                    with pytest.raises(peer.Closed):
                        lie(session)
                        session.wait(lambda: False)
                wait_until(lambda: own_net.daemon.log_text().count(f'misbehaviour="{name}"') > before, what=case)
            with connect(own_net.alpha, port) as stream:
                assert exchange(stream, b"still here") == b"still here"
        assert "panicked" not in own_net.daemon.log_text()


def test_a_client_cannot_make_a_daemon_keep_more_than_its_room(own_net, allow):
    """It opens as many channels as it may, fills the room of each with pieces that wait for the first byte, and reads
    nothing that comes."""
    with Server(own_net.beta) as server:
        allow(f"tunnel=127.0.0.1:{server.port}")
        with lying_client(own_net) as session:
            opened(session, server.port)
            before = resident_bytes(own_net.daemon.process.pid)
            for channel in range(2, 400, 2):
                opened(session, server.port, channel)
                step = 1 << 10
                labels = [(channel, at, step - 1, 0) for at in range(1, START - step, step)]
                session.whole_block(pieces(*labels, content=bytes(len(labels) * (step - 1))))
            session.message(OPEN, open_of(400, server.port))
            session.next(OPENED)
            grown = resident_bytes(own_net.daemon.process.pid) - before
            assert grown < 96 * MIB, grown
            session.finish()


def test_a_client_that_opens_too_many_channels_or_listeners_is_refused(own_net, allow):
    allow("tunnel=127.0.0.1:9,tunnel-listen=127.0.0.1:*")
    with lying_client(own_net) as session:
        for number in range(65):
            session.message(LISTEN, leb(number) + counted(b"127.0.0.1") + leb(0))
        answers = [session.next(LISTENING, NOT_LISTENING)[0] for _ in range(65)]
        assert answers == [LISTENING] * 64 + [NOT_LISTENING]
        session.finish()


@pytest.mark.parametrize(("script", "name"), [
    (lambda session: session.whole_block(pieces((0, 0, 1, 0), content=b"x")), "UnknownChannel"),
    (lambda session: session.message(ARRIVED, leb(1) + leb(10) + leb(5)), "UnknownListener"),
    (lambda session: session.message(LISTENING, leb(3) + leb(10)), "UnknownListener"),
    (lambda session: session.message(OPEN, open_of(1, 22)), "UnexpectedMessage"),
    (lambda session: session.whole_block(b"no block"), "SenselessTunnelPieces"),
])
def test_a_far_end_that_lies_ends_the_tunnel_with_a_code(own_net, script, name):
    """It asks for what is no business of its own, such as a connection from here to port 22."""
    def far_end(_hello, session):
        session.wait(lambda: any(code == peer.START for code, _ in session.messages))
        script(session)
        session.drain()

    with FarEnd(own_net, far_end, features=[]) as far:
        done = own_net.alpha.run(["farhaul", "tunnel", "--json", "--cipher", "chacha20-poly1305", "--remote-program", far.program, "-L", "0:db:1",
                                  "beta"], timeout=SECONDS_MAX)
    ended = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == EXIT_PROTOCOL and ended["event"] == "ended", done.stderr
    assert (ended["why"]["code"], ended["why"]["misbehaviour"]) == ("FH-MISBEHAVED", name)
