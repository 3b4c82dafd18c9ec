# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies what a publisher needs of a state: small arrays, changed rows, dense ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import (
    ChangedRows,
    HostRows,
    copied,
    copy_changed_rows,
    counter_values,
    next_score,
    to_host,
)
from jax_dynemb._src.files.integrity import train_path
from jax_dynemb._src.ops import settled, start_to_host
from jax_dynemb._src.row_formats import LARGEST_CODES, scaled_codes
from jax_dynemb._src.rows import check_ancestor
from jax_dynemb._src.table import (
    Mark,
    Tables,
    identity_in,
    log_head,
    read_log_since,
)
from jax_dynemb._src.tt import to_torch


@dataclasses.dataclass(frozen=True)
class Captured:
    """Holds copies that the device makes behind the steps that run there.

    Attributes:
      step: what the caller says of the moment.
      time: seconds since 1970.
      counters: the counters and logs of removed keys of all tables, by arrays; a state
        without rows.
      changed: by table, the changed rows of each shard.
      dense: arrays by path, of the same moment.
      own: by table, which shards' logs of removed keys are of this process.
    """

    step: int
    time: float
    counters: States
    changed: Mapping[str, list[ChangedRows]]
    dense: Mapping[str, Any]
    own: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def own_counter_rows(coll: Tables, state: States, name: str) -> np.ndarray:
    """bool[n]: which rows of the counters of a table lie on this process."""
    counters = state[coll.state_name(name)].counters
    own = np.zeros(counters.shape[0], bool)
    for each in counters.addressable_shards:
        if each.replica_id == 0:
            own[each.index[0]] = True
    return own[coll.hash_engine.stack_of(name).first_counter_rows(name)]


def capture(
    coll: Tables,
    state: States,
    marks: Mapping[str, Mark],
    capacities: Mapping[str, int],
    dtype: str,
    step: int,
    dense: Any,
) -> Captured:
    """Starts all copies of a segment; waits for nothing.

    Args:
      coll: the tables.
      state: their state, which the next step may donate.
      marks: by table, where the segment before ended.
      capacities: by table, rows of the buffers of each shard.
      dtype: of rows.
      step: of the caller.
      dense: a pytree of arrays, or None.
    """
    changed = {
        name: [
            copy_changed_rows(
                table,
                shard,
                mark.clock,
                capacities[name],
                _copied_as(coll, name, dtype),
            )
            for table, shard in coll.hash_engine.shards(state, name)
        ]
        for name, mark in marks.items()
    }
    small = copied_counters(coll, state)
    own = {name: own_counter_rows(coll, state, name) for name in marks}
    return Captured(
        step, time.time(), small, changed, copied_dense(coll, state, dense), own
    )


def in_columns(coll: Tables, name: str) -> bool:
    """Whether each shard of a table has all keys and some of the columns."""
    return coll.engine.catalog.dynamic[name].sharding == "column_wise"


def _copied_as(coll: Tables, name: str, dtype: str) -> str:
    """Returns the dtype of copies; the scale of a row needs all of its columns."""
    return "float32" if dtype == "int8" and in_columns(coll, name) else dtype


def copied_counters(coll: Tables, state: States) -> States:
    """Copies what says how far tables are; a state that has no rows."""
    arrays = {coll.state_name(name) for name in hash_tables(coll)}
    small = copied(
        {name: (state[name].counters, state[name].removed) for name in arrays}
    )
    # Replicated here, where all processes are at the same call: a thread could not.
    small = jax.tree.map(lambda array: settled(start_to_host(array)), small)
    return {
        name: dataclasses.replace(
            state[name],
            index=None,
            values=None,
            optimizer={},
            extra=(),
            sketch=None,
            tier=None,
            counters=counters,
            removed=removed,
        )
        for name, (counters, removed) in small.items()
    }


def hash_tables(coll: Tables) -> list[str]:
    """Lists the tables that have rows: all but tensor trains."""
    return list(coll.engine.catalog.dynamic)


