# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.hash_ids of one value in Python's integers, as docs/api/ids.md defines it."""

import hashlib

MASK = 2**64 - 1


def siphash24(key: bytes, message: bytes) -> int:
    """SipHash-2-4 as in its paper: 64 bits."""
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[1] = _rotl(v[1], 13) ^ v[0]
        v[0] = _rotl(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = _rotl(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = _rotl(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = _rotl(v[1], 17) ^ v[2]
        v[2] = _rotl(v[2], 32)


def _rotl(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def reference_id(value: str | bytes | int | None, salt: str | int = 0) -> int:
    """Computes the id of one value."""
    if value is None:
        return -1
    text = str(salt).encode()
    keys = hashlib.blake2b(text, digest_size=32, person=b"jde.hash_ids.v1").digest()
    if isinstance(value, int):
        size = 8
        while not -(2 ** (8 * size - 1)) <= value < 2 ** (8 * size - 1):
            size += 8
        key, message = keys[16:], value.to_bytes(size, "little", signed=True)
    else:
        key = keys[:16]
        message = value.encode() if isinstance(value, str) else value
    hashed = siphash24(key, message)
    hashed -= 2**64 if hashed >= 2**63 else 0
    return hashed + 2**63 if -4 <= hashed <= -1 else hashed
