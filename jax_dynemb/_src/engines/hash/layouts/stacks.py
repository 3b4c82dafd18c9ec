# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a state and the tables in them; on a mesh, which shards hold which.

An array on a mesh has an equal part on every shard. So a table that lies on one shard
alone needs others of its shape that lie on the other shards. Where their number does
not come out even, some are spread over more than one shard, as a row-wise table is
over all of them. No shard keeps room for rows of another.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.shardings import stacks_tables
from jax_dynemb._src.spec import Block, TableSpec


@dataclasses.dataclass(frozen=True)
class Stack:
    """Holds what a kernel takes for one table: one, or several of a shape on a mesh.

    Attributes:
      tables: those in it; table ``n`` has block ``n``, and later blocks are idle.
      sharding: names the strategy: "local" on one device, and on a mesh "row_wise",
        "replicated" or "column_wise".
      blocks: equal parts of the arrays along the mesh, each for a table.
      shards: of the mesh.
      within: where it lies in arrays that each device has for several tables; None if
        it has its own.
    """

    tables: tuple[TableConfig, ...]
    sharding: str
    blocks: int
    shards: int
    within: Block | None = None

    @functools.cached_property
    def name(self) -> str:
        """Names it to kernels."""
        return name_of(self.tables)

    @functools.cached_property
    def state_name(self) -> str:
        """Names its arrays in the state."""
        return self.name if self.within is None else self.within.arrays

    @property
    def width(self) -> int:
        """Counts the shards of a block; the high bits of a hash choose among them."""
        return self.shards // self.blocks

    @property
    def is_split_evenly(self) -> bool:
        """Whether each device has an equal part of one table, or all of it."""
        plain = self.sharding in ("local", "row_wise")
        return plain and not stacks_tables(self.tables[0].sharding)

    @functools.cached_property
    def local(self) -> TableSpec:
        """Describes the arrays of a shard as the table that they are to a kernel."""
        first = self.tables[0]
        return TableSpec.of(
            first,
            name=self.name,
            dim=first.dim // (self.shards if self.sharding == "column_wise" else 1),
            pooling=next((t.pooling for t in self.tables if t.pooling), None),
            shards=self.width if self.sharding == "row_wise" else 1,
            block=self.within,
        )

    @functools.cached_property
    def _blocks_of_features(self) -> dict[str, int]:
        pairs = enumerate(self.tables)
        return {f: block for block, t in pairs for f in t.feature_names}

    def block_of_feature(self, feature: str) -> int:
        """Returns the block of a feature's table; 0 where ids are of no feature."""
        return self._blocks_of_features.get(feature, 0)

    def block_of(self, table: str) -> int:
        """Returns the block of a table."""
        return [t.name for t in self.tables].index(table)

    def owners(self, table: str) -> range:
        """Returns the shards that hold rows of a table."""
        if self.sharding != "row_wise":
            return range(self.shards)
        first = self.block_of(table) * self.width
        return range(first, first + self.width)

    def extent(self, table: str) -> dict[str, Any]:
        """Describes a table's part of the arrays by fields of ``rows.Schema``."""
        if self.within is not None and self.sharding == "local":
            fields = ("arrays", "first_bucket", "first_row")
            return {field: getattr(self.within, field) for field in fields}
        if self.sharding == "column_wise":
            return {"column_parts": self.shards}
        if self.blocks == 1:  # files have arrays of a mesh apart
            return {}
        block = self.block_of(table)
        return {"arrays": self.name, "place": block, "places": self.blocks}

    def counter_rows(self, table: str) -> Any:
        """Finds the rows of counters that belong to a table, copies included."""
        if self.within is not None:
            return self._on_all_shards(
                self.within.counter_rows, self.local.own_counters
            )
        if len(self.tables) == 1:
            return self.local.own_counters
        rows, place = self.local.counter_rows * self.width, self.block_of(table)
        return slice(place * rows, (place + 1) * rows)

    def first_counter_rows(self, table: str) -> Any:
        """Finds the rows of counters that belong to the first copy of a table."""
        if self.sharding in ("replicated", "column_wise"):
            return slice(0, self.local.counter_rows)
        return self.counter_rows(table)

    def buckets_of(self, table: str) -> list[Any]:
        """Finds the buckets of a table; each part with some columns has all of them."""
        count, own = self.local.num_buckets, slice(*self.local.bucket_range)
        if self.within is not None:
            return [self._on_all_shards(self.within.num_buckets, own, count)]
        first = self.block_of(table) * count
        parts = self.shards if self.sharding == "column_wise" else 1
        begins = range(first, first + parts * count, count)
        return [slice(begin, begin + count) for begin in begins]

    def _on_all_shards(self, size: int, own: slice, most: int | None = None) -> Any:
        """Numbers what a table has on all shards; each of these has ``size``."""
        if self.shards == 1:
            return own
        begins = size * np.arange(self.shards)[:, None]
        return (begins + np.arange(own.start, own.stop)).reshape(-1)[:most]


