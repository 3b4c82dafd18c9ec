# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The features of a call: what a kernel knows of them, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax

from jax_dynemb._src.ffi import code
from jax_dynemb._src.ops.layout import FeatureInput, FeatureLayout
from jax_dynemb._src.ops.row_views import RowBuffers, RowViews
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

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
