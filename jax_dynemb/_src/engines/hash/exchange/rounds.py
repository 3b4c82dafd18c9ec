# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the rounds that a batch of split tables travels in.

All ids travel in the first round if they fit, else in as many rounds as needed. Each
round takes the same range of hashes on all devices. Where the room is enough for any
batch, the program has no further rounds, and on a GPU the host need not wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jax_dynemb._src.checked_loops import while_loop
from jax_dynemb._src.engines.hash.exchange.device_batch import DeviceBatch, Input
from jax_dynemb._src.engines.hash.exchange.exchange_layout import ExchangeLayout
from jax_dynemb._src.engines.hash.exchange.places import RoundRange
from jax_dynemb._src.engines.hash.exchange.route import Route, route
from jax_dynemb._src.engines.hash.exchange.send_ids import (
    NO_NUMBERS,
    IdNumbers,
    next_range,
    send_ids_and_uses,
)
from jax_dynemb._src.ops import FeatureInput, one_row_each, padding
from jax_dynemb._src.spec import TableSpec

T = TypeVar("T")


class FirstRound(NamedTuple):
    """Holds what an owner receives in the first round.

    Attributes:
      ids: of all tables, uint32[shards, places, 2], see ``kept_if``.
      uses: by table, see ``send_ids_and_uses`` and ``kept_if``.
      others: what travelled with them.
      round_range: of the round, see ``whole_range``.
      fits: bool[], whether one round is enough on every device; the same on all.
      peaks: int32[tables], the most ids that a device has for one owner.
    """

    ids: jax.Array
    uses: dict[int, jax.Array]
    others: list[jax.Array]
    round_range: RoundRange
    fits: jax.Array
    peaks: jax.Array


def route_of(batch: DeviceBatch) -> Route:
    """Finds the owners of a batch's ids, and the order that peers read rows in."""
    exchange = batch.exchange
    has_peers = bool(exchange.links.peers)
    return route(batch.ids, exchange.parts, exchange.segments, ordered=has_peers)


def send_first(
    batch: DeviceBatch,
    id_route: Route,
    numbers: IdNumbers = NO_NUMBERS,
    others: Sequence[jax.Array] = (),
) -> FirstRound:
    """Sends as many ids as there is room for, and how many there are.

    To ask first whether all fit would be a collective of its own. If they do not,
    ``kept_if`` forgets what owners got: then the further rounds take all ids.
    """
    exchange = batch.exchange
    most = _most(batch, id_route).astype(jnp.uint32)
    said = jnp.broadcast_to(most, (exchange.shards, len(exchange.tables)))
    begin = first_begin(batch, id_route)
    all_ids = RoundRange(begin, exchange.by_table(id_route.starts[1:]))
    ids, uses, (heard, *rest) = send_ids_and_uses(
        exchange, id_route, batch.ids, all_ids, numbers, (said, *others)
    )
    peaks = heard.max(axis=0).astype(jnp.int32)
    fits = _fit(batch, peaks)
    round_range = whole_range(batch, id_route, fits, begin)
    return FirstRound(ids, uses, rest, round_range, fits, peaks)


def kept_if(
    fits: jax.Array,
    exchange: ExchangeLayout,
    ids: jax.Array,
    uses: dict[int, jax.Array],
) -> tuple[jax.Array, dict[int, jax.Array]]:
    """Orders the ids of the first round by table; padding if not all ids fit.

    Args:
      fits: bool[], whether one round is enough.
      exchange: its sizes.
      ids: what arrived, uint32[shards, places, 2].
      uses: likewise, by table.
    """
    if not exchange.always_fit:
        ids = jnp.where(fits, ids, padding(ids.shape[:2]))
        uses = {t: jnp.where(fits, each, jnp.uint32(0)) for t, each in uses.items()}
    return exchange.of_tables(ids), uses


def fitting(batch: DeviceBatch, id_route: Route) -> jax.Array:
    """Whether one round is enough on every device, where no ids are sent first."""
    return _fit(batch, batch.exchange.links.most(_most(batch, id_route)))


