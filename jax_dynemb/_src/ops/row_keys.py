# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The keys of a tiered table's rows in device memory, by which updates round them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.keys import as_words
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]


def with_row_keys(
    table: TableSpec,
    states: States,
    places: Sequence[Int32[Array, " n"]],
    ids: Sequence[jax.Array],
) -> dict[str, TableState]:
    """Puts the keys of rows where an index stands, for a call on a rows part.

    ``places`` are the rows of some groups of ``ids``, as ``fetch`` returns them. Keys
    of other rows are zeros: the call changes none of them.
    """
    state = states[table.state_name]
    rows = jnp.concatenate([each.reshape(-1) for each in places])
    words = jnp.concatenate([as_words(each).reshape(-1, 2) for each in ids])
    # Indices below 0 count from the end, and those past the end are dropped.
    rows = jnp.where(rows < 0, table.device_rows, rows)
    keys = (
        jnp.zeros((table.device_rows, 2), jnp.uint32).at[rows].set(words, mode="drop")
    )
    return {**states, table.state_name: dataclasses.replace(state, index=keys)}


def with_index_of(
    table: TableSpec, new: States, states: States
) -> dict[str, TableState]:
    """Puts the index back after the call."""
    index = states[table.state_name].index
    state = dataclasses.replace(new[table.state_name], index=index)
    return {**new, table.state_name: state}


def keys_of_slots(
    index: UInt32[Array, "buckets words"], slots: Int32[Array, " n"]
) -> UInt32[Array, "n 2"]:
    """Reads the keys of slots; of one that the index does not have it is any key."""
    constants = _ffi.constants()
    bucket, place = (
        slots // constants["bucket_capacity"],
        slots % constants["bucket_capacity"],
    )
    word = constants["keys_word"] + constants["slot_words"] * place
    return jnp.stack([index[bucket, word], index[bucket, word + 1]], axis=-1)
