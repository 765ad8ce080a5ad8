"""The root of a manifest's digest tree, computed independently, as docs/guide/verify.md describes it."""

import base64
import json
import os
import struct

from .seal import BLAKE3_START, CHUNK_END, CHUNK_START, PARENT, ROOT, compress, compress_wide

DERIVE_CONTEXT, DERIVE_MATERIAL = 32, 64


def _last(key, content, number, flags):
    """The last compression of a tree. It is that of the root if the tree is the whole input."""
    if len(content) <= 1024:
        blocks = [content[at:at + 64] for at in range(0, len(content), 64)] or [b""]
        value = key
        for at, block in enumerate(blocks):
            edge = (CHUNK_START if at == 0 else 0) | (CHUNK_END if at + 1 == len(blocks) else 0)
            step = value, block.ljust(64, b"\0"), number, len(block), flags | edge
            value = compress(*step)
        return step
    left = 1024 << ((len(content) - 1) // 1024).bit_length() - 1
    halves = _last(key, content[:left], number, flags), _last(key, content[left:], number + left // 1024, flags)
    words = [word for half in halves for word in compress(*half)]
    return key, struct.pack("<16I", *words), 0, 64, flags | PARENT


def blake3(content, length=32, key=BLAKE3_START, flags=0):
    value, block, _, size, flags = _last(key, content, 0, flags)
    blocks = range(-(-length // 64))
    return b"".join(struct.pack("<16I", *compress_wide(value, block, at, size, flags | ROOT)) for at in blocks)[:length]


def derive_key(context, content, length=32):
    key = struct.unpack("<8I", blake3(context.encode(), flags=DERIVE_CONTEXT))
    return blake3(content, length, key, DERIVE_MATERIAL)


KINDS = {"file": b"f", "directory": b"d", "symlink": b"l", "hardlink": b"h", "fifo": b"p", "socket": b"s",
         "char-device": b"c", "block-device": b"b"}


def _name(line, field):
    encoded = line.get(f"{field}_base64")
    return base64.b64decode(encoded) if encoded is not None else os.fsencode(line[field])


def record(line):
    """The bytes that are hashed for an entry."""
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
