# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups that read rows with the decay that is due, ``catch_up_forward=True``.

The lookup itself stays as it is. The rows are then read once more, each with the factor
of its missed updates as its weight: FBGEMM's DECOUPLE_GLOBAL while it trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.engines.shard.update import step_of
from jax_dynemb._src.ops import FeatureInput, FeatureLayout, TableState
from jax_dynemb._src.spec import TableSpec

Inputs = Sequence[tuple[FeatureLayout, FeatureInput]]
Outputs = list[dict[str, jax.Array]]
States = Mapping[str, TableState]


def decays_lookups(table: TableSpec) -> bool:
    """Whether lookups of the table read rows with the decay that is due."""
    return table.optimizer.decays_lookups


def with_due_decay(
    used: Sequence[TableSpec], states: States, inputs: Inputs, outputs: Outputs
) -> dict[str, TableState]:
    """Reads the rows of a lookup again, with the decay that is due.

    Args:
      used: the tables of the features.
      states: by name, after the lookup.
      inputs: the features.
      outputs: of the lookup; their rows are replaced.

    Returns:
      The states to go on with.
    """
    decaying = {table.name: table for table in used if decays_lookups(table)}
    places = [n for n, (one, _) in enumerate(inputs) if one.table in decaying]
    new = dict(states)
    asked = []
    for n in places:
        layout, given = inputs[n]
        slots = outputs[n]["slots"]
        factors, new = due_factors(decaying[layout.table], new, slots)
        asked.append(_weighted(layout, given, factors))
    # An id without a row has its initial row, as in any lookup.
    reading = [
        dataclasses.replace(table, eval_initializer=table.initializer)
        for table in decaying.values()
        if table.name in {layout.table for layout, _ in asked}
    ]
    read, after = ops.find(reading, new, asked)
    for n, output in zip(places, read, strict=True):
        outputs[n] = outputs[n] | {"rows": output["rows"]}
    return new | after


def due_factors(
    table: TableSpec, states: Mapping[str, TableState], slots: jax.Array
) -> tuple[jax.Array, dict[str, TableState]]:
    """Computes the decay that is due of the rows in some slots.

    Args:
      table: their table.
      states: by name.
      slots: int32[n]; below 0: no row, whose factor is 1.

    Returns:
      float32[n], and the states to go on with.
    """
    name = table.state_name
    rows, state = ops.gather(table, states[name], slots)
    step = step_of(state, table.first_row)  # updates so far
    h = table.optimizer.hyper_parameters(step)
    missed = jnp.where((slots < 0) | (rows["last"] == 0), 0, step - rows["last"])
    rate = jnp.asarray(h["learning_rate"], jnp.float32) * h["weight_decay"]
    kept = jnp.exp(missed * jnp.log1p(-jnp.minimum(rate, 1.0)))
    due = (missed > 0) & (step + 1 >= h["start"])
    factors = jnp.where(due, jnp.maximum(kept, h["floor"]), 1.0)
    return factors.astype(jnp.float32), {**states, name: state}


def _weighted(
    layout: FeatureLayout, given: FeatureInput, factors: jax.Array
) -> tuple[FeatureLayout, FeatureInput]:
    """Weighs the rows of a feature; one that is not pooled has bags of one id."""
    weights = factors if given.weights is None else given.weights * factors
    pooling = "sum" if layout.pooling == "none" else layout.pooling
    layout = dataclasses.replace(layout, pooling=pooling, weighted=True)
    return layout, FeatureInput(given.ids, given.offsets, weights)
