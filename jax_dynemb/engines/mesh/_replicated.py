# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small tables of which every device holds a copy, as one device runs them.

Every copy sees the ids of all devices and the sum of all gradients, so the copies hold
the same rows. They may hold them in other slots, so what travels is ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb import ops
from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh._batch import Input, mean_scale
from jax_dynemb.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureResidual,
    SharedRows,
    TableState,
    as_words,
    one_row_each,
)

States = Mapping[str, TableState]


def lookup(
    axes: tuple[str, ...],
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> tuple[list[jax.Array], list[FeatureResidual], dict[str, TableState]]:
    """Training lookup: every copy inserts the unseen ids of all devices."""
    everywhere = []
    for layout, given in inputs:
        ids = jax.lax.all_gather(as_words(given.ids), axes, tiled=True)
        slots_only = one_row_each(layout.feature, layout.table, ids.shape[0], "no_rows")
        everywhere.append((slots_only, FeatureInput(ids, None, None)))
    given = jnp.stack([scores[t.name] for t in tables])
    _, states, _ = ops.lookup(tables, states, everywhere, given)
    # A refused id has its initial row, as in any lookup.
    reading = [dataclasses.replace(t, eval_initializer=t.initializer) for t in tables]
    outputs, states = ops.find(reading, states, inputs)
    residuals = []
    for (layout, given), output in zip(inputs, outputs, strict=True):
        scale = mean_scale(layout, given) if layout.pooling == "mean" else None
        residuals.append(
            FeatureResidual(
                given.ids, output["slots"], given.offsets, given.weights, scale, layout
            )
        )
    return [output["rows"] for output in outputs], residuals, states


def find(
    tables: Sequence[TableSpec], inputs: Sequence[Input], states: States
) -> tuple[list[dict[str, jax.Array]], dict[str, TableState]]:
    """Serving lookup: each device asks its own copy."""
    return ops.find(tables, states, inputs)


def gradients(
    axes: tuple[str, ...],
    tables: Sequence[TableSpec],
    features: Sequence[FeatureGradient],
    states: States,
) -> tuple[list[FeatureGradient], dict[str, TableState]]:
    """For each table the rows' gradients of all devices, each device's summed."""
    reduced, states = ops.reduce(tables, states, features, counts_step=False)
    result = []
    for table in tables:
        slots, sums = reduced[table.name]
        mine = [f for f in features if f.layout.table == table.name]
        ids = jnp.concatenate([as_words(f.ids) for f in mine])
        # There are no more distinct rows than slots.
        room = min(slots.shape[0], table.num_slots)
        (live,) = jnp.nonzero(slots >= 0, size=room, fill_value=slots.shape[0])
        ids = jnp.take(ids, live, axis=0, mode="fill", fill_value=0xFFFFFFFF)
        sums = jnp.take(sums, live, axis=0, mode="fill", fill_value=0)
        ids, sums = (jax.lax.all_gather(x, axes, tiled=True) for x in (ids, sums))
        slots, states = slots_of(table, states, ids)
        result.append(of_rows(table, ids, slots, sums))
    return result, states


def slots_of(
    table: TableSpec, states: States, ids: jax.Array
) -> tuple[jax.Array, dict[str, TableState]]:
    """The slots of ids, negative where an id is not stored."""
    layout = one_row_each(table.name, table.name, ids.shape[0])
    inputs = [(layout, FeatureInput(ids, None, None))]
    (output,), new = ops.find([table], states, inputs)
    return output["slots"], dict(states) | new


def of_rows(
    table: TableSpec,
    ids: jax.Array,
    slots: jax.Array,
    gradients: jax.Array,
    place: SharedRows | None = None,
) -> FeatureGradient:
    """Gradients of rows, with no bags left."""
    layout = one_row_each(table.name, table.name, ids.shape[0])
    return FeatureGradient(layout, gradients, ids, slots, None, None, None, place)
