"""The saved bytes of this protocol version (vectors/) are as docs/reference/wire.md describes them: names,
codes, fields."""

import json
import pathlib
import re

from harness import peer

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/reference/wire.md").read_text()
#: The name of each control message by its code, from the page.
TABLE = {int(code): name for code, name in re.findall(r"^\| (\d+) \| [SRB] \| ([a-z ]+) \|", PAGE, re.M)}


def vectors(name):
    lines = (ROOT / f"vectors/{name}.txt").read_text().splitlines()
    return [(line.split(" ")[0], bytes.fromhex(line.split(" ")[1])) for line in lines]


def test_first_words_are_json_with_the_fields_of_the_page():
    frames = {name: json.loads(data) for name, data in vectors("hello")}
    hello = frames["Hello"]
    assert hello["magic"] == "farhaul" and hello["protocols"] == [1, 1] and set(hello["network"]) == set(peer.NETWORK)
    for frame in frames.values():
        for field in frame:
            assert f"`{field}`" in PAGE, field


def test_messages_have_the_codes_of_the_page():
    seen = set()
    for name in ("session", "copy", "stream"):
        for label, data in vectors(name):
            if name == "session":
                request, at = peer.take_leb(data, 0)
                assert (request == 0) == (label != "Words"), label
                data = data[at:]
            length, at = peer.take_leb(data, 0)
            assert length == len(data) - at, label
            if label == "Words":
                continue
            code = data[at]
            assert (code in peer.OWN) == (name == "session"), label
            assert code in TABLE, (label, code)
            seen.add(code)
    assert seen == set(TABLE), f"without a vector: {[TABLE[code] for code in set(TABLE) - seen]}"


def test_a_hello_that_the_second_peer_makes_has_no_field_that_the_first_does_not():
    made = peer.greeting("hello", features=peer.FEATURES, **peer.request("push", "x"), flow_ids=[77], udp=False,
                         secret_half=peer.half())
    assert set(made) <= set(json.loads(dict(vectors("hello"))["Hello"]))


def test_frames_have_the_kinds_of_the_page():
    kinds = {int(kind, 16): name for kind, name in re.findall(r"^\| 0x([0-9a-f]{2}) \| ([a-z ]+) \|", PAGE, re.M)}
    for label, data in vectors("frames"):
        length, at = peer.take_varint(data, 1)
        assert data[0] in kinds and length == len(data) - at, label
