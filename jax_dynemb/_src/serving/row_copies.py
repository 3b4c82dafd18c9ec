# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says which rows a segment copies on each device, ahead of the call that starts it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import (
    ChangedRows,
    CopiedTable,
    copy_changed_rows,
    words_of,
)
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.table import Tables, abstract


class ShardTypes(NamedTuple):
    """Holds what compiles the copies of a shard: its spec, and types of its arrays."""

    name: str
    place: int
    table: TableSpec
    types: Any
    device: Any


@dataclasses.dataclass(frozen=True)
class DeviceCopies:
    """Says what one program copies out of the shards on a device.

    Attributes:
      shards: of the device.
      tables: which rows of each in which form.
      since: uint32[n, 2] on the device, the clocks behind which rows have changed. The
        caller of a step would wait 0.15 ms for a copy of it from the host (H200).
    """

    shards: tuple[ShardTypes, ...]
    tables: tuple[CopiedTable, ...]
    since: jax.Array

    def start(self, states: Mapping[str, list[TableState]]) -> list[ChangedRows]:
        """Starts the copies; the next step may donate the states."""
        used = tuple(states[each.name][each.place] for each in self.shards)
        return copy_changed_rows(self.tables, used, self.since)

    def prepare(self) -> None:
        """Compiles ``start``."""
        types = tuple(each.types for each in self.shards)
        copy_changed_rows.prepare(self.tables, types, self.since)


def shard_types(coll: Tables, state: States) -> list[ShardTypes]:
    """Lists the shards of all tables with rows, as they lie on this process."""
    return [
        ShardTypes(
            name,
            place,
            table,
            abstract(shard),
            next(iter(shard.counters.devices())),
        )
        for name in coll.engine.catalog.dynamic
        for place, (table, shard) in enumerate(coll.hash_engine.shards(state, name))
    ]


def copies_of(
    shards: list[ShardTypes],
    clocks: Mapping[str, int],
    rooms: Mapping[str, int],
    dtypes: Mapping[str, str],
) -> list[DeviceCopies]:
    """Makes the copies of the next segment, of which each device runs one program.

    Args:
      shards: all of this process.
      clocks: by table, that of the first lookup whose rows count.
      rooms: by table, rows of the buffers of each shard.
      dtypes: by table, of the copies.
    """
    by_device: dict[Any, list[ShardTypes]] = {}
    for each in shards:
        by_device.setdefault(each.device, []).append(each)
    return [
        DeviceCopies(
            tuple(own),
            tuple(
                CopiedTable.of(each.table, rooms[each.name], dtypes[each.name])
                for each in own
            ),
            jax.device_put(words_of([clocks[each.name] for each in own]), device),
        )
        for device, own in by_device.items()
    ]


def started(
    copies: list[DeviceCopies], states: Mapping[str, list[TableState]]
) -> dict[str, list[ChangedRows]]:
    """Starts all copies; returns what each shard of each table will have."""
    found: dict[str, list[Any]] = {
        name: [None] * len(shards) for name, shards in states.items()
    }
    for each in copies:
        for shard, rows in zip(each.shards, each.start(states), strict=True):
            found[shard.name][shard.place] = rows
    return found
