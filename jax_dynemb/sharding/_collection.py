# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` on a mesh: each is one shard_map."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jax_dynemb._seed import table_seed
from jax_dynemb.config import TableConfig
from jax_dynemb.ops import _rows, _update
from jax_dynemb.ops._layout import prepare
from jax_dynemb.ops._residual import FeatureResidual
from jax_dynemb.ops._state import TableState, cleared_state, empty_state
from jax_dynemb.sharding import _column_wise, _inputs, _lookup, _replicated
from jax_dynemb.sharding import _update as _sharded_update
from jax_dynemb.sharding._bags import make_bags
from jax_dynemb.sharding._batch import make_batch
from jax_dynemb.sharding._cost import cost_of
from jax_dynemb.sharding._gradients import joined, paired, specs_of, stacked_axes
from jax_dynemb.sharding._keys import as_words, hash_words, owner_of, padding
from jax_dynemb.sharding._members import (
    hyper_of_my_place,
    is_here,
    of_my_place,
    touched,
)
from jax_dynemb.sharding._placement import Placement, placement_of
from jax_dynemb.sharding._residual import ShardedResidual
from jax_dynemb.sharding._shared import Inputs, Shared
from jax_dynemb.sharding._stacks import Stack
from jax_dynemb.sharding._whole_row import updating
from jax_dynemb.table import _insert, _weights
from jax_dynemb.table._update import RowGradients, update_rows

if TYPE_CHECKING:
    from jax_dynemb.table._tables import Tables

States = dict[str, TableState]
_ALL = PartitionSpec()


def init(
    tables: Tables, seed: jax.Array, names: tuple[str, ...] | None = None
) -> States:
    """Empty tables, each shard made where it will live; some arrays only, if asked."""
    placement = placement_of(tables)
    if placement.is_inside():
        return _all_empty(placement, placement.stacks, seed)
    return _init(tables, names)(seed)


@functools.lru_cache(maxsize=32)
def _init(tables: Tables, names: tuple[str, ...] | None) -> Any:
    placement = placement_of(tables)
    used = [s for s in placement.stacks if names is None or s.name in names]
    make = functools.partial(_all_empty, placement, used)
    return jax.jit(placement.mapped(make, (_ALL,), _specs(placement, used)))


def _all_empty(placement: Placement, used: Sequence[Stack], seed: jax.Array) -> States:
    return {s.name: _empty(placement, s, seed) for s in used}


def _empty(placement: Placement, stack: Stack, seed: jax.Array) -> TableState:
    """A shard of tables without rows; each table has the seed of its own name."""
    seeds = [table_seed(seed, t.name) for t in stack.tables]
    mine = seeds[0]
    if stack.places > 1:
        seeds += [seed] * (stack.places - len(seeds))
        mine = jnp.stack(seeds)[placement.my_place(stack)]
    state = empty_state(stack.local, mine)
    if stack.sharding == "column_wise":
        state = _column_wise.with_first_column(placement, stack.local, state)
    return state


def clear(
    tables: Tables, state: States, names: Collection[str] | None = None
) -> States:
    """See ``Tables.clear``; some tables only, if asked."""
    placement = placement_of(tables)
    names = tables.tables if names is None else names
    used = placement.stacks_of(names)

    def body(state):
        new = {s.name: cleared_state(s.local, state[s.name]) for s in used}
        new = touched(placement, used, names, state, new)
        for s in used:
            here = is_here(placement, s, names)
            if not isinstance(here, np.bool_):  # the others of the stack stay
                index = jnp.where(here, new[s.name].index, state[s.name].index)
                new[s.name] = dataclasses.replace(new[s.name], index=index)
        return new

    specs = _specs(placement, used)
    return dict(state) | placement.mapped(body, (specs,), specs)(_of(state, used))


