"""ChaCha20-Poly1305 (RFC 8439), HKDF-Expand (RFC 5869) and BLAKE3, as far as a peer for tests needs them.

In plain Python, so that the tests need nothing but the standard library. It does some hundred KiB a second,
and must not be used to protect real data.
"""

import hashlib
import hmac
import struct

MASK = 0xFFFFFFFF


def hkdf_extract(salt, secret):
    return hmac.new(salt, secret, hashlib.sha256).digest()


def hkdf_expand(secret, info, length):
    out, block, count = b"", b"", 1
    while len(out) < length:
        block = hmac.new(secret, block + info + bytes([count]), hashlib.sha256).digest()
        out, count = out + block, count + 1
    return out[:length]


def chacha20_block(key, counter, nonce):
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key), counter,
             *struct.unpack("<3I", nonce)]
    s = list(start)

    def quarter(a, b, c, d):
        s[a] = (s[a] + s[b]) & MASK
        x = s[d] ^ s[a]
        s[d] = (x << 16 | x >> 16) & MASK
        s[c] = (s[c] + s[d]) & MASK
        x = s[b] ^ s[c]
        s[b] = (x << 12 | x >> 20) & MASK
        s[a] = (s[a] + s[b]) & MASK
        x = s[d] ^ s[a]
        s[d] = (x << 8 | x >> 24) & MASK
        s[c] = (s[c] + s[d]) & MASK
        x = s[b] ^ s[c]
        s[b] = (x << 7 | x >> 25) & MASK

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12)
    return struct.pack("<16I", *((a + b) & MASK for a, b in zip(s, start)))


def chacha20(key, nonce, data):
    blocks = range(1, 1 + (len(data) + 63) // 64)
    stream = b"".join(chacha20_block(key, count, nonce) for count in blocks)[:len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")).to_bytes(len(data), "little")


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at:at + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    return ((total + int.from_bytes(key[16:], "little")) & ((1 << 128) - 1)).to_bytes(16, "little")


def tag_of(key, nonce, aad, sealed):
    def padded(data):
        return data + bytes(-len(data) % 16)

    once = chacha20_block(key, 0, nonce)[:32]
    return poly1305(once, padded(aad) + padded(sealed) + struct.pack("<QQ", len(aad), len(sealed)))


def seal(key, nonce, aad, plain):
    sealed = chacha20(key, nonce, plain)
    return sealed + tag_of(key, nonce, aad, sealed)


def open_sealed(key, nonce, aad, data):
    """The plaintext, or None when the tag is wrong."""
    sealed, tag = data[:-16], data[-16:]
    if not hmac.compare_digest(tag, tag_of(key, nonce, aad, sealed)):
        return None
    return chacha20(key, nonce, sealed)


BLAKE3_START = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
BLAKE3_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8


def compress_wide(value, block, counter, length, flags):
    """All 16 words of a compression, for output of any length."""
    s = [*value, *BLAKE3_START[:4], counter & MASK, counter >> 32, length, flags]
    words = struct.unpack("<16I", block)

    def mix(a, b, c, d, x, y):
        s[a] = (s[a] + s[b] + x) & MASK
        t = s[d] ^ s[a]
        s[d] = (t >> 16 | t << 16) & MASK
        s[c] = (s[c] + s[d]) & MASK
        t = s[b] ^ s[c]
        s[b] = (t >> 12 | t << 20) & MASK
        s[a] = (s[a] + s[b] + y) & MASK
        t = s[d] ^ s[a]
        s[d] = (t >> 8 | t << 24) & MASK
        s[c] = (s[c] + s[d]) & MASK
        t = s[b] ^ s[c]
        s[b] = (t >> 7 | t << 25) & MASK

    for _ in range(7):
        for column in range(4):
            mix(column, column + 4, column + 8, column + 12, words[2 * column], words[2 * column + 1])
        for column in range(4):
            mix(column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12,
                words[8 + 2 * column], words[9 + 2 * column])
        words = [words[index] for index in BLAKE3_ORDER]
    return [s[index] ^ s[index + 8] for index in range(8)] + [s[index + 8] ^ value[index] for index in range(8)]


def compress(value, block, counter, length, flags):
    return compress_wide(value, block, counter, length, flags)[:8]


def subtree(data, counter, flags):
    """The words of a subtree; `flags` is ROOT for the whole input."""
    if len(data) <= 1024:
        value = BLAKE3_START
        blocks = [data[at:at + 64] for at in range(0, len(data), 64)] or [b""]
        for index, block in enumerate(blocks):
            is_last = index + 1 == len(blocks)
            edge = (CHUNK_START if index == 0 else 0) | (CHUNK_END | flags if is_last else 0)
            value = compress(value, block.ljust(64, b"\0"), counter, len(block), edge)
        return value
    left = 1024 << ((len(data) - 1) // 1024).bit_length() - 1
    words = subtree(data[:left], counter, 0) + subtree(data[left:], counter + left // 1024, 0)
    return compress(BLAKE3_START, struct.pack("<16I", *words), 0, 64, PARENT | flags)


def blake3(data):
    return struct.pack("<8I", *subtree(data, 0, ROOT))


def chaining_value(data):
    """The chaining value of a chunk of a larger file, computed as if the chunk stood at the file's start."""
    return struct.pack("<8I", *subtree(data, 0, 0))
