# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One padded exchange for all tables of a call whose rows are on single shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src.checked_loops import fori_loop
from jax_dynemb._src.engines.hash.exchange.exchange_layout import ExchangeLayout
from jax_dynemb._src.engines.hash.exchange.places import RoundRange
from jax_dynemb._src.engines.hash.exchange.route import Route
from jax_dynemb._src.ops import bucket_of, hash_by, hash_factors, joined, padding


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


def _place_in_section(exchange: ExchangeLayout) -> tuple[jax.Array, jax.Array]:
    """Returns, for each place, the number of its table and its own in the section."""
    tables, places, first = [], [], 0
    for room, number in exchange.runs:
        shape = (number, room)
        table = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        tables.append((first + table).reshape(-1))
        places.append(jax.lax.broadcasted_iota(jnp.int32, shape, 1).reshape(-1))
        first += number
    return joined(tables), joined(places)


def _cut(exchange: ExchangeLayout, of_places: jax.Array) -> list[jax.Array]:
    """Cuts [shards, places, ...] by table."""
    ends = np.cumsum(exchange.capacities).tolist()
    begins = [0, *ends[:-1]]
    return [of_places[:, b:e] for b, e in zip(begins, ends, strict=True)]


def send_ids(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
) -> UInt32[Array, "places 2"]:
    """Sends ids; returns what this owner gets, one table after the other."""
    received, _, _ = send_ids_and_uses(exchange, route, ids, round_range, NO_NUMBERS)
    return exchange.of_tables(received)


def send_ids_and_slots(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    slots: Int32[Array, " n"],
    round_range: RoundRange,
) -> tuple[UInt32[Array, "places 2"], Int32[Array, " places"]]:
    """Sends ids with the owners' slots; returns both one table after the other."""
    fill = jnp.concatenate([slots, jnp.full(1, -1, jnp.int32)])
    part = fill[positions_of(exchange, route, round_range)]
    part = jax.lax.bitcast_convert_type(part, jnp.uint32)  # of the same exchange
    received, _, (part,) = send_ids_and_uses(
        exchange, route, ids, round_range, NO_NUMBERS, (part,)
    )
    part = jax.lax.bitcast_convert_type(part, jnp.int32)
    return exchange.of_tables(received), exchange.of_tables(part)


def send_ids_and_uses(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
    numbers: IdNumbers,
    others: Sequence[jax.Array] = (),
) -> tuple[jax.Array, dict[int, jax.Array], list[jax.Array]]:
    """Sends ids, and what ``numbers`` says of them.

    ``others`` travel in the same exchange. The ids of all tables come as one array,
    uint32[shards, places, 2]; see ``ExchangeLayout.of_tables``.

    Returns:
      The ids. Then by number of the table how often a device has each of them,
      uint32[places]; or this and its score, uint32[3, places]. Then the others.
    """
    parts = _parts(exchange, route, ids, round_range, numbers)
    received = exchange.links.all_to_all([*parts, *others])
    travelled, others = received[: len(parts)], received[len(parts) :]
    return travelled[0], _by_table(exchange, numbers, travelled[1:]), others


def ids_and_uses_here(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
    numbers: IdNumbers,
) -> tuple[jax.Array, dict[int, jax.Array]]:
    """Returns what ``send_ids_and_uses`` would send, as if it had been received."""
    first, *rest = _parts(exchange, route, ids, round_range, numbers)
    return first, _by_table(exchange, numbers, rest)


def _parts(
    exchange: ExchangeLayout,
    route: Route,
    ids: UInt32[Array, "n 2"],
    round_range: RoundRange,
    numbers: IdNumbers,
) -> list[jax.Array]:
    """Lists ids and their numbers, each array [shards, ...]."""
    fill = jnp.concatenate([ids, padding((1,))])
    positions = positions_of(exchange, route, round_range)
    parts = [fill[positions]]
    counted, counts, scored, scores = numbers
    if counted:
        if counts is None:
            uses = _of_unique(route).at[route.unique_of].add(jnp.uint32(1))
        else:
            uses = saturating_sums(route.unique_of, counts)
        parts += _of_some(exchange, counted, _at(route, positions, uses))
    if scores is not None:
        for best in _highest(route, *scores):
            parts += _of_some(exchange, scored, _at(route, positions, best))
    return parts