def copied_dense(coll: Tables, state: States, dense: Any) -> dict[str, Any]:
    """Copies the arrays of a pytree, by path, and tensor trains as PyTorch has them."""
    leaves = jax.tree.leaves_with_path(dense)
    named = {
        jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves
    }
    arrays: dict[str, Any] = dict(copied(named)) if named else {}
    for name in coll.tables.keys() - set(hash_tables(coll)):
        cores = copied(state[name].cores)
        # The numbers beside the cores follow from the config.
        fields = to_torch(coll.tables[name], ())
        fields |= {f"core_{t}": core for t, core in enumerate(cores)}
        arrays |= {train_path(name, field): x for field, x in fields.items()}
    return arrays


@dataclasses.dataclass(frozen=True)
class Changes:
    """Holds what changed in one table, on the host.

    Attributes:
      mark: where it ends.
      rows: of the table, all of them.
      columns: the tensors of a delta; None if nothing changed.
    """

    mark: Mark
    rows: int
    columns: dict[str, np.ndarray] | None


def changes_of(
    coll: Tables, captured: Captured, name: str, since: Mark, dtype: str
) -> Changes | int | None:
    """Waits for the copies of a table and sorts its changes.

    Returns:
      The changes. Or how many rows changed on one shard, if the buffers have fewer.
      Or None where a history begins, or only a snapshot tells what was removed.
    """
    mark = mark_of(coll, captured.counters, name, since)
    if not continues(name, since, mark):
        return None
    removed, _ = read_log_since(
        coll, captured.counters, name, since.head, captured.own[name]
    )
    if removed is None:
        return None
    found = [to_host(each) for each in captured.changed[name]]
    most = max((each.count for each in found), default=0)
    if any(each.count > len(each.keys) for each in found):
        return most
    if in_columns(coll, name):
        found = [_joined_columns(found, dtype)]
    numbers = counter_values(
        coll.hash_engine.with_own_counters(captured.counters, name)
    )
    return Changes(mark, numbers["rows"], _columns(found, removed))


def _joined_columns(pieces: list[HostRows], dtype: str) -> HostRows:
    """Joins rows of which each shard has some columns, in slots of its own."""
    orders = [np.argsort(each.keys) for each in pieces]
    keys = pieces[0].keys[orders[0]]
    for each, order in zip(pieces, orders, strict=True):
        assert np.array_equal(each.keys[order], keys)  # they count alike
    parts = [each.rows[order] for each, order in zip(pieces, orders, strict=True)]
    rows = np.concatenate(parts, axis=1)
    if dtype != "int8":
        return HostRows(keys, rows, None, len(keys))
    codes, scales = scaled_codes(rows, LARGEST_CODES["int8"], np)
    return HostRows(keys, codes, scales, len(keys))


def _columns(
    found: list[HostRows], removed: np.ndarray
) -> dict[str, np.ndarray] | None:
    if not found:  # all shards are of other processes
        return None
    keys = np.concatenate([each.keys for each in found])
    removed = np.setdiff1d(removed, keys, assume_unique=True)  # those that are back
    if not len(keys) and not len(removed):
        return None
    order = np.argsort(keys)
    columns = {"keys": keys[order], "removed": removed}
    if all(each.scales is not None for each in found):
        scales: Any = [each.scales for each in found]
        columns["scales"] = np.concatenate(scales)[order]
    return columns | {"rows": np.concatenate([each.rows for each in found])[order]}


def mark_of(coll: Tables, counted: States, name: str, since: Mark | None) -> Mark:
    """Returns the mark of a moment, behind the one before."""
    own = coll.hash_engine.with_own_counters(counted, name)
    head, identity = log_head(coll, counted, name), identity_in(coll, counted, name)
    return Mark.after(since, name, next_score(own), head, identity)


def continues(name: str, since: Mark, now: Mark) -> bool:
    """Whether a state comes out of what was published."""
    try:
        check_ancestor(now.identity, since.identity, f"Table '{name}': the publication")
    except ValueError:
        return False  # another run, or an older checkpoint
    return since.clock <= now.clock
