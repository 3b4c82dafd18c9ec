# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Places tables of one width one after the other in the same arrays.

A table's buckets are a block of a device's arrays, and a call receives where the block
begins. Kernels see the slots of one table, as if it had arrays of its own. On a mesh
each device's part of the arrays has a block for its part of each table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.layouts.stacks import Stack, name_of
from jax_dynemb._src.engines.shard import CountedArrays, grown_state
from jax_dynemb._src.ops import TableState, check_state, fullest_buckets
from jax_dynemb._src.spec import Block, TableSpec
from jax_dynemb._src.table_sizes import MAX_SLOTS

# By default tables share arrays of at most so many bytes, so that the growth of one
# table copies no more of the others.
SHARED_BYTES = 1 << 32


def in_shared_arrays(
    stacks: Sequence[Stack], before: Sequence[Stack], share_arrays: bool | None
) -> tuple[Stack, ...]:
    """Gives stacks their blocks; those that share arrays are neighbours in the result.

    Which of them share does not depend on the number of devices, so neither do the
    names in a state.

    Args:
      stacks: all of a collection.
      before: with blocks; stacks of the same names stay in the same arrays.
      share_arrays: see ``jde.Tables``; if it is True, arrays with the name of a table
        are an error.

    Raises:
      ValueError: arrays would have the name of a table, or too many rows.
    """
    stacks = [dataclasses.replace(stack, within=None) for stack in stacks]
    if share_arrays is False:
        return tuple(stacks)
    names = {table.name for stack in stacks for table in stack.tables}
    groups = _groups_as_before(stacks, before)
    if groups is None:
        most_bytes = None if share_arrays else SHARED_BYTES
        groups = list(_groups(stacks, most_bytes))
        if most_bytes is not None:
            groups = [
                some for group in groups for some in _with_free_name(group, names)
            ]
    for group in groups:
        _check([stack.local for stack in group], names)
    return tuple(stack for group in groups for stack in _placed(group))


def by_arrays(stacks: Iterable[Stack]) -> dict[str, list[Stack]]:
    """Groups stacks by the name of their arrays, in their order there."""
    result: dict[str, list[Stack]] = {}
    for stack in stacks:
        result.setdefault(stack.state_name, []).append(stack)
    return result


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts for ``stats``; equal for tables that lie alike, whatever their options.

    Attributes:
      ranges: of the buckets of each table, see ``fullest_buckets``.
    """

    ranges: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]

    @classmethod
    def of(cls, stacks: Iterable[Stack]) -> Self:
        """Finds the buckets of tables."""
        ranges = {
            arrays: tuple(stack.local.bucket_range for stack in some)
            for arrays, some in by_arrays(stacks).items()
        }
        return cls(tuple(ranges.items()))

    def count(self, arrays: CountedArrays) -> tuple[Any, ...]:
        """Returns counters, the fullest bucket of each table, and counters of tiers."""
        fullest = fullest_buckets(self.ranges, arrays.index)
        return arrays.counters, fullest, arrays.tier


def by_table(stacks: Iterable[Stack], numbers: np.ndarray) -> dict[str, int]:
    """Names the numbers of the fullest buckets that ``Counts`` has counted."""
    tables = [stack.name for some in by_arrays(stacks).values() for stack in some]
    return dict(zip(tables, numbers.tolist(), strict=True))


def _without_block(table: TableSpec) -> TableSpec:
    """Returns the spec of a table in arrays of its own."""
    return dataclasses.replace(table, block=None)


def own_block(table: TableSpec, state: TableState) -> TableState:
    """Copies what a shard has of a table out of its arrays."""
    if table.block is None:
        return state
    buckets, slot = slice(*table.bucket_range), table.first_slot
    rows = slice(slot, slot + table.local_slots)
    return dataclasses.replace(
        state,
        index=state.index[buckets],
        values=state.values[rows],
        optimizer={name: x[rows] for name, x in state.optimizer.items()},
        counters=state.counters[table.own_counters],
        sketch=None if state.sketch is None else state.sketch[buckets],
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
        own, factor = own_block(table, state), factors[table.name]
        return own if factor == 1 else grown_state(_without_block(table), factor, own)

    blocks = [one(table) for table in placed]
    if len(blocks) == 1:
        return blocks[0]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *blocks)


def _groups(stacks: Sequence[Stack], most_bytes: int | None) -> Iterator[list[Stack]]:
    """Groups stacks whose arrays have one width, within the bounds of an array."""
    alike: dict[object, list[Stack]] = {}
    for stack in stacks:
        alike.setdefault(_width(stack), []).append(stack)
    for some in alike.values():
        group: list[Stack] = []
        for stack in some:
            if group and not _fit_together([*group, stack], most_bytes):
                yield group
                group = []
            group.append(stack)
        yield group


def _fit_together(group: Sequence[Stack], most_bytes: int | None) -> bool:
    """Returns whether int32 numbers the slots, and the bytes are within the bound."""
    tables = [stack.local for stack in group]
    if sum(table.num_slots for table in tables) > MAX_SLOTS:
        return False
    return most_bytes is None or sum(map(_nbytes, tables)) <= most_bytes


def _nbytes(table: TableSpec) -> int:
    """Returns the bytes of a table's index, rows and optimizer states."""
    width, dtype = table.stored_row
    row = width * jnp.dtype(dtype).itemsize
    row += sum(spec.nbytes for spec in table.states.values())
    return table.num_slots * row + table.num_buckets * 4 * table.index_words


