# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums in two float32 numbers, about 48 bits, where float64 is off."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Pair = tuple[jax.Array, jax.Array]  # high, and what rounding took from it


def added(a: Pair, b: Pair) -> Pair:
    """Adds two pairs of equal shape; the low parts carry what the high ones lose."""
    (a_high, a_low), (b_high, b_low) = a, b
    high = a_high + b_high
    b_part = high - a_high
    lost = (a_high - (high - b_part)) + (b_high - b_part)
    low = lost + a_low + b_low
    total = high + low
    return total, low - (total - high)


def summed(high: jax.Array, low: jax.Array | None = None) -> Pair:
    """Adds up the first axis of float32[n, ...] by halves; zeros where n is 0."""
    pair = high, jnp.zeros_like(high) if low is None else low
    if high.shape[0] == 0:
        zero = jnp.zeros(high.shape[1:], jnp.float32)
        return zero, zero
    while (n := pair[0].shape[0]) > 1:
        pad = [(0, n % 2)] + [(0, 0)] * (high.ndim - 1)
        high, low = (jnp.pad(x, pad) for x in pair)
        half = high.shape[0] // 2
        pair = added((high[:half], low[:half]), (high[half:], low[half:]))
    return pair[0][0], pair[1][0]
