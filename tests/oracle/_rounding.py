# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stochastic rounding of float32 to 16 bits, by exact fractions in float64."""

import numpy as np

from ._philox import philox4x32

DOMAIN = 0x53524E44  # tells these random numbers from those of initial rows
ROUNDS = 7  # of Philox: the fewest that pass the tests of its authors
FORMATS = {  # by dtype: bits after the leading one, the least exponent, the largest
    "bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127),
    "float16": (10, -14, 65504.0),
}


def rounding_bits(
    seed: int,
    keys: np.ndarray,
    dim: int,
    step: int,
    first_column: int = 0,
    array: int = 0,
) -> np.ndarray:
    """Draws 16 random bits for each key and column: uint16[n, dim].

    ``step`` counts this update too. ``array`` is 0 for rows, 1 + s for state s.
    """
    blocks = (first_column + dim + 7) // 8  # a call of the generator gives eight
    counter = np.zeros((len(keys), blocks, 4), np.uint32)
    counter[..., 0] = (keys & np.uint64(0xFFFFFFFF))[:, None]
    counter[..., 1] = (keys >> np.uint64(32))[:, None]
    counter[..., 2] = np.arange(blocks)
    counter[..., 3] = step & 0xFFFFFFFF
    key = ((seed & 0xFFFFFFFF) ^ (DOMAIN + array), (seed >> 32) ^ (step >> 32))
    words = philox4x32(counter, key, ROUNDS)
    halves = np.stack([words & 0xFFFF, words >> np.uint32(16)], axis=-1)
    columns = halves.reshape(len(keys), blocks * 8).astype(np.uint16)
    return columns[:, first_column : first_column + dim]


def round_stochastically(x: np.ndarray, bits: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds float32 away from zero where bits are below the fraction that is cut.

    Infinite and NaN numbers stay, and so does what the dtype can hold. No finite number
    below 2**16 becomes infinite.
    """
    mantissa, least, largest = FORMATS[dtype]
    x = np.asarray(x, np.float32)
    size = np.abs(x.astype(np.float64))
    finite = np.isfinite(size)
    size = np.where(finite, size, 0)
    exponent = np.maximum(np.frexp(size)[1] - 1, least)
    unit = np.ldexp(1.0, exponent - mantissa)
    below = np.floor(size / unit)
    cut = size / unit - below
    # float16 cuts 13 bits, so the highest 13 random bits count. Subnormal numbers cut
    # more, and use all 16.
    draws = (bits >> 3).astype(np.float64) / 2**13
    if dtype == "bfloat16":
        draws = bits.astype(np.float64) / 2**16
    up = draws + cut >= 1
    if dtype == "float16":
        up = np.where(size < 2.0**-14, bits + 0.5 < cut * 2**16, up)
    rounded = np.minimum((below + up) * unit, largest)
    rounded = np.where(size >= 2.0**16, np.inf, rounded) if largest < 2**16 else rounded
    rounded = np.where(finite, np.copysign(rounded, x), x)
    with np.errstate(over="ignore", invalid="ignore"):
        return rounded.astype(np.float32).astype(dtype)
