# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Distinct numbers of a batch, in ascending order."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# The number of an id that has no row; it is above all others.
NO_ROW = 0xFFFF_FFFF


class Distinct(NamedTuple):
    """Each number once.

    Attributes:
      values: uint32[n], ascending; 0 behind the last.
      inverse: int32[n], the place in ``values`` of each number given; -1 for NO_ROW.
      count: int32[], how many values there are.
    """

    values: jax.Array
    inverse: jax.Array
    count: jax.Array


def distinct(numbers: jax.Array) -> Distinct:
    """Sorts numbers and keeps each once.

    Args:
      numbers: uint32[n]; NO_ROW counts as none.
    """
    n = numbers.shape[0]
    place = jnp.arange(n, dtype=jnp.int32)
    ordered, order = jax.lax.sort((numbers, place), num_keys=1)
    live = ordered != jnp.uint32(NO_ROW)
    before = jnp.concatenate([jnp.full(1, NO_ROW, jnp.uint32), ordered[:-1]])
    first = live & (ordered != before)
    rank = jnp.cumsum(first, dtype=jnp.int32) - 1
    inverse = jnp.zeros(n, jnp.int32)
    inverse = inverse.at[order].set(jnp.where(live, rank, -1), unique_indices=True)
    # Places of no first number are past the end, each another one.
    target = jnp.where(first, rank, n + place)
    values = jnp.zeros(n, jnp.uint32)
    values = values.at[target].set(ordered, mode="drop", unique_indices=True)
    return Distinct(values, inverse, jnp.sum(first, dtype=jnp.int32))
