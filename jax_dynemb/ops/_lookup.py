# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training and serving lookup: one call for all tables and features, up to a size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._ffi import code, constants
from jax_dynemb._spec import TableSpec
from jax_dynemb.ops._attributes import feature_attribute
from jax_dynemb.ops._call import OF_LOOKUP, Call
from jax_dynemb.ops._call_batches import Indices, call_batches, rows_of
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout
from jax_dynemb.ops._packed_rows import packed_attribute
from jax_dynemb.ops._row_views import RowBuffers, RowViews, waves
from jax_dynemb.ops._sizes import is_positive
from jax_dynemb.ops._stamps import WORDS, Stamps
from jax_dynemb.ops._state import TableState

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
      views: where the features' rows go.
    """

    tables: Indices
    configs: list[TableSpec]
    inputs: Inputs
    views: RowViews
    arrays: RowBuffers

    @property
    def is_scored(self) -> bool:
        """Whether the call takes scores, or the time."""
        return any(table.takes_given for table in self.configs)

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
        """Adds operands and results; ``others`` is (name, dtype, size) by layout."""
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


def lookup_calls(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews,
    arrays: RowBuffers,
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    """Looks up for training, see ``lookup``; tiered tables give their index parts."""
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
    take_whole(outputs, views, arrays)
    return outputs, new


def take_whole(outputs: Outputs, views: RowViews, arrays: RowBuffers) -> None:
    """Sets the rows of features that share arrays, as they are after all calls."""
    for output, where in zip(outputs, views, strict=True):
        if where is not None:
            output["rows"] = arrays.whole(where)


def find_calls(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews,
    arrays: RowBuffers,
) -> tuple[Outputs, dict[str, TableState]]:
    """Looks up for serving, see ``find``; tiered tables give their index parts."""

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
