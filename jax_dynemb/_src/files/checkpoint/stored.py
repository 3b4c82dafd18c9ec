# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of a checkpoint row by row, without the model they belong to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines.hash import join_columns
from jax_dynemb._src.engines.shard import counter_values, set_counters
from jax_dynemb._src.files.checkpoint.arrays import StoredArray
from jax_dynemb._src.files.checkpoint.checksums import of_checkpoint
from jax_dynemb._src.files.checkpoint.fields import read_fields
from jax_dynemb._src.files.checkpoint.index import (
    Slots,
    bucket_words,
    layout_of,
    split_index,
)
from jax_dynemb._src.files.checkpoint.layout import ITEM, SCHEMA_FILE, Directory
from jax_dynemb._src.files.checkpoint.tree import Path as TreePath
from jax_dynemb._src.files.checkpoint.tree import TableNode
from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.files.live import clear_table, warn_of_loss
from jax_dynemb._src.ops import (
    TableState,
    empty_state,
    extended_numbers,
    states_of_rows,
    with_homes,
)
from jax_dynemb._src.rows import (
    PIN,
    Exported,
    Identity,
    Schema,
    StoredTable,
    counts_of,
    keep_best,
    keep_best_elsewhere,
)
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.store_tier import StoreTier
from jax_dynemb._src.table import insert_chunks

