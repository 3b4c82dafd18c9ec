# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables lie and what a step moves: read from configs, or given by a user."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash.exchange import Cost, cost_of, itemsize
from jax_dynemb._src.engines.hash.layouts import Peers, Placement, Stack
from jax_dynemb._src.ops import KERNEL_POOLINGS, FeatureLayout, one_row_each
from jax_dynemb._src.shardings import stacks_tables
from jax_dynemb._src.shown import Shown
from jax_dynemb._src.spec import TableSpec

ONE_DEVICE = "one device"


@dataclasses.dataclass(frozen=True, repr=False)
class TablePlan(Shown):
    """One table.

    ``Tables(plan=...)`` reads the first three fields; the others are results.

    Attributes:
      table: its name.
      sharding: as in its config; "one device" without a mesh.
      shards: that hold a part or a copy: their numbers along the axis. Given to
        ``Tables``, those of a table-wise table; empty: chosen by cost.
      exchange: what travels, "rows" or "sums" of bags, as far as ``pooling_factors``
        tells; empty if nothing does.
      devices: likewise, with those of the axes that tables are replicated over.
      rows: slots on each of these devices.
      columns: of a row on each of them.
      bytes: of the arrays on each of them.
      ids: of a batch on each device, as given to ``plan``.
      id_bytes: that a device hands to the exchange of ids in a step, padding and its
        own part included.
      row_bytes: likewise, in the exchange of rows.
      gradient_bytes: likewise, in that of gradients.
    """

    table: str
    sharding: str
    shards: tuple[int, ...] = ()
    exchange: str = ""
    devices: int = 0
    rows: int = 0
    columns: int = 0
    bytes: int = 0
    ids: int = 0
    id_bytes: int = 0
    row_bytes: int = 0
    gradient_bytes: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Holds what ``Tables.plan`` returns; ``Tables(plan=...)`` takes it too.

    Attributes:
      tables: one after the other, as they were given.
      bytes_by_shard: of all tables, on a device of each shard; not read as input.
      transport: "peers" where GPUs read each other's memory, or "collectives" and why
        they do not; both where devices belong to several hosts. Not read as input.

    Example:
      >>> plan = jde.Plan((jde.TablePlan("item", "table_wise", shards=(2, 3)),))
    """

    tables: tuple[TablePlan, ...]
    bytes_by_shard: tuple[int, ...] = ()
    transport: str = dataclasses.field(default="", kw_only=True)

    @property
    def shards(self) -> dict[str, tuple[int, ...]]:
        """Returns the shards of each table-wise table that has some."""
        return {
            t.table: t.shards
            for t in self.tables
            if stacks_tables(t.sharding) and t.shards
        }

    def apply(self, configs: Sequence[TableConfig]) -> tuple[TableConfig, ...]:
        """Returns the configs with the shardings of the plan.

        Args:
          configs: tables; those that the plan does not name stay as they are.

        Raises:
          ValueError: the plan names a table twice or one that is not there, or was
            made without a mesh.
        """
        names = [each.table for each in self.tables]
        unknown = sorted(set(names) - {config.name for config in configs})
        if unknown or len(set(names)) < len(names):
            raise ValueError(
                f"The plan has the tables {names}, and the collection has "
                f"{[config.name for config in configs]}: a plan names each table at "
                "most once, and no other."
            )
        if alone := [t.table for t in self.tables if t.sharding == ONE_DEVICE]:
            raise ValueError(
                f"The plan of {alone} was made without a mesh. Make it with "
                "jde.Tables(tables, mesh=...).plan(), or write the sharding into a "
                "jde.TablePlan."
            )
        given = {each.table: each.sharding for each in self.tables}
        return tuple(
            dataclasses.replace(c, sharding=given.get(c.name, c.sharding))
            for c in configs
        )

    def _repr_html_(self) -> str:
        """Shows what ``print`` does, in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        """Prints as a table, the bytes of the fullest device, and the transport."""
        columns = [field.name for field in dataclasses.fields(TablePlan)]
        columns[2], columns[3] = columns[3], columns[2]  # words first, then numbers
        rows = [[self._cell(getattr(t, c)) for c in columns] for t in self.tables]
        sums = {c: str(sum(getattr(t, c) for t in self.tables)) for c in columns[8:]}
        sums |= {"table": "total", "bytes": str(max(self.bytes_by_shard))}
        lines = [columns, *rows, [sums.get(c, "") for c in columns]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        shown = [
            "  ".join(
                cell.ljust(width) if i < 3 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        if self.transport:
            shown.append(f"transport: {self.transport}")
        return "\n".join(shown)

    def _cell(self, value: object) -> str:
        if not isinstance(value, tuple):
            return str(value)
        if len(value) == len(self.bytes_by_shard):
            return "all"
        return str(value[0]) if len(value) == 1 else f"{value[0]}-{value[-1]}"


def make_plan(
    placement: Placement | None,
    tables: Sequence[TableConfig],
    ids: Mapping[str, int],
) -> Plan:
    """See ``Tables.plan``."""
    if placement is None:
        plans = tuple(_alone(table, ids) for table in tables)
        return Plan(plans, (sum(plan.bytes for plan in plans),))
    plans = tuple(_on_mesh(placement, table, ids) for table in tables)
    every = [0] * placement.shards
    for stack in placement.stacks:  # idle blocks have arrays too
        for shard in range(placement.shards):
            every[shard] += bytes_of(stack.local)
    return Plan(plans, tuple(every), transport=_transport_of(placement))


def _transport_of(placement: Placement) -> str:
    """Says how devices exchange, in words."""
    if not placement.has_hosts:
        return _named(placement.peers)
    count, devices, peers = placement.hosts
    within = f"{_named(peers)} between the {devices} devices of a host"
    return f"{within}, then collectives between {count} hosts"


def _named(peers: Peers) -> str:
    return f"collectives ({peers.reason})" if peers.reason else "peers"


def _alone(table: TableConfig, ids: Mapping[str, int]) -> TablePlan:
    count, size = _count(table, ids), bytes_of(TableSpec.of(table))
    where = (ONE_DEVICE, (0,), "", 1, table.num_slots, table.dim)
    return TablePlan(table.name, *where, size, count, 0, 0, 0)


def _on_mesh(
    placement: Placement, table: TableConfig, ids: Mapping[str, int]
) -> TablePlan:
    stack = placement.stack_of(table.name)
    exchange, sent = exchange_of(placement, stack, table, ids)
    if not any(sent):
        exchange = ""
    owners = tuple(stack.owners(table.name))
    return TablePlan(
        table.name,
        table.sharding,
        owners,
        exchange,
        len(owners) * (placement.devices // placement.shards),
        stack.local.local_slots,
        stack.local.dim,
        bytes_of(stack.local),
        _count(table, ids),
        *sent,
    )


def exchange_of(
    placement: Placement, stack: Stack, table: TableConfig, ids: Mapping[str, int]
) -> tuple[str, Cost]:
    """Returns what travels for a table, "rows" or "sums", and how many bytes.

    Args:
      placement: of the collection; its stacks are not read.
      stack: the arrays that hold the table; their idle blocks count as its own.
      table: the table.
      ids: by feature, of a device.
    """
    of_sharding = {
        "row_wise": _split,
        "replicated": _replicated,
        "column_wise": _column_wise,
    }
    return of_sharding[stack.sharding](placement, stack, table, ids)


def _count(table: TableConfig, ids: Mapping[str, int]) -> int:
    return sum(ids.get(feature, 0) for feature in table.feature_names)


def _split(
    placement: Placement, stack: Stack, table: TableConfig, ids: Mapping[str, int]
) -> tuple[str, Cost]:
    """Computes the table's share of the stack's sections."""
    layouts = [
        _layout(stack.local, t, feature, ids[feature], factor)
        for t in stack.tables
        for feature, factor in _factors(t)
        if ids.get(feature)
    ]
    exchange, cost = cost_of(placement, stack, stack.local, layouts)
    blocks = 1
    if table.name == stack.tables[0].name:  # idle blocks are in the section too
        blocks += stack.blocks - len(stack.tables)
    return exchange, Cost(*(n * blocks // stack.blocks for n in cost))


def _replicated(
    _: Placement, stack: Stack, table: TableConfig, ids: Mapping[str, int]
) -> tuple[str, Cost]:
    """Copies look up for themselves; ids go to all of them, and gradients too."""
    count, shards = _count(table, ids), stack.shards
    room = shards * min(count, table.num_slots)
    return "rows", Cost(count * shards * 8, 0, room * (table.dim * 4 + 8))


def _column_wise(
    placement: Placement, stack: Stack, table: TableConfig, ids: Mapping[str, int]
) -> tuple[str, Cost]:
    """Ids go to all shards; a bag's columns come from each of them."""
    bags = sum(ids.get(feature, 0) / factor for feature, factor in _factors(table))
    width = itemsize(placement.exchange_dtype or table.dtype)
    moved = round(bags * table.dim * width)
    exchange = "rows" if table.pooling is None else "sums"
    return exchange, Cost(_count(table, ids) * stack.shards * 8, moved, moved)


def _factors(table: TableConfig) -> list[tuple[str, float]]:
    """Lists the ids of a bag, or 1, by feature."""
    factors = table.pooling_factors
    if not factors or table.pooling is None:
        factors = (1.0,) * len(table.feature_names)
    return list(zip(table.feature_names, factors, strict=True))


def _layout(
    local: TableSpec, table: TableConfig, feature: str, ids: int, factor: float
) -> FeatureLayout:
    """Lays out so many ids of a feature, in bags of equal size if they can be."""
    if table.pooling is None:
        return one_row_each(feature, local.name, ids)
    bags = max(1, round(ids / factor))
    size = 0 if ids % bags else ids // bags
    shape = (ids,)
    pooling = KERNEL_POOLINGS[table.pooling]
    return FeatureLayout(
        feature, local.name, pooling, shape, shape, (bags,), size, False
    )


def bytes_of(table: TableSpec) -> int:
    """Counts the bytes of the arrays of one shard in device memory."""
    width, dtype = table.stored_row
    row = width * itemsize(dtype) + sum(s.nbytes for s in table.states.values())
    index = table.local_buckets * table.index_words * 4
    if table.tier is not None:  # the location of each slot, the owner of each frame
        index += 4 * (table.local_slots + table.local_buckets * table.frames)
    return index + table.device_rows * row
