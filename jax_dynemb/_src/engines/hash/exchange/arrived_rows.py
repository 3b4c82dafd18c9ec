# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Brings the rows of a round from their owners to the ids of a device.

Usually rows arrive in a buffer, each once, and are copied from there to every id that
has them. GPUs that read each other's memory read each row from its owner and write it
to its places at once, where those are known: the buffer and the second copy are saved.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange.buffers import ExchangeBuffers
from jax_dynemb._src.engines.hash.exchange.device_batch import DeviceBatch, Run
from jax_dynemb._src.engines.hash.exchange.id_places import places_of
from jax_dynemb._src.engines.hash.exchange.places import RoundRange, live_rows
from jax_dynemb._src.engines.hash.exchange.route import Route
from jax_dynemb._src.ops import Placed, PlacedIds, PlacedTable, Span, sum_bags


def exchange_rows(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    owned: Sequence[jax.Array],
    id_route: Route,
    round_range: RoundRange,
    before: Sequence[jax.Array] | None = None,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Exchanges the rows of one round and adds them to what came before.

    Args:
      batch: the features.
      wire: how rows lie in the arrays of owners.
      owned: by piece of the wire, the array that its rows lie in.
      id_route: of the ids.
      round_range: those that travel.
      before: sums of earlier rounds, by run.

    Returns:
      By run of features, rows or their sums. Then of the pieces behind the tables, such
      as sums of bags, the arrays in which they have arrived.
    """
    count = len(batch.exchange.tables)
    placed = placed_rows(batch, wire)
    if placed is None:
        arrived = wire.exchange(owned, live_rows(round_range))
        rows = _read(batch, wire, arrived, id_route, round_range)
    else:
        assert id_route.order is not None
        order, number = id_route.order, id_route.unique_of
        ids = PlacedIds(order, number, round_range.begin, round_range.end)
        whole = {view.array: x for view, x in zip(wire.views, owned, strict=True)}
        arrays = [whole[n] for n in sorted(whole)]
        rows, arrived = wire.links.place_rows(arrays, ids, placed), []
    sums = [_pooled(batch, *pair) for pair in zip(batch.runs, rows, strict=True)]
    if before is not None:
        sums = [old + new for old, new in zip(before, sums, strict=True)]
    return sums, arrived[count:]


def placed_rows(batch: DeviceBatch, wire: ExchangeBuffers) -> Placed | None:
    """Describes an exchange into places; None if rows arrive in a buffer.

    That is so between devices that do not read each other's memory, and where something
    else travels too. A bag of several rows is summed up while it reads the buffer.
    """
    exchange = batch.exchange
    if not wire.links.peers or len(wire.pieces) > len(exchange.tables):
        return None
    if not all(_is_row_each(run) for run in batch.runs):
        return None
    if batch.ids.shape[0] == 0 or any(view.size == 0 for view in wire.views):
        return None
    tables = []
    for piece, view in zip(wire.pieces, wire.views, strict=True):
        width = jnp.dtype(piece.dtype).itemsize
        tables.append(
            PlacedTable(view.array, view.offset * width, piece.dim * width, piece.rows)
        )
    results = [
        jax.ShapeDtypeStruct((run.end - run.begin, run.dim), _wire_dtype(batch, run))
        for run in batch.runs
    ]
    placed = Placed(results, tables, _spans(batch))
    arrays = len({view.array for view in wire.views})
    return placed if placed.is_one_call(arrays) else None


def _is_row_each(run: Run) -> bool:
    layout, feature_input = run.inputs[0]
    is_bag = layout.pooling != "none"
    return not is_bag or (layout.bag_size == 1 and feature_input.offsets is None)


def _wire_dtype(batch: DeviceBatch, run: Run) -> str:
    return batch.exchange.dtypes[run.tables[0]]


def _spans(batch: DeviceBatch) -> list[Span]:
    """Lists neighbours of one table in one run."""
    spans: list[Span] = []
    for number, run in enumerate(batch.runs):
        begin = run.begin
        for (layout, _), table in zip(run.inputs, run.tables, strict=True):
            is_same = bool(spans) and spans[-1][1:3] == (table, number)
            if not is_same and layout.num_ids > 0:
                spans.append(Span(begin, table, number, begin - run.begin))
            begin += layout.num_ids
    return spans


def _read(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    arrays: Sequence[jax.Array],
    id_route: Route,
    round_range: RoundRange,
) -> list[jax.Array]:
    """Reads the row of each id out of the buffers, by run."""
    places = places_of(batch.exchange, id_route, round_range)
    rows = []
    for run in batch.runs:
        counts = [layout.num_ids for layout, _ in run.inputs]
        pieces = list(zip(run.tables, counts, strict=True))
        rows.append(wire.rows_at(pieces, arrays, places.cut(run.begin, run.end)))
    return rows


def _pooled(batch: DeviceBatch, run: Run, rows: jax.Array) -> jax.Array:
    layout, feature_input = run.inputs[0]
    if layout.pooling == "none":
        return rows
    rows = rows.astype(jnp.float32)
    if feature_input.weights is not None:
        weights = [w for _, each in run.inputs if (w := each.weights) is not None]
        rows = rows * jnp.concatenate(weights)[:, None]
    if feature_input.offsets is not None:
        return sum_bags(
            batch.exchange.tables[run.tables[0]], rows, feature_input.offsets
        )
    return rows.reshape(sum(run.bags), layout.bag_size, run.dim).sum(axis=1)
