# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training on a mesh: lookups of all tables and their updates, each one a shard_map."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb import ops
from jax_dynemb._spec import TableSpec
from jax_dynemb.engines._flags import TRAINING, LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines.mesh._gradients import (
    flat_gradients,
    of_strategy,
    specs_of,
    zip_lookups,
)
from jax_dynemb.engines.mesh._members import (
    restore_untouched,
    select_hyper,
    select_member,
)
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._residual import ShardedResidual
from jax_dynemb.engines.mesh._stack_batch import (
    Inputs,
    StackBatch,
    count_malformed,
    inputs_of,
    local_inputs,
)
from jax_dynemb.engines.mesh._stacks import Stack, states_of
from jax_dynemb.engines.mesh.strategies import Update, by_strategy, strategy_of
from jax_dynemb.engines.shard import RowGradients, row_gradients, update_rows
from jax_dynemb.ops import (
    FeatureGradient,
    Rows,
    Stamps,
    TableState,
    check_stamps,
    halved_sketches,
    join_stamps,
    stamp_of,
)

States = dict[str, TableState]
_ALL = PartitionSpec()


def lookup(
    tables: MeshTables,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
    given: Given,
    sent: Mapping[str, Any] | None = None,
    flags: LookupFlags = TRAINING,
) -> tuple[dict[str, jax.Array], ShardedResidual, States]:
    """See ``Tables.lookup``."""
    placement = tables.here()
    batch = StackBatch(tables, ids, weights, given)
    layout, used, names = batch.layout, batch.used, batch.names

    def body(state, ids, weights, given, sent):
        inputs = local_inputs(layout, ids, weights, given)
        mine = {s.name: select_member(placement, s, given.tables) for s in used}
        specs = [flags.of(s.local) for s in used]
        halved = dict(state) | halved_sketches(specs, state)
        rows, residual, new = _local_lookup(
            placement, specs, inputs, halved, mine, sent
        )
        new = count_malformed(layout, inputs, new)
        new = restore_untouched(placement, used, names, state, new)
        stamps = _stamps_of([s.name for s in used], new)
        return rows, dataclasses.replace(residual, stamps=stamps), new

    specs, split = placement.state_specs(used), placement.split
    run = placement.mapped(
        body,
        (
            specs,
            batch.ids_specs,
            batch.weights_specs,
            batch.given_specs,
            split,
        ),
        (dict.fromkeys(ids, split), split, specs),
    )
    rows, residual, new = run(
        states_of(state, used), batch.ids, batch.weights, batch.given, sent or {}
    )
    return batch.rows(rows), residual, dict(state) | new


def route(
    tables: MeshTables, ids: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, Any]:
    """See ``Tables.route``; returns by strategy what it has sent."""
    placement = tables.here()
    batch = StackBatch(tables, ids, weights)
    layout, specs = batch.layout, [s.local for s in batch.used]

    def body(ids, weights):
        inputs = local_inputs(layout, ids, weights)
        return {
            name: strategy.route(placement, mine, inputs_of(inputs, mine))
            for name, strategy, mine in by_strategy(placement, specs)
        }

    run = placement.mapped(
        body, (batch.ids_specs, batch.weights_specs), placement.split
    )
    return run(batch.ids, batch.weights)


def _local_lookup(
    placement: Placement,
    used: Sequence[TableSpec],
    inputs: Inputs,
    state: States,
    scores: Mapping[str, jax.Array],
    sent: Mapping[str, Any],
) -> tuple[dict[str, jax.Array], ShardedResidual, States]:
    rows, features, kept, new = {}, {}, {}, dict(state)
    for name, strategy, tables in by_strategy(placement, used):
        mine = inputs_of(inputs, tables)
        result = strategy.lookup(placement, tables, mine, new, scores, sent.get(name))
        rows |= result.rows
        features |= result.features
        kept[name] = result.kept
        new |= result.states
    layouts = [layout for layout, _ in inputs]
    shaped = {f.feature: rows[f.feature].reshape(*f.rows_shape, -1) for f in layouts}
    ordered = OrderedDict((f.feature, features[f.feature]) for f in layouts)
    none = Stamps((), ())  # known when the counters are
    return shaped, ShardedResidual(ordered, kept, none), new


