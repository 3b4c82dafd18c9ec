# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables lie and what a step moves, by arithmetic on the configs alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._layout import FeatureLayout, one_row_each
from jax_dynemb.sharding._cost import Cost, cost_of, itemsize
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
      exchange: what travels, "rows" or "sums"; empty if nothing does.
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
    exchange: str
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
        total = ["total"]
        for column in columns[1:]:
            cells = [getattr(t, column) for t in self.tables]
            no_sum = column in ("sharding", "devices", "rows", "exchange")
            total.append("" if no_sum else str(sum(cells)))
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
    bags: Mapping[str, int],
) -> Plan:
    """See ``Tables.plan``."""
    return Plan(tuple(_plan_of(placement, table, ids, bags) for table in tables))


def _plan_of(
    placement: Placement | None,
    table: TableConfig,
    ids: Mapping[str, int],
    bags: Mapping[str, int],
) -> TablePlan:
    count = sum(ids.get(feature, 0) for feature in table.feature_names)
    local = table if placement is None else placement.stack_of(table.name).local
    exchange, cost = "", Cost(0, 0, 0)
    if placement is not None and table.sharding == "row_wise" and count > 0:
        layouts = [
            _layout(local, table, feature, ids[feature], bags.get(feature))
            for feature in table.feature_names
            if ids.get(feature)
        ]
        exchange, cost = cost_of(placement, local, layouts)
    elif placement is not None and count > 0:
        room = placement.shards * min(count, table.num_slots)
        ids_everywhere = count * placement.shards * 8
        exchange, cost = "rows", Cost(ids_everywhere, 0, room * (table.dim * 4 + 8))
    return TablePlan(
        table=table.name,
        sharding="one device" if placement is None else table.sharding,
        devices=1 if placement is None else placement.devices,
        rows=local.local_slots,
        bytes=bytes_of(local),
        ids=count,
        exchange=exchange,
        id_bytes=cost.ids,
        row_bytes=cost.rows,
        gradient_bytes=cost.gradients,
    )


def _layout(
    local: TableConfig, table: TableConfig, feature: str, ids: int, bags: int | None
) -> FeatureLayout:
    """Of a feature with so many ids, in bags of equal size if they can be."""
    if table.pooling is None:
        return one_row_each(feature, local.name, ids)
    bags = bags or ids
    size = 0 if ids % bags else ids // bags
    shape = (ids,)
    return FeatureLayout(
        feature, local.name, table.pooling, shape, shape, (bags,), size, False
    )


def bytes_of(table: TableConfig) -> int:
    """Of the arrays of one shard."""
    widths = [int(np.prod(s.shape, dtype=int)) for s in table.states.values()]
    row = table.dim * itemsize(table.param_dtype) + 4 * sum(widths)
    index = table.local_buckets * _ffi.constants()["bucket_words"] * 4
    return index + table.local_slots * row
