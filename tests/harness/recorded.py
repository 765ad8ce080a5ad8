"""Sessions of a released version: how they are recorded, and how one end of them is played to the product.

A recorded session is a JSON file: the hello, the reply, and in their order all messages and blocks of the one request,
as the two ends of that release said them to each other. What a session says about itself (use of carriers, figures, its
end) is left out, as the player (peer.py) says that for itself.
"""

import base64
import collections
import contextlib
import json
import socket
import threading
import zlib

from . import peer
from .play import SECONDS_MAX, FarEnd, program

CLIENT, FAR_END = "client", "far end"
#: What is left out of a recorded hello: it is made for one session, or names this host.
OF_ONE_SESSION = {"secret_half", "flow_ids", "client_udp_ports", "udp_ports", "tcp_port", "ssh_connection", "interfaces"}


# ---- recording -------------------------------------------------------------------------------------------------------

class Wire:
    """The bytes of one direction, as a stream that the decoder reads."""

    def __init__(self):
        self.data = bytearray()

    def recv(self, count):
        piece = bytes(self.data[:count])
        del self.data[:count]
        return piece

    def settimeout(self, _):
        pass


class Listener(peer.Peer):
    """Hears what one end says on the ssh channel, and says nothing."""

    def __init__(self, secret, direction, ids):
        super().__init__(Wire(), secret, 1 - direction, send_id=None, recv_id=None)
        self.keys = {flow: peer.Keys(secret, direction, index) for index, flow in enumerate(ids)}

    def datagram(self, plain):
        pass

    def hear(self, data):
        """Takes bytes; returns what the end has said with them of its request."""
        wire = self.stream.data
        wire += data
        while len(wire) >= 2 and len(wire) >= 2 + int.from_bytes(wire[:2], "big"):
            # A packet of this flow, under its keys.
            self.recv_id = int.from_bytes(wire[3:5], "big")
            self.opening, self.arrived = self.keys[self.recv_id], set()
            try:
                self.take_packet()
            except peer.Closed:
                pass
        said = [{"code": code, "body": body.hex()} for code, body in self.messages if code not in peer.OWN]
        said += [{"block": base64.b64encode(zlib.compress(block)).decode()} for block in self.complete]
        self.messages.clear()
        self.complete.clear()
        return said


class Recorder(FarEnd):
    """Stands between a client and `farhaul endpoint` and writes down what they say. UDP and direct connections are taken
    out of the first words, so that all goes through here."""

    def __init__(self, net):
        super().__init__(net, None)
        self.host = net.beta
        self.steps = []

    def _serve(self):
        with self.listener.accept()[0] as client, program(self.host, ["farhaul", "endpoint"]) as (far, _process):
            client.settimeout(SECONDS_MAX)
            self.hello = peer.read_hello(client)
            peer.write_hello(far, {**self.hello, "udp": False})
            self.reply = peer.read_hello(far)
            peer.write_hello(client, {**self.reply, "udp_ports": [], "tcp_port": None})
            secret = peer.ssh_secret(self.hello, self.reply)
            client_says = Listener(secret, 0, self.reply["flow_ids"])
            far_end_says = Listener(secret, 1, self.hello["flow_ids"])
            back = threading.Thread(target=self.carry, args=(far, client, FAR_END, far_end_says), daemon=True)
            back.start()
            self.carry(client, far, CLIENT, client_says)
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_WR)
            back.join()

    def carry(self, source, target, who, listener):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                said = listener.hear(data)
                self.steps += [{"from": who, **one} for one in said]
                target.sendall(data)

    def write(self, path):
        first = {"version": self.hello["version"], "hello": kept(self.hello), "reply": kept(self.reply)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in [first, *self.steps]))


def kept(words):
    return {name: value for name, value in words.items() if name not in OF_ONE_SESSION}


# ---- playing ---------------------------------------------------------------------------------------------------------

def read(path):
    """The first words and the steps of a recorded session."""
    first, *steps = map(json.loads, path.read_text().splitlines())
    return first, steps


def play(session, steps, role):
    """Says to a live end what `role` said in the recorded session, each word when the other end has said what came before
    it there."""
    # Room for all blocks, which the other end learns with the first acknowledgement.
    session.granted = 64
    heard, awaited, pieces = collections.Counter(), collections.Counter(), set()
    seen = 0

    def listen():
        nonlocal seen
        heard.update(code for code, _ in session.messages[seen:])
        seen = len(session.messages)
        while session.complete:
            pieces.update((file, chunk) for file, chunk, _ in session.pieces())

    def is_heard(step, wanted):
        listen()
        return wanted <= pieces if "block" in step else heard[step["code"]] >= awaited[step["code"]]

    for step in steps:
        block = zlib.decompress(base64.b64decode(step["block"])) if "block" in step else b""
        if step["from"] == role and "block" in step:
            session.whole_block(block[:-8])
        elif step["from"] == role:
            session.message(step["code"], bytes.fromhex(step["body"]))
        else:
            awaited[step.get("code")] += 1
            wanted = {(file, chunk) for file, chunk, _ in peer.pieces_of(block)} if block else set()
            session.wait(lambda step=step, wanted=wanted: is_heard(step, wanted))
