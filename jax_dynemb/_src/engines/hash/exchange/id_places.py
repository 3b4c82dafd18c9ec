# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the place of each id in a round."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jax_dynemb._src.engines.hash.exchange.exchange_layout import ExchangeLayout
from jax_dynemb._src.engines.hash.exchange.places import Places, RoundRange
from jax_dynemb._src.engines.hash.exchange.route import Route
from jax_dynemb._src.ops import joined


def places_of(
    exchange: ExchangeLayout, route: Route, round_range: RoundRange
) -> Places:
    """Finds the place of each id.

    Args:
      exchange: its sizes.
      route: of the ids.
      round_range: those that travel.
    """
    number = route.unique_of
    table, owner = tables_of(exchange), _owners_of(exchange, route)
    segment = table * exchange.shards + owner
    begin = round_range.begin.reshape(-1)[segment]
    live = (number >= begin) & (number < round_range.end.reshape(-1)[segment])
    return Places(owner, table, number - begin, live)


def tables_of(exchange: ExchangeLayout) -> Int32[Array, " n"]:
    """Numbers the table of each id; tables with equally many ids are one array."""
    tables, first = [], 0
    for size, run in itertools.groupby(exchange.sizes):
        count = len(list(run))
        table = jax.lax.broadcasted_iota(jnp.int32, (count, size), 0)
        tables.append((first + table).reshape(-1))
        first += count
    return joined(tables)


def _owners_of(exchange: ExchangeLayout, route: Route) -> Int32[Array, " n"]:
    """Returns the owner of each id.

    Ids stand table by table, so the owner is how many of the other owners' segments
    begin at the id's number or before it. Tables with equally many ids are one array:
    a search among all segments would compile into an operation for each of its steps.
    """
    starts = exchange.by_table(route.starts[:-1])
    owners, first, begin = [], 0, 0
    for size, run in itertools.groupby(exchange.sizes):
        count = len(list(run))
        end = begin + count * size
        number = route.unique_of[begin:end].reshape(count, size, 1)
        others = starts[first : first + count, None, 1:]
        owners.append((number >= others).sum(axis=-1, dtype=jnp.int32).reshape(-1))
        first, begin = first + count, end
    return joined(owners)
