# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training and serving lookup: one call for all tables and features, up to a size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._ffi import code, constants
from jax_dynemb._spec import TableSpec
from jax_dynemb.config import ScoreStrategy
from jax_dynemb.ops._attributes import feature_attribute
from jax_dynemb.ops._call import OF_LOOKUP, Call
from jax_dynemb.ops._call_batches import Indices, call_batches, rows_of
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout, one_row_each
from jax_dynemb.ops._packed_rows import packed_attribute
from jax_dynemb.ops._row_views import RowBuffers, RowViews, waves
from jax_dynemb.ops._sizes import is_positive
from jax_dynemb.ops._stamps import WORDS, Stamps
from jax_dynemb.ops._state import TableState, check_state
from jax_dynemb.ops._tier_state import index_part
from jax_dynemb.ops._tiers import index_state, promote, tier_of, with_index

Inputs = Sequence[tuple[FeatureLayout, FeatureInput]]
Outputs = list[dict[str, jax.Array]]  # of each feature
States = Mapping[str, TableState]
Others = Callable[[FeatureLayout], list[tuple[str, Any, int]]]


def feature_fields(layout: FeatureLayout, tables: Sequence[TableSpec]) -> dict:
    """The attribute ``features`` of one feature, but for where its rows lie."""
    names = [table.name for table in tables]
    return {
        "table": names.index(layout.table),
        "pooling": code("poolings", layout.pooling),
        "bag_size": layout.bag_size,
        "has_weights": int(layout.weighted),
        "has_uses": 0,
    }


@dataclasses.dataclass(frozen=True)
class _CallBatch:
    """Describes one call of several.

    Attributes:
      tables: their numbers.
      configs: of these.
      inputs: of their features.
      views: where the features' rows go.
      arrays: that features share.
    """

    tables: Indices
    configs: list[TableSpec]
    inputs: Inputs
    views: RowViews
    arrays: RowBuffers

    @property
    def is_scored(self) -> bool:
        """Whether the call takes scores."""
        customized = ScoreStrategy.CUSTOMIZED
        return any(table.score_strategy is customized for table in self.configs)

    @property
    def read(self) -> tuple[str, ...]:
        """Lists what a serving lookup reads: counters for the seed only."""
        seeded = constants()["seeded_initializers"]
        draws = any(t.eval_initializer.kernel in seeded for t in self.configs)
        return ("index", "values", "counters") if draws else ("index", "values")

    @property
    def is_packed(self) -> bool:
        """Whether the rows of the tables are packed, those of all or of none."""
        return any(table.row_format is not None for table in self.configs)

    def start(self, op: str, **attributes: Any) -> Call:
        """The call, with its attributes."""
        rows = [
            feature_fields(layout, self.configs)
            | {"has_uses": int(given.uses is not None)}
            | where
            for (layout, given), where in zip(
                self.inputs, self.arrays.fields(self.views), strict=True
            )
        ]
        num_ids = [layout.num_ids for layout, _ in self.inputs]
        features = feature_attribute(rows)
        return Call(op, self.configs, num_ids, features=features, **attributes)

    def add_features(self, call: Call, others: Others) -> None:
        """Operands and results of the features.

        Args:
          call: to which they are added.
          others: name, dtype and size of results beside the rows, by layout.
        """
        configs = {table.name: table for table in self.configs}
        used: set[int] = set()
        for (layout, given), where in zip(self.inputs, self.views, strict=True):
            config = configs[layout.table]
            for array in (given.ids, given.offsets, given.weights, given.uses):
                call.operand(array)
            if where is not None:
                self.arrays.add_result(call, used, where)
            elif layout.pooling != "no_rows":
                call.result((layout.num_bags, config.dim), config.dtype)
            for _, dtype, size in others(layout):
                call.result((size,), dtype)

    def take_features(self, results: Iterator[jax.Array], others: Others) -> Outputs:
        """Returns the results that ``add_features`` added."""
        outputs: Outputs = []
        used: set[int] = set()
        for (layout, _), where in zip(self.inputs, self.views, strict=True):
            output = {}
            if where is not None:
                if where.array not in used:
                    self.arrays.keep(where, next(results))
                used.add(where.array)
            elif layout.pooling != "no_rows":
                output["rows"] = next(results)
            for name, _, _ in others(layout):
                output[name] = next(results)
            outputs.append(output)
        return outputs


