# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts out what one device of a mesh has of a batch and of a table, in shard_map."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.layouts import inputs as _inputs
from jax_dynemb._src.engines.hash.layouts.mesh_axes import MeshAxes
from jax_dynemb._src.engines.hash.layouts.stacks import Stack
from jax_dynemb._src.engines.shard import ALONE, ShardGroup
from jax_dynemb._src.ops import (
    FeatureLayout,
    TableState,
    as_words,
    hash_words,
    keys_of_index,
    owner_of,
    padding,
)
from jax_dynemb._src.spec import TableSpec

Inputs = list[tuple[FeatureLayout, Any]]


class MeshParts(MeshAxes):
    """Selects what a device has; its methods are those of ``OneDevice`` too."""

    # ---- of a batch --------------------------------------------------------------

    def split_behind(self, stacked: int) -> PartitionSpec:
        """Returns the spec of an array that is split behind axes of ``lax.scan``."""
        return PartitionSpec(*[None] * stacked, self.axes)

    def total(self, number: jax.Array) -> jax.Array:
        """Sums over the devices."""
        return jax.lax.psum(number, self.axes)

    def padded(self, layout: FeatureLayout, stacked: int, gradient: Any) -> jax.Array:
        """Pads the gradient of a feature to as many rows as the devices looked up.

        Args:
          layout: of the feature on one device.
          stacked: leading axes that ``lax.scan`` has added.
          gradient: of the rows that the caller received.
        """
        if self.is_inside():
            return gradient
        gradient = jnp.asarray(gradient)
        rows = layout.rows_shape[0] * self.shards
        if gradient.ndim == stacked + 1:  # of a single id
            gradient = jnp.expand_dims(gradient, stacked)
        missing = rows - gradient.shape[stacked]
        if missing <= 0:
            return gradient  # a wrong shape is refused when it is joined
        gradient = self.gathered(gradient)
        widths = [(0, 0)] * gradient.ndim
        widths[stacked] = (0, missing)
        return jnp.pad(gradient, widths)

    def per_id_spec(self, offsets: jax.Array | None) -> PartitionSpec:
        """Returns the spec of one number an id, as it leaves shard_map."""
        return self.split if offsets is None else PartitionSpec()

    def cut(self, per_id: jax.Array, rows: int) -> jax.Array:
        """Drops what was padded."""
        if self.is_inside() or per_id.shape[0] == rows:
            return per_id
        return self.gathered(per_id)[:rows]

    def copied(
        self, tables: Sequence[TableSpec], state: Mapping[str, TableState], inputs: Any
    ) -> Inputs:
        """Returns the ids of a call: the program made them, so they have an address."""
        del tables, state
        return inputs

    # ---- of a table --------------------------------------------------------------

    def my_ids(self, stack: Stack, table: TableConfig, ids: jax.Array) -> jax.Array:
        """Returns the ids that this device owns, and padding for the others."""
        ids = as_words(ids)
        if stack.sharding != "row_wise":
            return ids
        hashes, local = hash_words(ids, table.hash_seed), stack.local
        owner = owner_of(*hashes, local.num_buckets, local.local_buckets)
        owner = owner + stack.owners(table.name)[0]
        mine = owner == jax.lax.axis_index(self.axes)
        return jnp.where(mine[:, None], ids, padding((1,)))

    def my_columns(
        self, stack: Stack, written: Mapping[str, jax.Array]
    ) -> Mapping[str, jax.Array]:
        """Returns what this device has of rows; one number a row is that of all."""
        if stack.sharding != "column_wise":
            return written
        width = stack.local.dim
        first = jax.lax.axis_index(self.axes) * width

        def cut(name: str, array: jax.Array) -> jax.Array:
            if array.ndim == 1 or name in ("scores", "clocks"):
                return array
            return jax.lax.dynamic_slice_in_dim(array, first, width, axis=1)

        return {name: cut(name, array) for name, array in written.items()}

    def with_first_column(self, stack: Stack, state: TableState) -> TableState:
        """Tells a new shard which columns it has; initial rows depend on it."""
        if stack.sharding != "column_wise":
            return state
        first = jax.lax.axis_index(self.axes).astype(jnp.uint32) * stack.local.dim
        place = _ffi.code("counters", "first_column")
        counters = state.counters.at[:, place, 0].set(first)
        return dataclasses.replace(state, counters=counters)

    def same_clock(self, stack: Stack, table: str, state: TableState) -> TableState:
        """Returns the state with the latest clock of all devices of a table."""
        if stack.sharding != "row_wise":
            return state
        here = self.owns_any(stack, [table])
        return shard.same_clock(stack.local, state, self.axes, here)

    def group(self, stack: Stack, table: str) -> ShardGroup:
        """Says how a device learns of the others, for rules.

        Every copy of a replicated table has all rows, and so has every part of a
        column-wise one. So these count for themselves, with equal results.
        """
        total = functools.partial(jax.lax.psum, axis_name=self.axes)
        if stack.sharding == "row_wise":
            return ShardGroup(total, self.owns_any(stack, [table]))
        if stack.sharding == "column_wise":
            squares = functools.partial(_squares_of_columns, total)
            return ShardGroup(lambda x: x, squares=squares)
        return ALONE

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves a shard_map that a call has made."""
        return _inputs.global_numbers(self, offsets, per_id)


def _squares_of_columns(
    total: Callable[[jax.Array], jax.Array], table: TableSpec, state: TableState
) -> jax.Array:
    """See ``shard.squared_norms``; of rows whose columns lie on all shards.

    All shards have the same keys in a bucket, but maybe in other slots of it. So they
    add numbers in the order of keys. Each puts the sums back into its own order.
    """
    low, high = keys_of_index(state.index)
    mine = shard.squared_norms(table, state).reshape(low.shape)
    slots = jnp.broadcast_to(jnp.arange(low.shape[1]), low.shape)
    _, _, by_key, slots = jax.lax.sort((high, low, mine, slots), num_keys=2)
    _, sums = jax.lax.sort((slots, total(by_key)), num_keys=1)
    return sums.reshape(-1)
