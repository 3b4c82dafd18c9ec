# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a checkpoint row by row, without the model that they belong to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.checkpoint import _layout
from jax_dynemb.checkpoint._index import layout_of, split_index
from jax_dynemb.checkpoint._tree import Place
from jax_dynemb.ops._state import TableState, empty_arrays, empty_state, states_of_rows
from jax_dynemb.sharding._collection import init
from jax_dynemb.stored import (
    Schema,
    StoredTable,
    clear_table,
    keep_best,
    set_counters,
)
from jax_dynemb.table import Exported
from jax_dynemb.table._chunks import insert_chunks
from jax_dynemb.table._columns import join_columns
from jax_dynemb.table._stats import counter_values

_CHUNK_BYTES = 1 << 26
# What a table filled again takes over; rows are counted as they are stored.
_CARRIED = ("seed", "step", "inserted", "refused", "lost_updates", "lookups")


def open_tables(folder: _layout.Directory) -> dict[str, StoredTable]:
    """The tables of one checkpoint, the directory of a step, by path."""
    fields = _layout.read_fields(Path(folder))
    return {path: open_table(Path(folder), fields, path) for path in fields["tables"]}


def open_table(folder: Path, fields: Mapping[str, Any], path: str) -> StoredTable:
    """One table of a checkpoint."""
    schema = Schema.from_json(fields["tables"][path])
    if schema.arrays:
        path = "/".join([*path.split("/")[:-1], schema.arrays])
    words = np.asarray(_layout.open_array(folder, f"{path}/counters").read().result())
    rows = len(words) // (schema.places * schema.column_parts)
    first = rows * schema.place
    if schema.arrays and schema.places == 1:
        rows, first = schema.counter_rows, schema.first_row
    counters = counter_values_of(words[first : first + rows])
    return StoredTable(
        schema=schema,
        rows=counters["rows"],
        counters=counters,
        chunks=functools.partial(_chunks, folder, path, schema, layout_of(fields)),
        index=functools.partial(
            _keys_and_scores, folder, path, schema, layout_of(fields)
        ),
    )


def counter_values_of(words: np.ndarray) -> dict[str, int]:
    """The counters of a stored table; names that it did not have yet are left out."""
    names = _ffi.constants()["counters"][: words.shape[1]]
    padded = np.zeros((words.shape[0], len(_ffi.constants()["counters"]), 2), np.uint32)
    padded[:, : words.shape[1]] = words[:, : len(names)]
    alone = jnp.asarray(padded)
    values = counter_values(TableState(alone, alone, {}, counters=alone))
    return {name: values[name] for name in names}


def _chunks(
    folder: Path, path: str, schema: Schema, layout: Mapping[str, int]
) -> Iterator[Exported]:
    constants = _ffi.constants()
    room = constants["bucket_capacity"]
    index = _layout.open_array(folder, f"{path}/index")
    arrays = {
        name: _layout.open_array(folder, f"{path}/{name}")
        for name in ("values", *(f"optimizer/{state}" for state in schema.states))
    }

    def read(first: int, last: int) -> Exported:
        futures = {
            name: each[first * room : last * room].read()
            for name, each in arrays.items()
        }
        keys, scores = split_index(index[first:last].read().result(), layout)
        live = scores != 0
        parts = {name: future.result()[live] for name, future in futures.items()}
        return Exported(
            keys=keys[live],
            rows=parts["values"],
            scores=scores[live],
            optimizer_state=states_of_rows(
                schema.initial, {s: parts[f"optimizer/{s}"] for s in schema.states}
            ),
        )

    for first, last in _ranges(schema, schema.row_bytes * room, *arrays.values()):
        pieces = [read(begin + first, begin + last) for begin in _begins(schema)]
        yield pieces[0] if len(pieces) == 1 else join_columns(pieces)


def _begins(schema: Schema) -> list[int]:
    """The buckets of the arrays at which the table begins, or each of its parts."""
    first = schema.first_bucket + schema.place * schema.num_buckets
    return [first + part * schema.num_buckets for part in range(schema.column_parts)]


def _keys_and_scores(
    folder: Path, path: str, schema: Schema, layout: Mapping[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    index = _layout.open_array(folder, f"{path}/index")
    begin = _begins(schema)[0]
    for first, last in _ranges(schema, 4 * index.shape[1]):
        some = index[begin + first : begin + last].read().result()
        keys, scores = split_index(some, layout)
        yield keys[scores != 0], scores[scores != 0]


def _ranges(
    schema: Schema, bucket_bytes: int, *arrays: Any
) -> Iterator[tuple[int, int]]:
    """Ranges of buckets: whole pieces of the largest files, so none is read twice."""
    room = _ffi.constants()["bucket_capacity"]
    pieces = [array.chunk_layout.read_chunk.shape[0] // room for array in arrays]
    piece = max(1, *pieces, 1)
    buckets = piece * max(1, _CHUNK_BYTES // bucket_bytes // piece)
    for first in range(0, schema.num_buckets, buckets):
        yield first, min(schema.num_buckets, first + buckets)


def state_of(place: Place, leaves: Sequence[Any]) -> TableState:
    """A table to fill, from the leaves that the user's tree has of it."""
    abstract = jax.eval_shape(functools.partial(empty_state, place.config), _no_seed())
    given = jax.tree.unflatten(jax.tree.structure(abstract), leaves)
    if all(isinstance(leaf, jax.Array) for leaf in leaves):
        return clear_table(place.coll, place.name, given)
    if place.coll.placement is not None:
        name = place.coll.state_name(place.name)
        return init(place.coll, _no_seed(), (name,))[name]
    shardings = jax.tree.map(lambda leaf: leaf.sharding, given)
    some = place.coll.sharing_arrays(place.name)
    make = jax.jit(empty_arrays, static_argnums=0, out_shardings=shardings)
    return make(some, [_no_seed()] * len(some))


def fill(
    place: Place, state: TableState, stored: StoredTable, anew: set[str]
) -> tuple[TableState, list[str]]:
    """Inserts the rows of a stored table; says how many found no place."""
    chunks = stored.chunks()
    if place.config.num_buckets < stored.schema.num_buckets:
        chunks = keep_best(chunks, place.config.num_buckets)
    state = insert_chunks(
        place.coll,
        place.name,
        state,
        chunks,
        optimizer="optimizer" not in anew,
        scores="scores" not in anew,
    )
    carried = {name: stored.counters[name] for name in _CARRIED}
    if "optimizer" in anew:
        carried["step"] = 0  # Adam's bias correction counts from here
    coll, name = place.coll, place.name
    arrays = {coll.state_name(name): state}
    left = stored.rows - counter_values(coll.counted(arrays, name))["rows"]
    carried["evicted"] = stored.counters["evicted"] + left
    if "scores" not in anew:
        carried["clock"] = stored.counters["clock"]
    notes = []
    if left:
        notes.append(
            f"Table '{place.name}': {left} of {stored.rows} rows found no place in "
            "their bucket, those with the lowest scores."
        )
    return set_counters(state, carried, coll.counter_rows(name)), notes


def _no_seed() -> jax.Array:
    return jnp.zeros(2, jnp.uint32)