def lookup(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews = (),
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    """Looks up, and inserts what is not there.

    Args:
      tables: those that the features use.
      states: by name, see ``TableSpec.state_name``.
      inputs: layout and arrays of each feature.
      scores: uint32[tables], for tables with customized scores.
      views: of each feature's rows, if some share arrays.

    Returns:
      For each feature "slots" int32[num_ids], and where it has them "rows"
      dtype[num_bags, dim], or the array that it shares, and "scale" float32[num_bags].
      Then the new states, and the stamps of the tables.
    """
    views = views or [None] * len(inputs)
    if any(table.tier is not None for table in tables):
        return _lookup_tiered(tables, states, inputs, scores, views)
    return _lookup(tables, states, inputs, scores, views, RowBuffers())


def _lookup(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews,
    arrays: RowBuffers,
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    stamps: list[jax.Array] = []
    names: list[tuple[str, ...]] = []

    def run(batch: _CallBatch, states: States) -> tuple[Outputs, dict[str, TableState]]:
        call = batch.start("lookup")
        if batch.is_scored:
            call.operand(rows_of(scores, batch.tables))
        call.result((len(batch.configs), WORDS), jnp.uint32)
        call.update_tables(states, OF_LOOKUP)
        batch.add_features(call, _of_lookup)
        results = call.run()
        stamps.append(next(results))
        names.append(tuple(table.name for table in batch.configs))
        new = call.take_tables(results, states, OF_LOOKUP)
        return batch.take_features(results, _of_lookup), new

    outputs, new = _in_batches(tables, states, inputs, views, arrays, run)
    return outputs, new, Stamps(tuple(stamps), tuple(names))


def _lookup_tiered(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews,
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    """A lookup of which some tables have tiers: keys first, then their rows."""
    split, arrays = _TierSplit.of(tables, inputs, views), RowBuffers()
    outputs, after, stamps = _lookup(
        split.tables,
        split.index_states(states),
        split.inputs,
        scores,
        split.views,
        arrays,
    )
    new = split.whole_states(states, after)
    for table in split.tiered:
        own = split.with_rows(table)
        if own:
            slots = [outputs[i]["slots"] for i in own]
            name = table.state_name
            new[name] = promote(table, new[name], slots, "lookup")
            new[name] = split.read(table, new[name], outputs, arrays, serves=False)
    _take_whole(outputs, views, arrays)
    return outputs, new, stamps


def _of_lookup(layout: FeatureLayout) -> list[tuple[str, Any, int]]:
    slots = [("slots", jnp.int32, layout.num_ids)]
    scale = [("scale", jnp.float32, layout.num_bags)]
    return slots + scale if layout.pooling == "mean" else slots


def _of_find(layout: FeatureLayout) -> list[tuple[str, Any, int]]:
    return [("slots", jnp.int32, layout.num_ids)]


def _in_batches(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews,
    arrays: RowBuffers,
    run: Callable[[_CallBatch, States], tuple[Outputs, dict[str, TableState]]],
) -> tuple[Outputs, dict[str, TableState]]:
    """Makes the calls; outputs in the order of the features."""
    outputs: Outputs = [{} for _ in inputs]
    new: dict[str, TableState] = {}
    table_of = [layout.table for layout, _ in inputs]
    for some, features in call_batches(tables, table_of, waves(table_of, views)):
        own, mine = [tables[i] for i in some], [inputs[i] for i in features]
        batch = _CallBatch(some, own, mine, [views[i] for i in features], arrays)
        of_batch, after = run(batch, {**states, **new})
        new |= after
        for index, output in zip(features, of_batch, strict=True):
            outputs[index] = output
    _take_whole(outputs, views, arrays)
    return outputs, new


def _take_whole(outputs: Outputs, views: RowViews, arrays: RowBuffers) -> None:
    """Sets the rows of features that share arrays, as they are after all calls."""
    for output, where in zip(outputs, views, strict=True):
        if where is not None:
            output["rows"] = arrays.whole(where)


def find(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews = (),
) -> tuple[Outputs, dict[str, TableState]]:
    """Looks up and changes nothing; the tables need not be donated.

    Returns:
      For each feature "rows" dtype[num_bags, dim], or the array that it shares, "found"
      uint8[num_ids] and "slots" int32[num_ids]. Then the states, for a program that
      also changes them: a change then waits until they have been read.
    """
    views = views or [None] * len(inputs)
    arrays = RowBuffers()
    if all(table.tier is None for table in tables):
        return _find(tables, states, inputs, views, arrays)
    split = _TierSplit.of(tables, inputs, views)
    outputs, after = _find(
        split.tables, split.index_states(states), split.inputs, split.views, arrays
    )
    new = split.whole_states(states, after)
    for table in split.tiered:
        name = table.state_name
        if split.with_rows(table):
            new[name] = split.read(table, new[name], outputs, arrays, serves=True)
    _take_whole(outputs, views, arrays)
    return outputs, new


def _find(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews,
    arrays: RowBuffers,
) -> tuple[Outputs, dict[str, TableState]]:
    def run(batch: _CallBatch, states: States) -> tuple[Outputs, dict[str, TableState]]:
        if batch.is_packed:
            packed = packed_attribute(batch.configs)
            call = batch.start("find_packed", packed=packed)
        else:
            call = batch.start("find")
        call.read_tables(states, batch.read)
        batch.add_features(call, _of_find)
        outputs = batch.take_features(call.run(), _of_find)
        slots = [output["slots"] for output in outputs]
        for output in outputs:  # XLA removes it where the program does not use it
            output["found"] = (output["slots"] >= 0).astype(jnp.uint8)
        names = {table.state_name: None for table in batch.configs}
        return outputs, {name: _after(states[name], slots) for name in names}

    return _in_batches(tables, states, inputs, views, arrays, run)


def _after(state: TableState, slots: Sequence[jax.Array]) -> TableState:
    """The same state, but not before the slots are known.

    The counters, which every change of a table reads, get nothing added that depends on
    a slot: XLA cannot know that no slot is below -16. If the
    call returned the arrays, a program that does not donate them would copy the tables.
    """
    known = [each for each in slots if is_positive(each.size)]
    if not known:
        return state
    nothing = (known[0].reshape(-1)[0] + 16) >> 31
    counters = state.counters | nothing.astype(jnp.uint32)
    return dataclasses.replace(state, counters=counters)


@dataclasses.dataclass(frozen=True)
class _TierSplit:
    """Separates the keys of a call from the rows of its tiered tables.

    Attributes:
      tables: with the index part of tiered ones.
      inputs: of all features; those of tiered tables return no rows.
      views: of all features; None for those of tiered tables.
      tiered: the tables that have tiers.
      given: the inputs as they were.
      given_views: the views as they were.
    """

    tables: list[TableSpec]
    inputs: Inputs
    views: RowViews
    tiered: list[TableSpec]
    given: Inputs
    given_views: RowViews

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
                _keys_only(*one) if is_far else one
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
        table: TableSpec,
        state: TableState,
        outputs: Outputs,
        arrays: RowBuffers,
        *,
        serves: bool,
    ) -> TableState:
        """Adds rows and scales to the outputs; a later change waits for that."""
        own = self.with_rows(table)
        views = [self.given_views[i] for i in own]
        rows = [
            feature_fields(self.given[i][0], [table]) | where
            for i, where in zip(own, arrays.fields(views), strict=True)
        ]
        call = Call(
            "tier_rows",
            [table],
            [self.given[i][0].num_ids for i in own],
            features=feature_attribute(rows),
            serves=np.int64(serves),
        )
        tier = tier_of(state)
        for array in (state.counters, tier.place, tier.owners, state.values):
            call.read(array)
        call.read(tier.homes)
        used: set[int] = set()
        for i, where in zip(own, views, strict=True):
            layout, given = self.given[i]
            for array in (given.ids, given.offsets, given.weights):
                call.operand(array)
            call.operand(outputs[i]["slots"])
            if where is None:
                call.result((layout.num_bags, table.dim), table.dtype)
            else:
                arrays.add_result(call, used, where)
            if layout.pooling == "mean":
                call.result((layout.num_bags,), jnp.float32)
        call.result((1,), jnp.uint32)
        results = call.run()
        used = set()
        for i, where in zip(own, views, strict=True):
            if where is None:
                outputs[i]["rows"] = next(results)
            elif where.array not in used:
                arrays.keep(where, next(results))
                used.add(where.array)
            if self.given[i][0].pooling == "mean":
                outputs[i]["scale"] = next(results)
        counters = state.counters | next(results)[0]
        return dataclasses.replace(state, counters=counters)


def _keys_only(
    layout: FeatureLayout, given: FeatureInput
) -> tuple[FeatureLayout, FeatureInput]:
    alone = one_row_each(layout.feature, layout.table, layout.num_ids, "no_rows")
    return alone, FeatureInput(given.ids, None, None, uses=given.uses)
