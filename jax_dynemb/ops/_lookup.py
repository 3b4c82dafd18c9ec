# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training and serving lookup: one call for all tables and features, up to a size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._ffi import code
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._attributes import feature_attribute
from jax_dynemb.ops._call import Call, take_table
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout
from jax_dynemb.ops._parts import Places, parts, rows_of
from jax_dynemb.ops._state import TableState

Inputs = Sequence[tuple[FeatureLayout, FeatureInput]]
Outputs = list[dict[str, jax.Array]]  # of each feature
States = Mapping[str, TableState]
_READ = ("index", "values", "counters")


def feature_fields(layout: FeatureLayout, tables: Sequence[TableConfig]) -> dict:
    """The attribute ``features`` of one feature."""
    names = [table.name for table in tables]
    return {
        "table": names.index(layout.table),
        "pooling": code("poolings", layout.pooling),
        "bag_size": layout.bag_size,
        "has_weights": int(layout.weighted),
    }


def _start(op: str, tables: Sequence[TableConfig], inputs: Inputs) -> Call:
    rows = [feature_fields(layout, tables) for layout, _ in inputs]
    num_ids = [layout.num_ids for layout, _ in inputs]
    return Call(op, tables, num_ids, features=feature_attribute(rows))


def _add_ids(call: Call, given: FeatureInput) -> None:
    for array in (given.ids, given.offsets, given.weights):
        call.operand(array)


def lookup(
    tables: Sequence[TableConfig],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
) -> tuple[Outputs, dict[str, TableState]]:
    """Looks up, and inserts what is not there.

    Args:
      tables: those that the features use.
      states: by table name.
      inputs: layout and arrays of each feature.
      scores: uint32[tables], for tables with customized scores.

    Returns:
      For each feature "slots" int32[num_ids], and where it has them "rows"
      dtype[num_bags, dim] and "scale" float32[num_bags]; and the new states.
    """

    def of_part(some: Places, own: list[TableConfig], mine: Inputs):
        return _lookup(own, states, mine, rows_of(scores, some))

    return _in_parts(tables, inputs, of_part)


def _in_parts(
    tables: Sequence[TableConfig],
    inputs: Inputs,
    call: Callable[[Places, list[TableConfig], Inputs], tuple[Outputs, States]],
) -> tuple[Outputs, dict[str, TableState]]:
    """Makes the calls; outputs in the order of the features."""
    outputs: Outputs = [{} for _ in inputs]
    new: dict[str, TableState] = {}
    for some, features in parts(tables, [layout.table for layout, _ in inputs]):
        own, mine = [tables[i] for i in some], [inputs[i] for i in features]
        of_part, states = call(some, own, mine)
        new |= states
        for place, output in zip(features, of_part, strict=True):
            outputs[place] = output
    return outputs, new


def _lookup(
    tables: Sequence[TableConfig], states: States, inputs: Inputs, scores: jax.Array
) -> tuple[Outputs, dict[str, TableState]]:
    call = _start("lookup", tables, inputs)
    call.operand(scores)
    for table in tables:
        call.update_table(table, states[table.name])
    configs = {table.name: table for table in tables}
    for layout, given in inputs:
        config = configs[layout.table]
        _add_ids(call, given)
        if layout.pooling != "no_rows":
            call.result((layout.num_bags, config.dim), config.dtype)
        call.result((layout.num_ids,), jnp.int32)
        if layout.pooling == "mean":
            call.result((layout.num_bags,), jnp.float32)
    results = call.run()
    new = {t.name: take_table(results, t, states[t.name]) for t in tables}
    outputs = []
    for layout, _ in inputs:
        names = ["rows"] if layout.pooling != "no_rows" else []
        names += ["slots"] + (["scale"] if layout.pooling == "mean" else [])
        outputs.append({name: next(results) for name in names})
    return outputs, new


def find(
    tables: Sequence[TableConfig], states: States, inputs: Inputs
) -> tuple[Outputs, dict[str, TableState]]:
    """Looks up and changes nothing; the tables need not be donated.

    Returns:
      For each feature "rows" dtype[num_bags, dim], "found" uint8[num_ids] and "slots"
      int32[num_ids]; and the states, to be carried on by a program that also changes
      them: what changes them then waits until they have been read.
    """
    return _in_parts(tables, inputs, lambda _, own, mine: _find(own, states, mine))


def _find(
    tables: Sequence[TableConfig], states: States, inputs: Inputs
) -> tuple[Outputs, dict[str, TableState]]:
    call = _start("find", tables, inputs)
    for table in tables:
        call.read_table(table, states[table.name], _READ)
    configs = {table.name: table for table in tables}
    for layout, given in inputs:
        config = configs[layout.table]
        _add_ids(call, given)
        call.result((layout.num_bags, config.dim), config.dtype)
        call.result((layout.num_ids,), jnp.uint8)
        call.result((layout.num_ids,), jnp.int32)
    results = call.run()
    names = ("rows", "found", "slots")
    outputs = [{name: next(results) for name in names} for _ in inputs]
    slots = [output["slots"] for output in outputs]
    return outputs, {t.name: _after(states[t.name], slots) for t in tables}


def _after(state: TableState, slots: Sequence[jax.Array]) -> TableState:
    """The same state, but not before the slots are known.

    The counters, which every change of a table reads, get nothing added that depends on
    a slot: XLA cannot know that no slot is below -4. Were the arrays passed through the
    call instead, a program that was not given them for good would copy the tables.
    """
    known = [each for each in slots if each.size > 0]
    if not known:
        return state
    nothing = (known[0].reshape(-1)[0] + 16) >> 31
    counters = state.counters | nothing.astype(jnp.uint32)
    return dataclasses.replace(state, counters=counters)
