# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Calls with more tables or features than a kernel takes: several calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.spec import TableSpec

Indices = list[int]


def call_batches(
    tables: Sequence[TableSpec],
    table_of: Sequence[str],
    wave_of: Mapping[str, int] | None = None,
    most_tables: int | None = None,
) -> Iterator[tuple[Indices, Indices]]:
    """Cuts a call into calls of one wave and row format, up to the largest size.

    A table's features stay together, and tables that share arrays are neighbours.
    Yields indices of tables and of their features.
    """
    limits = _ffi.constants()
    most_tables = most_tables or limits["max_tables"]
    features_of: dict[str, Indices] = {table.name: [] for table in tables}
    for index, name in enumerate(table_of):
        features_of[name].append(index)
    some: Indices = []
    features: Indices = []
    arrays = [table.state_name for table in tables]
    first = [arrays.index(name) for name in arrays]
    for index in sorted(range(len(tables)), key=first.__getitem__):
        table = tables[index]
        own = features_of[table.name]
        if len(own) > limits["max_features"]:
            raise ValueError(
                f"Table '{table.name}': {len(own)} features in one call, where "
                f"{limits['max_features']} are the most. Concatenate the ids of "
                "features that share the table, or look them up in two calls."
            )
        full = len(some) == most_tables
        if some:
            full |= table.row_format != tables[some[-1]].row_format
        if some and wave_of:
            full |= wave_of.get(table.name) != wave_of.get(tables[some[-1]].name)
        if full or len(features) + len(own) > limits["max_features"]:
            yield some, sorted(features)
            some, features = [], []
        some.append(index)
        features += own
    if some:
        yield some, sorted(features)


def rows_of(per_table: jax.Array, some: Indices) -> jax.Array:
    """Selects the rows of an array [tables, ...] that belong to a call."""
    if some == [*range(per_table.shape[0])]:
        return per_table
    return per_table[np.array(some, int)]
