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
    """Each number once, and where numbers and values stand.

    Attributes:
      values: uint32[n], ascending; 0 behind the last.
      inverse: int32[n], the place in ``values`` of each number given; -1 for one that
        is not below the limit.
      ranks: int32[n], the same in order of the numbers.
      positions: int32[n], of the numbers in that order, equal ones ascending.
      count: int32[1], how many values there are.
      starts: int32[prefixes + 1], how many values have a lower prefix.
      of_suffix: int32[n], the suffix of each value; -1 if its prefix is missing, and
        behind the last value.
    """

    values: jax.Array
    inverse: jax.Array
    ranks: jax.Array
    positions: jax.Array
    count: jax.Array
    starts: jax.Array
    of_suffix: jax.Array


def distinct(
    numbers: jax.Array, *, limit: int, prefixes: int, suffixes: int
) -> Distinct:
    """Sorts numbers, keeps each once, and finds where the values of a prefix begin.

    ``numbers`` is uint32[n]; the prefix of a number is ``number // suffixes``, its
    suffix the rest. Numbers that are not below ``limit`` (at most 2**32 - 1) have no
    row.
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
