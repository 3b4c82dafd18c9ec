# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables on a mesh, made and changed as wholes or row by row: each one a shard_map."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec

from jax_dynemb import ops
from jax_dynemb._seed import table_seed
from jax_dynemb._spec import TableSpec
from jax_dynemb.config import TableConfig
from jax_dynemb.engines import shard
from jax_dynemb.engines.mesh._members import owns_any, restore_untouched
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stacks import Stack, states_of
from jax_dynemb.engines.mesh.strategies import my_columns, with_first_column
from jax_dynemb.engines.shard import NewRows
from jax_dynemb.ops import (
    FeatureInput,
    Ring,
    TableState,
    as_words,
    cleared_state,
    empty_state,
    hash_words,
    new_run,
    one_row_each,
    owner_of,
    padding,
    prepare,
)
from jax_dynemb.rows import Exported

States = dict[str, TableState]
_ALL = PartitionSpec()


def init(
    tables: MeshTables, seed: jax.Array, names: tuple[str, ...] | None = None
) -> States:
    """Makes empty tables, each shard on its device; with ``names`` some arrays only."""
    placement, traced = tables.here(), isinstance(seed, Tracer)
    run = new_run(placement.spans_processes, traced)
    if placement.is_inside():
        state = _all_empty(placement, placement.stacks, seed, jnp.asarray(run))
        return {
            s.name: ops.with_homes(s.local, state[s.name]) for s in placement.stacks
        }
    used = [s for s in placement.stacks if names is None or s.name in names]
    make = functools.partial(_all_empty, placement, used)
    specs = placement.state_specs(used)
    no_homes = {name: shard.without_homes(spec) for name, spec in specs.items()}
    state = placement.mapped(make, (_ALL, _ALL), no_homes)(seed, run)

    def with_homes(stack: Stack) -> TableState:
        name, local = stack.name, stack.local
        if not isinstance(state[name].index, Tracer):
            return ops.with_homes(local, state[name])
        add = functools.partial(ops.with_homes, local)  # a traced array is a shard's
        return placement.mapped(add, (no_homes[name],), specs[name])(state[name])

    return state | {s.name: with_homes(s) for s in used if s.local.tier is not None}


def _all_empty(
    placement: Placement, used: Sequence[Stack], seed: jax.Array, run: jax.Array
) -> States:
    return {s.name: _empty(placement, s, seed, run) for s in used}


def _empty(
    placement: Placement, stack: Stack, seed: jax.Array, run: jax.Array
) -> TableState:
    """Makes a shard without rows; each table has the seed of its own name."""
    seeds = [table_seed(seed, t.name) for t in stack.tables]
    mine = seeds[0]
    if stack.blocks > 1:
        seeds += [seed] * (stack.blocks - len(seeds))
        mine = jnp.stack(seeds)[placement.my_block(stack)]
    state = empty_state(stack.local, mine, run)
    if stack.sharding == "column_wise":
        state = with_first_column(placement, stack.local, state)
    return state


def clear(tables: MeshTables, state: States, names: Collection[str]) -> States:
    """See ``Tables.clear``; of some tables."""
    placement = tables.here()
    used = placement.stacks_of(names)

    def body(state):
        new = {s.name: cleared_state(s.local, state[s.name]) for s in used}
        new = restore_untouched(placement, used, names, state, new)
        for s in used:
            here = owns_any(placement, s, names)
            if not isinstance(here, np.bool_):  # the others of the stack stay
                index = jnp.where(here, new[s.name].index, state[s.name].index)
                sketch = new[s.name].sketch
                if sketch is not None:
                    sketch = jnp.where(here, sketch, state[s.name].sketch)
                removed = new[s.name].removed
                if removed is not None:
                    removed = jnp.where(here, removed, state[s.name].removed)
                new[s.name] = dataclasses.replace(
                    new[s.name], index=index, sketch=sketch, removed=removed
                )
        return new

    specs = placement.state_specs(used)
    return dict(state) | placement.mapped(body, (specs,), specs)(states_of(state, used))


def insert(
    tables: MeshTables, state: TableState, table: TableConfig, new: NewRows
) -> TableState:
    """See ``Tables.insert``; of one table. Every device takes the ids that it owns."""
    placement = tables.here()
    stack = placement.stack_of(table.name)
    layout, prepared = prepare(table, table.name, new.ids)
    written, unique_ids = shard.checked(table, layout, new), new.unique_ids

    def body(state, ids, written):
        mine = _owned(placement, stack, table, ids)
        if stack.sharding == "column_wise":
            columns = functools.partial(my_columns, placement, stack.local)
            written = {
                n: x if n in ("scores", "clocks") else columns(x)
                for n, x in written.items()
            }
        after = shard.store(stack.local, state, mine, written, unique_ids)
        if "scores" in written and stack.sharding == "row_wise":
            here = owns_any(placement, stack, [table.name])
            after = shard.same_clock(after, placement.axes, here)
        states = {stack.name: state}, {stack.name: after}
        return restore_untouched(placement, [stack], [table.name], *states)[stack.name]

    spec = placement.state_spec(stack)
    run = placement.mapped(body, (spec, _ALL, dict.fromkeys(written, _ALL)), spec)
    return run(state, as_words(prepared.ids), written)


