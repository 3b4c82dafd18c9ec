# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table that is read chunk by chunk, wherever it lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from jax_dynemb._src.rows.exported import Exported
from jax_dynemb._src.rows.identity import Identity
from jax_dynemb._src.rows.schema import Schema

# Ids without a row int64[m] and how often they have occurred, int64[m].
AdmissionCounts = Callable[[], tuple[np.ndarray, np.ndarray]]
# Of files that keep counts by id.
SKETCH_HAS_NO_IDS = (
    "ids without a row are counted in a sketch, which has no ids: their counts are not "
    "in the files."
)


def _not_encoded(_: str) -> None:
    """Says that a source holds rows of no format of files."""


@dataclasses.dataclass(frozen=True)
class StoredTable:
    """Streams the rows of one table.

    Attributes:
      counters: of the table, by name; empty if the source has none.
      chunks: starts to read; every key comes once.
      index: starts to read keys int64[n] and scores uint64[n] only.
      admission_counts: reads ids without a row, and their counts; None where the
        source does not know them.
      sketch: reads what counts them without their ids, uint32[num_buckets, words], by
        the hash of the schema and in its "counter_bits"; None without one.
      head: of the log of removed keys, see ``Tables.take_removed``; None without one.
      identity: of the table and its moment; None where the source has none.
      encoded: starts to read "keys" int64[n], "rows" and "scales" of a row format as
        files hold them; returns None where the source has another format.
    """

    schema: Schema
    rows: int
    counters: Mapping[str, int]
    chunks: Callable[[], Iterator[Exported]]
    index: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
    head: tuple[int, ...] | None = None
    identity: Identity | None = None
    admission_counts: AdmissionCounts | None = None
    sketch: Callable[[], np.ndarray] | None = None
    encoded: Callable[[str], Iterator[dict[str, np.ndarray]] | None] = _not_encoded
