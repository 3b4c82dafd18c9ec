# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Removes rows by rule from one shard, with counts that hold over all shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.shard.rank_search import (
    Window,
    everything,
    first_window,
    limit_of,
    nothing,
)
from jax_dynemb._src.engines.shard.rule import Rule
from jax_dynemb._src.engines.shard.totals import saturating_total
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import (
    RankCounts,
    TableState,
    count_rule,
    erase_rule,
    gather_rows,
    rule_fields,
)
from jax_dynemb._src.spec import TableSpec


def squared_norms(table: TableSpec, state: TableState) -> Float32[Array, " slots"]:
    """Sums the squares of each row, by slot of the table; float32.

    Rows of a tiered table are read where they lie, some buckets at a time.
    """
    if table.tier is not None:
        return _squares_of_tier(table, state)
    first = table.first_slot
    rows = state.values[first : first + table.local_slots].astype(jnp.float32)
    return jnp.sum(jnp.square(rows), axis=1)


_SLOTS_AT_ONCE = 1 << 16


def _squares_of_tier(table: TableSpec, state: TableState) -> jax.Array:
    def squares(first: jax.Array) -> jax.Array:
        slots = first + jnp.arange(chunk, dtype=jnp.int32)
        rows, _ = gather_rows(table, state, slots)  # zeros behind the last slot
        return jnp.sum(jnp.square(rows.astype(jnp.float32)), axis=1)

    chunk = min(_SLOTS_AT_ONCE, table.local_slots)
    begins = jnp.arange(0, table.local_slots, chunk, dtype=jnp.int32)
    return jax.lax.map(squares, begins).reshape(-1)[: table.local_slots]


class ShardGroup(NamedTuple):
    """Lets one shard count with the others that hold rows of the same table.

    Attributes:
      total: sums an array over them.
      here: whether this one holds rows of the table at all.
      squares: sums the squares of whole rows, by slot, see ``squared_norms``.
    """

    total: Callable[[Any], Any]
    here: Any = True
    squares: Callable[[TableSpec, TableState], jax.Array] = squared_norms


ALONE = ShardGroup(lambda x: x)


def erase_where(
    table: TableSpec, state: TableState, rule: Rule, dry_run: bool, group: ShardGroup
) -> tuple[UInt32[Array, ""], TableState]:
    """See ``Tables.erase_where``; of one table, on one shard.

    Args:
      table: its spec.
      state: its arrays.
      rule: checked against the table's config.
      dry_run: whether rows are only counted.
      group: how this shard and the others decide alike.

    Returns:
      The rows removed from all shards, or those that would be, at most 2**32 - 1; and
      the new state.
    """
    if group is ALONE:
        return _erase_alone(table, state, rule, dry_run)
    return _erase(table, state, rule, dry_run, group)


def _erase(
    table: TableSpec, state: TableState, rule: Rule, dry_run: bool, group: ShardGroup
) -> tuple[jax.Array, TableState]:
    op = _Op.of(table, state, rule, group)
    if rule.keeps:
        limits, removed = _limits(op, rule)
    else:
        limits, removed = _Limits(everything(), nothing()), None
    if dry_run:
        if removed is None:
            counts = op.counts_here(op.first_window())
            removed = jnp.sum(counts.bins[1], dtype=jnp.uint32)
            removed = saturating_total(group.total, removed)
        return removed, state
    removed, state = op.erase(limits)
    return saturating_total(group.total, removed), state


# Outside of jit each call would compile its loops again.
@kept_jit(0, 3, inline=True)
def _erase_alone(
    table: TableSpec, state: TableState, rule: Rule, dry_run: bool
) -> tuple[jax.Array, TableState]:
    return _erase(table, state, rule, dry_run, ALONE)


class _Limits(NamedTuple):
    """Holds the last ranks to remove: of the selected rows, and of the others.

    Attributes:
      selected: uint32[4].
      others: uint32[4].
    """

    selected: jax.Array
    others: jax.Array


