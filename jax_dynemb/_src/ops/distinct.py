# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Distinct numbers of a batch, in ascending order."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ops.call import Call


class Distinct(NamedTuple):
    """Each number once, and where numbers and values stand."""

    values: jax.Array  # uint32[n], ascending; 0 behind the last
    # int32[n], the place in ``values`` of each number given; -1 for one that is not
    # below the limit.
    inverse: jax.Array
    ranks: jax.Array  # int32[n], the same in order of the numbers
    positions: jax.Array  # int32[n], of the numbers in that order, equal ones ascending
    count: jax.Array  # int32[1], how many values there are
    starts: jax.Array  # int32[prefixes + 1], how many values have a lower prefix
    # int32[n], the suffix of each value; -1 if its prefix is missing, and behind the
    # last value.
    of_suffix: jax.Array


def distinct(
    numbers: jax.Array, *, limit: int, prefixes: int, suffixes: int
) -> Distinct:
    """Sorts uint32[n], keeps each number once, and finds where a prefix begins.

    The prefix is ``number // suffixes``, the suffix the rest. Numbers not below
    ``limit`` (at most 2**32 - 1) have no row.
    """
    n = numbers.shape[0]
    attributes = {"limit": np.int64(limit), "suffixes": np.int64(suffixes)}
    call = Call("distinct", (), (n, limit), **attributes)
    call.operand(numbers)
    call.result((n,), jnp.uint32)
    for _ in range(3):
        call.result((n,), jnp.int32)
    call.result((1,), jnp.int32)
    call.result((prefixes + 1,), jnp.int32)
    call.result((n,), jnp.int32)
    return Distinct(*call.run())
