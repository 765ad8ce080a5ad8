"""ChaCha20-Poly1305 (RFC 8439), AES-128-GCM, HKDF-Expand (RFC 5869) and BLAKE3, as far as a peer for tests needs them.

The ciphers are OpenSSL's, whose library is wherever Python's own `ssl` is. The others are plain Python: the
standard library has no BLAKE3, and this one does some hundred KiB a second.
"""

import contextlib
import ctypes
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


LIBCRYPTO = ctypes.CDLL("libcrypto.so.3")
for name, argtypes in {
    "EVP_CIPHER_CTX_new": [],
    "EVP_CIPHER_CTX_free": [ctypes.c_void_p],
    "EVP_chacha20_poly1305": [],
    "EVP_aes_128_gcm": [],
    "EVP_CipherInit_ex": [ctypes.c_void_p] * 3 + [ctypes.c_char_p] * 2 + [ctypes.c_int],
    "EVP_CipherUpdate": [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_int],
    "EVP_CipherFinal_ex": [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)],
    "EVP_CIPHER_CTX_ctrl": [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p],
}.items():
    getattr(LIBCRYPTO, name).argtypes = argtypes
for name in ("EVP_CIPHER_CTX_new", "EVP_chacha20_poly1305", "EVP_aes_128_gcm"):
    getattr(LIBCRYPTO, name).restype = ctypes.c_void_p
#: The cipher for keys of this length.
CIPHERS = {16: LIBCRYPTO.EVP_aes_128_gcm, 32: LIBCRYPTO.EVP_chacha20_poly1305}
# Of openssl/evp.h.
EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG = 0x10, 0x11
TAG_LEN = 16


@contextlib.contextmanager
def cipher(key, nonce, aad, encrypts):
    """A context of the cipher that has read the associated data."""
    context = LIBCRYPTO.EVP_CIPHER_CTX_new()
    try:
        assert len(nonce) == 12
        assert LIBCRYPTO.EVP_CipherInit_ex(context, CIPHERS[len(key)](), None, key, nonce, encrypts)
        assert LIBCRYPTO.EVP_CipherUpdate(context, None, ctypes.byref(ctypes.c_int()), aad, len(aad))
        yield context
    finally:
        LIBCRYPTO.EVP_CIPHER_CTX_free(context)


def update(context, data):
    out = ctypes.create_string_buffer(len(data) or 1)
    assert LIBCRYPTO.EVP_CipherUpdate(context, out, ctypes.byref(ctypes.c_int()), data, len(data))
    return out.raw[:len(data)]


def is_final(context):
    """Ends the cipher; returns whether the tag is right, if one was set."""
    return LIBCRYPTO.EVP_CipherFinal_ex(context, ctypes.create_string_buffer(64), ctypes.byref(ctypes.c_int())) == 1


def seal(key, nonce, aad, plain):
    with cipher(key, nonce, aad, 1) as context:
        sealed = update(context, plain)
        assert is_final(context)
        tag = ctypes.create_string_buffer(TAG_LEN)
        assert LIBCRYPTO.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_LEN, tag)
        return sealed + tag.raw


def open_sealed(key, nonce, aad, data):
    """The plaintext, or None when the tag is wrong."""
    sealed, tag = data[:-TAG_LEN], data[-TAG_LEN:]
    if len(tag) < TAG_LEN:
        return None
    with cipher(key, nonce, aad, 0) as context:
        assert LIBCRYPTO.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_LEN, tag)
        plain = update(context, sealed)
        return plain if is_final(context) else None


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