class _Op(NamedTuple):
    """The operands that all calls of one rule share."""

    table: TableSpec
    state: TableState
    fields: int
    numbers: jax.Array
    norms: jax.Array | None
    group: ShardGroup

    @classmethod
    def of(
        cls, table: TableSpec, state: TableState, rule: Rule, group: ShardGroup
    ) -> _Op:
        high = rule.score_below if rule.count_below is None else rule.count_below
        names = ["any_suffices"] if rule.combine == "any" else []
        names += [
            n for n in rule.comparisons if n not in ("count_below", "score_below")
        ]
        names += [] if high is None else ["high_below"]
        norms = None
        if rule.norm_below is not None:
            norms = jnp.sqrt(group.squares(table, state))
        fields = rule_fields(*names)
        return cls(table, state, fields, _comparisons(rule, high), norms, group)

    def _words(self, *parts: Any) -> jax.Array:
        words = jnp.concatenate([self.numbers, *parts])
        rest = _ffi.constants()["rule_words"] - words.shape[0]
        return jnp.pad(words, (0, rest))

    def first_window(self) -> Window:
        """Returns the window of the first count; the same on all shards."""
        clock = _ffi.code("counters", "clock")
        low, high = self.state.counters[self.table.first_row, clock]
        bits = jnp.where(high > 0, 64 - jax.lax.clz(high), 32 - jax.lax.clz(low))
        # A shard without rows of the table has another clock.
        here = jnp.asarray(self.group.here).astype(jnp.int32)
        bits = self.group.total(here * bits.astype(jnp.int32))
        bits = bits // jnp.maximum(self.group.total(here), 1)
        return first_window(ScoreStrategy(self.table.score_strategy), bits)

    def counts(self, window: Window) -> RankCounts:
        """Counts the rows of all shards by the ranks of a window.

        The table has fewer than 2**32 slots, so no sum wraps.
        """
        return self.group.total(self.counts_here(window))

    def counts_here(self, window: Window) -> RankCounts:
        """Counts the rows of this shard, which has fewer than 2**31 slots."""
        words = self._words(window.prefix, window.free.reshape(1))
        counts = count_rule(self.table, self.state, self.fields, words, self.norms)
        here = jnp.asarray(self.group.here)
        return jax.tree.map(lambda numbers: jnp.where(here, numbers, 0), counts)

    def erase(self, limits: _Limits) -> tuple[jax.Array, TableState]:
        """Removes the rows of this shard that are within the limits."""
        here = jnp.asarray(self.group.here)
        ranks = [jnp.where(here, limit, 0) for limit in limits]
        words = self._words(jnp.zeros(5, jnp.uint32), *ranks)
        return erase_rule(self.table, self.state, self.fields, words, self.norms)


def _comparisons(rule: Rule, high: Any) -> jax.Array:
    """The words of the comparisons, in the order of core/rule.h."""

    def words(number: Any, count: int) -> jax.Array:
        if number is None:
            return jnp.zeros(count, jnp.uint32)
        return jnp.asarray(number).astype(jnp.uint32).reshape(count)

    norm = jnp.asarray(0.0 if rule.norm_below is None else rule.norm_below)
    bits = jax.lax.bitcast_convert_type(norm.astype(jnp.float32), jnp.uint32)
    pairs = [words(rule.unused_for, 2), words(rule.unused_since, 2)]
    below = words(high, 1 if rule.score_below is None else 2)
    below = jnp.pad(below, (0, 2 - below.shape[0]))
    return jnp.concatenate([*pairs, below, bits.reshape(1)])


def _limits(op: _Op, rule: Rule) -> tuple[_Limits, jax.Array]:
    """Chooses the limits that keep as many rows as the rule says, and counts rows."""
    window = op.first_window()
    counts = op.counts(window)
    others, selected = jnp.sum(counts.bins, axis=1, dtype=jnp.uint32)
    rows = others + selected
    least = jnp.uint32(0) if rule.keep_at_least is None else rule.keep_at_least
    least = jnp.asarray(least).astype(jnp.uint32)
    leaving = jnp.minimum(selected, rows - jnp.minimum(rows, least))
    extra = jnp.zeros_like(leaving)
    if rule.keep_at_most is not None:
        most = jnp.maximum(jnp.asarray(rule.keep_at_most).astype(jnp.uint32), least)
        staying = rows - leaving
        extra = staying - jnp.minimum(staying, most)
    # Either some selected rows stay, or other rows are removed too; never both.
    is_short = leaving < selected
    count = jnp.where(is_short, leaving, extra)
    limit = limit_of(op.counts, window, counts, is_short.astype(jnp.int32), count)
    limits = _Limits(
        jnp.where(is_short, limit, everything()),
        jnp.where(is_short, nothing(), limit),
    )
    return limits, leaving + extra
