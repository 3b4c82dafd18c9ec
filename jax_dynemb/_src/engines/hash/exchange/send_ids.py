# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One padded exchange for all tables of a call whose rows are on single shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src.engines.hash.exchange.exchange_layout import Axes, ExchangeLayout
from jax_dynemb._src.engines.hash.exchange.route import Route
from jax_dynemb._src.ops import bucket_of, hash_by, hash_factors, padding


class RoundRange(NamedTuple):
    """Says which distinct ids of each segment travel in a round: [begin, end)."""

    begin: Int32[Array, "tables shards"]
    end: Int32[Array, "tables shards"]


class IdNumbers(NamedTuple):
    """Holds what travels with distinct ids.

    Attributes:
      counted: tables of which owners learn how often a device has each id.
      counts: uint32[n], how many ids each position stands for; None: one.
      scored: those of ``counted`` of which they also learn the highest score.
      scores: by position, the low words uint32[n] and the high ones; or None.
    """

    counted: Sequence[int] = ()
    counts: jax.Array | None = None
    scored: Sequence[int] = ()
    scores: tuple[jax.Array, jax.Array] | None = None


NO_NUMBERS = IdNumbers()


def positions_of(
    exchange: ExchangeLayout, route: Route, round_range: RoundRange
) -> Int32[Array, "shards places"]:
    """Finds the position of each place's id; past the last one if it is empty.

    The sections of the tables stand side by side.
    """
    n = route.first.shape[0]
    table, place = _place_in_section(exchange)
    number = round_range.begin.T[:, table] + place[None, :]
    found = jnp.take(route.first, number, mode="fill", fill_value=n)
    return jnp.where(number < round_range.end.T[:, table], found, n)


def places_of(
    exchange: ExchangeLayout, route: Route, round_range: RoundRange
) -> list[Int32[Array, " size"]]:
    """Finds the place of each id in [shards * capacity]; past the end if none."""
    number = route.unique_of
    segment = jnp.searchsorted(
        route.starts[1:-1], number, side="right", method="scan_unrolled"
    ).astype(jnp.int32)
    begin = round_range.begin.reshape(-1)[segment]
    live = (number >= begin) & (number < round_range.end.reshape(-1)[segment])
    owner, table = segment % exchange.shards, segment // exchange.shards
    capacity = jnp.array(exchange.capacities, jnp.int32)[table]
    past = exchange.shards * max(exchange.capacities)
    place = jnp.where(live, owner * capacity + number - begin, past)
    ends = [start + n for start, n in zip(exchange.starts, exchange.sizes, strict=True)]
    return [place[b:e] for b, e in zip(exchange.starts, ends, strict=True)]


def _place_in_section(exchange: ExchangeLayout) -> tuple[jax.Array, jax.Array]:
    """Returns, for each place, the number of its table and its own in the section."""
    column = jnp.arange(sum(exchange.capacities), dtype=jnp.int32)
    table, place, begin = jnp.zeros_like(column), column, 0
    for t, capacity in enumerate(exchange.capacities[:-1]):
        begin += capacity
        table = jnp.where(column >= begin, t + 1, table)
        place = jnp.where(column >= begin, column - begin, place)
    return table, place


def _cut(exchange: ExchangeLayout, of_places: jax.Array) -> list[jax.Array]:
    """Cuts [shards, places, ...] by table."""
    ends = np.cumsum(exchange.capacities).tolist()
    begins = [0, *ends[:-1]]
    return [of_places[:, b:e] for b, e in zip(begins, ends, strict=True)]


def exchange_arrays(parts: Sequence[jax.Array], axes: Axes) -> list[jax.Array]:
    """Exchanges [shards, places, ...] arrays by one all_to_all per dtype."""
    result: dict[int, jax.Array] = {}
    for dtype in dict.fromkeys(part.dtype for part in parts):
        of_dtype = [i for i, part in enumerate(parts) if part.dtype == dtype]
        flat = [parts[i].reshape(parts[i].shape[0], -1) for i in of_dtype]
        joined = flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=1)
        joined = jax.lax.all_to_all(joined, axes, 0, 0, tiled=True)
        begin = 0
        for i, part in zip(of_dtype, flat, strict=True):
            end = begin + part.shape[1]
            result[i] = joined[:, begin:end].reshape(parts[i].shape)
            begin = end
    return [result[i] for i in range(len(parts))]


