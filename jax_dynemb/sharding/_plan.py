# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables lie and what a step moves, by arithmetic on the configs alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.sharding._batch import wire_dtype
from jax_dynemb.sharding._exchange import capacity_of
from jax_dynemb.sharding._placement import Placement


@dataclasses.dataclass(frozen=True)
class TablePlan:
    """One table.

    Attributes:
      table: its name.
      sharding: "row_wise" or "replicated"; "one device" without a mesh.
      devices: that hold a part or a copy.
      rows: slots on each device.
      bytes: of the arrays on each device.
      ids: of a batch on each device, as given to ``plan``.
      id_bytes: that a device hands to the exchange of ids in a step, padding and its
        own part included.
      row_bytes: likewise, in the exchange of rows.
      gradient_bytes: likewise, in that of gradients.
    """

    table: str
    sharding: str
    devices: int
    rows: int
    bytes: int
    ids: int
    id_bytes: int
    row_bytes: int
    gradient_bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What ``Tables.plan`` returns; print it."""

    tables: tuple[TablePlan, ...]

    def __str__(self) -> str:
        """A table in plain text."""
        columns = [field.name for field in dataclasses.fields(TablePlan)]
        rows = [[str(getattr(t, c)) for c in columns] for t in self.tables]
        total = ["total", "", "", ""]
        total += [str(sum(getattr(t, c) for t in self.tables)) for c in columns[4:]]
        lines = [columns, *rows, total]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def make_plan(
    placement: Placement | None,
    tables: Sequence[TableConfig],
    ids: Mapping[str, int],
) -> Plan:
    """See ``Tables.plan``."""
    return Plan(tuple(_plan_of(placement, table, ids) for table in tables))


def _plan_of(
    placement: Placement | None, table: TableConfig, ids: Mapping[str, int]
) -> TablePlan:
    count = sum(ids.get(feature, 0) for feature in table.feature_names)
    local = table if placement is None else placement.local(table)
    id_bytes = row_bytes = gradient_bytes = 0
    shards = 1 if placement is None else placement.shards
    if placement is not None and table.sharding == "row_wise":
        room = shards * capacity_of(count, shards, placement.exchange_factor)
        lfu = table.score_strategy is ScoreStrategy.LFU
        id_bytes = room * (12 if lfu else 8)
        width = _itemsize(wire_dtype(placement, table))
        row_bytes = room * table.dim * width
        width = _itemsize(placement.exchange_dtype or "float32")
        gradient_bytes = room * table.dim * width
    elif placement is not None:
        id_bytes = count * shards * 8
        room = shards * min(count, table.num_slots)
        gradient_bytes = room * (table.dim * 4 + 8)
    return TablePlan(
        table=table.name,
        sharding="one device" if placement is None else table.sharding,
        devices=1 if placement is None else placement.mesh.size,
        rows=local.local_slots,
        bytes=bytes_of(local),
        ids=count,
        id_bytes=id_bytes,
        row_bytes=row_bytes,
        gradient_bytes=gradient_bytes,
    )


def bytes_of(table: TableConfig) -> int:
    """Of the arrays of one shard."""
    widths = [int(np.prod(s.shape, dtype=int)) for s in table.states.values()]
    row = table.dim * _itemsize(table.param_dtype) + 4 * sum(widths)
    index = table.local_buckets * _ffi.constants()["bucket_words"] * 4
    return index + table.local_slots * row


def _itemsize(dtype: str) -> int:
    return 4 if dtype == "float32" else 2