def _with_free_name(group: list[Stack], tables: set[str]) -> list[list[Stack]]:
    """Separates tables whose shared arrays would have the name of a table."""
    clashes = len(group) > 1 and name_of(group) in tables
    return [[stack] for stack in group] if clashes else [group]


def _width(stack: Stack) -> object:
    """Returns what is equal for stacks that may share arrays."""
    table = stack.local
    if not stack.is_split_evenly or table.tier is not None:
        return table.name  # devices hold other tables; kernels of tiers are about one
    if table.optimizer.extra(table.dim):
        return table.name  # what it stores once would be that of all tables
    if table.log_removed:
        return table.name  # growth changes the size of its rings
    states = tuple((n, s.shape, s.array_dtype) for n, s in table.states.items())
    stored = (table.dim, table.param_dtype, table.row_format)
    return stored, states, table.sketch_words, table.counts_keys, table.index_words


def _groups_as_before(
    stacks: Sequence[Stack], before: Sequence[Stack]
) -> list[list[Stack]] | None:
    """Keeps the groups; None if they are other stacks, or have other widths."""
    named = {stack.name: stack for stack in stacks}
    if sorted(named) != sorted(stack.name for stack in before):
        return None
    groups = [[named[s.name] for s in some] for some in by_arrays(before).values()]
    alike = all(len({_width(stack) for stack in group}) == 1 for group in groups)
    return groups if alike else None


def _placed(group: Sequence[Stack]) -> Iterator[Stack]:
    if len(group) == 1:
        yield group[0]
        return
    name, tables = name_of(group), [stack.local for stack in group]
    buckets = sum(table.local_buckets for table in tables)
    rows = sum(table.counter_rows for table in tables)
    first_bucket = first_row = 0
    for stack, table in zip(group, tables, strict=True):
        block = Block(name, buckets, rows, first_bucket, first_row)
        yield dataclasses.replace(stack, within=block)
        first_bucket += table.local_buckets
        first_row += table.counter_rows


def _check(group: Sequence[TableSpec], tables: set[str]) -> None:
    if len(group) == 1:
        return
    names = [table.name for table in group]
    if name_of(group) in tables:
        raise ValueError(
            f"The tables {names} share arrays named '{name_of(group)}', which is the "
            "name of a table: rename that one."
        )
    slots = sum(table.local_slots for table in group)
    if slots > MAX_SLOTS:
        raise ValueError(
            f"The tables {names} share arrays, which would have {slots} rows on a "
            "device; 2**31 are the most. Make jde.Tables of the new configs: then "
            "fewer of them share, and a checkpoint of the old ones restores into them."
        )
