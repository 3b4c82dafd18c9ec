# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of which each device has all keys and some columns; as one device runs them.

Each device looks up the ids of all devices, and pools them, in its own columns: a
table like any other, only narrow. One exchange turns columns of the whole batch into
whole rows of a part of it, and one turns gradients back. Which slot a key has may
differ from device to device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange import (
    BufferField,
    ExchangeBuffers,
    Input,
    mean_scale,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.local import route as route
from jax_dynemb._src.engines.hash.strategies.strategy import (
    ByFeature,
    FindResult,
    LookupGradients,
    LookupResult,
    States,
    Update,
)
from jax_dynemb._src.engines.hash.strategies.whole_row import for_update as for_update
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureLayout,
    FeatureResidual,
    TableState,
    as_words,
)
from jax_dynemb._src.spec import TableSpec

# By table: the ids of all devices, and their slots here.
Received = dict[str, tuple[jax.Array, jax.Array]]


def lookup(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``; it keeps ``Received``."""
    del sent
    everywhere = [_everywhere(placement, *each) for each in inputs]
    given = jnp.stack([scores[t.name] for t in tables])
    pieces, wire = _on_the_wire(placement, tables, inputs)
    outputs, states, _ = ops.lookup(pieces, states, everywhere, given, wire.views)
    rows = _whole_rows(tables, inputs, wire, [o["rows"] for o in outputs])
    received = {}
    for table in tables:
        mine = [n for n, (layout, _) in enumerate(inputs) if layout.table == table.name]
        ids = jnp.concatenate([as_words(everywhere[n][1].ids) for n in mine])
        slots = jnp.concatenate([outputs[n]["slots"] for n in mine])
        received[table.name] = (ids, slots)
    features = {layout.feature: _residual(layout, each) for layout, each in inputs}
    return LookupResult(_by_feature(inputs, rows), features, received, states)


def find(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
) -> FindResult:
    """See ``Strategy``."""
    everywhere = [_everywhere(placement, *each) for each in inputs]
    sent, wire = _on_the_wire(placement, tables, inputs)
    outputs, new = ops.find(sent, states, everywhere, wire.views)
    rows = _whole_rows(tables, inputs, wire, [o["rows"] for o in outputs])
    me = jax.lax.axis_index(placement.axes)
    found = [o["found"].reshape(placement.shards, -1)[me] for o in outputs]
    return FindResult(_by_feature(inputs, rows), _by_feature(inputs, found), new)


def touch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``: each device has all keys."""
    everywhere = [ops.slots_only(*_everywhere(placement, *each)) for each in inputs]
    given = jnp.stack([scores[t.name] for t in tables])
    return ops.lookup(tables, states, everywhere, given)[1]


def apply_gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``: gradients travel as the columns of each device."""
    del all_fits
    return update(states, _gradients(placement, tables, lookups))


def _by_feature(inputs: Sequence[Input], arrays: Sequence[jax.Array]) -> ByFeature:
    names = [layout.feature for layout, _ in inputs]
    return dict(zip(names, arrays, strict=True))


def _gradients(
    placement: Placement,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
) -> list[FeatureGradient]:
    """Exchanges gradients: those of all devices in the columns of this one.

    Args:
      placement: of the collection.
      tables: column-wise tables, as a shard sees them.
      lookups: gradients of this device, all columns.
    """
    known = [
        pair
        for table in tables
        for one in lookups
        for pair in _with_slots(placement, table, one)
    ]
    ordered = [f for f, _ in known]
    skips = {table.name for table in tables if table.nonfinite == "skip"}
    parts = [_columns(placement, f, f.layout.table in skips) for f in ordered]
    pieces = [
        BufferField(f.layout.table, part.shape[1], part.shape[2], part.dtype.name)
        for f, part in zip(ordered, parts, strict=True)
    ]
    wire = ExchangeBuffers(tuple(pieces), placement.links)
    columns = wire.exchange(wire.filled(parts))
    result = []
    for n, (f, (ids, slots)) in enumerate(known):
        feature_input = FeatureInput(f.ids, f.offsets, f.weights)
        layout, feature_input = _everywhere(placement, f.layout, feature_input, ids)
        whole = FeatureGradient(
            layout=layout,
            gradients=columns[n],
            ids=feature_input.ids,
            slots=slots,
            offsets=feature_input.offsets,
            weights=feature_input.weights,
            scale=_scale(placement.axes, f.scale, f.offsets is not None),
            view=wire.views[n],
            joined=f.joined,
        )
        result.append(whole)
    return result


def _with_slots(
    placement: Placement, table: TableSpec, one: LookupGradients
) -> Iterator[tuple[FeatureGradient, tuple[jax.Array, jax.Array]]]:
    """Yields gradients of a table with the ids of all devices and their slots here.

    The lookup kept both, so no ids travel again. Those that ``lax.scan`` has stacked
    are put in the order of flat gradients: all lookups of a device, then the next one.
    """
    kept: Received = one.kept
    begin, axis = 0, one.stacked
    for residual, feature in zip(one.residuals, one.features, strict=True):
        if feature.layout.table != table.name:
            continue
        ids, slots = kept[table.name]
        n = residual.layout.num_ids
        end = begin + placement.shards * n

        def in_order(array: jax.Array, begin: int = begin, end: int = end, n: int = n):
            mine = jax.lax.slice_in_dim(array, begin, end, axis=axis)
            split = (*array.shape[:axis], placement.shards, n, *array.shape[axis + 1 :])
            devices_first = jnp.moveaxis(mine.reshape(split), axis, 0)
            return devices_first.reshape(-1, *array.shape[axis + 1 :])

        yield feature, (in_order(ids), in_order(slots))
        begin = end


def _everywhere(
    placement: Placement,
    layout: FeatureLayout,
    feature_input: FeatureInput,
    ids: jax.Array | None = None,
) -> Input:
    """Joins a feature of all devices; ``ids`` are those of all, if they are known.

    Bags of any length do not fill a device's ids. The remaining ids become one more
    bag, so that each bag ends where the next begins. Its row is not read.
    """
    shards, n, bags = placement.shards, layout.num_ids, layout.num_bags
    if ids is None:
        ids = _gathered(placement, as_words(feature_input.ids))
    offsets = feature_input.offsets
    if offsets is not None:
        bags += 1
        every = jax.lax.all_gather(offsets, placement.axes)
        starts = jnp.arange(shards, dtype=jnp.int32) * n
        end = jnp.full(1, shards * n, jnp.int32)
        offsets = jnp.concatenate([(every + starts[:, None]).reshape(-1), end])
    weights = feature_input.weights
    weights = None if weights is None else _gathered(placement, weights)
    shape = (shards * n,)
    layout = dataclasses.replace(
        layout, given_shape=shape, ids_shape=shape, rows_shape=(shards * bags,)
    )
    uses = feature_input.uses
    if uses is not None:  # rows are counts and scores
        axis = uses.ndim - 1
        uses = jax.lax.all_gather(uses, placement.axes, axis=axis, tiled=True)
    return layout, FeatureInput(ids, offsets, weights, uses=uses)


def _gathered(placement: Placement, array: jax.Array) -> jax.Array:
    return jax.lax.all_gather(array, placement.axes, tiled=True)


def _on_the_wire(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> tuple[list[TableSpec], ExchangeBuffers]:
    """Returns configs with the dtype of the exchange, and the exchange's arrays.

    A piece has the bags of a device, and the one that no device reads.
    """
    sent = {
        t.name: dataclasses.replace(t, dtype=placement.exchange_dtype or t.dtype)
        for t in tables
    }
    pieces = []
    for layout, feature_input in inputs:
        table, rest = sent[layout.table], int(feature_input.offsets is not None)
        pieces.append(
            BufferField(table.name, layout.num_bags + rest, table.dim, table.dtype)
        )
    wire = ExchangeBuffers(tuple(pieces), placement.links)
    return list(sent.values()), wire


def _whole_rows(
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    wire: ExchangeBuffers,
    columns: Sequence[jax.Array],
) -> list[jax.Array]:
    """Exchanges columns of all bags for all columns of this device's bags."""
    dtypes = {t.name: t.dtype for t in tables}
    rows = []
    for n, array in enumerate(wire.exchange(columns)):
        layout = inputs[n][0]
        part = wire.part(n, array)[:, : layout.num_bags]
        whole = part.swapaxes(0, 1).reshape(layout.num_bags, -1)
        rows.append(whole.astype(dtypes[layout.table]))
    return rows


def _columns(placement: Placement, feature: FeatureGradient, skips: bool) -> jax.Array:
    """Cuts [bags, dim] into [shards, bags, columns], with the bag left over.

    Where a table ``skips`` rows with a gradient that is not finite, all devices must
    skip the same ones. So such a number of one device becomes NaN on all.
    """
    gradients = feature.gradients
    if skips:
        is_finite = jnp.isfinite(gradients).all(axis=-1, keepdims=True)
        gradients = jnp.where(is_finite, gradients, jnp.array(jnp.nan, gradients.dtype))
    n, dim = gradients.shape
    parts = gradients.reshape(n, placement.shards, dim // placement.shards)
    parts = parts.swapaxes(0, 1).astype(placement.exchange_dtype or gradients.dtype)
    if feature.offsets is not None:
        parts = jnp.pad(parts, ((0, 0), (0, 1), (0, 0)))
    return parts


def _scale(
    axes: tuple[str, ...], scale: jax.Array | None, jagged: bool
) -> jax.Array | None:
    if scale is None:
        return None
    every = jax.lax.all_gather(scale, axes)
    return (jnp.pad(every, ((0, 0), (0, 1))) if jagged else every).reshape(-1)


def _residual(layout: FeatureLayout, feature_input: FeatureInput) -> FeatureResidual:
    scale = mean_scale(layout, feature_input) if layout.pooling == "mean" else None
    none = jnp.zeros(layout.num_ids, jnp.int32)  # slots stay with the columns
    return FeatureResidual(
        feature_input.ids,
        none,
        feature_input.offsets,
        feature_input.weights,
        scale,
        layout,
    )
