# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The slots of ids whose rows an operation marks."""

from __future__ import annotations

import jax

from jax_dynemb._src import ops
from jax_dynemb._src.ops import FeatureInput, TableState, one_row_each
from jax_dynemb._src.spec import TableSpec


def stored_slots(
    table: TableSpec, state: TableState, ids: jax.Array
) -> tuple[jax.Array, TableState]:
    """Finds rows, and changes nothing.

    Args:
      table: its spec.
      state: its arrays, of one shard.
      ids: flat.

    Returns:
      int32[n] slots, below 0 where there is no row; and the state to go on with.
    """
    layout = one_row_each(table.name, table.name, ids.shape[0], "no_rows")
    inputs = [(layout, FeatureInput(ids, None, None))]
    (output,), new = ops.find([table], {table.state_name: state}, inputs)
    return output["slots"], new[table.state_name]