def lookup(
    tables: Tables,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
    scores: Mapping[str, jax.Array],
) -> tuple[dict[str, jax.Array], ShardedResidual, States]:
    """See ``Tables.lookup``."""
    placement = placement_of(tables)
    batch = Shared(tables, ids, weights)

    def body(state, ids, weights, scores):
        inputs = batch.local(ids, weights)
        mine = {s.name: of_my_place(placement, s, scores) for s in batch.used}
        rows, residual, new = _local_lookup(placement, batch.used, inputs, state, mine)
        return rows, residual, touched(placement, batch.used, batch.names, state, new)

    specs = _specs(placement, batch.used)
    split = placement.split
    run = placement.mapped(
        body,
        (specs, batch.ids_specs, batch.weights_specs, dict.fromkeys(scores, _ALL)),
        (dict.fromkeys(ids, split), split, specs),
    )
    rows, residual, new = run(
        _of(state, batch.used), batch.ids, batch.weights, dict(scores)
    )
    return batch.rows(rows), residual, dict(state) | new


def _local_lookup(placement, used, inputs: Inputs, state, scores):
    local = [s.local for s in used]
    split = [t for t in local if t.sharding == "row_wise"]
    copies = [t for t in local if t.sharding == "replicated"]
    rows, residuals, new = {}, {}, dict(state)
    route, fits, received, pooled = None, None, {}, {}
    if split:
        mine = _inputs_of(inputs, split)
        sums = [t for t in split if _sums_travel(placement, t, inputs)]
        distinct = [t for t in split if t not in sums]
        batch = make_batch(placement, distinct, mine) if distinct else None
        layouts = [layout for layout, _ in mine]
        bags = make_bags(
            placement, sums, layouts, {x.feature: given for x, given in mine}
        )
        looked = _lookup.lookup(batch, bags, new, scores)
        new |= looked.states
        route = looked.route
        fits = None if looked.fits is None else looked.fits[None]
        received = dict(zip((t.name for t in distinct), looked.received, strict=True))
        pooled = {t.name: [] for t in sums}
        for section, one in zip(bags.sections, looked.bags, strict=True):
            pooled[section.table.name].append(one)
        for layout, given in mine:
            rows[layout.feature], scale = looked.outputs[layout.feature]
            # The route knows the distinct ids; slots stay with the owners.
            none = jnp.zeros(layout.num_ids, jnp.int32)
            residuals[layout.feature] = FeatureResidual(
                given.ids, none, given.offsets, given.weights, scale, layout
            )
    if copies:
        mine = _inputs_of(inputs, copies)
        outputs, left, states = _replicated.lookup(
            placement.axes, copies, mine, new, scores
        )
        new |= states
        for (layout, _), row, each in zip(mine, outputs, left, strict=True):
            rows[layout.feature], residuals[layout.feature] = row, each
    if slices := [t for t in local if t.sharding == "column_wise"]:
        mine = _inputs_of(inputs, slices)
        outputs, left, got, states = _column_wise.lookup(
            placement, slices, mine, new, scores
        )
        new |= states
        received |= got
        for (layout, _), row, each in zip(mine, outputs, left, strict=True):
            rows[layout.feature], residuals[layout.feature] = row, each
    shaped = {
        layout.feature: rows[layout.feature].reshape(*layout.rows_shape, -1)
        for layout, _ in inputs
    }
    ordered = {layout.feature: residuals[layout.feature] for layout, _ in inputs}
    return shaped, ShardedResidual(ordered, route, fits, received, pooled), new


