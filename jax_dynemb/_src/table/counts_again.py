# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of ids without a row: read for files, and written as files have kept them."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.ops import TableState, on_host
from jax_dynemb._src.rows import (
    AdmissionCounts,
    StoredTable,
    counter_of,
    resized_sketch,
)
from jax_dynemb._src.table.declared import Declared

_ZERO = "ids without a row are counted from 0"


def with_counter(
    coll: Declared, name: str, state: TableState, stored: StoredTable
) -> tuple[TableState, tuple[str, ...]]:
    """Goes on with the counts that were saved, in whatever counter a table has.

    Args:
      coll: has the table.
      name: of the table.
      state: the arrays that the table is in; ids without a row were not counted yet.
      stored: the table that was saved.

    Returns:
      The arrays, and a sentence for counts that are not as they were.
    """
    rule, schema = coll.tables[name].admission, stored.schema
    if stored.sketch is None or not isinstance(rule, Frequency):
        return with_counts(coll, name, state, stored.admission_counts)
    if rule.counts_keys:
        return state, (f"it was saved with a sketch, which has no ids: {_ZERO}.",)
    if schema.hash_seed != coll.tables[name].hash_seed:
        return state, (f"its sketch was saved with another hash_seed: {_ZERO}.",)
    bits = int(schema.config.get("counter_bits", rule.counter_bits))
    return _with_sketch(coll, name, state, stored.sketch(), bits)


def with_counts(
    coll: Declared, name: str, state: TableState, counted: AdmissionCounts | None
) -> tuple[TableState, tuple[str, ...]]:
    """Goes on with counts by id, see ``with_counter``.

    Args:
      coll: has the table.
      name: of the table.
      state: the arrays that the table is in.
      counted: ``StoredTable.admission_counts``.

    Returns:
      The arrays, and a sentence for what was not kept.
    """
    config = coll.tables[name]
    if not isinstance(config.admission, Frequency):
        return state, ()  # no rule needs them
    if counted is None:
        return state, (f"it was saved without counts: {_ZERO}.",)
    keys, counts = counted()
    if len(keys) == 0:
        return state, ()
    arrays = {coll.state_name(name): state}
    lookups = counter_values(coll.hash_engine.with_own_counters(arrays, name))[
        "lookups"
    ]
    counter, lost = counter_of(config, keys, counts, lookups)
    new = _write(coll, name, state, counter)
    if lost == 0:
        return new, ()
    return new, (
        f"{lost} of {len(keys)} counted ids found no room in the counter, those with "
        "the lowest counts. Give jde.admission.Exact a larger capacity.",
    )


def _with_sketch(
    coll: Declared, name: str, state: TableState, sketch: np.ndarray, bits: int
) -> tuple[TableState, tuple[str, ...]]:
    """Replaces the sketch of a table by one with the same hash."""
    config = coll.tables[name]
    resized = resized_sketch(sketch, bits, config)
    if resized is None:
        return state, (
            f"its sketch is of {len(sketch)} buckets, and this table has "
            f"{config.num_buckets}: {_ZERO}.",
        )
    new = _write(coll, name, state, resized)
    if np.array_equal(resized, sketch):
        return new, ()
    return new, (
        "its sketch has another size: an id counts as often as before or more often, "
        "so it is admitted early or in time.",
    )


def sketch_of(coll: Declared, name: str, state: TableState) -> np.ndarray:
    """Reads what counts the ids without a row of a table.

    Args:
      coll: has the table.
      name: of the table.
      state: the arrays that the table is in.

    Returns:
      uint32[num_buckets, words].
    """
    assert state.sketch is not None  # the config has a rule
    return on_host(state.sketch)[coll.hash_engine.stack_of(name).buckets_of(name)[0]]


def _write(
    coll: Declared, name: str, state: TableState, counter: np.ndarray
) -> TableState:
    """Writes the counter of a table into its part of the arrays."""
    assert state.sketch is not None  # the config has a rule
    whole = np.array(on_host(state.sketch))
    for buckets in coll.hash_engine.stack_of(name).buckets_of(name):
        whole[buckets] = counter
    sketch = jax.make_array_from_callback(
        whole.shape, state.sketch.sharding, whole.__getitem__
    )
    return dataclasses.replace(state, sketch=sketch)
