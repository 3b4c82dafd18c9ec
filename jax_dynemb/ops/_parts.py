# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Calls with more tables or features than a kernel takes: several calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb._spec import TableSpec

Places = list[int]


def parts(
    tables: Sequence[TableSpec],
    table_of: Sequence[str],
    wave_of: Mapping[str, int] | None = None,
) -> Iterator[tuple[Places, Places]]:
    """Cuts a call into calls of one wave and no more than the largest size.

    Nearly always it is one. The features of a table stay together: its update is one.

    Args:
      tables: of the whole call, those of a wave side by side.
      table_of: for each feature of it, the name of its table.
      wave_of: by table; see ``SharedRows``.

    Yields:
      Places of some tables, and of their features, each in the order given.

    Raises:
      ValueError: one table has too many features.
    """
    limits = _ffi.constants()
    places: dict[str, Places] = {table.name: [] for table in tables}
    for place, name in enumerate(table_of):
        places[name].append(place)
    some: Places = []
    features: Places = []
    for place, table in enumerate(tables):
        own = places[table.name]
        if len(own) > limits["max_features"]:
            raise ValueError(
                f"Table '{table.name}': {len(own)} features in one call, where "
                f"{limits['max_features']} are the most. Concatenate the ids of "
                "features that share the table, or look them up in two calls."
            )
        full = len(some) == limits["max_tables"]
        if some and wave_of:
            full |= wave_of.get(table.name) != wave_of.get(tables[some[-1]].name)
        if full or len(features) + len(own) > limits["max_features"]:
            yield some, sorted(features)
            some, features = [], []
        some.append(place)
        features += own
    yield some, sorted(features)


def rows_of(per_table: jax.Array, some: Places) -> jax.Array:
    """Selects the rows of an array [tables, ...] that belong to a call."""
    if len(some) == per_table.shape[0]:
        return per_table
    return per_table[np.array(some, int)]
