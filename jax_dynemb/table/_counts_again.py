# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes counts of ids without a row, which files or other tables have kept."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np

from jax_dynemb.admission import Frequency
from jax_dynemb.engines.shard import counter_values
from jax_dynemb.ops import TableState, on_host
from jax_dynemb.rows import counter_of, resized_sketch

if TYPE_CHECKING:
    from jax_dynemb.table._tables import Tables


def with_counts(
    coll: Tables, name: str, state: TableState, keys: np.ndarray, counts: np.ndarray
) -> tuple[TableState, tuple[str, ...]]:
    """Replaces the counts of a table by those of keys.

    Args:
      coll: has the table.
      name: of the table.
      state: the arrays that the table is in.
      keys: int64[n], distinct.
      counts: int64[n].

    Returns:
      The arrays, and a sentence for what was not kept.
    """
    config = coll.tables[name]
    if len(keys) == 0 or not isinstance(config.admission, Frequency):
        return state, ()
    arrays = {coll.state_name(name): state}
    lookups = counter_values(coll.hash_engine.counted(arrays, name))["lookups"]
    counter, lost = counter_of(config, keys, counts, lookups)
    new = _write(coll, name, state, counter)
    if lost == 0:
        return new, ()
    return new, (
        f"{lost} of {len(keys)} counted ids found no room in the counter, those with "
        "the lowest counts. Give jde.admission.Exact a larger capacity.",
    )


def with_sketch(
    coll: Tables, name: str, state: TableState, sketch: np.ndarray, bits: int
) -> TableState | None:
    """Replaces the sketch of a table by that of another size, see ``resized_sketch``.

    Args:
      coll: has the table.
      name: of the table.
      state: the arrays that the table is in.
      sketch: uint32[buckets, words], of a table with the same hash.
      bits: of its counters.

    Returns:
      The arrays; None if the sizes do not fit.
    """
    resized = resized_sketch(sketch, bits, coll.tables[name])
    return None if resized is None else _write(coll, name, state, resized)


def _write(
    coll: Tables, name: str, state: TableState, counter: np.ndarray
) -> TableState:
    """Writes the counter of a table into its part of the arrays."""
    assert state.sketch is not None  # the config has a rule
    extent, buckets = coll.engine.extent(name), len(counter)
    first = extent.get("first_bucket", 0) + extent.get("place", 0) * buckets
    whole = np.array(on_host(state.sketch))
    for part in range(extent.get("column_parts", 1)):
        begin = first + part * buckets
        whole[begin : begin + buckets] = counter
    sketch = jax.make_array_from_callback(
        whole.shape, state.sketch.sharding, whole.__getitem__
    )
    return dataclasses.replace(state, sketch=sketch)