def name_of(tables: Sequence[Any]) -> str:
    """Names the arrays that some tables, or stacks, share."""
    first, *others = tables
    return f"{first.name}+{len(others)}" if others else first.name


def states_of(
    state: Mapping[str, TableState], stacks: Sequence[Stack]
) -> dict[str, TableState]:
    """Selects some arrays of a state."""
    return {s.state_name: state[s.state_name] for s in stacks}


def make_stacks(
    tables: Sequence[TableConfig],
    shards: int,
    planned: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Stack, ...]:
    """Stacks of all tables; table-wise ones are spread so that shards do equal work.

    Args:
      tables: the tables of a collection.
      shards: of the mesh.
      planned: by table-wise table, the shards that a plan gives it.

    Raises:
      ValueError: a stack would have the name of a table, or no stack has a planned
        table at its shards.
    """
    loads, planned = np.zeros(shards), planned or {}
    stacks = [
        Stack((t,), t.sharding, 1, shards) for t in tables if t.sharding != "table_wise"
    ]
    for alike in by_shape([t for t in tables if stacks_tables(t.sharding)]):
        stacks += _stacks_of_plan(
            [t for t in alike if t.name in planned], shards, planned, loads
        )
        for some, blocks in cut_into_blocks(
            [t for t in alike if t.name not in planned], shards
        ):
            stacks.append(_placed(some, blocks, loads))
    names = {t.name for t in tables}
    for stack in stacks:
        if len(stack.tables) > 1 and stack.name in names:
            raise ValueError(
                f"The table-wise tables {[t.name for t in stack.tables]} share arrays "
                f"named '{stack.name}', which is the name of a table: rename that one."
            )
    return tuple(stacks)


def same_stacks(
    stacks: Sequence[Stack], tables: Sequence[TableConfig]
) -> tuple[Stack, ...] | None:
    """Keeps the arrays for other configs of the same tables; None if they differ."""
    configs = {t.name: t for t in tables}
    if sorted(configs) != sorted(t.name for s in stacks for t in s.tables):
        return None
    same = tuple(
        dataclasses.replace(s, tables=tuple(configs[t.name] for t in s.tables))
        for s in stacks
    )
    one_hash = all(len({t.hash_seed for t in s.tables}) == 1 for s in same)
    return same if one_hash else None


def cost(table: TableConfig) -> float:
    """Bytes of rows that an example moves in a step, up to a factor."""
    numbers = sum(int(np.prod(s.shape, dtype=int)) for s in table.states.values())
    return table.ids_per_example * (table.dim + numbers)


# Fields that may differ between tables that share arrays; slots stand for capacities.
_OWN = {
    "name",
    "feature_names",
    "capacity",
    "pooling",
    "pooling_factors",
    "padding_id",
    "sharding",
    "max_capacity",
    "grow_at",
}
_shared_fields = operator.attrgetter(
    *(f.name for f in dataclasses.fields(TableConfig) if f.name not in _OWN)
)


def by_shape(tables: Sequence[TableConfig]) -> Iterator[list[TableConfig]]:
    """Groups tables that may share arrays, costly ones first.

    A shard runs one program for the tables of a stack, whichever of them it has. So
    they have the same ``hash_seed`` too.
    """
    groups: dict[object, list[TableConfig]] = {}
    for table in tables:
        groups.setdefault(_shape(table), []).append(table)
    for alike in groups.values():
        alike.sort(key=cost, reverse=True)
    yield from sorted(groups.values(), key=lambda ts: cost(ts[0]), reverse=True)