def find(
    tables: Tables, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    """See ``Tables.find``."""
    placement = placement_of(tables)
    batch = Shared(tables, ids, weights)

    def body(state, ids, weights):
        inputs = batch.local(ids, weights)
        local = [s.local for s in batch.used]
        rows, found, new = _local_find(placement, local, inputs, state)
        shaped, flags = {}, {}
        for layout, given in inputs:
            name = layout.feature
            shaped[name] = rows[name].reshape(*layout.rows_shape, -1)
            flag = layout.shaped_as_given(found[name])
            flags[name] = batch.whole(given.offsets, flag)
        return shaped, flags, new

    specs = _specs(placement, batch.used)
    run = placement.mapped(
        body,
        (specs, batch.ids_specs, batch.weights_specs),
        (dict.fromkeys(ids, placement.split), batch.per_id_specs, specs),
    )
    rows, found, new = run(_of(state, batch.used), batch.ids, batch.weights)
    found = {name: batch.restored(name, x).astype(bool) for name, x in found.items()}
    return batch.rows(rows), found, dict(state) | new


def _local_find(placement, local, inputs: Inputs, state):
    split = [t for t in local if t.sharding == "row_wise"]
    copies = [t for t in local if t.sharding == "replicated"]
    rows, found, new = {}, {}, dict(state)
    if split:
        batch = make_batch(placement, split, _inputs_of(inputs, split))
        outputs, flags, states = _lookup.find(batch, new)
        new |= states
        for (layout, _), row, flag in zip(batch.inputs, outputs, flags, strict=True):
            rows[layout.feature], found[layout.feature] = row, flag
    if copies:
        mine = _inputs_of(inputs, copies)
        outputs, states = _replicated.find(copies, mine, new)
        new |= states
        for (layout, _), output in zip(mine, outputs, strict=True):
            rows[layout.feature] = output["rows"]
            found[layout.feature] = output["found"]
    if slices := [t for t in local if t.sharding == "column_wise"]:
        mine = _inputs_of(inputs, slices)
        outputs, flags, states = _column_wise.find(placement, slices, mine, new)
        new |= states
        for (layout, _), row, flag in zip(mine, outputs, flags, strict=True):
            rows[layout.feature], found[layout.feature] = row, flag
    return rows, found, new


def apply_gradients(
    tables: Tables,
    state: States,
    residual: Any,
    d_rows: Any,
    hyper: Mapping[str, Mapping[str, Any]],
) -> States:
    """See ``Tables.apply_gradients``."""
    placement = placement_of(tables)
    residuals, gradients, names = paired(tables, residual, d_rows)
    used = placement.stacks_of(names)
    numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))

    def body(state, residuals, gradients, numbers):
        features = joined(tables, residuals, gradients)
        only = residuals[0] if len(residuals) == 1 else None
        if only is not None and stacked_axes(only):
            only = None

        given = {s.name: hyper_of_my_place(placement, s, state, numbers) for s in used}

        def update(states, features):
            names = {f.layout.table for f in features}
            mine = [
                updating(placement, s.local, state[s.name], given[s.name])
                if s.sharding == "column_wise"
                else s.local
                for s in used
                if s.name in names
            ]
            return dict(states) | update_rows(mine, states, features, given)

        local = [s.local for s in used]
        new = _sharded_update.apply_gradients(
            placement, local, features, only, state, update
        )
        return touched(placement, used, names, state, new)

    specs = _specs(placement, used)
    residual_specs, gradient_specs = specs_of(placement, residuals, gradients)
    hyper_specs = jax.tree.map(lambda _: _ALL, numbers)
    run = placement.mapped(
        body, (specs, residual_specs, gradient_specs, hyper_specs), specs
    )
    return dict(state) | run(_of(state, used), residuals, gradients, numbers)


def reduce_gradients(
    tables: Tables, state: States, residual: Any, d_rows: Any
) -> tuple[dict[str, RowGradients], States]:
    """See ``Tables.reduce_gradients``; with room for any skew."""
    placement = placement_of(tables)
    residuals, gradients, names = paired(tables, residual, d_rows)
    used = placement.stacks_of(names)

    def body(state, residuals, gradients):
        features = joined(tables, residuals, gradients)
        local = [s.local for s in used]
        result = {}

        def reduce(states, features):
            names = {f.layout.table for f in features}
            mine = [t for t in local if t.name in names]
            sums, new = _update.reduce(mine, states, features, counts_step=False)
            result.update({name: RowGradients(*pair) for name, pair in sums.items()})
            return dict(states) | new

        new = _sharded_update.apply_gradients(
            placement, local, features, None, state, reduce, all_fits=True
        )
        return result, new

    specs = _specs(placement, used)
    residual_specs, gradient_specs = specs_of(placement, residuals, gradients)
    results = (_slot_specs(placement, used), specs)
    run = placement.mapped(body, (specs, residual_specs, gradient_specs), results)
    reduced, new = run(_of(state, used), residuals, gradients)
    return reduced, dict(state) | new


