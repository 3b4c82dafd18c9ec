# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The dummy operand that keeps the dispatch of CPU programs asynchronous.

XLA's CPU client runs a program of fewer than 1,000 operations in the calling thread,
and counts none for a custom call. A step of embeddings alone would therefore block
Python until it is complete. The sum of a thousand words of ids adds enough operations.
Kernels ignore its value: it is the operand "work" in xla_ffi/rules.cc. A call has the
sum where asynchronous dispatch pays (docs/decisions/dispatch.md), else a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.ops.sizes import is_at_most

_CHEAP_OPERATIONS = 1000  # XLA's bound for the calling thread
# Up to 32 asynchronous programs are in flight, each with outputs of its own. Fresh
# memory for large ones takes longer than the wait.
_MOST_BYTES = 1 << 23
_MANY_ARRAYS = 32  # the calling thread finishes fewer before another thread wakes up


def dispatch_operand(
    num_operands: int, batch: Sequence[jax.Array], results: Sequence[Any]
) -> jax.Array:
    """Makes the dummy operand of a call, uint32[], from its batch and its results."""
    nbytes = sum(x.size * x.dtype.itemsize for x in (*batch, *results))
    if num_operands >= _MANY_ARRAYS and is_at_most(nbytes, _MOST_BYTES):
        for array in batch:
            is_long = is_at_most(_CHEAP_OPERATIONS + 1 - array.size, 0)
            if array.dtype.kind in "iu" and is_long:
                flat = array.reshape(-1)[: _CHEAP_OPERATIONS + 1]
                return jax.lax.platform_dependent(flat, cpu=_sum, default=_zero)
    return jnp.zeros((), jnp.uint32)


def _sum(numbers: jax.Array) -> jax.Array:
    return jnp.sum(numbers.astype(jnp.uint32), dtype=jnp.uint32)


def _zero(numbers: jax.Array) -> jax.Array:
    return numbers[0].astype(jnp.uint32) * jnp.uint32(0)
