# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serving lookups of all tables on a mesh, and gradients of weights that need them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines import shard
from jax_dynemb.engines._flags import LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines.mesh import _inputs
from jax_dynemb.engines.mesh._gradients import zip_lookups
from jax_dynemb.engines.mesh._members import restore_untouched, select_member
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stack_batch import (
    Inputs,
    StackBatch,
    inputs_of,
    local_inputs,
)
from jax_dynemb.engines.mesh._stacks import states_of
from jax_dynemb.engines.mesh.strategies import by_strategy
from jax_dynemb.ops import TableState

States = dict[str, TableState]
_ALL = PartitionSpec()


def find(
    tables: MeshTables,
    state: States,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    """See ``Tables.find``."""
    placement = tables.here()
    batch = StackBatch(tables, ids, weights)
    layout, local = batch.layout, [s.local for s in batch.used]

    def body(state, ids, weights):
        inputs = local_inputs(layout, ids, weights)
        rows, found, new = _local_find(placement, local, inputs, state)
        shaped, flags = {}, {}
        for each, given in inputs:
            name = each.feature
            shaped[name] = rows[name].reshape(*each.rows_shape, -1)
            flag = each.shaped_as_given(found[name])
            flags[name] = layout.whole(given.offsets, flag)
        return shaped, flags, new

    specs = placement.state_specs(batch.used)
    run = placement.mapped(
        body,
        (specs, batch.ids_specs, batch.weights_specs),
        (dict.fromkeys(ids, placement.split), batch.per_id_specs, specs),
    )
    rows, found, new = run(states_of(state, batch.used), batch.ids, batch.weights)
    flags = batch.in_order(found).items()
    found = OrderedDict((n, batch.restored(n, x).astype(bool)) for n, x in flags)
    return batch.rows(rows), found, dict(state) | new


def _local_find(
    placement: Placement, local: Sequence[TableSpec], inputs: Inputs, state: States
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
    rows, found, new = {}, {}, dict(state)
    for _, strategy, tables in by_strategy(placement, local):
        result = strategy.find(placement, tables, inputs_of(inputs, tables), new)
        rows |= result.rows
        found |= result.found
        new |= result.states
    return rows, found, new


def touch(
    tables: MeshTables,
    state: States,
    ids: Mapping[str, Any],
    given: Given,
    flags: LookupFlags,
) -> States:
    """See ``Tables.find``: the rows that are found count as used now."""
    placement = tables.here()
    batch = StackBatch(tables, ids, {}, given)
    layout, used, names = batch.layout, batch.used, batch.names

    def body(state, ids, given):
        inputs = local_inputs(layout, ids, {}, given)
        numbers = {s.name: select_member(placement, s, given.tables) for s in used}
        local, new = [flags.of(s.local) for s in used], dict(state)
        for _, strategy, mine in by_strategy(placement, local):
            own = inputs_of(inputs, mine)
            new |= strategy.touch(placement, mine, own, new, numbers)
        new = shard.touched(new, state)
        return restore_untouched(placement, used, names, state, new)

    specs = placement.state_specs(used)
    in_specs = (specs, batch.ids_specs, batch.given_specs)
    run = placement.mapped(body, in_specs, specs)
    return dict(state) | run(states_of(state, used), batch.ids, batch.given)


def weight_gradients(
    tables: MeshTables, state: States, residual: Any, d_rows: Mapping[str, Any]
) -> tuple[dict[str, jax.Array], States]:
    """See ``Tables.weight_gradients``."""
    placement = tables.here()
    (one,), (gradients,), _ = zip_lookups(tables, residual, dict(d_rows))
    weighted = shard.weighted_features(one.features)
    used = placement.stacks_of([tables.config_of(name).name for name in weighted])
    inside = placement.is_inside()

    def body(state, features, gradients):
        local = [shard.reading(s.local) for s in used]
        inputs = [shard.one_row_input(each) for each in features.values()]
        rows, _, new = _local_find(placement, local, inputs, state)
        result = {}
        for name, each in features.items():
            limit = tables.config_of(name).max_gradient
            per_id = shard.of_feature(each, gradients[name], rows[name], limit)
            if not inside:
                per_id = _inputs.global_numbers(placement, each.offsets, per_id)
            result[name] = per_id
        return result, new

    split, specs = placement.split, placement.state_specs(used)
    per_id = {n: split if r.offsets is None else _ALL for n, r in weighted.items()}
    run = placement.mapped(
        body, (specs, split, dict.fromkeys(gradients, split)), (per_id, specs)
    )
    result, new = run(states_of(state, used), weighted, gradients)
    if not inside:
        for name, each in weighted.items():
            if each.offsets is None:
                per_id = placement.gathered(result[name])
                result[name] = per_id[: jnp.shape(d_rows[name])[0]]
    return OrderedDict((name, result[name]) for name in weighted), dict(state) | new
