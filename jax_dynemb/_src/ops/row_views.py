# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Features of a call, and rows of several features or tables in one array.

What is exchanged between devices is so written, and read, where it lies on the wire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax

from jax_dynemb._src.ffi import code
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.layout import FeatureInput, FeatureLayout
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class RowView:
    """Where the rows of one feature lie in an array of several; static."""

    array: int
    dtype: str
    size: int  # of the array, in elements
    offset: int  # elements before the first row
    group: int  # rows that follow each other
    # Elements between the first rows of two groups; a multiple of 16 bytes.
    stride: int
    # Tables of different waves go in different calls, so that what follows one of them
    # need not wait for the others.
    wave: int = 0


RowViews = Sequence[RowView | None]  # None: an array [rows, dim] of its own


def waves(tables: Sequence[str], views: RowViews) -> dict[str, int]:
    """Returns the wave of each table."""
    pairs = zip(tables, views, strict=True)
    return {table: view.wave for table, view in pairs if view is not None}


@dataclasses.dataclass
class RowBuffers:
    """The arrays of one operation, over its calls, which number those that they use."""

    # By number, as they are after the calls so far.
    _whole: dict[int, jax.Array] = dataclasses.field(default_factory=dict)

    def fields(self, views: RowViews) -> list[dict[str, int]]:
        """The part of the attributes ``features`` and ``sums`` that tells of rows."""
        numbers: dict[int, int] = {}
        rows = []
        for one in views:
            if one is None:
                own = ("array", "passed_on", "offset", "group", "stride")
                rows.append(dict(zip(own, (-1, 0, 0, 0, 0), strict=True)))
                continue
            rows.append(
                {
                    "array": numbers.setdefault(one.array, len(numbers)),
                    "passed_on": int(one.array in self._whole),
                    "offset": one.offset,
                    "group": one.group,
                    "stride": one.stride,
                }
            )
        return rows

    def add_result(self, call: Call, used: set[int], one: RowView) -> bool:
        """Adds the array to a call, if it is the first there; says whether it is."""
        if one.array in used:
            return False
        used.add(one.array)
        if one.array in self._whole:
            call.update(self._whole[one.array])
        else:
            call.result((one.size,), one.dtype)
        return True

    def keep(self, one: RowView, array: jax.Array) -> None:
        """Keeps the array that a call returned."""
        self._whole[one.array] = array

    def whole(self, one: RowView) -> jax.Array:
        """The array after all calls."""
        return self._whole[one.array]


Inputs = Sequence[tuple[FeatureLayout, FeatureInput]]
Outputs = list[dict[str, jax.Array]]  # of each feature
States = Mapping[str, TableState]


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


def take_whole(outputs: Outputs, views: RowViews, arrays: RowBuffers) -> None:
    """Sets the rows of features that share arrays, as they are after all calls."""
    for output, where in zip(outputs, views, strict=True):
        if where is not None:
            output["rows"] = arrays.whole(where)


def copied_batch(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
) -> list[tuple[FeatureLayout, FeatureInput]]:
    """Copies the ids of features on a GPU, where a table has a tier.

    XLA replays recorded calls there, and records one again where a buffer has another
    address than in the step before. Tables are donated and keep theirs, but a batch is
    new in each step. A call about tiered tables has up to 200 buffers, so recording it
    takes the host longer than the copy takes the device.
    """
    tiered = [table for table in tables if table.tier is not None]
    if not tiered:
        return list(inputs)
    lookups = (0, code("counters", "lookups"), 1)
    # The highest bit of a 64-bit count: 0, but XLA does not know that, so it copies.
    nothing = states[tiered[0].state_name].counters[lookups] >> 31

    def copied(feature_input: FeatureInput) -> FeatureInput:
        given = feature_input.given
        return dataclasses.replace(
            feature_input,
            ids=_copied(feature_input.ids, nothing),
            given=None if given is None else _copied(given, nothing),
        )

    return [(layout, copied(feature_input)) for layout, feature_input in inputs]


def _copied(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(ids, nothing, cuda=_copy, default=_as_it_is)


def _copy(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    return ids ^ nothing.astype(ids.dtype)


def _as_it_is(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    del nothing
    return ids
