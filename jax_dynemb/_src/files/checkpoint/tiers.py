# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint has tiered tables as if they had no tier.

So it restores into a table with another cache, or with none, and the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import shard
from jax_dynemb._src.files.checkpoint.stored import arrays_of
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.ops import TableState, is_shared
from jax_dynemb._src.spec import TableSpec

_HOST = "pinned_host"  # a kind of memory


def plain(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> dict[Path, Any]:
    """Replaces tiered tables' arrays by untiered ones in host memory.

    They are NumPy's, or arrays of JAX where other processes have parts of them.
    """
    result = dict(leaves)
    for sharing, own in _tiered(leaves, nodes):
        state = arrays_of(sharing[0], own.values())
        read = _rows_of_shards if is_shared(state.index) else _rows_of_all
        rows, of_rows = read(sharing, state)
        _replace(result, sharing[0], own, rows, of_rows)
    return result


def _rows_of_shards(sharing: Sequence[TableNode], state: TableState) -> Any:
    """Reads the rows of this process's devices, as parts of arrays of the mesh."""
    location: Any = state.tier.location  # pyright: ignore[reportOptionalMemberAccess]
    local = sharing[0].coll.hash_engine.stack_of(sharing[0].name).local
    read = {
        number * local.local_slots: shard.rows_in_order([(local, part)])
        for number, part in _parts_here(dataclasses.replace(state, extra=())).items()
    }
    sharding = location.sharding.with_memory_kind(_HOST)

    def joined(*parts: np.ndarray) -> jax.Array:
        at = dict(zip(read, parts, strict=True))
        shape = (location.shape[0], *parts[0].shape[1:])

        def rows(index: Any) -> np.ndarray:
            return at[index[0].start or 0]

        return jax.make_array_from_callback(shape, sharding, rows)

    return jax.tree.map(joined, *read.values())


def _parts_here(state: TableState) -> dict[int, TableState]:
    """Finds the shards on this process's devices by number, each once."""
    parts: dict[int, dict[int, jax.Array]] = {}
    leaves, structure = jax.tree.flatten(state)
    for leaf_number, leaf in enumerate(leaves):
        for each in leaf.addressable_shards:  # in one order of devices for all leaves
            number = (each.index[0].start or 0) // each.data.shape[0]
            parts.setdefault(number, {}).setdefault(leaf_number, each.data)
    return {
        n: jax.tree.unflatten(structure, part.values()) for n, part in parts.items()
    }


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
        slots, sharding = where.shape[0], _in_host_memory(where.sharding)

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


def _in_host_memory(sharding: Any) -> Any:
    """Returns where rows are read to: of several processes to each one's shards."""
    if getattr(sharding, "is_fully_addressable", True):
        one = jax.local_devices()[0]
        return jax.sharding.SingleDeviceSharding(one, memory_kind=_HOST)
    return sharding.with_memory_kind(_HOST)


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
        rows = _RowsHere(read[*above, "values"])
        states = {n: _RowsHere(read[*above, "optimizer", n]) for n in table.states}
        for path, leaf in own.items():
            member = path[len(above) :]
            if member == ("tier", "homes"):
                result[path] = _homes(table, leaf, rows, states)
            elif member[0] in ("tier", "values", "optimizer"):
                result[path] = _zeros(leaf)
    return result


class _RowsHere:
    """Finds rows in an array of which other processes may have parts."""

    def __init__(self, array: Any):
        """Copies the rows that this process has to the host."""
        parts = {0: array}
        if is_shared(array):
            shards = array.addressable_shards
            parts = {each.index[0].start or 0: each.data for each in shards}
        self._parts = {begin: np.asarray(part) for begin, part in parts.items()}

    def between(self, begin: int, end: int) -> np.ndarray:
        """Returns the rows of a shard, as far as there are rows."""
        first = max(start for start in self._parts if start <= begin)
        return self._parts[first][begin - first : end - first]


def _homes(
    table: TableSpec, like: Any, rows: _RowsHere, states: Mapping[str, _RowsHere]
) -> jax.Array:
    """Makes home records, those of each device from its rows."""

    def records(index: Any) -> np.ndarray:
        begin, end, _ = index[0].indices(like.shape[0])
        of_states = {name: each.between(begin, end) for name, each in states.items()}
        found = shard.records_of(table, rows.between(begin, end), of_states)
        missing = end - begin - len(found)  # in the last buckets of an uneven mesh
        return np.pad(found, ((0, missing), (0, 0))) if missing else found

    sharding = like.sharding.with_memory_kind(_HOST)
    if sharding.is_fully_addressable:
        return jax.device_put(records((slice(None),)), sharding)
    return jax.make_array_from_callback(like.shape, sharding, records)


def _zeros(like: Any) -> jax.Array:
    sharding = like.sharding
    if sharding.is_fully_addressable:
        return jax.device_put(np.zeros(like.shape, like.dtype), sharding)
    shape = sharding.shard_shape(like.shape)
    return jax.make_array_from_callback(
        like.shape, sharding, lambda _: np.zeros(shape, like.dtype)
    )


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