def send_ids(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
) -> list[UInt32[Array, "places 2"]]:
    """Sends ids; returns what this owner gets of each table, [shards * capacity, 2]."""
    received, _, _ = send_ids_and_uses(exchange, route, ids, round_range, NO_NUMBERS)
    return ids_by_table(exchange, received)


def send_ids_and_slots(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    slots: Int32[Array, " n"],
    round_range: RoundRange,
) -> list[tuple[UInt32[Array, "places 2"], Int32[Array, " places"]]]:
    """Sends ids with the owners' slots, int32[shards * capacity] of each table."""
    fill = jnp.concatenate([slots, jnp.full(1, -1, jnp.int32)])
    part = fill[positions_of(exchange, route, round_range)]
    part = jax.lax.bitcast_convert_type(part, jnp.uint32)  # of the same exchange
    received, _, (part,) = send_ids_and_uses(
        exchange, route, ids, round_range, NO_NUMBERS, (part,)
    )
    part = jax.lax.bitcast_convert_type(part, jnp.int32)
    of_tables = [each.reshape(-1) for each in _cut(exchange, part)]
    return list(zip(ids_by_table(exchange, received), of_tables, strict=True))


def ids_by_table(
    exchange: ExchangeLayout, received: UInt32[Array, "shards places 2"]
) -> list[UInt32[Array, "places 2"]]:
    """Cuts what an owner has received by table."""
    return [each.reshape(-1, 2) for each in _cut(exchange, received)]


def send_ids_and_uses(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
    numbers: IdNumbers,
    others: Sequence[jax.Array] = (),
) -> tuple[jax.Array, dict[int, jax.Array], list[jax.Array]]:
    """Sends ids, and what ``numbers`` says of them.

    ``others`` travel in the same exchange. The ids of all tables come as one array;
    ``ids_by_table`` cuts it.

    Returns:
      The ids. Then by number of the table how often a device has each of them,
      uint32[places]; or this and its score, uint32[3, places]. Then the others.
    """
    fill = jnp.concatenate([ids, padding((1,))])
    positions = positions_of(exchange, route, round_range)
    parts = [fill[positions]]
    counted, counts, scored, scores = numbers
    if counted:
        if counts is None:
            uses = _of_unique(route).at[route.unique_of].add(jnp.uint32(1))
        else:
            uses = saturating_sums(route.unique_of, counts)
        cut = _cut(exchange, _at(route, positions, uses))
        parts += [cut[t] for t in counted]
    if scores is not None:
        for best in _highest(route, *scores):
            cut = _cut(exchange, _at(route, positions, best))
            parts += [cut[t] for t in scored]
    received, *rest = exchange_arrays([*parts, *others], exchange.axes)
    many = len(counted) + 2 * len(scored)
    rest, others = [each.reshape(-1) for each in rest[:many]], rest[many:]
    of_tables = dict(zip(counted, rest, strict=False))
    words = rest[len(counted) :]
    for n, t in enumerate(scored):
        of_tables[t] = jnp.stack([of_tables[t], words[n], words[len(scored) + n]])
    return received, of_tables, others


def _highest(
    route: Route, low: UInt32[Array, " n"], high: UInt32[Array, " n"]
) -> tuple[jax.Array, jax.Array]:
    """Finds the highest number of each distinct id: its low and its high words."""
    top = _of_unique(route).at[route.unique_of].max(high)
    low = jnp.where(high == top[route.unique_of], low, jnp.uint32(0))
    return _of_unique(route).at[route.unique_of].max(low), top


