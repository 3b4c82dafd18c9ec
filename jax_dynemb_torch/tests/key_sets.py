# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Keys that are hard to hash, and digests of the hash of each set. NumPy only.

The tests of jax_dynemb build their hashes, and those of jax_dynemb_torch read them.
"""

import hashlib

import numpy as np

_MASK = (1 << 64) - 1


def _random(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count)


def _times(count: int, bits: int) -> np.ndarray:
    """Multiples of 2**bits, of which there are 2**23, or as many as 64 bits hold."""
    chosen = np.random.default_rng(bits).choice(2**23, count, replace=False)
    return chosen.astype(np.int64) << bits


def _clusters(count: int) -> np.ndarray:
    starts = np.random.default_rng(1).integers(0, 2**40, count // 100)
    return (starts[:, None] * 1000 + np.arange(100)).ravel()


def low_zeros_either_way(count: int) -> np.ndarray:
    """Half of the keys have zeros in their lower half, the others when folded."""
    high = np.random.default_rng(2).choice(2**31, count, replace=False)
    high = high.astype(np.int64)
    return np.where(np.arange(count) % 2 == 0, high << 32, high << 32 | high)


def crafted(count: int) -> np.ndarray:
    """Two keys each that no pilot tells apart, for every multiplier that is fixed.

    They differ in one bit of y between the lowest and the highest bits.
    """
    bits = int((count + 2) / 0.7).bit_length()
    keys = _random(count - 36, seed=3).tolist()
    for number, multiplier in enumerate([1, *map(_splitmix, range(8))]):
        inverse = pow(multiplier | 1, -1, 1 << 64)
        y = int(_random(1, seed=number)[0]) & _MASK
        for one in (y, y ^ (1 << bits)):
            x = one * inverse & _MASK
            keys += [x - (x >> 63 << 64), _signed_fold(x)]
    return np.array(keys, np.int64)


def _signed_fold(x: int) -> int:
    x ^= x >> 32
    return x - (x >> 63 << 64)


def _splitmix(number: int) -> int:
    z = (number + 1) * 0x9E37_79B9_7F4A_7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB & _MASK
    return z ^ z >> 31


_EXTREMES = [-(2**63), 2**63 - 1, -(2**63) + 1, 2**63 - 2, 0, 1, -3, 2**32, -(2**32)]

# What `convert` and `export.safetensors` did not end for is among them: from 0 on.
SETS = {
    "one": np.array([5]),
    "two": np.array([0, 2**63 - 1]),
    "extremes": np.array(_EXTREMES),
    "powers": np.concatenate([1 << np.arange(63), -(1 << np.arange(2, 64))]),
    "dense_501": np.arange(501),
    "dense": np.arange(10_000),
    "below_zero": np.arange(-10_000, -4),
    "odd": np.arange(1, 20_000, 2),
    "thirds": np.arange(0, 30_000, 3),
    "thousands": np.arange(10_000) * 1000,
    "high_bits": np.arange(-(2**13), 2**13) << 50,
    "times_2_20": _times(10_000, 20),
    "times_2_40": _times(10_000, 40),
    "clusters": _clusters(10_000),
    "grid": ((np.arange(100) << 40)[:, None] + np.arange(100)).ravel(),
    "floats": np.arange(10_000).astype(np.float64).view(np.int64),
    "random": _random(11_000),
    "low_zeros_either_way": low_zeros_either_way(10_000),
    "crafted": crafted(10_000),
}
LARGE = {
    "dense": lambda: np.arange(1_000_000),
    "thirds": lambda: np.arange(0, 3_000_000, 3),
    "thousands": lambda: np.arange(1_000_000) * 1000,
    "times_2_40": lambda: _times(1_000_000, 40),
    "clusters": lambda: np.unique(_clusters(1_000_000)),
    "random": lambda: _random(1_000_000),
    "low_zeros_either_way": lambda: low_zeros_either_way(1_000_000),
    "crafted": lambda: crafted(1_000_000),
}


def digest(numbers: np.ndarray, words: np.ndarray, pilots: np.ndarray) -> str:
    """Of the arrays of a hash."""
    joined = b"".join(np.asarray(x).tobytes() for x in (numbers, words, pilots))
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def places(
    ids: np.ndarray, numbers: np.ndarray, words: np.ndarray, pilots: np.ndarray
) -> np.ndarray:
    """Where ids stand, by the formulas of docs/concepts/serving.md; 0: nowhere."""
    multiplier, bits, group_bits, shift, kind = (int(x) for x in numbers)
    y = ids.astype(np.uint64)
    if kind > 0:
        y = y ^ (y >> np.uint64(32))
    y = y * np.uint64(multiplier & _MASK)
    if kind > 1:
        y = y ^ (y >> np.uint64(32))
    y = y.view(np.int64)
    top = y >> shift
    slot = (y ^ top ^ pilots[top & ((1 << group_bits) - 1)]) & ((1 << bits) - 1)
    place = words[slot] ^ y
    return np.where((place > 0) & (place < 1 << bits), place, 0)


# Of the hash of each set.
DIGESTS = {
    "one": "d79ceaf40e8f7640",
    "two": "7366987dfbb5c947",
    "extremes": "732734f1454d959e",
    "powers": "20c77f7a7aa1224c",
    "dense_501": "f903bfe467f9ad55",
    "dense": "fefb4475cb0b72c8",
    "below_zero": "d688ce4972c277f6",
    "odd": "1e8b96419ae713c5",
    "thirds": "05c37a2a4e110bac",
    "thousands": "c604e1828f70c1c0",
    "high_bits": "5a8b76a47eb74ffc",
    "times_2_20": "3de87f69e3e23da9",
    "times_2_40": "35d59fc809016eb7",
    "clusters": "c5d409b825e7afdb",
    "grid": "6e2055a730d0c0cd",
    "floats": "dafb44b62c6ed353",
    "random": "ac64bf95b13dcce4",
    "low_zeros_either_way": "52f1e067908ce164",
    "crafted": "816ab0a332d3ff75",
}