_CHUNK_BYTES = 1 << 26
# What a table filled again takes over; rows are counted as they are stored.
_SINCE_THE_START = ("hits", "misses", "not_admitted", "erased", "removed_by_rule")
_CARRIED = ("seed", "step", "inserted", "refused", "lost_updates", "lookups")


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint: the directory of its step, and the JSON beside its arrays."""

    folder: Path
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Directory) -> Saved:
        """Reads and checks the JSON."""
        return cls(Path(folder), read_fields(Path(folder)))

    @functools.cached_property
    def schemas(self) -> dict[TreePath, Schema]:
        """Reads what the JSON says of each table, by path."""
        tables = self.fields["tables"].items()
        return {tuple(path.split("/")): Schema.from_json(x) for path, x in tables}

    def table(self, at: TreePath) -> StoredTable:
        """Opens a table; DamagedFileError if its arrays are not what it says."""
        schema = self.schemas[at]
        path = "/".join([*at[:-1], schema.arrays or at[-1]])
        arrays = _Arrays(self.folder, path, schema, layout_of(self.fields))
        words = arrays.counters()
        counters = counter_values_of(words)
        exact = schema.config.get("counter") == "exact"
        counts = f"{path}/sketch" in self.fields["leaves"]  # of ids without a row
        return StoredTable(
            schema=schema,
            rows=counters["rows"],
            counters=counters,
            chunks=functools.partial(_chunks, arrays),
            index=functools.partial(_keys_and_scores, arrays),
            identity=Identity.of(words),
            admission_counts=(lambda: counts_of(arrays.counter()))
            if counts and exact
            else None,
            sketch=arrays.counter if counts and not exact else None,
        )


def open_tables(folder: Directory) -> dict[str, StoredTable]:
    """Opens the tables of one checkpoint, the directory of a step, by path."""
    saved = Saved.read(folder)
    return {"/".join(at): saved.table(at) for at in saved.schemas}


class _Arrays:
    """The arrays of a table, and which parts of them are its own."""

    def __init__(
        self, folder: Path, path: str, schema: Schema, layout: Mapping[str, int]
    ):
        self._source = folder / ITEM / SCHEMA_FILE
        self._folder, self._path = folder, path
        self.schema, self.layout = schema, layout
        self.room = layout["bucket_capacity"]
        self.index = StoredArray(folder, f"{path}/index")
        self.index.expect("uint32", None, bucket_words(layout, schema.score_strategy))
        slots = self.index.shape[0] * self.room
        self.values = StoredArray(folder, f"{path}/values")
        width = schema.dim // schema.column_parts
        self.values.expect(schema.param_dtype, slots, width)
        self.states: dict[str, StoredArray] = {}
        for name, shape in schema.states.items():
            self.states[name] = StoredArray(folder, f"{path}/optimizer/{name}")
            axes = (size // schema.column_parts for size in shape)
            found = self.states[name].dtype
            allowed = ("bfloat16", "float32") if shape else ("int32", "float32")
            dtype = next((d for d in allowed if found == jnp.dtype(d)), "float32")
            self.states[name].expect(dtype, slots, *axes)
        self._counters = StoredArray(folder, f"{path}/counters")
        self._counters.expect("uint32", None, None, 2)
        # The buckets at which the table begins, or each of its parts.
        first = schema.first_bucket + schema.place * schema.num_buckets
        self.begins = [
            first + part * schema.num_buckets for part in range(schema.column_parts)
        ]
        if self.begins[-1] + schema.num_buckets > self.index.shape[0]:
            self._fail("its buckets end beyond the index")

    def counter(self) -> np.ndarray:
        """uint32[num_buckets, words] of the table."""
        sketch = StoredArray(self._folder, f"{self._path}/sketch")
        sketch.expect("uint32", self.index.shape[0], None)
        if sketch.shape[1] % self.layout["bucket_words"] and (
            self.schema.config.get("counter") == "exact"
        ):
            self._fail("its counter has no whole number of buckets")
        return sketch.read(self.begins[0], self.begins[0] + self.schema.num_buckets)()

    def slots(self, index: np.ndarray) -> Slots:
        """Reads some buckets of the index."""
        return split_index(index, self.layout, self.schema.score_strategy, self._clock)

    @functools.cached_property
    def _clock(self) -> int:
        return counter_values_of(self.counters())["clock"]

    def counters(self) -> np.ndarray:
        """uint32[rows, counters, 2] of the table."""
        schema = self.schema
        rows = self._counters.shape[0] // (schema.places * schema.column_parts)
        first = rows * schema.place
        if schema.arrays and schema.places == 1:
            rows, first = schema.counter_rows, schema.first_row
        if not 0 < first + rows <= self._counters.shape[0]:
            self._fail("its counters end beyond the array")
        return self._counters.read(first, first + rows)()

    def _fail(self, problem: str) -> None:
        with of_checkpoint():
            raise DamagedFileError(self._source, f"'{self.schema.name}': {problem}")


def counter_values_of(words: np.ndarray) -> dict[str, int]:
    """The counters of a stored table; names that it did not have yet are left out."""
    names = _ffi.constants()["counters"][: words.shape[1]]
    padded = np.zeros((words.shape[0], len(_ffi.constants()["counters"]), 2), np.uint32)
    padded[:, : words.shape[1]] = words[:, : len(names)]
    alone = jnp.asarray(padded)
    values = counter_values(TableState(alone, alone, {}, counters=alone))
    return {name: values[name] for name in names}


def _chunks(table: _Arrays) -> Iterator[Exported]:
    room, schema = table.room, table.schema
    arrays = {"values": table.values, **table.states}

    def read(first: int, last: int) -> Exported:
        waiting = {
            name: each.read(first * room, last * room) for name, each in arrays.items()
        }
        index = table.index.read(first, last)()
        slots = table.slots(index)
        live = slots.live
        parts = {name: wait()[live] for name, wait in waiting.items()}
        return Exported(
            keys=slots.keys[live],
            rows=parts.pop("values"),
            scores=slots.scores[live],
            pinned=slots.pinned[live],
            clocks=None if slots.clocks is None else slots.clocks[live],
            optimizer_state=states_of_rows(schema.initial, parts),
        )

    for first, last in _ranges(table, schema.row_bytes * room, *arrays.values()):
        pieces = [read(begin + first, begin + last) for begin in table.begins]
        yield pieces[0] if len(pieces) == 1 else join_columns(pieces)


def _keys_and_scores(table: _Arrays) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    begin = table.begins[0]
    for first, last in _ranges(table, 4 * table.index.shape[1]):
        some = table.index.read(begin + first, begin + last)()
        slots = table.slots(some)
        scores = slots.scores | np.where(slots.pinned, PIN, np.uint64(0))
        yield slots.keys[slots.live], scores[slots.live]


def _ranges(
    table: _Arrays, bucket_bytes: int, *arrays: StoredArray
) -> Iterator[tuple[int, int]]:
    """Ranges of buckets: whole pieces of the largest files, so none is read twice."""
    piece = max(1, *(array.chunk_rows // table.room for array in arrays), 1)
    buckets = piece * max(1, _CHUNK_BYTES // bucket_bytes // piece)
    count = table.schema.num_buckets
    for first in range(0, count, buckets):
        yield first, min(count, first + buckets)


def state_of(node: TableNode, leaves: Collection[Any]) -> TableState:
    """A table to fill, from the leaves that the user's tree has of it."""
    given = arrays_of(node, leaves)
    if all(isinstance(leaf, jax.Array) for leaf in leaves):
        return clear_table(node.coll, node.name, given)
    return node.coll.engine.empty(node.name, given)


