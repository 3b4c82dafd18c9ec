# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a tiered table, and the two parts that ordinary calls get of it.

docs/decisions/tiers.md says what each array means.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.initializers import Given
from jax_dynemb._src.optim.interface import StateSpec, TableOptimizer
from jax_dynemb._src.spec import TableSpec

_log = logging.getLogger("jax_dynemb.tiers")
_SLOW_GIGABYTES = 2  # XLA pins about 2 GB a second where it has not used the memory yet


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["notes", "records"], meta_fields=[]
)
@dataclasses.dataclass(frozen=True)
class Ring:
    """Rows that were evicted from a table above a store (core/departures.h)."""

    # uint32[1 + n, 8]: how many there are and how many have their records; then key,
    # score, slot and location of each row.
    notes: UInt32[Array, "notes 8"]
    # uint32[n, words]: the row and its states, as a home record has them.
    records: UInt32[Array, "rows words"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["location", "owners", "homes", "counters", "held", "departed"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class TierState:
    """Where the rows of a tiered table lie."""

    # int32[slots]: 0 at home, the number of a frame counted from 1, or fresh.
    location: Int32[Array, " slots"]
    # uint32[buckets, frames]: the slot in the bucket that owns the frame, and whether
    # the frame is newer than the home record.
    owners: UInt32[Array, "buckets frames"]
    # uint32[slots, words], in pinned host memory: a row and its states a slot.
    homes: UInt32[Array, "slots words"]
    # uint32[rows, 10, 2]: 64-bit numbers as (low, high) words.
    counters: UInt32[Array, "rows counters 2"]
    # int32[slots], bits of uint32: the number of the last lookup in which the row may
    # not be evicted, or 0. None without a store.
    held: Int32[Array, " slots"] | None = None
    departed: Ring | None = None  # evicted rows; None without a store

    def __setstate__(self, fields: dict[str, Any]) -> None:
        """Takes a pickle, of before ``location`` had this name too."""
        for name, value in fields.items():
            object.__setattr__(self, "location" if name == "place" else name, value)


@dataclasses.dataclass(frozen=True)
class _Locations(TableOptimizer):
    """Stands in an index part in place of optimizer states."""

    holds: bool  # whether rows may be held
    kind: str = dataclasses.field(default="none", init=False)

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Returns the states; their initial values say fresh, and not held."""
        del dim
        locations = {"location": StateSpec((), 1.0, "int32")}
        held = {"held": StateSpec((), 0.0, "int32")} if self.holds else {}
        return locations | held


def index_part(table: TableSpec) -> TableSpec:
    """The spec of a tiered table for calls that find or insert keys."""
    return dataclasses.replace(
        table,
        part="index",
        tier=None,
        optimizer=_Locations(table.ring_rows > 0),
        initializer=Given(),
        eval_initializer=Given(),
    )


def rows_part(table: TableSpec, *, rounds: bool = False) -> TableSpec:
    """Makes the spec of the rows in device memory: a table without an index.

    With ``rounds`` a call rounds them as the table says, and takes their keys in place
    of an index (ops/row_keys.py); else to nearest.
    """
    capacity = _ffi.constants()["bucket_capacity"]
    buckets = -(-table.device_rows // capacity)
    return dataclasses.replace(
        table,
        part="rows",
        tier=None,
        ring_rows=0,
        num_buckets=buckets,
        shards=1,
        rounding=table.rounding if rounds else "nearest",
    )


def rounds_in_tier(table: TableSpec) -> bool:
    """Whether updates of a table need the keys of its rows in device memory."""
    return table.tier is not None and table.rounding == "stochastic"


def empty_tier(table: TableSpec) -> TierState:
    """Makes the arrays of one shard, all but the homes; see ``with_homes``."""
    arrays: dict[str, Any] = {
        name: jnp.zeros(*shape_and_dtype)
        for name, shape_and_dtype in expected_tier(table).items()
        if name != "homes"
    }
    ring = [arrays.get(f"departed {name}") for name in ("notes", "records")]
    return TierState(
        location=arrays["location"],
        owners=arrays["owners"],
        homes=None,  # pyright: ignore[reportArgumentType]
        counters=arrays["tier counters"],
        held=arrays.get("held"),
        departed=Ring(*ring) if table.ring_rows else None,  # pyright: ignore
    )


def ring_of(state: Any) -> Ring:
    """The ring of a table that has one."""
    assert state.tier is not None and state.tier.departed is not None  # check_state
    return state.tier.departed


def with_notes(tier: TierState | None, notes: jax.Array) -> TierState:
    """The same tier with other notes of departed rows."""
    assert tier is not None and tier.departed is not None
    return dataclasses.replace(tier, departed=Ring(notes, tier.departed.records))


def with_homes(table: TableSpec, state: Any) -> Any:
    """Adds the home records to the arrays of a tiered table; others stay as they are.

    Outside of a program, large ones never pass through device memory. Arrays in memory
    of the host are committed to it. So the others become committed too, in place: a
    step returns all of them so, and would compile again for its own results.
    """
    if table.tier is None or state.tier.homes is not None:
        return state
    shape = (state.tier.location.shape[0], table.record_words)
    if isinstance(state.tier.location, Tracer):
        homes = jax.device_put(jnp.zeros(shape, jnp.uint32), jax.memory.Space.Host)
    else:
        where = state.tier.location.sharding.with_memory_kind("pinned_host")
        homes = _zeros_on_host(table.name, shape, where)
        state = jax.tree.map(_committed, state)
    tier = dataclasses.replace(state.tier, homes=homes)
    return dataclasses.replace(state, tier=tier)


def _committed(leaf: Any) -> Any:
    is_free = isinstance(leaf, jax.Array) and not leaf.committed
    return jax.device_put(leaf, leaf.sharding) if is_free else leaf


def _zeros_on_host(name: str, shape: tuple[int, int], sharding: Any) -> jax.Array:
    """Makes home records. A large array is pinned page by page, and logged."""
    gigabytes = 4 * shape[0] * shape[1] / 1e9
    if gigabytes < _SLOW_GIGABYTES:
        return _pinned_zeros(shape, sharding)
    _log.info("Table '%s': pinning %.1f GB of host memory.", name, gigabytes)
    begin = time.perf_counter()
    homes = jax.block_until_ready(_pinned_zeros(shape, sharding))
    seconds = time.perf_counter() - begin
    _log.info("Table '%s': %.1f GB pinned in %.1f s.", name, gigabytes, seconds)
    return homes


def _pinned_zeros(shape: tuple[int, int], sharding: Any) -> jax.Array:
    # Of make_array_from_callback a program would not know the memory.
    return jax.device_put(np.zeros(shape, np.uint32), sharding)


def expected_tier(table: TableSpec) -> dict[str, Any]:
    """Shapes and dtypes of the arrays of a shard, by name."""
    names = _ffi.constants()["tier_counters"]
    arrays: dict[str, Any] = {
        "location": ((table.local_slots,), "int32"),
        "owners": ((table.local_buckets, table.frames), "uint32"),
        "homes": ((table.local_slots, table.record_words), "uint32"),
        "tier counters": ((table.counter_rows, len(names), 2), "uint32"),
    }
    if table.ring_rows > 0:
        notes = (1 + table.ring_rows, _ffi.constants()["departure_words"])
        arrays["held"] = ((table.local_slots,), "int32")
        arrays["departed notes"] = (notes, "uint32")
        arrays["departed records"] = ((table.ring_rows, table.record_words), "uint32")
    return arrays


def given_tier(tier: TierState) -> dict[str, jax.Array]:
    """The arrays of a tier under the names of ``expected_tier``."""
    arrays = {"location": tier.location, "owners": tier.owners, "homes": tier.homes}
    arrays["tier counters"] = tier.counters
    if tier.held is not None:
        arrays["held"] = tier.held
    if tier.departed is not None:
        arrays["departed notes"] = tier.departed.notes
        arrays["departed records"] = tier.departed.records
    return arrays
