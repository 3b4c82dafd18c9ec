# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over groups of rows, in order of position, with the kernels of ``reduce``.

Those sum the gradients of each row of a table. Here the groups are numbered, and an
index in which slot ``g`` holds the key of group ``g`` makes them rows of a table that
exists for this call only. So sums of a batch are as deterministic, and as indifferent
to skew, as an update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._layout import one_row_each
from jax_dynemb.ops._residual import FeatureGradient
from jax_dynemb.ops._state import TableState, empty_state
from jax_dynemb.ops._update import reduce


def sum_gradients(
    tables: Sequence[TableConfig],
    keys: Sequence[jax.Array],
    features: Sequence[FeatureGradient],
) -> list[jax.Array]:
    """Sums the gradients of each group.

    Args:
      tables: those that the features belong to; only name and dim are used.
      keys: of each table uint32[groups, 2], the key of each group.
      features: gradients; their slots are the numbers of groups, or negative, and
        their ids the keys of the groups.

    Returns:
      For each table float32[n, dim], with n the number of ids of its features: a sum
      stands where the group first occurs, zeros elsewhere.
    """
    sizes = [k.shape[0] for k in keys]
    scratch = [
        dataclasses.replace(t, capacity=max(1, size), shards=1)
        for t, size in zip(tables, sizes, strict=True)
    ]
    states = {
        table.name: _state_of(table, key)
        for table, key in zip(scratch, keys, strict=True)
    }
    sums, _ = reduce(scratch, states, features, counts_step=False)
    return [sums[table.name][1] for table in scratch]


def sum_bags(table: TableConfig, rows: jax.Array, offsets: jax.Array) -> jax.Array:
    """float32[bags, dim]: sums of rows[offsets[b] : offsets[b + 1]]."""
    bags, n = offsets.shape[0] - 1, rows.shape[0]
    position = jnp.arange(n, dtype=jnp.int32)
    bag = jnp.searchsorted(offsets[1:], position, side="right").astype(jnp.int32)
    slots = jnp.where(position < offsets[-1], bag, -1)
    layout = one_row_each(table.name, table.name, n)
    feature = FeatureGradient(layout, rows, _words(slots), slots, None, None, None)
    keys = _words(jnp.arange(bags, dtype=jnp.int32))
    (sums,) = sum_gradients([table], [keys], [feature])
    filled = offsets[1:] > offsets[:-1]
    starts = jnp.where(filled, offsets[:-1], n)
    return jnp.take(sums, starts, axis=0, mode="fill", fill_value=0)


def _words(numbers: jax.Array) -> jax.Array:
    low = numbers.astype(jnp.uint32)
    return jnp.stack([low, jnp.zeros_like(low)], axis=-1)


def _state_of(table: TableConfig, keys: jax.Array) -> TableState:
    """A table in which the keys stand; what is not read of it has a shape only."""
    seed = jax.ShapeDtypeStruct((2,), jnp.uint32)
    shapes = jax.eval_shape(lambda seed: empty_state(table, seed), seed)
    counters = jnp.zeros(shapes.counters.shape, shapes.counters.dtype)
    return dataclasses.replace(shapes, index=_index_of(table, keys), counters=counters)


def _index_of(table: TableConfig, keys: jax.Array) -> jax.Array:
    """An index in which only the keys are set: nothing else of it is read."""
    constants = _ffi.constants()
    buckets = table.num_buckets
    keys = jnp.pad(keys, ((0, table.num_slots - keys.shape[0]), (0, 0)))
    before, after = (
        constants["keys_word"],
        constants["bucket_words"] - constants["scores_word"],
    )
    flat = keys.reshape(buckets, -1)
    return jnp.pad(flat, ((0, 0), (before, after)))
