# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads rows of GPUs of one host into the places of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src import ffi as _ffi


class PlacedTable(NamedTuple):
    """Says where the rows of a table lie in each part of an array.

    Attributes:
      array: its number.
      begin: where the rows begin in a part, in bytes.
      row_bytes: of one row.
      room: rows.
    """

    array: int
    begin: int
    row_bytes: int
    room: int


class StoredTable(NamedTuple):
    """Says where peers read rows of a table by slot.

    Attributes:
      array: the number of an array of tables.
      first_place: of the table's slots, among those of all tables.
      first_row: in the array.
      rows: of the table.
    """

    array: int
    first_place: int
    first_row: int
    rows: int


class StoredRows(NamedTuple):
    """Lets peers read rows out of the tables; what is sent has those without a slot.

    Attributes:
      arrays: of this device, those that tables have their rows in.
      slots: of the ids that this device received as an owner, table by table. For each
        shard a table has as many as there is room.
      tables: where each one is.
    """

    arrays: Sequence[jax.Array]
    slots: Int32[Array, " places"]
    tables: Sequence[StoredTable]


class Span(NamedTuple):
    """Describes a range of a batch's positions; their rows follow each other.

    Attributes:
      begin: the first one; the next span begins behind the last.
      table: the number of their table.
      result: the number of the result that gets their rows; -1: none does.
      row: the first of them there.
    """

    begin: int
    table: int
    result: int
    row: int


class PlacedIds(NamedTuple):
    """Says which rows the positions of a batch have, as in a ``Route``.

    Attributes:
      order: positions, those of one number side by side.
      number: of each position.
      begin: the first number that each owner has a row of, in place 0.
      end: behind the last one.
    """

    order: Int32[Array, " n"]
    number: Int32[Array, " n"]
    begin: Int32[Array, "tables shards"]
    end: Int32[Array, "tables shards"]


class Placed(NamedTuple):
    """Describes all that is static in an exchange of rows into their places.

    Attributes:
      results: shapes of what arrives, [rows, dim].
      tables: where rows lie in what each device has.
      spans: where they arrive.
    """

    results: Sequence[jax.ShapeDtypeStruct]
    tables: Sequence[PlacedTable]
    spans: Sequence[Span]

    def is_one_call(self, arrays: int, stored: int = 0) -> bool:
        """Whether a call takes them all.

        Args:
          arrays: how many a device has of what it sends.
          stored: and of those of tables.
        """
        most = _ffi.constants()
        return (
            arrays <= most["most_placed_arrays"]
            and stored <= most["most_stored_arrays"]
            and len(self.tables) <= most["most_placed_tables"]
            and len(self.spans) <= most["most_spans"]
        )


def place_rows(
    arrays: Sequence[jax.Array],
    rank: Int32[Array, ""],
    ids: PlacedIds,
    placed: Placed,
    stored: StoredRows | None = None,
    *,
    devices: tuple[int, ...],
) -> tuple[list[jax.Array], jax.Array | None]:
    """Reads the row of each position from its owner, zeros where it has none.

    A row crosses the links about once, however many positions have it.

    Args:
      arrays: of this device as an owner, each of as many equal parts as there are
        shards: what it has for each of them.
      rank: of this device among the shards.
      ids: of the batch of this device.
      placed: where rows lie, and go.
      stored: where those are that ``arrays`` do not have; None: they have all.
      devices: ids of GPUs, groups of shards side by side.

    Returns:
      The results. Then int32[1], known when all tables have been read, or None.
    """
    attributes = {
        "devices": np.array(devices, np.int64),
        "shards": np.int64(ids.begin.shape[1]),
        "tables": np.array(placed.tables, np.int64).reshape(-1),
        "spans": np.array(placed.spans, np.int64).reshape(-1),
    }
    results = list(placed.results)
    if stored is None:
        sent = [*arrays, rank, *ids]
        return _ffi.call("place_rows", results, sent, {}, **attributes), None
    attributes["stored"] = np.array(stored.tables, np.int64).reshape(-1)
    *rows, done = _ffi.call(
        "place_stored_rows",
        [*results, jax.ShapeDtypeStruct((1,), np.int32)],
        [*arrays, *stored.arrays, stored.slots, rank, *ids],
        {},
        **attributes,
    )
    return rows, done
