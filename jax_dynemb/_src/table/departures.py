# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` above stores: held rows and evicted rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines import LookupEngine, States
from jax_dynemb._src.engines.hash import HashEngine
from jax_dynemb._src.ops import Ring, everywhere, on_every_process, on_host, settled
from jax_dynemb._src.rows import Exported, Identity
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table.declared import Declared


@dataclasses.dataclass(frozen=True, eq=False)
class Departed:
    """Holds the rows that tables have evicted, on their way to a host.

    Any thread may read it. Its arrays are in no state, so no program changes them.

    Attributes:
      tables: names of the tables that keep the rows that they evict.
      rings: the arrays of the rows by the names of arrays in a state.
      counters: copies of the tables' counters at that moment, likewise.
    """

    tables: tuple[str, ...]
    rings: Mapping[str, Ring]
    _engine: HashEngine = dataclasses.field(repr=False)
    counters: Mapping[str, jax.Array] = dataclasses.field(
        default_factory=dict, repr=False
    )

    def start_copy(self) -> None:
        """Begins to copy the rows to the host, without waiting for the device."""
        for leaf in jax.tree.leaves(dict(self.rings)):
            leaf.copy_to_host_async()

    def is_ready(self) -> bool:
        """Tells whether the programs that evicted the rows have run."""
        return all(leaf.is_ready() for leaf in jax.tree.leaves(dict(self.rings)))

    def identity(self, table: str) -> Identity | None:
        """Reads of which table and moment the rows are; waits as ``exported``."""
        arrays = self._engine.state_name(table)
        if arrays not in self.counters:
            return None
        rows = self._engine.counter_rows(table)
        return Identity.of(on_host(self.counters[arrays])[rows])

    def exported(self, table: str) -> Exported:
        """Reads the rows of a table; waits for the programs that evicted them.

        On a mesh of several processes these are the rows of this process's devices.

        Args:
          table: its name.

        Returns:
          Rows in the order in which they left each device. A key that was evicted,
          inserted and evicted again is there twice; its later row is the newer one.

        Raises:
          ValueError: the table keeps no evicted rows.
        """
        if table not in self.tables:
            raise ValueError(
                f"Table '{table}' keeps no rows that it evicts; {list(self.tables)} "
                "do. Give it a tier with a store."
            )
        return self._engine.read_departed(self.rings, table)


class Departures(Declared):
    """Keeps rows in tables for coming lookups, and takes those that were evicted."""

    def hold(self, state: States, ids: Mapping[str, Any], *, lookups: int) -> States:
        """Keeps the rows of some ids in the table during the lookups that come.

        None of them evicts such a row; a bucket of 128 rows that stay refuses new
        ids. A longer hold stays as it is, and ids that are not stored are passed
        over. ``insert`` is no lookup: it leaves the rows that the next lookup leaves.
        ``erase``, ``clear`` and rules remove held rows too. ``pin`` is for rows that
        stay until ``unpin``.

        Args:
          state: the tables; donate them.
          ids: by name of tables with a store, as for ``erase``.
          lookups: how many, 1 to 65,535; static. Every call of ``lookup`` on the
            table counts.

        Returns:
          The new state.

        Raises:
          TypeError: ``lookups`` is no int.
          ValueError: it is out of range, or a table keeps no evicted rows.
        """
        most = _ffi.constants()["most_held"] - 1
        if isinstance(lookups, bool) or not isinstance(lookups, int):
            raise TypeError(f"hold: lookups must be an int, not {lookups!r}.")
        if not 1 <= lookups <= most:
            raise ValueError(f"hold: lookups must be from 1 to {most}, not {lookups}.")
        _arguments.check_states(self.engine, state, "hold")
        batch, new = _arguments.by_table(self.engine.catalog, ids, "hold"), dict(state)
        _arguments.check_arrays(self.engine, state, batch, "hold")
        above = _above_stores(self.engine)
        for name, each in batch.items():
            if name not in above:
                raise ValueError(
                    f"hold: table '{name}' keeps no rows that it evicts; {above} do. "
                    "Use pin for it, or give it a tier with a store."
                )
            arrays = self.engine.state_name(name)
            new[arrays] = self.hash_engine.hold(new[arrays], name, each, lookups)
        return new

    def departed(self, state: States) -> Departed:
        """Returns the rows that were evicted and not taken, without taking them.

        Args:
          state: the tables. The result is of no use once these arrays are donated.
        """
        tables, rings = _rings(self.engine, state)
        copies = _copied({name: state[name].counters for name in rings})
        counters = settled(jax.tree.map(on_every_process, copies))
        return Departed(tables, rings, self.hash_engine, counters)

    def take_departed(
        self, state: States, reuse: Departed | None = None
    ) -> tuple[States, Departed]:
        """Takes the evicted rows out of a state; it gets empty arrays for others.

        The call waits for nothing and copies nothing but counters. The new state has
        the shapes and shardings of the old one, so no program is compiled again. Make
        it between steps, outside of jit. The old state may not be used any more.

        Args:
          state: the tables.
          reuse: what an earlier call returned, once no thread reads it. Its arrays
            are used again, and it becomes useless.

        Returns:
          The new state and the rows.
        """
        _arguments.check_states(self.engine, state, "take_departed")
        tables, rings = _rings(self.engine, state)
        new, counters = dict(state), {}
        for name, ring in rings.items():
            arrays = new[name]
            assert arrays.tier is not None
            notes, counters[name] = _begin(ring.notes, arrays.counters)
            spare = None if reuse is None else reuse.rings[name].records
            records = _zeros(ring.records) if spare is None else spare
            tier = dataclasses.replace(arrays.tier, departed=Ring(notes, records))
            new[name] = dataclasses.replace(arrays, tier=tier)
        return new, Departed(tables, rings, self.hash_engine, counters)


def _rings(
    engine: LookupEngine, state: States
) -> tuple[tuple[str, ...], dict[str, Ring]]:
    """Finds the tables that keep evicted rows, and these by the names of arrays."""
    tables = tuple(_above_stores(engine))
    rings = {}
    for table in tables:
        name = engine.state_name(table)
        tier = state[name].tier
        assert tier is not None and tier.departed is not None
        rings[name] = tier.departed
    return tables, rings


def _above_stores(engine: LookupEngine) -> list[str]:
    """Lists the tables that keep evicted rows."""
    tables = engine.catalog.tables.items()
    tiers = {name: getattr(config, "tier", None) for name, config in tables}
    return [n for n, tier in tiers.items() if tier is not None and tier.ring_rows > 0]


@jax.jit
def _copied(arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Copies small arrays, which the next program may donate; waits for nothing."""
    return jax.tree.map(jnp.copy, arrays)


def _begin(notes: jax.Array, counters: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Makes the notes of an empty ring, and copies counters, in one program.

    The copies are whole in every process, so any thread can read them.
    """
    places = notes.sharding, everywhere(counters.sharding)
    return _beginner(notes.shape, places)(counters)


def _zeros(like: jax.Array) -> jax.Array:
    return _maker(like.shape, like.sharding)()


@functools.lru_cache(maxsize=256)
def _maker(shape: tuple[int, ...], sharding: Any) -> Any:
    make = functools.partial(jnp.zeros, shape, jnp.uint32)
    return jax.jit(make, out_shardings=sharding)


@functools.lru_cache(maxsize=256)
def _beginner(shape: tuple[int, ...], shardings: Any) -> Any:
    def make(counters: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(shape, jnp.uint32), jnp.copy(counters)

    return jax.jit(make, out_shardings=shardings)
