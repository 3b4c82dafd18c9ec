# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hash tables as wholes: where they lie, made, larger, counted and exported."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.columns import export_columns
from jax_dynemb._src.engines.hash.hash_tables import (
    HashTables,
    States,
    restore_untouched,
)
from jax_dynemb._src.engines.hash.layouts import (
    Layout,
    OneDevice,
    Stack,
    grown,
    states_of,
)
from jax_dynemb._src.engines.shard import Query
from jax_dynemb._src.engines.stats_future import StatsFuture, compile_counts
from jax_dynemb._src.ops import (
    TableState,
    cleared_state,
    empty_arrays,
    new_run,
    on_host,
)
from jax_dynemb._src.rows import Exported
from jax_dynemb._src.seed import table_seed


class WholeTables(HashTables):
    """Makes tables and reads them; see ``LookupEngine`` and ``RowEngine``."""

    # ---- where arrays are --------------------------------------------------------

    def stack_of(self, table: str) -> Stack:
        """Finds the arrays of a table, as kernels see them."""
        return self.layout.stack_of(self.catalog.table(table).name)

    def state_name(self, table: str) -> str:
        return self.layout.stack_of(self.catalog.table(table).name).state_name

    def buckets(self, table: str) -> int | None:
        layout = self.layout
        if layout.mesh is not None or layout.is_inside():
            layout = layout.here()
        return layout.buckets(layout.stack_of(table))

    def extent(self, table: str) -> Mapping[str, Any]:
        return self.stack_of(table).extent(table)

    def counter_rows(self, table: str) -> Any:
        return self.stack_of(table).counter_rows(table)

    def with_own_counters(self, state: States, table: str) -> TableState:
        stack = self.stack_of(table)
        arrays, rows = state[stack.state_name], stack.first_counter_rows(table)
        if isinstance(self.layout, OneDevice) and rows == slice(None):
            return arrays
        counters: Any = on_host(arrays.counters)[rows]
        return dataclasses.replace(arrays, counters=counters)

    def removed_log(self, state: States, table: str) -> np.ndarray:
        stack = self.stack_of(table)
        log = on_host(state[stack.state_name].removed)
        return log[stack.first_counter_rows(table)]

    # ---- made --------------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        """Makes empty tables, each shard on its device."""
        layout = self.layout.here()
        run = new_run(layout.spans_processes, isinstance(seed, Tracer))
        return _made(layout, layout.stacks, seed, run)

    def empty(self, table: str, like: TableState) -> TableState:
        layout, name = self.layout.here(), self.state_name(table)
        run = new_run(layout.spans_processes)
        seed, places = jnp.zeros(2, jnp.uint32), {name: like}
        return _made(layout, layout.stacks_in(name), seed, run, places)[name]

    def clear(self, state: States, tables: Collection[str]) -> States:
        """Removes the rows of some tables."""
        layout = self.layout.here()
        used = layout.stacks_of(tables)

        def body(state):
            new = dict(state)
            for s in used:
                new[s.state_name] = cleared_state(s.local, new[s.state_name])
            new = restore_untouched(layout, used, tables, state, new)
            for s in used:
                here = layout.owns_any(s, tables)
                if not isinstance(here, np.bool_):  # the others of the stack stay
                    old = state[s.state_name]
                    new[s.state_name] = _rows_where(here, new[s.state_name], old)
            return new

        specs = layout.state_specs(used)
        run = layout.mapped(body, (specs,), specs)
        return dict(state) | run(states_of(state, used))

    # ---- larger ------------------------------------------------------------------

    def growing_together(self, table: str) -> list[str]:
        return [t.name for t in self.stack_of(table).tables]

    def grow(self, arrays: TableState, factors: Mapping[str, int]) -> TableState:
        layout = self.layout.here()
        used = layout.stacks_of(factors)
        by_stack = {s.name: factors[s.tables[0].name] for s in used}

        def body(state):
            return grown([s.local for s in used], by_stack, state)

        specs = (layout.state_spec(used[0]),)
        bare = layout.state_spec(used[0], homes=False)
        split = layout.mapped(body, specs, bare)(arrays)
        return layout.shared_anew(used, by_stack, split)

    def grow_homes(
        self, before: TableState, after: TableState, factors: Mapping[str, int]
    ) -> TableState:
        layout = self.layout.here()
        name, factor = next(iter(factors.items()))
        stack = layout.stack_of(name)
        if stack.local.tier is None:
            return after
        return layout.grow_homes(stack, factor, before, after)

    # ---- on the host -------------------------------------------------------------

    def stats_async(self, state: States) -> StatsFuture:
        return StatsFuture.of(self.layout.here().counts, self._read(state), self._stats)

    def compile_stats(self, types: States) -> list[Any]:
        return compile_counts(self.layout.here().counts, self._read(types))

    def _read(self, state: States) -> shard.CountedArrays:
        return shard.CountedArrays.of(states_of(state, self.layout.stacks))

    def _stats(self, copied: Any) -> dict[str, int | float]:
        layout, (words, rows, tiers) = self.layout.here(), copied
        fullest = layout.fullest_buckets(rows)
        result: dict[str, int | float] = {}
        for name, config in self.catalog.tables.items():
            stack = layout.stack_of(name)
            arrays, own = stack.state_name, stack.first_counter_rows(name)
            counters = shard.counter_totals(words[arrays][own])
            result |= shard.stats(config, counters, fullest[name])
            result |= layout.exchange_stats(config, rows, counters)
            result |= shard.tier_stats(config, tiers.get(arrays), own)
        return result

    def shards(self, state: States, table: str) -> shard.Shards:
        """Returns the shards on this process's devices, each as a table of one."""
        config, layout = self.catalog.table(table), self.layout.here()
        stack = layout.stack_of(config.name)
        arrays = state[stack.state_name]
        if not isinstance(layout, OneDevice):
            arrays = dataclasses.replace(arrays, extra=())
        return layout.shards_of(stack, config, arrays)

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        columns = self.stack_of(table).sharding == "column_wise"
        stream = export_columns if columns else shard.export
        return stream(self.shards(state, table), query)

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        shards = self.shards(state, table)
        if self.stack_of(table).sharding == "column_wise":
            shards = shards[:1]  # each has all keys
        return shard.export_index(shards)