def arrays_of(node: TableNode, leaves: Collection[Any]) -> TableState:
    """Joins the leaves that a tree has of a table's arrays."""
    table = TableSpec.of(node.config)

    def make_one(seed: jax.Array, run: jax.Array) -> TableState:
        state = with_homes(table, empty_state(table, seed, run))
        return dataclasses.replace(state, name=node.coll.state_name(node.name))

    nothing = jnp.zeros(2, jnp.uint32), jnp.zeros((3, 2), jnp.uint32)
    abstract = jax.eval_shape(make_one, *nothing)
    return jax.tree.unflatten(jax.tree.structure(abstract), leaves)


def fill(
    node: TableNode,
    state: TableState,
    stored: StoredTable,
    fresh: set[str],
    drawn: np.ndarray,
) -> tuple[TableState, list[str]]:
    """Inserts the rows of a stored table; says how many found no place.

    ``fresh`` is what does not come from there, see ``Plan``; ``drawn`` is of
    ``new_run``.
    """
    chunks, now = stored.chunks(), node.config
    if now.hash_seed != stored.schema.hash_seed:
        chunks = keep_best_elsewhere(chunks, stored.index(), now)
    elif now.num_buckets < stored.schema.num_buckets:
        chunks = keep_best(chunks, now)
    state = insert_chunks(
        node.coll,
        node.name,
        state,
        chunks,
        optimizer="optimizer" not in fresh,
        scores="scores" not in fresh,
    )
    carried = {name: stored.counters[name] for name in _CARRIED}
    carried |= _since_the_start(stored) | extended_numbers(stored.counters, drawn)
    if "optimizer" in fresh:
        carried["step"] = 0  # Adam's bias correction counts from here
    coll, name = node.coll, node.name
    arrays = {coll.state_name(name): state}
    left = (
        stored.rows
        - counter_values(coll.hash_engine.with_own_counters(arrays, name))["rows"]
    )
    carried["evicted"] = stored.counters["evicted"] + left
    if "scores" not in fresh:
        carried["clock"] = stored.counters["clock"]
    padding = _padding_rows(stored, now.padding_id) if left else 0
    notes = [
        f"Table '{node.name}': the row of id {now.padding_id} was left out, because "
        "that id is padding now."
    ][:padding]
    left = max(0, left - padding)
    if left and not isinstance(now.tier, StoreTier):  # which takes the others
        notes += warn_of_loss(
            f"Table '{node.name}': {left} of {stored.rows} rows found no place in "
            "their bucket, those with the lowest scores. To keep them, restore without "
            "allow_drop=True."
        )
    return set_counters(state, carried, coll.hash_engine.counter_rows(name)), notes


def _padding_rows(stored: StoredTable, padding: int | None) -> int:
    """Counts stored rows with the id ``padding``, which the table drops: 0 or 1."""
    if padding is None:
        return 0
    return sum(int(np.sum(keys == padding)) for keys, _ in stored.index())


def _since_the_start(stored: StoredTable) -> dict[str, int]:
    """Counters that older files lack; what they say of erased rows is the rest."""
    counters = stored.counters
    result = {name: counters.get(name, 0) for name in _SINCE_THE_START}
    if "erased" not in counters:
        rest = counters["inserted"] - counters["evicted"] - stored.rows
        result["erased"] = max(0, rest)
    return result