def _stamps_of(names: Sequence[str], states: States) -> Stamps:
    rows = tuple(stamp_of(states[name].counters)[None] for name in names)
    return Stamps(rows, tuple((name,) for name in names))


def apply_gradients(
    tables: MeshTables,
    state: States,
    residual: Any,
    d_rows: Any,
    hyper: Mapping[str, Mapping[str, Any]],
) -> States:
    """See ``Tables.apply_gradients``."""
    placement = tables.here()
    residuals, gradients, names = zip_lookups(tables, residual, d_rows)
    _check_stamps(placement, residuals, state, "apply_gradients")
    used = placement.stacks_of(names)
    numbers = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), dict(hyper))

    def body(state, residuals, gradients, numbers):
        lookups = residuals, flat_gradients(tables, residuals, gradients)
        given = {s.name: select_hyper(placement, s, state, numbers) for s in used}
        stamps = join_stamps([one.stamps for one in residuals])

        def update(states, features, stamps):
            names = {f.layout.table for f in features}
            mine = [
                strategy_of(placement, s.local).for_update(
                    placement, s.local, state[s.name], given[s.name]
                )
                for s in used
                if s.name in names
            ]
            return dict(states) | update_rows(mine, states, features, given, stamps)

        new = _apply(placement, used, *lookups, state, Update(update, stamps))
        return restore_untouched(placement, used, names, state, new)

    specs = placement.state_specs(used)
    residual_specs, gradient_specs = specs_of(placement, residuals, gradients)
    hyper_specs = jax.tree.map(lambda _: _ALL, numbers)
    run = placement.mapped(
        body, (specs, residual_specs, gradient_specs, hyper_specs), specs
    )
    return dict(state) | run(states_of(state, used), residuals, gradients, numbers)


def _apply(
    placement: Placement,
    used: Sequence[Stack],
    residuals: Sequence[ShardedResidual],
    gradients: Sequence[Mapping[str, FeatureGradient]],
    state: States,
    update: Update,
    all_fits: bool = False,
) -> States:
    """Brings gradients to the rows' owners."""
    new = dict(state)
    for name, strategy, tables in by_strategy(placement, [s.local for s in used]):
        mine = of_strategy(name, tables, residuals, gradients)
        new = strategy.apply_gradients(placement, tables, mine, new, update, all_fits)
    return new


def _check_stamps(
    placement: Placement,
    residuals: Sequence[ShardedResidual],
    state: States,
    call: str,
) -> None:
    """Refuses concrete residuals of other tables; each device has its own stamp."""
    if placement.is_inside():
        return
    counters = {}
    for stack in placement.stacks:
        rows, shards = state[stack.name].counters, placement.shards
        step = rows.shape[0] // shards
        own = tuple(step * n for n in range(shards))
        own = None if stack.sharding == "replicated" else own
        counters[stack.name] = Rows(rows, own)
    check_stamps([one.stamps for one in residuals], counters, call)


def reduce_gradients(
    tables: MeshTables, state: States, residual: Any, d_rows: Any
) -> tuple[dict[str, RowGradients], States]:
    """See ``Tables.reduce_gradients``; with room for any skew."""
    placement = tables.here()
    residuals, gradients, names = zip_lookups(tables, residual, d_rows)
    _check_stamps(placement, residuals, state, "reduce_gradients")
    used = placement.stacks_of(names)

    def body(state, residuals, gradients):
        lookups = residuals, flat_gradients(tables, residuals, gradients)
        stamps = join_stamps([one.stamps for one in residuals])
        local = [s.local for s in used]
        result = {}

        def reduce(states, features, stamps):
            names = {f.layout.table for f in features}
            mine = [t for t in local if t.name in names]
            sums, new = ops.reduce(
                mine, states, features, counts_step=False, stamps=stamps
            )
            result.update(row_gradients(features, sums))
            return dict(states) | new

        of_all = placement, used, *lookups, state
        new = _apply(*of_all, Update(reduce, stamps), all_fits=True)
        return result, new

    specs = placement.state_specs(used)
    residual_specs, gradient_specs = specs_of(placement, residuals, gradients)
    results = (placement.slot_specs(used), specs)
    run = placement.mapped(body, (specs, residual_specs, gradient_specs), results)
    reduced, new = run(states_of(state, used), residuals, gradients)
    return reduced, dict(state) | new
