# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The exchange of ids, which needs no table and may run ahead of the lookup."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Shaped, UInt32

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    IdNumbers,
    PooledBatch,
    Route,
    bags_to_owners,
    parts_to_owners,
    route_of,
    send_first,
)
from jax_dynemb._src.engines.shard import total_in_words
from jax_dynemb._src.ops import RouteTable
from jax_dynemb._src.spec import TableSpec


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SentIds:
    """Holds what owners have received of a batch; every array is of one device.

    They are as few arrays as can be: each one crosses the boundary of a program. All
    fields but ``bags`` are None or empty if sums of bags travel alone.

    Attributes:
      bags: what ``parts_to_owners`` sent, for the features whose sums travel.
      ids: of all tables, uint32[shards, places, 2], as they came; see ``kept_if``.
      uses: by table, see ``send_ids_and_uses``.
      route: where the distinct ids of this device go.
      fits: bool[1], whether one round is enough on every device.
      demand: uint32[3, tables]: the most ids that a device has for one owner. Then the
        words of how many ids this owner counts that did not travel, as others like
        them did.
    """

    bags: list[jax.Array]
    ids: jax.Array | None
    uses: dict[int, jax.Array]
    route: Route | None = None
    fits: jax.Array | None = None
    demand: jax.Array | None = None


def send(batch: DeviceBatch | None, bags: PooledBatch) -> SentIds:
    """Sends the ids of a batch to their owners.

    Args:
      batch: of the features whose rows travel, if there are any.
      bags: of those whose sums do.
    """
    if batch is None:
        return SentIds(bags_to_owners(bags), None, {})
    is_apart = bags.route_tables is not None
    parts = [] if is_apart else parts_to_owners(bags)
    id_route = route_of(batch)
    numbers = numbers_of(batch)
    repeats = _repeats(batch, id_route, numbers.counted)
    first = send_first(batch, id_route, numbers, (repeats, *parts))
    heard, *rest = first.others
    over_shards = functools.partial(jnp.sum, axis=1, dtype=jnp.uint32)
    repeats_heard = total_in_words(over_shards, heard)
    demand = jnp.stack([first.peaks.astype(jnp.uint32), *repeats_heard])
    if is_apart:
        rest = bags_to_owners(bags)
    return SentIds(rest, first.ids, first.uses, id_route, first.fits[None], demand)


def _repeats(
    batch: DeviceBatch, id_route: Route, counted: Sequence[int]
) -> UInt32[Array, "shards tables"]:
    """Counts the ids of this device that do not travel, for the owner that counts them.

    The kernels of owners count each id that arrives; of tables in ``counted``, all of
    its uses.
    """
    exchange, n = batch.exchange, id_route.first.shape[0]
    shape = exchange.shards, len(exchange.tables)
    of = [divmod(part.first, exchange.shards) for part in exchange.parts]
    mine = [p for p, (table, _) in enumerate(of) if table not in counted]
    if not mine:
        return jnp.zeros(shape, jnp.uint32)
    tables, owners = np.array([of[p] for p in mine]).T
    parts = [exchange.parts[p] for p in mine]
    begin = np.array([part.first for part in parts])
    end = begin + [part.owners for part in parts]
    live = id_route.unique_of < n
    uses = jnp.where(live, batch.per_id(0, 1), 0) if batch.has_uses else live
    uses = _sum_by_part(uses, exchange.parts)[np.array(mine)]
    distinct = id_route.starts[end] - id_route.starts[begin]
    repeats = (uses - distinct).astype(jnp.uint32)
    # A sum over a constant mask is part of another kernel, a scatter is one of its own.
    counted_by = np.zeros((*shape, len(mine)), bool)
    counted_by[owners, tables, np.arange(len(mine))] = True
    return jnp.where(counted_by, repeats, jnp.uint32(0)).sum(-1, dtype=jnp.uint32)


def _sum_by_part(
    uses: Shaped[Array, " n"], parts: Sequence[RouteTable]
) -> Int32[Array, "parts"]:
    """Adds up the uses of each part: one kernel for a run of equal sizes."""
    counts, end = [], 0
    for size, run in itertools.groupby(part.size for part in parts):
        number = len(list(run))
        begin, end = end, end + number * size
        some = uses[begin:end].reshape(number, size)
        counts.append(jnp.sum(some, axis=1, dtype=jnp.int32))
    return jnp.concatenate(counts)


def numbers_of(batch: DeviceBatch, *, counts_all: bool = False) -> IdNumbers:
    """Says what owners learn of ids: uses that scores or a rule count, and scores.

    Args:
      batch: the ids.
      counts_all: whether uses of all tables travel.
    """
    tables, has_scores = batch.exchange.tables, batch.scored
    scored = [t for t, table in enumerate(tables) if table.name in has_scores]
    counted = [
        t
        for t, table in enumerate(tables)
        if counts_all or t in scored or counts_uses(table)
    ]
    counts = batch.per_id(0, 1) if batch.has_uses else None
    scores = (batch.per_id(1, 0), batch.per_id(2, 0)) if scored else None
    return IdNumbers(counted, counts, scored, scores)


def counts_uses(table: TableSpec) -> bool:
    """Whether an owner needs to know how many ids of a device are one."""
    counts = table.score_strategy is ScoreStrategy.LFU
    return counts or table.admission is not None
