"""The root of a manifest's digest tree, computed a second time: by docs/verify.md, with a BLAKE3 of its own."""

import base64
import json
import os
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT, DERIVE_CONTEXT, DERIVE_MATERIAL = 1, 2, 4, 8, 32, 64
MASK = 0xFFFFFFFF


def _compress(chaining, words, counter, length, flags):
    state = list(chaining) + list(IV[:4]) + [counter & MASK, counter >> 32, length, flags]

    def mix(a, b, c, d, x, y):
        for word, first, second in ((x, 16, 12), (y, 8, 7)):
            state[a] = (state[a] + state[b] + word) & MASK
            state[d] ^= state[a]
            state[d] = (state[d] >> first | state[d] << 32 - first) & MASK
            state[c] = (state[c] + state[d]) & MASK
            state[b] ^= state[c]
            state[b] = (state[b] >> second | state[b] << 32 - second) & MASK

    words = list(words)
    for _ in range(7):
        for place, (a, b, c, d) in enumerate(((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                                              (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))):
            mix(a, b, c, d, words[2 * place], words[2 * place + 1])
        words = [words[at] for at in PERMUTATION]
    return [state[at] ^ state[at + 8] for at in range(8)] + [state[at + 8] ^ chaining[at] for at in range(8)]


def _words(block):
    return struct.unpack("<16I", block.ljust(64, b"\0"))


def _chunk(key, content, number, flags):
    """The last compression of a chunk, which may be the root's."""
    blocks = [content[at:at + 64] for at in range(0, len(content), 64)] or [b""]
    chaining = key
    for at, block in enumerate(blocks[:-1]):
        start = CHUNK_START if at == 0 else 0
        chaining = _compress(chaining, _words(block), number, 64, flags | start)[:8]
    start = CHUNK_START if len(blocks) == 1 else 0
    return chaining, _words(blocks[-1]), number, len(blocks[-1]), flags | start | CHUNK_END


def _tree(key, content, number, flags):
    if len(content) <= 1024:
        return _chunk(key, content, number, flags)
    left = 1024
    while left * 2 < len(content):
        left *= 2
    halves = _tree(key, content[:left], number, flags), _tree(key, content[left:], number + left // 1024, flags)
    return key, [word for half in halves for word in _compress(*half)[:8]], 0, 64, flags | PARENT


def blake3(content, length=32, key=IV, flags=0):
    chaining, words, _, size, flags = _tree(key, content, 0, flags)
    out, counter = b"", 0
    while len(out) < length:
        out += struct.pack("<16I", *_compress(chaining, words, counter, size, flags | ROOT))
        counter += 1
    return out[:length]


def derive_key(context, content, length=32):
    key = struct.unpack("<8I", blake3(context.encode(), flags=DERIVE_CONTEXT))
    return blake3(content, length, key, DERIVE_MATERIAL)


KINDS = {"file": b"f", "directory": b"d", "symlink": b"l", "hardlink": b"h", "fifo": b"p", "socket": b"s",
         "char-device": b"c", "block-device": b"b"}


def _name(line, field):
    encoded = line.get(f"{field}_base64")
    return base64.b64decode(encoded) if encoded is not None else os.fsencode(line[field])


def record(line):
    """The bytes that stand for an entry."""
    def counted(content):
        return struct.pack("<I", len(content)) + content

    kind = line["kind"]
    mode = 0 if kind == "symlink" else int(line["mode"], 8)
    out = KINDS[kind] + counted(_name(line, "path")) + struct.pack("<I", mode)
    out += line["mtime_ns"].to_bytes(16, "little", signed=True)
    if kind == "file":
        out += struct.pack("<Q", line["size"])
        out += b"\1" + bytes.fromhex(line["digest"]) if "digest" in line else b"\0"
    elif kind == "symlink":
        out += counted(_name(line, "target"))
    elif kind == "hardlink":
        out += counted(_name(line, "to"))
    elif kind in ("char-device", "block-device"):
        out += struct.pack("<II", line["major"], line["minor"])
    return out


def root_of(records, counts):
    lanes = [0] * 1024
    for one in records:
        numbers = struct.unpack("<1024H", derive_key("farhaul tree root v1 entry", one, 2048))
        lanes = [(lane + number) & 0xFFFF for lane, number in zip(lanes, numbers)]
    return derive_key("farhaul tree root v1", struct.pack("<1024H", *lanes) + struct.pack("<3Q", *counts)).hex()


def root_of_manifest(path):
    with open(path, "rb") as manifest:
        lines = [json.loads(line) for line in manifest]
    there = [line for line in lines if line.get("result") in ("sent", "unchanged", "renamed") and "kind" in line]
    files = [line for line in there if line["kind"] == "file"]
    size = sum(line["size"] for line in files) % (1 << 64)
    return root_of([record(line) for line in there], (len(there), len(files), size))
