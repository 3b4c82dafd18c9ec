# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of a running program that are filled again: cleared rows, set counters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.engines.shard import EVENTS, counter_values
from jax_dynemb.ops import (
    TableState,
    extended_numbers,
    is_shared,
    new_run,
    on_host,
)
from jax_dynemb.table import Tables


def clear_table(coll: Tables, name: str, state: TableState) -> TableState:
    """Removes all rows of a table, in the same memory; ``state`` is donated.

    Rows of another run follow, so the clock starts again and takes theirs. Their
    lineage is not known here, so the table begins one of its own.
    """
    places = jax.tree.map(lambda array: array.sharding, state)
    clear = jax.jit(
        _cleared, static_argnums=(0, 1), donate_argnums=2, out_shardings=places
    )
    rows = coll.engine.counter_rows(name)
    lineage = extended_numbers({}, new_run(is_shared(state.counters)))
    return set_counters(clear(coll, name, state), {"clock": 0} | lineage, rows)


def _cleared(coll: Tables, name: str, state: TableState) -> TableState:
    arrays = coll.state_name(name)
    return coll.engine.clear({arrays: state}, (name,))[arrays]


def set_counters(
    state: TableState, numbers: Mapping[str, int], rows: slice = slice(None)
) -> TableState:
    """Writes some counters of a table, by name; ``rows`` of the array are its own."""
    current = counter_values(state, rows)
    names = _ffi.constants()["counters"]
    words = np.array(on_host(state.counters))
    whole = words.view(np.uint64)[..., 0][rows]
    for name, number in numbers.items():
        if name not in current:
            continue  # of a program that counted something else
        column = names.index(name)
        whole[:, column] = 0 if name in EVENTS else np.uint64(number)
        whole[0, column] = np.uint64(number)
    counters = jax.make_array_from_callback(
        words.shape, state.counters.sharding, words.__getitem__
    )
    return dataclasses.replace(state, counters=counters)