def _shape(table: TableConfig) -> object:
    if table.optimizer.extra(table.dim):
        return table.name  # what it stores once would be that of all tables
    return table.num_slots, _shared_fields(table)


def cut_into_blocks(
    tables: list[TableConfig], shards: int
) -> Iterator[tuple[list[TableConfig], int]]:
    """Cuts tables into stacks, each with its number of blocks.

    As many tables as there are shards fill a stack. Of the rest the costly ones get
    more shards.
    """
    if not tables:
        return
    most = tables[0].max_shards
    usable = [
        p for p in range(1, shards + 1) if shards % p == 0 and most % (shards // p) == 0
    ]
    # A table on all shards may leave some of its last buckets empty, see TableSpec.
    buckets = tables[0].num_buckets
    on_all = shards * -(-buckets // shards)
    sizes, rest = [], len(tables) % shards
    while rest > 0:
        spread = 1 if rest * on_all < usable[0] * buckets else usable[0]
        sizes.append(max((p for p in usable if p <= rest), default=spread))
        rest -= sizes[-1]
    begin = 0
    for blocks in [*sorted(sizes), *[shards] * (len(tables) // shards)]:
        some = tables[begin : begin + blocks]
        begin += len(some)
        yield some, blocks


def _placed(tables: list[TableConfig], blocks: int, loads: np.ndarray) -> Stack:
    """Gives each table the block that has least to do; ``loads`` is by shard."""
    by_block = loads.reshape(blocks, -1)
    chosen: dict[int, TableConfig] = {}
    for table in tables:
        free = [p for p in range(len(tables)) if p not in chosen]
        block = min(free, key=lambda p: by_block[p].sum())
        chosen[block] = table
        by_block[block] += cost(table) / by_block.shape[1]
    ordered = tuple(chosen[p] for p in range(len(tables)))
    return Stack(ordered, "row_wise", blocks, len(loads))


def _stacks_of_plan(
    alike: Sequence[TableConfig],
    shards: int,
    planned: Mapping[str, Sequence[int]],
    loads: np.ndarray,
) -> Iterator[Stack]:
    """Stacks with tables of one shape at the shards of a plan; adds to ``loads``."""
    by_width: dict[int, list[TableConfig]] = {}
    for table in alike:
        by_width.setdefault(_planned_width(table, shards, planned), []).append(table)
    for width, tables in by_width.items():
        at: list[list[TableConfig]] = [[] for _ in range(shards // width)]
        for table in sorted(tables, key=lambda t: list(planned).index(t.name)):
            at[planned[table.name][0] // width].append(table)
            loads[list(planned[table.name])] += cost(table) / width
        for level in range(max(map(len, at))):
            some = [block[level] for block in at if len(block) > level]
            if any(len(block) <= level for block in at[: len(some)]):
                idle = next(n for n, block in enumerate(at) if len(block) <= level)
                raise ValueError(
                    f"The plan leaves shard {idle * width} without a table like "
                    f"'{some[-1].name}', which is on shard {planned[some[-1].name][0]}."
                    " Tables of one shape fill shards from 0 on: move this one there, "
                    "or leave its shards empty."
                )
            yield Stack(tuple(some), "row_wise", len(at), shards)


def _planned_width(
    table: TableConfig, shards: int, planned: Mapping[str, Sequence[int]]
) -> int:
    mine = list(planned[table.name])
    width = len(mine)
    if mine[0] < 0 or mine[-1] >= shards:
        raise ValueError(
            f"The plan puts table '{table.name}' on the shards {mine}, but the mesh "
            f"has the shards 0 to {shards - 1}. Leave its shards empty, or plan for "
            "this mesh."
        )
    most = table.max_shards
    even = shards % width == most % width == 0
    whole = even or width == shards
    if not whole or mine != list(range(mine[0], mine[0] + width)) or mine[0] % width:
        fits = max(n for n in range(1, width + 1) if shards % n == most % n == 0)
        first = mine[0] // fits * fits
        raise ValueError(
            f"The plan puts table '{table.name}' on the shards {mine}. Use "
            f"{[*range(first, first + fits)]}, which is a number of neighbours that "
            f"divides {shards} and {most}, the first a multiple of it; or leave its "
            "shards empty."
        )
    return width
