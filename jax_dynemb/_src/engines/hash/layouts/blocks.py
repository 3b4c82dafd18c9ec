# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Places tables of one device one after the other in the same arrays.

A table's buckets are a block of its arrays, and a call receives where the block begins.
Kernels see the slots of one table, as if it had arrays of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.layouts.stacks import name_of
from jax_dynemb._src.engines.shard import CountedArrays, grown_state
from jax_dynemb._src.ops import TableState, check_state, fullest_buckets
from jax_dynemb._src.spec import Block, TableSpec
from jax_dynemb._src.table_sizes import MAX_SLOTS

# By default tables share arrays of at most so many bytes, so that the growth of one
# table copies no more of the others.
SHARED_BYTES = 1 << 32


def in_shared_arrays(
    tables: Sequence[TableSpec],
    before: Sequence[TableSpec],
    most_bytes: int | None = None,
) -> tuple[TableSpec, ...]:
    """Gives tables their blocks; those that share arrays are neighbours in the result.

    Args:
      tables: without blocks.
      before: with blocks; tables of the same names stay in the same arrays.
      most_bytes: of the arrays that several tables share; None: no bound, and arrays
        with the name of a table are an error.

    Raises:
      ValueError: arrays would have the name of a table, or too many rows.
    """
    names = {table.name for table in tables}
    groups = _groups_as_before(tables, before)
    if groups is None:
        groups = list(_groups(tables, most_bytes))
        if most_bytes is not None:
            groups = [
                some for group in groups for some in _with_free_name(group, names)
            ]
    for group in groups:
        _check(group, names)
    return tuple(table for group in groups for table in _placed(group))


def by_arrays(placed: Iterable[TableSpec]) -> dict[str, list[TableSpec]]:
    """Groups tables by the name of their arrays, in their order there."""
    result: dict[str, list[TableSpec]] = {}
    for table in placed:
        result.setdefault(table.state_name, []).append(table)
    return result


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts for ``stats``; equal for tables that lie alike, whatever their options.

    Attributes:
      ranges: of the buckets of each table, see ``fullest_buckets``.
    """

    ranges: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]

    @classmethod
    def of(cls, placed: Iterable[TableSpec]) -> Self:
        """Finds the buckets of tables.

        Args:
          placed: the tables with their blocks.
        """
        ranges: dict[str, list[tuple[int, int]]] = {}
        for arrays, tables in by_arrays(placed).items():
            for table in tables:
                first = 0 if table.block is None else table.block.first_bucket
                ranges.setdefault(arrays, []).append((first, first + table.num_buckets))
        return cls(tuple((arrays, tuple(some)) for arrays, some in ranges.items()))

    def count(self, arrays: CountedArrays) -> tuple[Any, ...]:
        """Returns counters, the fullest bucket of each table, and counters of tiers."""
        fullest = fullest_buckets(self.ranges, arrays.index)
        return arrays.counters, fullest, arrays.tier


def by_table(placed: Iterable[TableSpec], numbers: np.ndarray) -> dict[str, int]:
    """Names the numbers of the fullest buckets that ``Counts`` has counted."""
    tables = [t.name for some in by_arrays(placed).values() for t in some]
    return dict(zip(tables, numbers.tolist(), strict=True))


def _without_block(table: TableSpec) -> TableSpec:
    """Returns the spec of a table in arrays of its own."""
    return dataclasses.replace(table, block=None)


def _block_of(table: TableSpec, state: TableState) -> TableState:
    """Copies the table's block out of its arrays."""
    if table.block is None:
        return state
    first, slot = table.block.first_bucket, table.first_slot
    rows = slice(slot, slot + table.num_slots)
    return dataclasses.replace(
        state,
        index=state.index[first : first + table.num_buckets],
        values=state.values[rows],
        optimizer={name: x[rows] for name, x in state.optimizer.items()},
        counters=state.counters[table.own_counters],
        sketch=None
        if state.sketch is None
        else state.sketch[first : first + table.num_buckets],
    )