def _made(
    layout: Layout,
    used: Sequence[Stack],
    seed: jax.Array,
    run: np.ndarray,
    like: Mapping[str, TableState] | None = None,
) -> States:
    """Makes the arrays of some stacks, those of tiered ones with homes."""
    make = functools.partial(_all_empty, layout, tuple(used))
    state = layout.made(make, used, like)(seed, jnp.asarray(run))
    tiered = [s for s in used if s.local.tier is not None]
    return state | {
        s.state_name: layout.with_homes(s, state[s.state_name]) for s in tiered
    }


def _all_empty(
    layout: Layout, used: Sequence[Stack], seed: jax.Array, run: jax.Array
) -> States:
    """Makes arrays without rows; each table has the seed of its own name."""
    together: dict[str, list[Stack]] = {}
    for stack in used:
        together.setdefault(stack.state_name, []).append(stack)
    new = {}
    for name, stacks in together.items():
        seeds = [_seed_here(layout, stack, seed) for stack in stacks]
        arrays = empty_arrays([stack.local for stack in stacks], seeds, run)
        new[name] = layout.with_first_column(stacks[0], arrays)
    return new


def _seed_here(layout: Layout, stack: Stack, seed: jax.Array) -> jax.Array:
    seeds = [table_seed(seed, table.name) for table in stack.tables]
    if stack.blocks == 1:
        return seeds[0]
    seeds += [seed] * (stack.blocks - len(seeds))
    return jnp.stack(seeds)[layout.my_block(stack)]


def _rows_where(here: jax.Array, new: TableState, old: TableState) -> TableState:
    """Returns the index and what counts keys of a new state, or those of an old one."""

    def one(name: str) -> Any:
        mine, before = getattr(new, name), getattr(old, name)
        return None if mine is None else jnp.where(here, mine, before)

    names = ("index", "sketch", "removed")
    return dataclasses.replace(new, **{name: one(name) for name in names})
