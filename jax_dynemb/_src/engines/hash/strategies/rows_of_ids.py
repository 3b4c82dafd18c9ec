# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of ids that arrive from other devices: slots found again, no bags."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from jax_dynemb._src import ops
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    RowView,
    TableState,
    one_row_each,
)
from jax_dynemb._src.spec import TableSpec


def slots_of(
    table: TableSpec, states: Mapping[str, TableState], ids: jax.Array
) -> tuple[jax.Array, dict[str, TableState]]:
    """Finds the slots of ids, negative where an id is not stored."""
    layout = one_row_each(table.name, table.name, ids.shape[0])
    inputs = [(layout, FeatureInput(ids, None, None))]
    (output,), new = ops.find([table], states, inputs)
    return output["slots"], dict(states) | new


def of_rows(
    table: TableSpec,
    ids: jax.Array,
    slots: jax.Array,
    gradients: jax.Array,
    view: RowView | None = None,
) -> FeatureGradient:
    """Makes the gradients of a table whose every id has a row of its own."""
    layout = one_row_each(table.name, table.name, ids.shape[0])
    return FeatureGradient(layout, gradients, ids, slots, None, None, None, view)