def saturating_sums(
    place_of: Int32[Array, " n"], numbers: UInt32[Array, " n"]
) -> UInt32[Array, " n+1"]:
    """Adds numbers up by place; a sum that 32 bits do not hold is 2**32 - 1.

    Digits are added apart, of so few bits that n of them cannot wrap. A sum of digits
    and what the one below carries is at most n * 2**bits.

    Args:
      place_of: of each number, up to n.
      numbers: fewer than 2**30.
    """
    n = numbers.shape[0]
    bits = min(32 - n.bit_length(), 16)
    digit = jnp.uint32((1 << bits) - 1)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = numbers[:, None] >> shifts[None] & digit
    sums = jnp.zeros((n + 1, shifts.size), jnp.uint32).at[place_of].add(parts)
    result = carry = jnp.zeros(n + 1, jnp.uint32)
    for d, shift in enumerate(shifts):
        value = sums[:, d] + carry
        result |= (value & digit) << shift
        carry = value >> bits
    is_over = value >> (32 - shifts[-1]) > 0
    return jnp.where(is_over, jnp.uint32(2**32 - 1), result)


def _of_unique(route: Route) -> jax.Array:
    """Makes room for a number of each distinct id, and of padding."""
    return jnp.zeros(route.first.shape[0] + 1, jnp.uint32)


def _at(route: Route, positions: jax.Array, of_unique: jax.Array) -> jax.Array:
    """Reads the number of the id at each position; 0 past the last one."""
    n = route.first.shape[0]
    number = jnp.concatenate([route.unique_of, jnp.full(1, n, jnp.int32)])
    return jnp.where(positions < n, of_unique[number[positions]], jnp.uint32(0))


def next_range(
    exchange: ExchangeLayout, route: Route, ids: UInt32[Array, "n 2"], begin: jax.Array
) -> RoundRange:
    """Chooses as many ids as fit, the same range of hashes on every device.

    So every row travels in one round only, whichever devices have it, and an update
    sees the whole of its gradient. All ids of a bucket travel together, as long as some
    bucket fits. Otherwise a later round could need a row that an earlier one evicted.
    At least one device fills a section that is not done, so the rounds end.
    """
    ends = exchange.by_table(route.starts[1:])
    capacity = jnp.array(exchange.capacities, jnp.int32)[:, None]
    fill = jnp.concatenate([ids, padding((1,))])
    num_buckets = jnp.array([t.num_buckets for t in exchange.tables], jnp.uint32)
    factors = jnp.asarray(hash_factors([t.hash_seed for t in exchange.tables]))

    def hashes(number, end, factors):
        n = route.first.shape[0]
        position = jnp.take(route.first, number, mode="fill", fill_value=n)
        return hash_by(fill[jnp.where(number < end, position, n)], factors)

    # The first id of a section that does not fit, on the device where it is smallest.
    over = begin + capacity < ends
    low, high = hashes(begin + capacity, ends, factors[:, None])
    ones = jnp.uint32(0xFFFFFFFF)
    bucket = bucket_of(low, high, jnp.broadcast_to(num_buckets[:, None], low.shape))
    limit_bucket = jax.lax.pmin(jnp.where(over, bucket, ones), exchange.axes)
    any_over = limit_bucket != ones
    high = jnp.where(over, high, ones)
    limit_high = jax.lax.pmin(high, exchange.axes)
    low = jnp.where(over & (high == limit_high), low, ones)
    limit_low = jax.lax.pmin(low, exchange.axes)

    table, place = _place_in_section(exchange)
    number = begin.T[:, table] + place[None, :]
    live = number < ends.T[:, table]
    low, high = hashes(number, ends.T[:, table], factors[table][None])
    buckets = jnp.broadcast_to(num_buckets[table][None], low.shape)
    whole = bucket_of(low, high, buckets) < limit_bucket.T[:, table]
    progress = (_count(exchange, whole & live) > 0).astype(jnp.int32)
    progress = jax.lax.pmax(progress, exchange.axes) > 0
    h, lo = limit_high.T[:, table], limit_low.T[:, table]
    before = (high < h) | ((high == h) & (low < lo))
    before = jnp.where(progress.T[:, table], whole, before) | ~any_over.T[:, table]
    return RoundRange(begin, begin + _count(exchange, before & live))


def _count(exchange: ExchangeLayout, flags: jax.Array) -> Int32[Array, "tables shards"]:
    """Counts the marked places of each section."""
    counts = [part.sum(axis=1, dtype=jnp.int32) for part in _cut(exchange, flags)]
    return jnp.stack(counts)
