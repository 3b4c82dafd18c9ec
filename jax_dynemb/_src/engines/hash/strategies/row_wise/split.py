# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Splits features of split tables by what travels: rows, or sums of bags."""

from __future__ import annotations

from collections.abc import Sequence

from jax_dynemb._src.engines.hash.exchange import (
    DeviceBatch,
    Input,
    PooledBatch,
    cost_of,
    make_batch,
    make_pooled_batch,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.spec import TableSpec


def split_batch(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> tuple[DeviceBatch | None, PooledBatch]:
    """Splits the features of a call: rows of some travel, sums of the others.

    Args:
      placement: of the collection.
      tables: row-wise ones, as a shard sees them.
      inputs: their features on this device.
    """
    rows = with_rows(placement, tables, inputs)
    sums = [t for t in tables if t not in rows]
    layouts = [layout for layout, _ in inputs]
    by_feature = {layout.feature: feature_input for layout, feature_input in inputs}
    bags = make_pooled_batch(placement, sums, layouts, by_feature)
    return make_batch(placement, rows, inputs) if rows else None, bags


def with_rows(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> list[TableSpec]:
    """Lists the tables of which rows travel; see ``split_batch``."""
    layouts = [layout for layout, _ in inputs]
    # Numbers of ids travel with distinct ids.
    with_uses = {
        layout.table
        for layout, feature_input in inputs
        if feature_input.uses is not None
    }

    def rows_travel(table: TableSpec) -> bool:
        mine = [layout for layout in layouts if layout.table == table.name]
        stack = placement.stack(table.name)
        cheaper = cost_of(placement, stack, table, mine)[0] == "rows"
        return cheaper or table.name in with_uses

    return [t for t in tables if rows_travel(t)]