def _most(batch: DeviceBatch, id_route: Route) -> jax.Array:
    """Counts the most ids of each table that this device has for one owner."""
    counts = batch.exchange.by_table(id_route.starts[1:] - id_route.starts[:-1])
    return counts.max(axis=1)


def _fit(batch: DeviceBatch, peaks: jax.Array) -> jax.Array:
    if batch.exchange.always_fit:
        return jnp.ones((), bool)
    return (peaks <= jnp.array(batch.exchange.capacities, jnp.int32)).all()


def whole_range(
    batch: DeviceBatch, id_route: Route, fits: jax.Array, begin: Any
) -> RoundRange:
    """Returns the range of all ids, or an empty one where they do not fit.

    Args:
      batch: the ids.
      id_route: their route.
      fits: whether all of them fit.
      begin: of the round_range if they do; any numbers if they do not.
    """
    end = batch.exchange.by_table(id_route.starts[1:])
    return RoundRange(begin, jnp.where(fits, end, begin))


def first_begin(batch: DeviceBatch, id_route: Route) -> jax.Array:
    """Returns where the sections begin, int32[tables, shards]."""
    return batch.exchange.by_table(id_route.starts[:-1])


def further_rounds(
    batch: DeviceBatch,
    id_route: Route,
    fits: jax.Array,
    carry: T,
    one: Callable[[RoundRange, T], T],
) -> tuple[jax.Array, T]:
    """Runs ``carry = one(round_range, carry)`` while some device has further ids.

    Returns:
      Where the ranges have ended, ``first_begin`` if there were none; and the carry.
    """
    begin = first_begin(batch, id_route)
    if batch.exchange.always_fit:
        return begin, carry

    def body(loop: Any) -> Any:
        begin, _, carry = loop
        round_range = next_range(batch.exchange, id_route, batch.ids, begin)
        return (
            round_range.end,
            _more(batch, id_route, round_range.end),
            one(round_range, carry),
        )

    # The condition compares a number: in a CUDA graph XLA orders only what a condition
    # computes behind the operands of the loop. A bool would be read too early.
    left = (~fits).astype(jnp.int32)
    loop = while_loop(lambda loop: loop[1] > 0, body, (begin, left, carry))
    return loop[0], loop[2]


def _more(batch: DeviceBatch, id_route: Route, end: jax.Array) -> jax.Array:
    """Returns whether any device has further ids, int32[]; equal on all devices."""
    left = (end < batch.exchange.by_table(id_route.starts[1:])).any()
    return batch.exchange.links.most(left.astype(jnp.int32))


def on_the_wire(batch: DeviceBatch, tables: Sequence[TableSpec]) -> list[TableSpec]:
    """Returns configs whose rows have the dtype of the exchange, one row per id."""
    pairs = zip(tables, batch.exchange.dtypes, strict=True)
    return [dataclasses.replace(t, dtype=dtype, pooling=None) for t, dtype in pairs]


def inputs_of_ids(
    exchange: ExchangeLayout,
    tables: Sequence[TableSpec],
    ids: jax.Array,
    uses: Mapping[int, jax.Array] | None = None,
    pooling: Sequence[str] | None = None,
) -> list[Input]:
    """Returns the inputs of an owner.

    Args:
      exchange: its sizes.
      tables: those of the ids.
      ids: that it received, one table after the other.
      uses: by number of the table, how many ids of a device each one is.
      pooling: of each table, see ``pooling_of_rows``; None: all rows are written.
    """
    inputs = []
    for n, (t, x) in enumerate(zip(tables, exchange.cut(ids), strict=True)):
        counts = None if uses is None else uses.get(n)
        feature_input = FeatureInput(x, None, None, uses=counts, shared=ids)
        written = "none" if pooling is None else pooling[n]
        layout = one_row_each(t.name, t.name, x.shape[0], written)
        inputs.append((layout, feature_input))
    return inputs
