# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The sketch of a table that admits ids by frequency, between the calls of kernels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

# Halved, each counter of a word loses the bit that comes from its neighbour.
_KEPT = {8: 0x7F7F7F7F, 16: 0x7FFF7FFF}


def halved_sketches(
    tables: Iterable[TableSpec], states: Mapping[str, TableState]
) -> dict[str, TableState]:
    """Halves the counts of tables whose next training lookup is due for it."""
    new: dict[str, TableState] = {}
    for table in tables:
        rule = table.admission
        if not isinstance(rule, Frequency) or not rule.halve_every:
            continue
        if table.unseen != "admitted":
            continue
        state = new.get(table.state_name, states[table.state_name])
        place = _ffi.code("counters", "lookups")
        lookups = state.counters[table.first_row, place, 0]
        due = (lookups + jnp.uint32(1)) % jnp.uint32(rule.halve_every) == 0
        first = 0 if table.block is None else table.block.first_bucket
        sketch = _halved_if(due, state.sketch, first, table.local_buckets, rule)
        new[table.state_name] = dataclasses.replace(state, sketch=sketch)
    return new


# One program for all calls outside of jit; inside it the operations are the caller's.
@functools.partial(jax.jit, static_argnums=(2, 3, 4), inline=True)
def _halved_if(
    due: jax.Array,
    sketch: UInt32[Array, "buckets words"] | None,
    first: int,
    count: int,
    rule: Frequency,
) -> jax.Array:
    """Halves the counters of some buckets, if they are due."""
    assert sketch is not None  # check_state

    def halved(sketch: jax.Array) -> jax.Array:
        own = jax.lax.dynamic_slice_in_dim(sketch, first, count)
        half = _half_of_keys(own) if rule.counts_keys else _half(own, rule)
        return jax.lax.dynamic_update_slice_in_dim(sketch, half, first, 0)

    return jax.lax.cond(due, halved, lambda sketch: sketch, sketch)


def _half(sketch: jax.Array, rule: Frequency) -> jax.Array:
    return (sketch >> 1) & jnp.uint32(_KEPT[rule.counter_bits])


def _half_of_keys(buckets: jax.Array) -> jax.Array:
    """Halves the counts, which are the low words of the scores."""
    constants = _ffi.constants()
    word = np.arange(buckets.shape[1]) % constants["bucket_words"]
    at = word - constants["scores_word"]
    is_count = (at >= 0) & (at % constants["slot_words"] == 0)
    return jnp.where(is_count, buckets >> 1, buckets)