def gather(
    tables: Tables, state: States, slots: Mapping[str, jax.Array]
) -> tuple[dict[str, dict[str, jax.Array]], States]:
    """See ``Tables.gather``; slots of each shard, as ``reduce_gradients`` gives."""
    placement = placement_of(tables)
    used = [placement.stack(name) for name in slots]

    def body(state, slots):
        rows, new = {}, {}
        for t in used:
            rows[t.name], new[t.name] = _rows.gather(
                t.local, state[t.name], slots[t.name]
            )
        return rows, new

    specs, per_slot = _specs(placement, used), _slot_specs(placement, used)
    run = placement.mapped(body, (specs, per_slot), (per_slot, specs))
    rows, new = run(_of(state, used), dict(slots))
    return rows, dict(state) | new


def scatter(
    tables: Tables,
    state: States,
    slots: Mapping[str, jax.Array],
    rows: Mapping[str, Mapping[str, jax.Array]],
) -> States:
    """See ``Tables.scatter``."""
    placement = placement_of(tables)
    used = [placement.stack(name) for name in slots]

    def body(state, slots, rows):
        return {
            t.name: _rows.scatter(t.local, state[t.name], slots[t.name], rows[t.name])
            for t in used
        }

    specs, per_slot = _specs(placement, used), _slot_specs(placement, used)
    by_name = {t.name: dict.fromkeys(rows[t.name], per_slot[t.name]) for t in used}
    run = placement.mapped(body, (specs, per_slot, by_name), specs)
    given = {t.name: dict(rows[t.name]) for t in used}
    return dict(state) | run(_of(state, used), dict(slots), given)


def insert(
    tables: Tables, state: TableState, table: TableConfig, *given: Any
) -> TableState:
    """See ``Tables.insert``; of one table. Every device takes the ids that it owns."""
    placement = placement_of(tables)
    stack = placement.stack_of(table.name)
    ids, rows, optimizer_state, scores = given
    layout, prepared = prepare(table, table.name, ids)
    written = _insert.checked(table, layout, rows, optimizer_state, scores)

    def body(state, ids, written):
        mine = _owned(placement, stack, table, ids)
        if stack.sharding == "column_wise":
            columns = functools.partial(_column_wise.my_columns, placement, stack.local)
            written = {
                n: x if n == "scores" else columns(x) for n, x in written.items()
            }
        new = _insert.store(stack.local, state, mine, written)
        if "scores" in written and stack.sharding == "row_wise":
            here = is_here(placement, stack, [table.name])
            new = _insert.same_clock(new, placement.axes, here)
        before, after = {stack.name: state}, {stack.name: new}
        return touched(placement, [stack], [table.name], before, after)[stack.name]

    spec = placement.state_spec(stack)
    run = placement.mapped(body, (spec, _ALL, dict.fromkeys(written, _ALL)), spec)
    return run(state, as_words(prepared.ids), written)


def erase(
    tables: Tables, state: TableState, table: TableConfig, ids: Any
) -> TableState:
    """See ``Tables.erase``; of one table."""
    placement = placement_of(tables)
    stack = placement.stack_of(table.name)
    _, given = prepare(table, table.name, ids)

    def body(state, ids):
        mine = _owned(placement, stack, table, ids)
        new = {stack.name: _rows.erase(stack.local, state, mine)}
        before = {stack.name: state}
        return touched(placement, [stack], [table.name], before, new)[stack.name]

    spec = placement.state_spec(stack)
    run = placement.mapped(body, (spec, _ALL), spec)
    return run(state, as_words(given.ids))


