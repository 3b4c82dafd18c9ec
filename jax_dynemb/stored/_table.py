# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table that is read chunk by chunk, wherever it lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from jax_dynemb.engines import States
from jax_dynemb.engines.shard import counter_values
from jax_dynemb.stored._schema import Schema
from jax_dynemb.table import Exported, Tables


@dataclasses.dataclass(frozen=True)
class StoredTable:
    """The rows of one table.

    Attributes:
      schema: what the rows are.
      rows: how many there are.
      counters: of the table, by name; empty if the source has none.
      chunks: starts to read; every key comes once.
      index: starts to read keys int64[n] and scores uint64[n] only.
    """

    schema: Schema
    rows: int
    counters: Mapping[str, int]
    chunks: Callable[[], Iterator[Exported]]
    index: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


def live_table(coll: Tables, state: States, name: str) -> StoredTable:
    """A table of a running program.

    Raises:
      ValueError: other processes hold a part of it.
    """
    check_whole(coll, state, name)
    counters = counter_values(coll.engine.counted(state, name))
    return StoredTable(
        schema=Schema.of(coll.tables[name], counters["step"]),
        rows=counters["rows"],
        counters=counters,
        chunks=lambda: coll.export(state, name),
        index=lambda: coll.engine.index(state, name),
    )


def check_whole(coll: Tables, state: States, name: str) -> None:
    """Raises unless this process sees the whole table."""
    if not state[coll.state_name(name)].values.is_fully_addressable:
        raise ValueError(
            f"Table '{name}' lies on the devices of several processes, and this one "
            "sees its own rows only. Save a checkpoint with jde.checkpoint.save, and "
            "let one process write the files: python -m jax_dynemb convert CHECKPOINT "
            "OUT --to safetensors (or dynamicemb), or restore it there and export."
        )
