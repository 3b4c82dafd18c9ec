# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Brings the rows of a round from their owners to the ids of a device.

Usually rows arrive in a buffer, each once, and are copied from there to every id that
has them. GPUs that read each other's memory read each row from its owner and write it
to its places at once, where those are known: the buffer and the second copy are saved.
Wide ones are read out of the owners' tables (``stored_rows.py``).
"""

from __future__ import annotations

import types
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange.buffers import ExchangeBuffers
from jax_dynemb._src.engines.hash.exchange.device_batch import DeviceBatch, Run
from jax_dynemb._src.engines.hash.exchange.id_places import places_of
from jax_dynemb._src.engines.hash.exchange.places import (
    Places,
    RoundRange,
    live_rows,
)
from jax_dynemb._src.engines.hash.exchange.route import Route
from jax_dynemb._src.engines.hash.exchange.stored_rows import (
    stored_rows,
    tables_in_place,
)
from jax_dynemb._src.ops import (
    Placed,
    PlacedIds,
    PlacedTable,
    Span,
    StoredRows,
    TableState,
    sum_bags,
)

# Of the rows of a feature's bags. XLA adds rows up several times faster where they lie
# side by side than where it reads them out of a buffer, but it needs room for them.
_MOST_BAG_BYTES = 1 << 30


class Owned(NamedTuple):
    """Holds what an owner found in a round.

    Attributes:
      rows: by piece of the wire, the array that its rows lie in.
      slots: of the ids that it received, table by table; None if it has rows of other
        owners, all of which lie in ``rows``.
      states: after the lookup.
    """

    rows: Sequence[jax.Array]
    slots: jax.Array | None = None
    states: Mapping[str, TableState] = types.MappingProxyType({})


class Arrived(NamedTuple):
    """Holds what a device gets in a round.

    Attributes:
      sums: by run of features, rows or their sums.
      others: of the pieces behind the tables, such as sums of bags, the arrays in which
        they have arrived.
      read: int32[1], known when peers have read the tables; None if they read none.
    """

    sums: list[jax.Array]
    others: list[jax.Array]
    read: jax.Array | None


def pooling_of_rows(batch: DeviceBatch, wire: ExchangeBuffers) -> list[str]:
    """Says of each table which rows an owner writes: of all ids, or without a slot."""
    return [
        "unstored" if is_stored else "none"
        for is_stored in _tables_in_place(batch, wire)
    ]


def _tables_in_place(batch: DeviceBatch, wire: ExchangeBuffers) -> list[bool]:
    arrays = len({view.array for view in wire.views})
    return tables_in_place(batch, *_placed_runs(batch, wire), arrays)


def exchange_rows(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    owned: Owned,
    id_route: Route,
    round_range: RoundRange,
    before: Sequence[jax.Array] | None = None,
) -> Arrived:
    """Exchanges the rows of one round and adds them to what came before.

    Args:
      batch: the features.
      wire: how rows lie in the arrays of owners.
      owned: what this device has for others.
      id_route: of the ids.
      round_range: those that travel.
      before: sums of earlier rounds, by run.
    """
    placed, how = _placed_runs(batch, wire)
    owners = {
        t for r, run in enumerate(batch.runs) if r not in placed for t in run.tables
    }
    others = range(len(batch.exchange.tables), len(wire.pieces))
    arrived: list[jax.Array] = []
    if owners or others:
        moved = sorted({*owners, *others})
        arrived = wire.exchange(owned.rows, live_rows(round_range), moved)
    rows, read = _read(batch, wire, arrived, id_route, round_range, placed), None
    if how is not None:
        stored, in_place = None, _tables_in_place(batch, wire)
        if owned.slots is not None and any(in_place):
            stored = stored_rows(batch, in_place, owned.states, owned.slots)
        own, read = _place(wire, owned.rows, id_route, round_range, how, stored)
        rows |= dict(zip(placed, own, strict=True))
    sums = [_pooled(batch, run, rows[r]) for r, run in enumerate(batch.runs)]
    if before is not None:
        sums = [old + new for old, new in zip(before, sums, strict=True)]
    return Arrived(sums, [arrived[n] for n in others], read)


def rows_here(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    arrays: Sequence[jax.Array],
    places: Places,
) -> list[jax.Array]:
    """Returns what ``exchange_rows`` does, of rows that this device has.

    Args:
      batch: the features.
      wire: how rows lie in the arrays.
      arrays: by piece of the wire, the array that its rows lie in.
      places: of the ids in these arrays.
    """
    rows = _rows_at(batch, wire, arrays, places, dict(enumerate(batch.runs)))
    return [_pooled(batch, run, rows[r]) for r, run in enumerate(batch.runs)]


def _placed_runs(
    batch: DeviceBatch, wire: ExchangeBuffers
) -> tuple[list[int], Placed | None]:
    """Chooses the runs whose rows are read into their places, if devices can do so.

    Returns:
      Their numbers, and what a call does for them; none, and None without a call.
    """
    runs = [r for r, run in enumerate(batch.runs) if _is_placed(batch, run)]
    is_empty = any(run.begin == run.end for run in batch.runs)
    is_empty |= any(view.size == 0 for view in wire.views)
    if not wire.links.peers or not runs or is_empty:
        return [], None
    tables = []
    count = len(batch.exchange.tables)
    for piece, view in zip(wire.pieces[:count], wire.views, strict=False):
        width = jnp.dtype(piece.dtype).itemsize
        tables.append(
            PlacedTable(view.array, view.offset * width, piece.dim * width, piece.rows)
        )
    results = [
        jax.ShapeDtypeStruct((run.end - run.begin, run.dim), _wire_dtype(batch, run))
        for run in (batch.runs[r] for r in runs)
    ]
    placed = Placed(results, tables, _spans(batch, runs))
    fits = placed.is_one_call(len({view.array for view in wire.views}))
    return (runs, placed) if fits else ([], None)


def _place(
    wire: ExchangeBuffers,
    owned: Sequence[jax.Array],
    id_route: Route,
    round_range: RoundRange,
    placed: Placed,
    stored: StoredRows | None,
) -> tuple[list[jax.Array], jax.Array | None]:
    """Reads the row of each id from its owner."""
    assert id_route.order is not None
    order, number = id_route.order, id_route.unique_of
    ids = PlacedIds(order, number, round_range.begin, round_range.end)
    whole = {view.array: x for view, x in zip(wire.views, owned, strict=True)}
    arrays = [whole[n] for n in sorted(whole)]
    return wire.links.place_rows(arrays, ids, placed, stored)


def _is_placed(batch: DeviceBatch, run: Run) -> bool:
    """Whether the rows of a run are worth an array of their own."""
    layout, feature_input = run.inputs[0]
    if layout.pooling == "none" or layout.bag_size == 1:
        return True
    if feature_input.offsets is not None:  # of jagged bags they have one anyway
        return True
    itemsize = jnp.dtype(_wire_dtype(batch, run)).itemsize
    return (run.end - run.begin) * run.dim * itemsize <= _MOST_BAG_BYTES


def _wire_dtype(batch: DeviceBatch, run: Run) -> str:
    return batch.exchange.dtypes[run.tables[0]]


def _spans(batch: DeviceBatch, runs: Sequence[int]) -> list[Span]:
    """Lists neighbours of one table in one run; others than ``runs`` get no rows."""
    spans: list[Span] = []
    for r, run in enumerate(batch.runs):
        result, begin = runs.index(r) if r in runs else -1, run.begin
        for (layout, _), table in zip(run.inputs, run.tables, strict=True):
            row = begin - run.begin
            is_same = bool(spans) and row > 0 and spans[-1].table == table
            if not is_same and layout.num_ids > 0:
                spans.append(Span(begin, table, result, row))
            begin += layout.num_ids
    return spans


def _read(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    arrays: Sequence[jax.Array],
    id_route: Route,
    round_range: RoundRange,
    placed: Container[int],
) -> dict[int, jax.Array]:
    """Reads the row of each id out of the buffers, by run that is not placed."""
    runs = {r: run for r, run in enumerate(batch.runs) if r not in placed}
    if not runs:
        return {}
    places = places_of(batch.exchange, id_route, round_range)
    return _rows_at(batch, wire, arrays, places, runs)


def _rows_at(
    batch: DeviceBatch,
    wire: ExchangeBuffers,
    arrays: Sequence[jax.Array],
    places: Places,
    runs: Mapping[int, Run],
) -> dict[int, jax.Array]:
    rows = {}
    for r, run in runs.items():
        counts = [layout.num_ids for layout, _ in run.inputs]
        pieces = list(zip(run.tables, counts, strict=True))
        rows[r] = wire.rows_at(pieces, arrays, places.cut(run.begin, run.end))
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