def weight_gradients(
    tables: Tables, state: States, residual: Any, d_rows: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``."""
    placement = placement_of(tables)
    (one,), (gradients,), _ = paired(tables, residual, dict(d_rows))
    weighted = _weights.weighted_features(one.features)
    used = placement.stacks_of([tables.config_of(name).name for name in weighted])
    inside = placement.is_inside()

    def body(state, features, gradients):
        local = [_weights.reading(s.local) for s in used]
        inputs = [_weights.one_row_input(each) for each in features.values()]
        rows, _, new = _local_find(placement, local, inputs, state)
        result = {}
        for name, each in features.items():
            per_id = _weights.of_feature(each, gradients[name], rows[name])
            if not inside:
                per_id = _inputs.global_numbers(placement, each.offsets, per_id)
            result[name] = per_id
        return result, new

    split, specs = placement.split, _specs(placement, used)
    per_id = {n: split if r.offsets is None else _ALL for n, r in weighted.items()}
    run = placement.mapped(
        body, (specs, split, dict.fromkeys(gradients, split)), (per_id, specs)
    )
    result, new = run(_of(state, used), weighted, gradients)
    if not inside:
        for name, each in weighted.items():
            if each.offsets is None:
                result[name] = result[name][: jnp.shape(d_rows[name])[0]]
    return result, dict(state) | new


def local_shards(
    tables: Tables, table: TableConfig, state: TableState
) -> list[tuple[TableConfig, TableState]]:
    """The shards on this process's devices as tables of one device, each once.

    Raises:
      ValueError: the table is column-wise and has columns on another process.
    """
    stack = placement_of(tables).stack_of(table.name)
    local = dataclasses.replace(stack.local, name=table.name)
    pieces: dict[int, list[Any]] = {}
    leaves, tree = jax.tree.flatten(dataclasses.replace(state, extra=()))
    for leaf in leaves:
        for shard in leaf.addressable_shards:
            number = (shard.index[0].start or 0) // shard.data.shape[0]
            if shard.replica_id == 0 and number in stack.owners(table.name):
                pieces.setdefault(number, []).append(shard.data)
    if stack.sharding == "column_wise" and len(pieces) < stack.shards:
        raise ValueError(
            f"Table '{table.name}' is column-wise over several processes, and this one "
            f"has {len(pieces)} of its {stack.shards} parts: save it with "
            "jde.checkpoint, or restore that into a row-wise table to export it."
        )
    return [(local, jax.tree.unflatten(tree, pieces[n])) for n in sorted(pieces)]


def _owned(
    placement: Placement, stack: Stack, table: TableConfig, ids: jax.Array
) -> jax.Array:
    """The ids that this device owns; padding for the others."""
    if stack.sharding != "row_wise":
        return ids
    owner = owner_of(*hash_words(ids), stack.width) + stack.owners(table.name)[0]
    mine = owner == jax.lax.axis_index(placement.axes)
    return jnp.where(mine[:, None], ids, padding((1,)))


def _slot_specs(placement: Placement, used: Sequence[Stack]) -> dict[str, Any]:
    return {
        s.name: _ALL if s.sharding == "replicated" else placement.split for s in used
    }


def _specs(placement: Placement, used: Sequence[Stack]) -> dict[str, TableState]:
    return {s.name: placement.state_spec(s) for s in used}


def _of(state: Mapping[str, TableState], used: Sequence[Stack]) -> States:
    return {t.name: state[t.name] for t in used}


def _sums_travel(placement: Placement, table: TableConfig, inputs: Inputs) -> bool:
    layouts = [layout for layout, _ in _inputs_of(inputs, [table])]
    return cost_of(placement, table, layouts)[0] == "sums"


def _inputs_of(inputs: Inputs, tables: Sequence[TableConfig]) -> Inputs:
    names = {t.name for t in tables}
    return [x for x in inputs if x[0].table in names]
