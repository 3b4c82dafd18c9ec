# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies what a publisher needs of a state: small arrays, changed rows, dense ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import (
    ChangedRows,
    HostRows,
    copied,
    counter_values,
    next_score,
    to_host,
)
from jax_dynemb._src.files.integrity import train_path
from jax_dynemb._src.ops import on_every_process, settled
from jax_dynemb._src.row_formats import LARGEST_CODES, scaled_codes
from jax_dynemb._src.rows import among, check_ancestor
from jax_dynemb._src.serving.row_copies import (
    DeviceCopies,
    ShardTypes,
    copies_of,
    started,
)
from jax_dynemb._src.table import (
    Mark,
    Tables,
    identity_in,
    log_head,
    read_log_since,
)
from jax_dynemb._src.tt import to_torch

_BLOCK_BYTES = 1 << 22  # of rows that are written at a time
_LEAST_CUT = 1 << 14  # rows: fewer are not worth a program


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
    coll: Tables, state: States, copies: list[DeviceCopies], step: int, dense: Any
) -> Captured:
    """Starts all copies of a segment; waits for nothing.

    Args:
      coll: the tables.
      state: their state, which the next step may donate.
      copies: of the rows that changed.
      step: of the caller.
      dense: a pytree of arrays, or None.
    """
    names = hash_tables(coll)
    shards = {name: coll.hash_engine.shards(state, name) for name in names}
    return Captured(
        step,
        time.time(),
        copied_counters(coll, state),
        started(copies, {n: [arrays for _, arrays in s] for n, s in shards.items()}),
        copied_dense(coll, state, dense),
        {name: own_counter_rows(coll, state, name) for name in names},
    )


def next_copies(
    coll: Tables,
    shards: list[ShardTypes],
    marks: Mapping[str, Mark],
    rooms: Mapping[str, int],
    dtype: str,
) -> list[DeviceCopies]:
    """Makes what copies the rows that change behind marks.

    Args:
      coll: the tables.
      shards: of ``shard_types``.
      marks: by table, where the segment before ended.
      rooms: by table, rows of the buffers of each shard.
      dtype: of published rows.
    """
    clocks = {name: mark.clock for name, mark in marks.items()}
    dtypes = {name: _copied_as(coll, name, dtype) for name in marks}
    return copies_of(shards, clocks, rooms, dtypes)


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
    small = jax.tree.map(lambda array: settled(on_every_process(array)), small)
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
      most: rows that changed on one shard.
      columns: the tensors of a delta but its rows; None if nothing changed.
      stored: the rows in the order of the device.
      order: int64[n], which of them belong to ``columns["keys"]``.
    """

    mark: Mark
    rows: int
    most: int
    columns: dict[str, np.ndarray] | None
    stored: np.ndarray
    order: np.ndarray

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields the rows in the order of their keys.

        Blocks are small, so the memory of one serves the next. A fresh array of all
        rows would take eight times as long, because the system clears its pages.
        """
        size = max(1, _BLOCK_BYTES // max(1, self.stored[:1].nbytes))
        for at in range(0, len(self.order), size):
            yield np.take(self.stored, self.order[at : at + size], axis=0)


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
    counts = [int(np.asarray(each.count)[0]) for each in captured.changed[name]]
    rooms = [len(each.keys) for each in captured.changed[name]]
    if any(count > room for count, room in zip(counts, rooms, strict=True)):
        return max(counts)
    pairs = zip(captured.changed[name], counts, strict=True)
    found = [to_host(_without_most_padding(each, count)) for each, count in pairs]
    if in_columns(coll, name):
        found = [_joined_columns(found, dtype)]
    numbers = counter_values(
        coll.hash_engine.with_own_counters(captured.counters, name)
    )
    return _changes(found, removed, (mark, numbers["rows"], max(counts, default=0)))


def _without_most_padding(changed: ChangedRows, count: int) -> ChangedRows:
    """Cuts buffers to few sizes where the host is not the device."""
    room = len(changed.keys)
    step = max(_LEAST_CUT, room // 8)
    size = -(-max(1, count) // step) * step
    if size >= room or next(iter(changed.keys.devices())).platform == "cpu":
        return changed
    keys, rows, scales = _cut(size, (changed.keys, changed.rows, changed.scales))
    return ChangedRows(keys, rows, scales, changed.count)


@partial(jax.jit, static_argnums=0)
def _cut(size: int, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return jax.tree.map(lambda array: array[:size], arrays)


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


def _changes(
    found: list[HostRows], removed: np.ndarray, said: tuple[Mark, int, int]
) -> Changes:
    if not found:  # all shards are of other processes
        return Changes(*said, None, np.empty((0, 0)), np.empty(0, np.int64))
    keys, rows = _joined([each.keys for each in found], [each.rows for each in found])
    order = np.argsort(keys)
    keys = keys[order]
    removed = removed[~among(removed, keys)]  # without those that are back
    columns = {"keys": keys, "removed": removed}
    if all(each.scales is not None for each in found):
        (scales,) = _joined([each.scales for each in found])
        columns["scales"] = scales[order]
    changed = len(keys) or len(removed)
    return Changes(*said, columns if changed else None, rows, order)


def _joined(*columns: list[Any]) -> list[np.ndarray]:
    """Joins the arrays of shards; that of one is not copied."""
    return [each[0] if len(each) == 1 else np.concatenate(each) for each in columns]


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
