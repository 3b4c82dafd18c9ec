# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of a running program that are filled again: their rows are cleared."""

from __future__ import annotations

import jax

from jax_dynemb._src.engines.shard import set_counters
from jax_dynemb._src.ops import TableState, extended_numbers, is_shared, new_run
from jax_dynemb._src.table import Tables


def clear_table(coll: Tables, name: str, state: TableState) -> TableState:
    """Removes all rows of a table, in the same memory; ``state`` is donated.

    Rows of another run follow, so the clock and the lineage start again.
    """
    places = jax.tree.map(lambda array: array.sharding, state)
    clear = jax.jit(
        _cleared, static_argnums=(0, 1), donate_argnums=2, out_shardings=places
    )
    rows = coll.hash_engine.counter_rows(name)
    lineage = extended_numbers({}, new_run(is_shared(state.counters)))
    return set_counters(clear(coll, name, state), {"clock": 0} | lineage, rows)


def _cleared(coll: Tables, name: str, state: TableState) -> TableState:
    arrays = coll.state_name(name)
    return coll.engine.clear({arrays: state}, (name,))[arrays]
