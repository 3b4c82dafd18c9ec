# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint has tiered tables as if they had no tier.

So it restores into a table with another cache, or with none, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines import shard
from jax_dynemb.files.checkpoint._tree import Path, Place
from jax_dynemb.ops import Ring, TableState, TierState

_SEVERAL = (
    "Table '{name}' has a tier and shares its arrays with other table-wise tables; a "
    "checkpoint of it is not possible. Give it sharding='row_wise'."
)
_PROCESSES = (
    "Table '{name}' has a tier, and its arrays lie on the devices of several "
    "processes; a checkpoint of it is not possible. Save it from one process."
)


def plain(leaves: Mapping[Path, Any], places: Mapping[Path, Place]) -> dict[Path, Any]:
    """Replaces the arrays of tiered tables by those of untiered ones, in NumPy.

    Raises:
      NotImplementedError: a table's arrays are not its own, or of several processes.
    """
    result = dict(leaves)
    for place, own in _tiered(leaves, places):
        state = _state_of(place, own)
        if not state.index.is_fully_addressable:
            raise NotImplementedError(_PROCESSES.format(name=place.name))
        engine: Any = place.coll.engine
        dynamic = getattr(engine, "dynamic", engine)
        states = {place.coll.state_name(place.name): state}
        rows, of_rows = shard.rows_in_order(dynamic.shards(states, place.name))
        _replace(result, place, own, rows, of_rows)
    return result


def targets(
    leaves: Mapping[Path, Any], places: Mapping[Path, Place]
) -> dict[Path, Any]:
    """Replaces the same arrays by the shapes of those that a checkpoint has."""
    result = dict(leaves)
    for place, own in _tiered(leaves, places):
        table = TableSpec.of(place.config)
        sharding = jax.sharding.SingleDeviceSharding(
            jax.local_devices()[0], memory_kind="pinned_host"
        )

        def shape(
            *sizes: int, dtype: str, sharding: Any = sharding
        ) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

        rows = shape(table.num_slots, table.dim, dtype=table.param_dtype)
        states = {
            name: shape(table.num_slots, *spec.shape, dtype=spec.dtype)
            for name, spec in table.states.items()
        }
        _replace(result, place, own, rows, states)
    return result


def as_given(given: Mapping[Path, Any], place: Place) -> dict[Path, Any]:
    """Selects the leaves of one tiered table as the tree has them."""
    above = place.arrays
    return {p: x for p, x in given.items() if p[: len(above)] == above}


def tiered(
    read: Mapping[Path, Any],
    given: Mapping[Path, Any],
    places: Mapping[Path, Place],
) -> dict[Path, Any]:
    """Makes home records of the rows that were read; frames begin empty.

    Args:
      read: all leaves, with the arrays of untiered tables.
      given: the leaves of the tree, with the arrays of tiered ones.
      places: of the tables.
    """
    result = {path: read.get(path, leaf) for path, leaf in given.items()}
    for place, own in _tiered(given, places):
        table = TableSpec.of(place.config)
        above = place.arrays
        rows = np.asarray(read[*above, "values"])
        states = {n: np.asarray(read[*above, "optimizer", n]) for n in table.states}
        records = shard.records_of(table, rows, states)
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
    leaves: Mapping[Path, Any], places: Mapping[Path, Place]
) -> Iterator[tuple[Place, dict[Path, Any]]]:
    """Finds tiered tables and their leaves."""
    for place in places.values():
        if place.config.tier is None:
            continue
        if sum(other.arrays == place.arrays for other in places.values()) > 1:
            raise NotImplementedError(_SEVERAL.format(name=place.name))
        yield place, as_given(leaves, place)


def _state_of(place: Place, own: Mapping[Path, Any]) -> TableState:
    members = {path[len(place.arrays) :]: leaf for path, leaf in own.items()}
    tier = {path[1]: x for path, x in members.items() if path[0] == "tier"}
    if "departed" in tier:
        arrays = ("tier", "departed")
        tier["departed"] = Ring(members[*arrays, "notes"], members[*arrays, "records"])
    return TableState(
        index=members["index",],
        values=members["values",],
        optimizer={n: members["optimizer", n] for n in place.config.states},
        counters=members["counters",],
        tier=TierState(**tier),
    )


def _replace(
    result: dict[Path, Any],
    place: Place,
    own: Mapping[Path, Any],
    rows: Any,
    states: Mapping[str, Any],
) -> None:
    above = place.arrays
    for path in own:
        member = path[len(above) :]
        if member[0] == "tier":
            del result[path]
        elif member == ("values",):
            result[path] = rows
        elif member[0] == "optimizer":
            result[path] = states[member[1]]