def prefetch(tables: MeshTables, state: States, ids: Mapping[str, Any]) -> States:
    """See ``Tables.prefetch``. Every device takes the ids that it owns."""
    placement = tables.here()
    configs = {f: tables.catalog.config_of(f) for f in ids}
    far = {f: c for f, c in configs.items() if c.tier is not None}
    if not far:
        return dict(state)
    words = {
        f: as_words(prepare(config, f, ids[f])[1].ids) for f, config in far.items()
    }
    used = placement.stacks_of({config.name for config in far.values()})

    def body(state, words):
        inputs = []
        for stack in used:
            names = [t.name for t in stack.tables]
            for feature, each in words.items():
                if far[feature].name not in names:
                    continue
                mine = _owned(placement, stack, far[feature], each)
                layout = one_row_each(feature, stack.name, each.shape[0], "no_rows")
                inputs.append((layout, FeatureInput(mine, None, None)))
        return state | ops.prefetch([stack.local for stack in used], state, inputs)

    specs = placement.state_specs(used)
    run = placement.mapped(body, (specs, dict.fromkeys(words, _ALL)), specs)
    return dict(state) | run(states_of(state, used), words)


def flush(tables: MeshTables, state: States) -> States:
    """See ``Tables.flush``."""
    placement = tables.here()
    used = [s for s in placement.stacks if s.local.tier is not None]
    if not used:
        return dict(state)

    def body(state):
        return ops.flush([s.local for s in used], state)

    specs = placement.state_specs(used)
    return dict(state) | placement.mapped(body, (specs,), specs)(states_of(state, used))


def erase(
    tables: MeshTables, state: TableState, table: TableConfig, ids: Any
) -> TableState:
    """See ``Tables.erase``; of one table."""
    return _by_id(tables, state, table, ids, ops.erase)


def pin(
    tables: MeshTables, state: TableState, table: TableConfig, ids: Any, pins: bool
) -> TableState:
    """See ``Tables.pin`` and ``unpin``; of one table."""
    change = functools.partial(shard.set_pins, pins=pins)
    return _by_id(tables, state, table, ids, change)


def hold(
    tables: MeshTables, state: TableState, table: TableConfig, ids: Any, lookups: int
) -> TableState:
    """See ``Tables.hold``; of one table."""
    change = functools.partial(shard.hold_rows, lookups=lookups)
    return _by_id(tables, state, table, ids, change)


def read_departed(
    tables: MeshTables, rings: Mapping[str, Ring], table: TableConfig
) -> Exported:
    """Reads the evicted rows of a table that this process's devices have."""
    stack = tables.here().stack_of(table.name)
    leaves, tree = jax.tree.flatten(rings[stack.name])
    pieces = _own_pieces(stack, table, leaves)
    own = [jax.tree.unflatten(tree, pieces[n]) for n in sorted(pieces)]
    return shard.read_rings(dataclasses.replace(stack.local, name=table.name), own)


def _by_id(
    tables: MeshTables,
    state: TableState,
    table: TableConfig,
    ids: Any,
    change: Callable[[TableSpec, TableState, jax.Array], TableState],
) -> TableState:
    """Changes each shard by the ids that it owns."""
    placement = tables.here()
    stack = placement.stack_of(table.name)
    _, given = prepare(table, table.name, ids)

    def body(state, ids):
        mine = _owned(placement, stack, table, ids)
        new = {stack.name: change(stack.local, state, mine)}
        before = {stack.name: state}
        return restore_untouched(placement, [stack], [table.name], before, new)[
            stack.name
        ]

    spec = placement.state_spec(stack)
    run = placement.mapped(body, (spec, _ALL), spec)
    return run(state, as_words(given.ids))


def _owned(
    placement: Placement, stack: Stack, table: TableConfig, ids: jax.Array
) -> jax.Array:
    """Returns the ids that this device owns, and padding for the others."""
    if stack.sharding != "row_wise":
        return ids
    hashes, local = hash_words(ids, table.hash_seed), stack.local
    owner = owner_of(*hashes, local.num_buckets, local.local_buckets)
    owner = owner + stack.owners(table.name)[0]
    mine = owner == jax.lax.axis_index(placement.axes)
    return jnp.where(mine[:, None], ids, padding((1,)))


def local_shards(
    tables: MeshTables, table: TableConfig, state: TableState
) -> list[tuple[TableSpec, TableState]]:
    """Lists the shards of this process as tables of one device, each once.

    Raises:
      ValueError: the table is column-wise and has columns on another process.
    """
    stack = tables.here().stack_of(table.name)
    local = dataclasses.replace(stack.local, name=table.name)
    leaves, tree = jax.tree.flatten(dataclasses.replace(state, extra=()))
    pieces = _own_pieces(stack, table, leaves)
    if stack.sharding == "column_wise" and len(pieces) < stack.shards:
        raise ValueError(
            f"Table '{table.name}' is column-wise over several processes, and this one "
            f"has {len(pieces)} of its {stack.shards} parts: save it with "
            "jde.checkpoint, or restore that into a row-wise table to export it."
        )
    return [(local, jax.tree.unflatten(tree, pieces[n])) for n in sorted(pieces)]


def _own_pieces(
    stack: Stack, table: TableConfig, leaves: Sequence[jax.Array]
) -> dict[int, list[jax.Array]]:
    """Cuts arrays into the shards of a table on this process, by their numbers."""
    pieces: dict[int, list[jax.Array]] = {}
    for leaf in leaves:
        for each in leaf.addressable_shards:
            number = (each.index[0].start or 0) // each.data.shape[0]
            if each.replica_id == 0 and number in stack.owners(table.name):
                pieces.setdefault(number, []).append(each.data)
    return pieces
