# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint has tiered tables as if they had no tier.

So it restores into a table with another cache, or with none, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import shard
from jax_dynemb._src.files.checkpoint.stored import arrays_of
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.spec import TableSpec

_SEVERAL = "Table '{name}' has a tier, and its arrays lie on the devices of several "
_SAVED = _SEVERAL + (
    "processes: a checkpoint of it is not possible. Write the rows "
    "that Tables.export yields in each process, or train it in one process."
)
_RESTORED = _SEVERAL + (
    "processes: a checkpoint cannot be restored into it. Restore into the same table "
    "without a tier, or in one process."
)


def plain(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> dict[Path, Any]:
    """Replaces tiered tables' arrays by untiered ones, in NumPy; one process only."""
    result = dict(leaves)
    for sharing, own in _tiered(leaves, nodes):
        state = arrays_of(sharing[0], own.values())
        if not state.index.is_fully_addressable:
            raise NotImplementedError(_SAVED.format(name=sharing[0].name))
        rows, of_rows = _rows_of_all(sharing, state)
        _replace(result, sharing[0], own, rows, of_rows)
    return result


def _rows_of_all(
    sharing: Sequence[TableNode], state: TableState
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads the rows of tables that share arrays, as these lie there."""
    result: tuple[np.ndarray, dict[str, np.ndarray]] | None = None
    for node in sharing:
        dynamic = node.coll.hash_engine
        states = {node.coll.state_name(node.name): state}
        read = shard.rows_in_order(dynamic.shards(states, node.name))
        where = dynamic.extent(node.name)
        if "places" not in where:
            return read
        parts = where["places"]
        if result is None:
            result = jax.tree.map(
                lambda x, n=parts: np.zeros((n * len(x), *x.shape[1:]), x.dtype), read
            )
        first = where["place"] * len(read[0])
        for all_rows, own in zip(
            jax.tree.leaves(result), jax.tree.leaves(read), strict=True
        ):
            all_rows[first : first + len(own)] = own
    assert result is not None
    return result


def targets(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> dict[Path, Any]:
    """Replaces the same arrays by the shapes of those that a checkpoint has."""
    result = dict(leaves)
    for (node, *_), own in _tiered(leaves, nodes):
        table, where = TableSpec.of(node.config), own[*node.arrays, "tier", "location"]
        if not getattr(where.sharding, "is_fully_addressable", True):
            raise NotImplementedError(_RESTORED.format(name=node.name))
        slots = where.shape[0]
        sharding = jax.sharding.SingleDeviceSharding(
            jax.local_devices()[0], memory_kind="pinned_host"
        )

        def shape(
            *sizes: int, dtype: str, sharding: Any = sharding
        ) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

        rows = shape(slots, table.dim, dtype=table.param_dtype)
        states = {
            name: shape(slots, *spec.shape, dtype=spec.dtype)
            for name, spec in table.states.items()
        }
        _replace(result, node, own, rows, states)
    return result


def tiered(
    read: Mapping[Path, Any],
    given: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
) -> dict[Path, Any]:
    """Makes home records of the untiered rows in ``read``; frames begin empty."""
    result = {path: read.get(path, leaf) for path, leaf in given.items()}
    for (node, *_), own in _tiered(given, nodes):
        table = TableSpec.of(node.config)
        above = node.arrays
        rows = np.asarray(read[*above, "values"])
        states = {n: np.asarray(read[*above, "optimizer", n]) for n in table.states}
        records = shard.records_of(table, rows, states)
        missing = own[*above, "tier", "location"].shape[0] - len(records)
        if missing:  # the last buckets of an uneven mesh
            records = np.pad(records, ((0, missing), (0, 0)))
        for path, leaf in own.items():
            member = path[len(above) :]
            if member == ("tier", "homes"):
                sharding = leaf.sharding.with_memory_kind("pinned_host")
                result[path] = jax.device_put(records, sharding)
            elif member[0] in ("tier", "values", "optimizer"):
                zeros = np.zeros(leaf.shape, leaf.dtype)
                result[path] = jax.device_put(zeros, leaf.sharding)
    return result


def _tiered(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> Iterator[tuple[list[TableNode], dict[Path, Any]]]:
    """Finds the arrays of tiered tables, each with the tables that share them."""
    sharing: dict[Path, list[TableNode]] = {}
    for node in nodes.values():
        if node.config.tier is not None:
            sharing.setdefault(node.arrays, []).append(node)
    for some in sharing.values():
        yield some, some[0].own(leaves)


def _replace(
    result: dict[Path, Any],
    node: TableNode,
    own: Mapping[Path, Any],
    rows: Any,
    states: Mapping[str, Any],
) -> None:
    above = node.arrays
    for path in own:
        member = path[len(above) :]
        if member[0] == "tier":
            del result[path]
        elif member == ("values",):
            result[path] = rows
        elif member[0] == "optimizer":
            result[path] = states[member[1]]
