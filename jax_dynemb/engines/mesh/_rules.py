# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Removal by rule on a mesh: all devices that hold a table decide alike."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb import ops
from jax_dynemb._spec import TableSpec
from jax_dynemb.engines import shard
from jax_dynemb.engines.mesh._members import owns_any, restore_untouched
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stacks import Stack
from jax_dynemb.engines.shard import BucketStats, Rule, ShardGroup
from jax_dynemb.ops import TableState, keys_of_index

_ALL = PartitionSpec()


def erase_where(
    tables: MeshTables, state: TableState, table: str, rule: Rule, dry_run: bool
) -> tuple[jax.Array, TableState]:
    """See ``Tables.erase_where``; of one table."""
    placement = tables.here()
    stack = placement.stack_of(table)

    def body(state: TableState, rule: Rule) -> tuple[jax.Array, TableState]:
        group = _group(placement, stack, table)
        removed, new = shard.erase_where(stack.local, state, rule, dry_run, group)
        states = {stack.name: state}, {stack.name: new}
        return removed, restore_untouched(placement, [stack], [table], *states)[
            stack.name
        ]

    spec = placement.state_spec(stack)
    return placement.mapped(body, (spec, _ALL), (_ALL, spec))(state, rule)


def _group(placement: Placement, stack: Stack, table: str) -> ShardGroup:
    """How a shard learns of the others; inside shard_map.

    Every copy of a replicated table has all rows, and so has every part of a
    column-wise one. So these count for themselves, with equal results.
    """
    total = functools.partial(jax.lax.psum, axis_name=placement.axes)
    if stack.sharding == "row_wise":
        return ShardGroup(total, owns_any(placement, stack, [table]))
    if stack.sharding == "column_wise":
        squares = functools.partial(_squares_of_columns, total)
        return ShardGroup(lambda x: x, squares=squares)
    return shard.ALONE


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


def bucket_stats(tables: MeshTables, state: TableState, table: str) -> BucketStats:
    """See ``Tables.bucket_stats``; of one table."""
    placement = tables.here()
    stack = placement.stack_of(table)

    def body(state: TableState) -> BucketStats:
        group = _group(placement, stack, table)
        return shard.bucket_stats(stack.local, state, group)

    return placement.mapped(body, (placement.state_spec(stack),), _ALL)(state)


def decay(
    tables: MeshTables, state: TableState, table: str, factor: jax.Array
) -> TableState:
    """See ``Tables.decay``; of one table."""
    placement = tables.here()
    stack = placement.stack_of(table)

    def body(state: TableState, factor: jax.Array) -> TableState:
        here = owns_any(placement, stack, [table])
        return ops.decay(stack.local, state, jnp.where(here, factor, 1.0))

    spec = placement.state_spec(stack)
    return placement.mapped(body, (spec, _ALL), spec)(state, factor)
