# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts that decay, read from the index on the device (see core/score.h)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jax_dynemb._src import ffi as _ffi


def whole_uses(
    low: jax.Array, high: jax.Array, clock: UInt32[Array, " 2"], halflife: int
) -> jax.Array:
    """Counts the uses that rows weigh beside one by the latest lookup, rounded down.

    Args:
      low: uint32, low words of scores.
      high: uint32, what stands above them.
      clock: words of the latest lookup.
      halflife: in lookups.
    """
    h = jnp.uint32(halflife)
    passed = _modulo(clock, h)
    age = clock[0] - low  # wraps
    epochs = jnp.where(age <= passed, 0, (age - passed - 1) // h + 1)
    halved = jnp.where(epochs < 32, high >> jnp.minimum(epochs, 31), 0)
    return halved.astype(jnp.uint32) // _weight(passed, h)


def _modulo(clock: jax.Array, h: jax.Array) -> jax.Array:
    """Finds the remainder of a 64-bit number, bit by bit: h is below 2**31."""

    def step(i: jax.Array, rest: jax.Array) -> jax.Array:
        bit = clock[1 - i // 32] >> (31 - i % 32).astype(jnp.uint32) & 1
        rest = rest * 2 + bit
        return jnp.where(rest >= h, rest - h, rest)

    return jax.lax.fori_loop(0, 64, step, jnp.uint32(0))


def _weight(passed: jax.Array, h: jax.Array) -> jax.Array:
    use = _ffi.constants()["use"]
    rest, phase = passed, jnp.uint32(0)
    for _ in range(use.bit_length() - 1):  # passed * use // h
        rest = rest * 2
        bit = rest >= h
        rest = jnp.where(bit, rest - h, rest)
        phase = phase * 2 + bit.astype(jnp.uint32)
    return use + phase - (phase * (use - phase) * 88 >> 16)