def grown(
    placed: Sequence[TableSpec], factors: Mapping[str, int], state: TableState
) -> TableState:
    """Multiplies the buckets of tables that lie one after the other.

    Args:
      placed: all tables of the arrays, in their order there.
      factors: by table.
      state: the arrays.
    """

    def one(table: TableSpec) -> TableState:
        check_state(table, state)
        own, factor = _block_of(table, state), factors[table.name]
        return own if factor == 1 else grown_state(_without_block(table), factor, own)

    blocks = [one(table) for table in placed]
    if len(blocks) == 1:
        return blocks[0]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *blocks)


def _groups(
    tables: Sequence[TableSpec], most_bytes: int | None
) -> Iterator[list[TableSpec]]:
    """Groups tables whose arrays have one width, within the bounds of an array."""
    alike: dict[object, list[TableSpec]] = {}
    for table in tables:
        alike.setdefault(_width(table), []).append(table)
    for some in alike.values():
        group: list[TableSpec] = []
        for table in some:
            if group and not _fit_together([*group, table], most_bytes):
                yield group
                group = []
            group.append(table)
        yield group


def _fit_together(group: Sequence[TableSpec], most_bytes: int | None) -> bool:
    """Returns whether int32 numbers the slots, and the bytes are within the bound."""
    if sum(table.num_slots for table in group) > MAX_SLOTS:
        return False
    return most_bytes is None or sum(map(_nbytes, group)) <= most_bytes


def _nbytes(table: TableSpec) -> int:
    """Returns the bytes of a table's index, rows and optimizer states."""
    width, dtype = table.stored_row
    row = width * jnp.dtype(dtype).itemsize
    row += sum(spec.nbytes for spec in table.states.values())
    return table.num_slots * row + table.num_buckets * 4 * table.index_words


def _with_free_name(group: list[TableSpec], tables: set[str]) -> list[list[TableSpec]]:
    """Separates tables whose shared arrays would have the name of a table."""
    clashes = len(group) > 1 and name_of(group) in tables
    return [[table] for table in group] if clashes else [group]


def _width(table: TableSpec) -> object:
    if table.tier is not None:
        return table.name  # kernels of tiers are about one table
    if table.optimizer.extra(table.dim):
        return table.name  # what it stores once would be that of all tables
    if table.log_removed:
        return table.name  # growth changes the size of its rings
    states = tuple((n, s.shape, s.array_dtype) for n, s in table.states.items())
    stored = (table.dim, table.param_dtype, table.row_format)
    return stored, states, table.sketch_words, table.counts_keys, table.index_words


def _groups_as_before(
    tables: Sequence[TableSpec], before: Sequence[TableSpec]
) -> list[list[TableSpec]] | None:
    """Keeps the groups; None if they are other tables, or have other widths."""
    configs = {table.name: table for table in tables}
    if sorted(configs) != sorted(table.name for table in before):
        return None
    groups = [
        [configs[table.name] for table in some] for some in by_arrays(before).values()
    ]
    alike = all(len({_width(table) for table in group}) == 1 for group in groups)
    return groups if alike else None


def _placed(group: Sequence[TableSpec]) -> Iterator[TableSpec]:
    if len(group) == 1:
        yield _without_block(group[0])
        return
    name = name_of(group)
    buckets = sum(table.num_buckets for table in group)
    rows = sum(table.counter_rows for table in group)
    first_bucket = first_row = 0
    for table in group:
        block = Block(name, buckets, rows, first_bucket, first_row)
        yield dataclasses.replace(table, block=block)
        first_bucket += table.num_buckets
        first_row += table.counter_rows


def _check(group: Sequence[TableSpec], tables: set[str]) -> None:
    names = [table.name for table in group]
    if len(group) > 1 and name_of(group) in tables:
        raise ValueError(
            f"The tables {names} share arrays named '{name_of(group)}', which is the "
            "name of a table: rename that one."
        )
    slots = sum(table.num_slots for table in group)
    if slots > MAX_SLOTS:
        raise ValueError(
            f"The tables {names} share arrays, which would have {slots} rows; 2**31 "
            "are the most. Make jde.Tables of the new configs: then fewer of them "
            "share, and a checkpoint of the old ones restores into them."
        )