def _of_some(
    exchange: ExchangeLayout, tables: Sequence[int], of_places: jax.Array
) -> list[jax.Array]:
    """Cuts [shards, places] by table; one array if it is of all tables."""
    if len(tables) == len(exchange.tables):
        return [of_places]
    cut = _cut(exchange, of_places)
    return [cut[t] for t in tables]


def _by_table(
    exchange: ExchangeLayout, numbers: IdNumbers, arrived: Sequence[jax.Array]
) -> dict[int, jax.Array]:
    """Names numbers of ids by their table, as ``send_ids_and_uses`` returns them."""
    rest = iter(arrived)

    def taken(tables: Sequence[int]) -> list[jax.Array]:
        if len(tables) == len(exchange.tables):
            some = _cut(exchange, next(rest))
        else:
            some = [next(rest) for _ in tables]
        return [each.reshape(-1) for each in some]

    of_tables = {}
    if numbers.counted:
        of_tables = dict(zip(numbers.counted, taken(numbers.counted), strict=True))
    if numbers.scored:
        low, high = taken(numbers.scored), taken(numbers.scored)
        for n, t in enumerate(numbers.scored):
            of_tables[t] = jnp.stack([of_tables[t], low[n], high[n]])
    return of_tables


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

    def hashes(number):
        n, axes = route.first.shape[0], tuple(range(1, number.ndim))
        end = jnp.expand_dims(ends, axes[1:])
        position = jnp.take(route.first, number, mode="fill", fill_value=n)
        ids = fill[jnp.where(number < end, position, n)]
        low, high = hash_by(ids, jnp.expand_dims(factors, axes))
        buckets = jnp.broadcast_to(jnp.expand_dims(num_buckets, axes), low.shape)
        return low, high, bucket_of(low, high, buckets)

    # The first id of a section that does not fit, on the device where it is smallest.
    over, links = begin + capacity < ends, exchange.links
    low, high, bucket = hashes(begin + capacity)
    ones = jnp.uint32(0xFFFFFFFF)
    limit_bucket = links.least(jnp.where(over, bucket, ones))
    high = jnp.where(over, high, ones)
    limit_high = links.least(high)
    low = jnp.where(over & (high == limit_high), low, ones)
    limit_low = links.least(low)

    def travels(number):
        """Whether its bucket travels whole, or else whether it is below the limit."""
        low, high, bucket = hashes(number)
        of_limit = [x[..., None, None] for x in (limit_bucket, limit_high, limit_low)]
        whole = bucket < of_limit[0]
        before = (high < of_limit[1]) | ((high == of_limit[1]) & (low < of_limit[2]))
        by_bucket = np.array([True, False]).reshape(1, 1, 2, 1)
        return jnp.where(by_bucket, whole, before)

    last, most = jnp.minimum(begin + capacity, ends), max(exchange.capacities)
    found = _ends_of(travels, begin, last, most)
    whole, before = found[..., 0], found[..., 1]
    progress = links.most((whole > begin).astype(jnp.int32)) > 0
    end = jnp.where(progress, whole, before)
    return RoundRange(begin, jnp.where(limit_bucket != ones, end, last))


def _ends_of(
    hold: Callable[[jax.Array], jax.Array],
    begin: Int32[Array, "tables shards"],
    end: Int32[Array, "tables shards"],
    most: int,
) -> Int32[Array, "tables shards 2"]:
    """Finds the ends of the numbers from ``begin`` on for which two conditions hold.

    Distinct ids are in order of their hashes, so each holds for the first ones. It is
    evaluated for the last one of every few, then for the few in which it ends. A loop
    of these two compiles once.

    Args:
      hold: of numbers int32[tables, shards, 2, n], each condition of its own.
      begin: the first number of each section.
      end: behind the last one.
      most: numbers in a section.
    """
    few = math.isqrt(max(most, 1) - 1) + 1

    points = np.arange(1, few + 1, dtype=np.int32).reshape(1, 1, 1, -1)

    def search(n: jax.Array, first: jax.Array) -> jax.Array:
        step = jnp.where(n == 0, few, 1)
        numbers = first[..., None] + points * step - 1
        true = hold(numbers) & (numbers < end[..., None, None])
        return first + step * true.sum(axis=-1, dtype=jnp.int32)

    return fori_loop(0, 2, search, jnp.stack([begin, begin], axis=-1))
