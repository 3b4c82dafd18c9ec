# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint has the arrays of a table as one device has them.

On a mesh that the buckets do not fill evenly, arrays end in buckets that no key has.
These are not written. Counters and the log of removed keys have a row for each shard
there, and are joined to the rows of one device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_dynemb._src.engines.shard import joined_counters
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.ops import empty_index, empty_sketch, on_host
from jax_dynemb._src.spec import TableSpec

_CUT = ("index", "sketch", "values", "optimizer")


@dataclasses.dataclass(frozen=True)
class Uneven:
    """Describes arrays whose shards the buckets of their table do not fill evenly."""

    node: TableNode
    spec: TableSpec  # of the table, as a shard sees it
    mesh: Any

    def rows_of(self, leaf: Any) -> int:
        """Counts the rows of an array of buckets, or of slots, that keys may have."""
        spec = self.spec
        of_bucket = leaf.shape[0] // (spec.shards * spec.local_buckets)
        return of_bucket * spec.num_buckets

    def member(self, path: Path) -> str:
        """Names an array of the state by its path."""
        return path[len(self.node.arrays)]

    def file_shape(self, path: Path, leaf: Any) -> tuple[int, ...]:
        """Returns the shape that a checkpoint has of an array."""
        member, alone = self.member(path), dataclasses.replace(self.spec, shards=1)
        if member == "counters":
            return (alone.counter_rows, *leaf.shape[1:])
        if member == "removed":
            return (alone.counter_rows, 1 + alone.ring_size, 2)
        if member in _CUT:
            return (self.rows_of(leaf), *leaf.shape[1:])
        return tuple(leaf.shape)


def uneven_tables(nodes: Mapping[Path, TableNode]) -> list[Uneven]:
    """Finds the tables with such arrays."""
    result = []
    for node in nodes.values():
        placement: Any = node.coll.placement
        if placement is None or placement.mesh is None:
            continue
        spec = placement.stack_of(node.name).local
        if spec.spare_buckets or not spec.is_even:
            result.append(Uneven(node, spec, placement.mesh))
    return result


def _own(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> Iterator[tuple[Uneven, Path, Any]]:
    """Lists the arrays of such tables whose shapes in a checkpoint differ."""
    for table in uneven_tables(nodes):
        for path, leaf in table.node.own(leaves).items():
            if table.file_shape(path, leaf) != tuple(leaf.shape):
                yield table, path, leaf


def plain(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> tuple[dict[Path, Any], dict[Path, int]]:
    """Makes small arrays those of one device; says how many rows of others to write."""
    result, rows = dict(leaves), {}
    for table, path, leaf in _own(leaves, nodes):
        shape = table.file_shape(path, leaf)
        if table.member(path) in ("counters", "removed"):
            joined = _joined(table, path, on_host(leaf), shape)
            everywhere = NamedSharding(table.mesh, PartitionSpec())
            result[path] = jax.device_put(joined, everywhere)
        elif isinstance(leaf, np.ndarray):
            result[path] = leaf[: shape[0]]
        else:
            rows[path] = shape[0]
    return result, rows


def targets(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """Makes arrays what a checkpoint has; also returns longer ones that pieces fill."""
    result, longer = dict(leaves), {}
    for table, path, leaf in _own(leaves, nodes):
        sharding = leaf.sharding
        if table.member(path) in ("counters", "removed"):
            sharding = NamedSharding(table.mesh, PartitionSpec())
        elif isinstance(sharding, NamedSharding):
            longer[path] = leaf
        result[path] = jax.ShapeDtypeStruct(
            table.file_shape(path, leaf), leaf.dtype, sharding=sharding
        )
    return result, longer


def as_given(
    read: Mapping[Path, Any],
    given: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
    directly: Collection[Path],
) -> dict[Path, Any]:
    """Makes what was read ``directly`` fit the mesh; pieces end in zeros."""
    result = dict(read)
    for table, path, leaf in _own(given, nodes):
        if path not in read:
            continue
        if path not in directly:
            result[path] = leaf
        elif table.member(path) in ("counters", "removed"):
            joined = _joined(table, path, on_host(read[path]), leaf.shape)
            result[path] = jax.device_put(joined, leaf.sharding)
        elif table.member(path) in ("index", "sketch"):
            result[path] = _ended(table, path, read[path])
    return result


def _ended(table: Uneven, path: Path, array: jax.Array) -> jax.Array:
    """Makes the last buckets empty ones."""
    of_bucket = empty_index(1, table.spec.index_words)
    if table.member(path) == "sketch":
        empty = empty_sketch(table.spec, 1)
        assert empty is not None
        of_bucket = empty
    run = jax.jit(
        _with_end, static_argnums=2, donate_argnums=0, out_shardings=array.sharding
    )
    return run(array, np.asarray(of_bucket), table.spec.num_buckets)


def _with_end(array: jax.Array, empty: jax.Array, rows: int) -> jax.Array:
    row = jax.lax.broadcasted_iota(jnp.int32, (array.shape[0], 1), 0)
    return jnp.where(row < rows, array, empty)


def _joined(
    table: Uneven, path: Path, array: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    if table.member(path) == "counters":
        return joined_counters(array, shape[0])
    return _joined_log(np.ascontiguousarray(array), shape)


def _joined_log(log: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Begins a log of other rings, behind all heads: readers know that keys lack."""
    heads = log.view(np.uint64)[:, 0, 0]
    result = np.zeros(shape[:2], np.uint64)
    result[:, 0] = heads.sum() + np.uint64(shape[1])
    return result[..., None].view(np.uint32).reshape(shape)
