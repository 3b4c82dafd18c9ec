# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small tables of which every device holds a copy, as one device runs them.

Every copy sees the ids of all devices and the sum of all gradients, so the copies hold
the same rows. They may hold them in other slots, so what travels is ids. Their lookups
draw nonces of their own (core/lineage.h), which a device compares with its own stamps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange import Input, mean_scale
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.engines.hash.strategies.local import find as find
from jax_dynemb._src.engines.hash.strategies.local import for_update as for_update
from jax_dynemb._src.engines.hash.strategies.local import route as route
from jax_dynemb._src.engines.hash.strategies.rows_of_ids import of_rows, slots_of
from jax_dynemb._src.engines.hash.strategies.strategy import (
    LookupGradients,
    LookupResult,
    States,
    Update,
    features_of,
)
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureResidual,
    StampsOf,
    TableState,
    add_to_counter,
    as_words,
    one_row_each,
)
from jax_dynemb._src.spec import TableSpec


def lookup(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``: every copy inserts the unseen ids of all devices."""
    del sent
    states = touch(placement, tables, inputs, states, scores)
    # A refused id has its initial row, as in any lookup.
    reading = [dataclasses.replace(t, eval_initializer=t.initializer) for t in tables]
    outputs, states = ops.find(reading, states, inputs)
    rows, features = {}, {}
    for (layout, feature_input), output in zip(inputs, outputs, strict=True):
        scale = mean_scale(layout, feature_input) if layout.pooling == "mean" else None
        rows[layout.feature] = output["rows"]
        features[layout.feature] = FeatureResidual(
            feature_input.ids,
            output["slots"],
            feature_input.offsets,
            feature_input.weights,
            scale,
            layout,
        )
    return LookupResult(rows, features, (), states)


def touch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``: every copy sees the ids of all devices."""
    mine = [as_words(x.ids) for _, x in inputs]
    mine += [x.uses for _, x in inputs if x.uses is not None]
    gathered = iter(placement.links.gather(mine))
    ids = [next(gathered).reshape(-1, 2) for _ in inputs]
    everywhere = []
    for (layout, x), of_all in zip(inputs, ids, strict=True):
        slots_only = one_row_each(layout.feature, layout.table, len(of_all), "no_rows")
        uses = None if x.uses is None else _end_to_end(next(gathered))
        everywhere.append((slots_only, FeatureInput(of_all, None, None, uses=uses)))
    given = jnp.stack([scores[t.name] for t in tables])
    _, new, _ = ops.lookup(tables, states, everywhere, given)
    return {**states, **new}


def _end_to_end(uses: jax.Array) -> jax.Array:
    """Joins [shards, n], or [shards, rows, n] of counts and scores, along the ids."""
    return jnp.moveaxis(uses, 0, -2).reshape(*uses.shape[1:-1], -1)


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``: every copy gets the sums of each device.

    A device compares its stamps with its own copy, and sends nothing where they do not
    fit. What was sent is added to every copy, so that copies stay equal.
    """
    del all_fits
    gathered, new, fit = _gathered(
        placement.links, tables, features_of(lookups), states, update.stamps
    )
    new = dict(states) | new
    after = update.of_found(new, gathered)
    steps = {t.state_name: fit[t.name] for t in tables}
    return after | {n: _if_fit(x, after[n], new[n]) for n, x in steps.items()}


def _if_fit(fit: jax.Array, after: TableState, before: TableState) -> TableState:
    """Keeps the step of before where no device had a stamp that fits."""
    step = _ffi.code("counters", "step")
    is_step = np.arange(after.counters.shape[1]) == step
    stays = ~fit & is_step[None, :, None]
    counters = jnp.where(stays, before.counters, after.counters)
    return dataclasses.replace(after, counters=counters)


def _gathered(
    links: Links,
    tables: Sequence[TableSpec],
    features: Sequence[FeatureGradient],
    states: States,
    stamps: StampsOf,
) -> tuple[list[FeatureGradient], dict[str, TableState], dict[str, jax.Array]]:
    """Gathers each table's gradients of all devices, summed by row on each device.

    Returns:
      The gradients, the states, and by table whether any stamp fits: bool[].
    """
    before = states
    reduced, states = ops.reduce(
        tables, states, features, counts_step=True, stamps=stamps
    )
    parts: list[jax.Array] = []
    for table in tables:
        lost, states = _lost_here(table, before, states)
        slots, sums = reduced[table.name]
        mine = [f for f in features if f.layout.table == table.name]
        ids = jnp.concatenate([as_words(f.ids) for f in mine])
        # There are no more distinct rows than slots.
        room = min(slots.shape[0], table.num_slots)
        (live,) = jnp.nonzero(slots >= 0, size=room, fill_value=slots.shape[0])
        ids = jnp.take(ids, live, axis=0, mode="fill", fill_value=0xFFFFFFFF)
        sums = jnp.take(sums, live, axis=0, mode="fill", fill_value=0)
        parts += [jnp.concatenate([ids, lost[None]]), sums]
    result, fit = [], {}
    arrived = links.gather(parts)
    for table, ids, sums in zip(tables, arrived[::2], arrived[1::2], strict=True):
        name = table.state_name
        lost = _same_on_all(jnp.sum(ids[:, -1, 0]), links.axes)
        fit[table.name] = _same_on_all(jnp.max(ids[:, -1, 1]), links.axes) != 0
        states |= {name: add_to_counter(states[name], 0, "lost_updates", lost)}
        ids, sums = ids[:, :-1].reshape(-1, 2), sums.reshape(-1, table.dim)
        slots, states = slots_of(table, states, ids)
        result.append(of_rows(table, ids, slots, sums))
    return result, states, fit


def _lost_here(
    table: TableSpec,
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
) -> tuple[jax.Array, dict[str, TableState]]:
    """Reads how many gradients of this device have lost their row.

    Copies are equal in every count, so each of them counts the gradients of all
    devices. The number travels as one more id.

    Returns:
      uint32[2], the number and whether the stamps fit, so that a step was counted. Then
      the states with the counters of before: the update counts the step.
    """
    name = table.state_name
    old, new = (states[name].counters for states in (before, after))
    places = [_ffi.code("counters", n) for n in ("lost_updates", "step")]
    more = jnp.stack([new[0, n, 0] - old[0, n, 0] for n in places])  # wraps
    return more, {**after, name: dataclasses.replace(after[name], counters=old)}


def _same_on_all(number: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Tells a ``shard_map`` that checks varying axes that devices have one number.

    Only there does it cost a collective. Results of kernels need none: JAX takes them
    for equal.
    """
    axis_type = getattr(jax.typeof(number), "mat", None)  # absent in other versions
    if axis_type is not None and not axis_type.varying:
        return number
    return jax.lax.pmax(number, axes)
