# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of a mesh has arrays for each table, whichever share them in memory.

Which tables share arrays, and where each of them lies on a shard, may so be another
when it is restored: no row is inserted again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.checkpoint.tree import Path, TableNode

Ranges = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Apart:
    """Holds a tree in which each table of a mesh has arrays of its own.

    Attributes:
      leaves: by path.
      nodes: of the tables; their collections have each table in arrays of its own.
      replaced: arrays that were given, and of which ``leaves`` has types only.
    """

    leaves: dict[Path, Any]
    nodes: dict[Path, TableNode]
    replaced: list[jax.Array]


@dataclasses.dataclass(frozen=True)
class _Shared:
    """Describes arrays that tables of a mesh share.

    Attributes:
      arrays: where they are in the tree.
      tables: the paths of the tables, in their order there.
      stacks: of these.
      placement: the mesh.
    """

    arrays: Path
    tables: tuple[Path, ...]
    stacks: tuple[Any, ...]
    placement: Any

    def parts(self, path: Path) -> list[Path]:
        """Returns the path that each table has of its own, for one of the arrays."""
        return [(*table, *path[len(self.arrays) :]) for table in self.tables]

    def ranges(self, path: Path, rows: int) -> Ranges:
        """Returns the first row of each table on a shard, and its end.

        Args:
          path: of one of the arrays.
          rows: of it on all shards.
        """
        locals_ = [stack.local for stack in self.stacks]
        if path[len(self.arrays)] == "counters":
            return tuple((t.first_row, t.first_row + t.counter_rows) for t in locals_)
        of_bucket = rows // (self.placement.shards * self.stacks[0].within.num_buckets)
        ends = (t.bucket_range for t in locals_)
        return tuple((of_bucket * begin, of_bucket * end) for begin, end in ends)


def saved(leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]) -> Apart:
    """Copies each table of a tree into arrays of its own."""
    return _apart(leaves, nodes, nodes.keys())


def targets(
    leaves: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
    known: Sequence[str],
) -> Apart:
    """Replaces shared arrays by the types of those that a checkpoint has.

    Args:
      leaves: of a tree that is restored.
      nodes: of its tables.
      known: the spelled paths of tables in the checkpoint; others are copied.
    """
    there = {tuple(path.split("/")) for path in known}
    return _apart(leaves, nodes, nodes.keys() - there)


def together(
    apart: Mapping[Path, Any],
    given: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
) -> dict[Path, Any]:
    """Joins the arrays of tables that share them.

    Args:
      apart: what ``targets`` had, restored; joined arrays are donated.
      given: the leaves of the tree, as ``targets`` received them.
      nodes: of the tables in the tree.
    """
    shared, result = _shared(nodes), {}
    for path, leaf in given.items():
        group = _group_of(shared, path)
        if group is None:
            result[path] = apart[path]
            continue
        parts = [apart[own] for own in group.parts(path)]
        result[path] = _joined(group, leaf, parts)
        for part in parts:
            if isinstance(part, jax.Array):
                part.delete()
    return result


def _apart(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode], copied: Any
) -> Apart:
    shared = _shared(nodes)
    result: dict[Path, Any] = {}
    replaced = []
    for path, leaf in leaves.items():
        group = _group_of(shared, path)
        if group is None:
            result[path] = leaf
            continue
        ranges = group.ranges(path, leaf.shape[0])
        copy = any(table in copied for table in group.tables)
        if not copy and isinstance(leaf, jax.Array):
            replaced.append(leaf)
        parts = _cut(group, leaf, ranges) if copy else _types(group, leaf, ranges)
        result |= dict(zip(group.parts(path), parts, strict=True))
    own = {}
    for at, node in nodes.items():
        if _is_shared(node):
            coll = node.coll.with_own_arrays()
            node = dataclasses.replace(node, coll=coll, arrays=at)
        own[at] = node
    return Apart(result, own, replaced)


def _is_shared(node: TableNode) -> bool:
    if node.coll.placement is None:
        return False
    return node.coll.hash_engine.stack_of(node.name).within is not None


def _shared(nodes: Mapping[Path, TableNode]) -> list[_Shared]:
    """Finds the arrays that tables of a mesh share."""
    groups: dict[Path, list[Path]] = {}
    for at, node in nodes.items():
        if _is_shared(node):
            groups.setdefault(node.arrays, []).append(at)
    return list(_groups(groups, nodes))


def _groups(
    groups: Mapping[Path, Sequence[Path]], nodes: Mapping[Path, TableNode]
) -> Iterator[_Shared]:
    for arrays, tables in groups.items():
        placement: Any = nodes[tables[0]].coll.placement
        stacks = placement.stacks_in(arrays[-1])
        by_name = {nodes[at].name: at for at in tables}
        ordered = tuple(by_name[stack.tables[0].name] for stack in stacks)
        yield _Shared(arrays, ordered, tuple(stacks), placement)


def _group_of(shared: Sequence[_Shared], path: Path) -> _Shared | None:
    own = (g for g in shared if path[: len(g.arrays)] == g.arrays)
    return next(own, None)


def _types(group: _Shared, leaf: Any, ranges: Ranges) -> list[Any]:
    shards, rest = group.placement.shards, leaf.shape[1:]
    return [
        leaf[: shards * (end - begin)]
        if isinstance(leaf, np.ndarray)
        else jax.ShapeDtypeStruct(
            (shards * (end - begin), *rest), leaf.dtype, sharding=leaf.sharding
        )
        for begin, end in ranges
    ]


def _cut(group: _Shared, leaf: Any, ranges: Ranges) -> Sequence[Any]:
    """Copies what each table has on the shards."""
    if isinstance(leaf, jax.Array):
        split = group.placement.split
        cut = functools.partial(_parts, ranges)
        out = (split,) * len(ranges)
        return group.placement.mapped(cut, (split,), out)(leaf)
    if not isinstance(leaf, np.ndarray):
        return _types(group, leaf, ranges)
    shape = leaf.shape[1:]
    by_shard = leaf.reshape(group.placement.shards, -1, *shape)
    return [by_shard[:, begin:end].reshape(-1, *shape) for begin, end in ranges]


def _parts(ranges: Ranges, array: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(array[begin:end] for begin, end in ranges)


def _joined(group: _Shared, like: Any, parts: Sequence[Any]) -> Any:
    """Puts what tables have on each shard one after the other."""
    if all(isinstance(part, np.ndarray) for part in parts):
        shards, rest = group.placement.shards, like.shape[1:]
        by_shard = [part.reshape(shards, -1, *rest) for part in parts]
        return np.concatenate(by_shard, axis=1).reshape(like.shape)
    split = group.placement.split
    specs = (split,) * len(parts)
    joined = group.placement.mapped(_concatenated, specs, split)(*parts)
    return jax.device_put(joined, getattr(like, "sharding", None))


def _concatenated(*parts: jax.Array) -> jax.Array:
    return jnp.concatenate(parts)
