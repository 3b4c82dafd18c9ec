# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which tables share arrays on a mesh, and which shards hold which of them.

An array on a mesh has an equal part on every shard, so a table that lies on one shard
alone needs others of its shape that lie on the other shards. Tables that do not come
out even are spread over more than one shard, as a row-wise table is over all of them:
no shard keeps room for rows of another.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jax_dynemb._spec import TableSpec
from jax_dynemb.config import TableConfig
from jax_dynemb.ops import TableState


@dataclasses.dataclass(frozen=True)
class Stack:
    """Arrays in a state: those of one table, or of several of one shape.

    Attributes:
      tables: those in it; table ``n`` has place ``n``, and later places are idle.
      sharding: of the arrays: "row_wise", "replicated" or "column_wise".
      places: equal parts of the arrays, each for a table.
      shards: of the mesh.
    """

    tables: tuple[TableConfig, ...]
    sharding: str
    places: int
    shards: int

    @property
    def name(self) -> str:
        """In the state."""
        first, *others = self.tables
        return f"{first.name}+{len(others)}" if others else first.name

    @property
    def width(self) -> int:
        """Shards of a place; the high bits of the hash choose among them."""
        return self.shards // self.places

    @functools.cached_property
    def local(self) -> TableSpec:
        """The arrays of a shard as the table that they are to a kernel."""
        first = TableSpec.of(self.tables[0])
        return dataclasses.replace(
            first,
            name=self.name,
            dim=first.dim // (self.shards if self.sharding == "column_wise" else 1),
            pooling=next((t.pooling for t in self.tables if t.pooling), None),
            shards=self.width if self.sharding == "row_wise" else 1,
        )

    @functools.cached_property
    def place_of_feature(self) -> dict[str, int]:
        """The place of each feature's table."""
        pairs = enumerate(self.tables)
        return {f: place for place, t in pairs for f in t.feature_names}

    def place_of(self, table: str) -> int:
        """The place of a table."""
        return [t.name for t in self.tables].index(table)

    def owners(self, table: str) -> range:
        """The shards that hold rows of a table."""
        if self.sharding != "row_wise":
            return range(self.shards)
        first = self.place_of(table) * self.width
        return range(first, first + self.width)


def states_of(
    state: Mapping[str, TableState], stacks: Sequence[Stack]
) -> dict[str, TableState]:
    """Some arrays of a state."""
    return {s.name: state[s.name] for s in stacks}


def make_stacks(tables: Sequence[TableConfig], shards: int) -> tuple[Stack, ...]:
    """Stacks of all tables; table-wise ones are spread so that shards do equal work.

    Raises:
      ValueError: a stack would have the name of a table.
    """
    loads = np.zeros(shards)
    stacks = [
        Stack((t,), t.sharding, 1, shards) for t in tables if t.sharding != "table_wise"
    ]
    for alike in _by_shape([t for t in tables if t.sharding == "table_wise"]):
        for some, places in _cut(alike, shards):
            stacks.append(_placed(some, places, loads))
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
    """The same arrays for other configs of the same tables; None if they differ."""
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


def _by_shape(tables: Sequence[TableConfig]) -> Iterator[list[TableConfig]]:
    """Tables that may share arrays, costly ones first.

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
    extra = getattr(table.optimizer, "extra", None)
    if extra is not None and extra(table.dim):
        return table.name  # what it stores once would be that of all tables
    return dataclasses.replace(
        table,
        name="shape",
        feature_names=(),
        capacity=table.num_slots,
        pooling=None,
        pooling_factors=(),
    )


def _cut(
    tables: list[TableConfig], shards: int
) -> Iterator[tuple[list[TableConfig], int]]:
    """Tables in stacks, each with its number of places.

    As many tables as there are shards fill a stack. Of the rest the costly ones get
    more shards.
    """
    most = tables[0].max_shards
    usable = [
        p for p in range(1, shards + 1) if shards % p == 0 and most % (shards // p) == 0
    ]
    sizes, rest = [], len(tables) % shards
    while rest > 0:
        sizes.append(max((p for p in usable if p <= rest), default=usable[0]))
        rest -= sizes[-1]
    begin = 0
    for places in [*sorted(sizes), *[shards] * (len(tables) // shards)]:
        some = tables[begin : begin + places]
        begin += len(some)
        yield some, places


def _placed(tables: list[TableConfig], places: int, loads: np.ndarray) -> Stack:
    """Gives each table the place that has least to do; ``loads`` is by shard."""
    by_place = loads.reshape(places, -1)
    chosen: dict[int, TableConfig] = {}
    for table in tables:
        free = [p for p in range(len(tables)) if p not in chosen]
        place = min(free, key=lambda p: by_place[p].sum())
        chosen[place] = table
        by_place[place] += cost(table) / by_place.shape[1]
    ordered = tuple(chosen[p] for p in range(len(tables)))
    return Stack(ordered, "row_wise", places, len(loads))
