# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of hash tables by id, by slot and by rule: each device changes its own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jax_dynemb._src import ops
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.hash_tables import (
    HashTables,
    States,
    restore_untouched,
)
from jax_dynemb._src.engines.hash.layouts import Stack, states_of
from jax_dynemb._src.engines.shard import BucketStats, NewRows, Rule
from jax_dynemb._src.ops import TableState, prepare
from jax_dynemb._src.rows import Exported
from jax_dynemb._src.spec import TableSpec

_ALL = PartitionSpec()
Change = Callable[[TableSpec, TableState, jax.Array], TableState]


class Rows(HashTables):
    """Changes single rows; see ``RowEngine``."""

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        """Reads rows by slot; slots of each shard, as ``reduce_gradients`` gives."""
        layout = self.layout.here()
        used = [layout.stack(name) for name in slots]

        def body(state, slots):
            rows, new = {}, dict(state)
            for s in used:
                arrays = new[s.state_name]
                read = ops.gather(s.local, arrays, slots[s.name])
                rows[s.name], new[s.state_name] = read
            return rows, new

        specs, per_slot = layout.state_specs(used), layout.slot_specs(used)
        run = layout.mapped(body, (specs, per_slot), (per_slot, specs))
        rows, new = run(states_of(state, used), dict(slots))
        return rows, dict(state) | new

    def scatter(
        self,
        state: States,
        slots: Mapping[str, jax.Array],
        rows: Mapping[str, Mapping[str, jax.Array]],
    ) -> States:
        layout = self.layout.here()
        used = [layout.stack(name) for name in slots]

        def body(state, slots, rows):
            new = dict(state)
            for s in used:
                arrays, own = new[s.state_name], rows[s.name]
                new[s.state_name] = ops.scatter(s.local, arrays, slots[s.name], own)
            return new

        specs, per_slot = layout.state_specs(used), layout.slot_specs(used)
        by_name = {s.name: dict.fromkeys(rows[s.name], per_slot[s.name]) for s in used}
        run = layout.mapped(body, (specs, per_slot, by_name), specs)
        given = {s.name: dict(rows[s.name]) for s in used}
        return dict(state) | run(states_of(state, used), dict(slots), given)

    def out_of_tiers(self, state: States) -> States:
        """Reads rows of tiers into device memory, of tables that are only read then."""
        layout = self.layout.here()
        used = [s for s in layout.stacks if s.local.tier is not None]
        if not used:
            return dict(state)

        def body(state):
            arrays = {s.state_name: (s.local, state[s.state_name]) for s in used}
            return {name: ops.out_of_tier(*each) for name, each in arrays.items()}

        specs = layout.state_specs(used)
        after = specs and {name: ops.only_rows(spec) for name, spec in specs.items()}
        run = layout.mapped(body, (specs,), after, at_once=True)
        return dict(state) | run(states_of(state, used))

    def insert(self, arrays: TableState, table: str, new: NewRows) -> TableState:
        layout, config = self.layout.here(), self.catalog.table(table)
        stack = layout.stack_of(config.name)
        where, feature_input = prepare(config, table, new.ids)
        written, unique_ids = shard.checked(config, where, new), new.unique_ids
        skips = config.nonfinite == "skip" and not new.are_kept

        def body(state, ids, written):
            mine = layout.my_ids(stack, config, ids)
            if skips:
                mine, state = shard.without_nonfinite(stack.local, state, mine, written)
            own = layout.my_columns(stack, written)
            after = shard.store(stack.local, state, mine, own, unique_ids)
            if "scores" in written:
                after = layout.same_clock(stack, config.name, after)
            return self._kept(stack, config.name, state, after)

        spec = layout.state_spec(stack)
        run = layout.mapped(body, (spec, _ALL, dict.fromkeys(written, _ALL)), spec)
        return run(arrays, feature_input.ids, written)

    def erase(self, arrays: TableState, table: str, ids: Any) -> TableState:
        return self._by_id(arrays, table, ids, ops.erase)

    def pin(self, arrays: TableState, table: str, ids: Any, pins: bool) -> TableState:
        change = functools.partial(shard.set_pins, pins=pins)
        return self._by_id(arrays, table, ids, change)

    def hold(
        self, arrays: TableState, table: str, ids: Any, lookups: int
    ) -> TableState:
        change = functools.partial(shard.hold_rows, lookups=lookups)
        return self._by_id(arrays, table, ids, change)

    def _by_id(
        self, arrays: TableState, table: str, ids: Any, change: Change
    ) -> TableState:
        """Changes each shard by the ids that it owns."""
        layout, config = self.layout.here(), self.catalog.table(table)
        stack = layout.stack_of(config.name)
        _, feature_input = prepare(config, table, ids)

        def body(state, ids):
            mine = layout.my_ids(stack, config, ids)
            after = change(stack.local, state, mine)
            return self._kept(stack, config.name, state, after)

        spec = layout.state_spec(stack)
        return layout.mapped(body, (spec, _ALL), spec)(arrays, feature_input.ids)

    def erase_where(
        self, arrays: TableState, table: str, rule: Rule, dry_run: bool
    ) -> tuple[jax.Array, TableState]:
        """Removes rows by rule: all devices that hold a table decide alike."""
        layout = self.layout.here()
        stack = layout.stack_of(table)

        def body(state, rule):
            group = layout.group(stack, table)
            removed, new = shard.erase_where(stack.local, state, rule, dry_run, group)
            return removed, self._kept(stack, table, state, new)

        spec = layout.state_spec(stack)
        return layout.mapped(body, (spec, _ALL), (_ALL, spec))(arrays, rule)

    def bucket_stats(self, arrays: TableState, table: str) -> BucketStats:
        layout = self.layout.here()
        stack = layout.stack_of(table)

        def body(state):
            group = layout.group(stack, table)
            return shard.bucket_stats(stack.local, state, group)

        return layout.mapped(body, (layout.state_spec(stack),), _ALL)(arrays)

    def decay(self, arrays: TableState, table: str, factor: jax.Array) -> TableState:
        layout = self.layout.here()
        stack = layout.stack_of(table)

        def body(state, factor):
            here = layout.owns_any(stack, [table])
            if not isinstance(here, np.bool_):
                factor = jnp.where(here, factor, 1.0)
            return ops.decay(stack.local, state, factor)

        spec = layout.state_spec(stack)
        return layout.mapped(body, (spec, _ALL), spec)(arrays, factor)

    def read_departed(self, rings: Mapping[str, Any], table: str) -> Exported:
        """Reads the evicted rows of a table that this process's devices have."""
        config, layout = self.catalog.table(table), self.layout.here()
        stack = layout.stack_of(config.name)
        own = layout.shards_of(stack, config, rings[stack.state_name])
        spec = dataclasses.replace(stack.local, name=config.name)
        return shard.read_rings(spec, [ring for _, ring in own])

    def _kept(
        self, stack: Stack, table: str, before: TableState, after: TableState
    ) -> TableState:
        """Returns arrays in which other tables count as before."""
        name = stack.state_name
        states = {name: before}, {name: after}
        return restore_untouched(self.layout, [stack], [table], *states)[name]
