# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups of tables with and without tiers: keys first, then rows of tiered ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ffi import constants
from jax_dynemb._src.ops.attributes import feature_attribute
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.call_batches import call_batches
from jax_dynemb._src.ops.departed import depart, evicts_nothing, keep_holds
from jax_dynemb._src.ops.layout import slots_only
from jax_dynemb._src.ops.row_views import (
    Inputs,
    Outputs,
    RowBuffers,
    RowViews,
    States,
    feature_fields,
    take_whole,
    waves,
)
from jax_dynemb._src.ops.stamps import Stamps
from jax_dynemb._src.ops.state import TableState, check_state
from jax_dynemb._src.ops.tier_state import index_part
from jax_dynemb._src.ops.tiers import index_state, promote, tier_of, with_index
from jax_dynemb._src.spec import TableSpec


def lookup_tiered(
    calls: Callable[..., tuple[Outputs, dict[str, TableState], Stamps]],
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews,
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    """A lookup of which some tables have tiers: keys first, by ``calls``, then rows."""
    views = views or [None] * len(inputs)
    split, arrays = _TierSplit.of(tables, inputs, views), RowBuffers()
    outputs, after, stamps = calls(
        split.tables,
        split.index_states(states),
        split.inputs,
        scores,
        split.views,
        arrays,
    )
    new = split.whole_states(states, after)
    for table in split.tiered:
        if table.ring_rows > 0:
            change = keep_holds if evicts_nothing(table) else depart
            new[table.state_name] = change(table, new[table.state_name])
    read = [table for table in split.tiered if split.with_rows(table)]
    slots = {
        table.name: [outputs[i]["slots"] for i in split.with_rows(table)]
        for table in read
    }
    new |= promote(read, new, slots, "lookup")
    new |= split.read(read, new, outputs, arrays, serves=False)
    take_whole(outputs, views, arrays)
    return outputs, new, stamps


def find_tiered(
    calls: Callable[..., tuple[Outputs, dict[str, TableState]]],
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews,
) -> tuple[Outputs, dict[str, TableState]]:
    """A find of which some tables have tiers; ``calls`` finds in those without."""
    views = views or [None] * len(inputs)
    arrays = RowBuffers()
    split = _TierSplit.of(tables, inputs, views)
    outputs, after = calls(
        split.tables, split.index_states(states), split.inputs, split.views, arrays
    )
    new = split.whole_states(states, after)
    read = [table for table in split.tiered if split.with_rows(table)]
    new |= split.read(read, new, outputs, arrays, serves=True)
    take_whole(outputs, views, arrays)
    return outputs, new


def coming_slots(
    calls: Callable[..., tuple[Outputs, dict[str, TableState]]],
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
) -> tuple[list[TableSpec], dict[str, TableState], dict[str, list[jax.Array]]]:
    """Finds the slots of coming ids; ``calls`` finds in tables without a tier.

    Returns:
      The tables with tiers that have some, the states, and the slots by table.
    """
    tiered = [table for table in tables if table.tier is not None]
    names = {table.name for table in tiered}
    keys = [slots_only(*one) for one in inputs if one[0].table in names]
    if not keys:
        return [], {}, {}
    views: RowViews = [None] * len(keys)
    split = _TierSplit.of(tiered, keys, views)
    outputs, after = calls(
        split.tables, split.index_states(states), keys, views, RowBuffers()
    )
    slots: dict[str, list[jax.Array]] = {}
    for (one, _), output in zip(keys, outputs, strict=True):
        slots.setdefault(one.table, []).append(output["slots"])
    used = [table for table in tiered if table.name in slots]
    return used, split.whole_states(states, after), slots


@dataclasses.dataclass(frozen=True)
class _TierSplit:
    """Separates the keys of a call from the rows of its tiered tables."""

    tables: list[TableSpec]  # with the index part of tiered ones
    inputs: Inputs  # of all features; those of tiered tables return no rows
    views: RowViews  # of all features; None for those of tiered tables
    tiered: list[TableSpec]  # the tables that have tiers
    given: Inputs  # the inputs as they were
    given_views: RowViews  # the views as they were

    @classmethod
    def of(
        cls, tables: Sequence[TableSpec], inputs: Inputs, views: RowViews
    ) -> _TierSplit:
        tiered = [table for table in tables if table.tier is not None]
        names = {table.name for table in tiered}
        far = [layout.table in names for layout, _ in inputs]
        return cls(
            tables=[t if t.tier is None else index_part(t) for t in tables],
            inputs=[
                slots_only(*one) if is_far else one
                for one, is_far in zip(inputs, far, strict=True)
            ],
            views=[
                None if is_far else view
                for view, is_far in zip(views, far, strict=True)
            ],
            tiered=tiered,
            given=inputs,
            given_views=views,
        )

    def index_states(self, states: States) -> dict[str, TableState]:
        """The states with the index parts of tiered tables."""
        parts = {}
        for table in self.tiered:
            check_state(table, states[table.state_name])
            parts[table.state_name] = index_state(states[table.state_name])
        return {**states, **parts}

    def whole_states(self, states: States, after: States) -> dict[str, TableState]:
        """The states after a call on index parts."""
        new = dict(after)
        for table in self.tiered:
            name = table.state_name
            new[name] = with_index(states[name], new[name])
        return new

    def with_rows(self, table: TableSpec) -> list[int]:
        """The features of a tiered table that return rows."""
        return [
            i
            for i, (layout, _) in enumerate(self.given)
            if layout.table == table.name and layout.pooling != "no_rows"
        ]

    def read(
        self,
        tables: Sequence[TableSpec],
        states: States,
        outputs: Outputs,
        arrays: RowBuffers,
        *,
        serves: bool,
    ) -> dict[str, TableState]:
        """Adds rows and scales of tiered tables; later changes wait for that."""
        new: dict[str, TableState] = {}
        own = [i for table in tables for i in self.with_rows(table)]
        table_of = [self.given[i][0].table for i in own]
        wave_of = waves(table_of, [self.given_views[i] for i in own])
        most = constants()["max_tier_tables"]
        for some, features in call_batches(tables, table_of, wave_of, most):
            chosen = [tables[i] for i in some]
            mine = [own[i] for i in features]
            new |= self._read(chosen, states, mine, outputs, arrays, serves)
        return new

    def _read(
        self,
        tables: Sequence[TableSpec],
        states: States,
        own: Sequence[int],
        outputs: Outputs,
        arrays: RowBuffers,
        serves: bool,
    ) -> dict[str, TableState]:
        views = [self.given_views[i] for i in own]
        rows = [
            feature_fields(self.given[i][0], tables) | where
            for i, where in zip(own, arrays.fields(views), strict=True)
        ]
        call = Call(
            "tier_rows",
            tables,
            [self.given[i][0].num_ids for i in own],
            features=feature_attribute(rows),
            serves=np.int64(serves),
        )
        for table in tables:
            state = states[table.state_name]
            tier = tier_of(state)
            # What a later change waits for: counters that a lookup returns, or `done`
            # of a find, whose tables need not be donated.
            (call.read if serves else call.update)(state.counters)
            call.read(tier.location, tier.owners, state.values, tier.homes)
        dims = {table.name: (table.dim, table.dtype) for table in tables}
        used: set[int] = set()
        for i, where in zip(own, views, strict=True):
            layout, feature_input = self.given[i]
            call.operand(
                feature_input.ids,
                feature_input.offsets,
                feature_input.weights,
                outputs[i]["slots"],
            )
            if where is None:
                dim, dtype = dims[layout.table]
                call.result((layout.num_bags, dim), dtype)
            else:
                arrays.add_result(call, used, where)
            if layout.pooling == "mean":
                call.result((layout.num_bags,), jnp.float32)
        if serves:
            call.result((1,), jnp.uint32)
        results = call.run()
        counters = {} if serves else {t.name: next(results) for t in tables}
        used = set()
        for i, where in zip(own, views, strict=True):
            if where is None:
                outputs[i]["rows"] = next(results)
            elif where.array not in used:
                arrays.keep(where, next(results))
                used.add(where.array)
            if self.given[i][0].pooling == "mean":
                outputs[i]["scale"] = next(results)
        if serves:
            done = next(results)[0]
            counters = {t.name: states[t.state_name].counters | done for t in tables}
        return {
            table.state_name: dataclasses.replace(
                states[table.state_name], counters=counters[table.name]
            )
            for table in tables
        }
