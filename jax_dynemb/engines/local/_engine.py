# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs hash tables on one device."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import ops
from jax_dynemb._spec import TableSpec
from jax_dynemb._table_sizes import MAX_SLOTS
from jax_dynemb.config import TableConfig
from jax_dynemb.engines import shard
from jax_dynemb.engines._catalog import Catalog
from jax_dynemb.engines._engine import States
from jax_dynemb.engines._flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines._stats_future import StatsFuture, compile_counts
from jax_dynemb.engines.local import _blocks, _steps
from jax_dynemb.engines.shard import BucketStats, NewRows, Query, RowGradients, Rule
from jax_dynemb.ops import (
    Residual,
    TableState,
    empty_arrays,
    new_run,
    on_host,
    prepare,
)
from jax_dynemb.rows import Exported


@dataclasses.dataclass(frozen=True)
class LocalEngine:
    """Hash tables on one device; see ``Engine``.

    Attributes:
      catalog: the tables by name.
      share_arrays: whether tables of one width lie in the same arrays; None: up to
        4 GiB of them.
      placed: the specs with their blocks in these arrays.
    """

    catalog: Catalog[TableConfig]
    share_arrays: bool | None
    placed: tuple[TableSpec, ...]

    @classmethod
    def of(
        cls,
        catalog: Catalog[TableConfig],
        share_arrays: bool | None,
        before: Iterable[TableSpec] = (),
    ) -> Self:
        """Gives tables their arrays.

        Args:
          catalog: the tables.
          share_arrays: whether tables of one width lie in the same arrays; None: up
            to 4 GiB of them.
          before: tables in their arrays; those of the same names stay together.

        Raises:
          ValueError: a table has more slots than int32 can number.
        """
        _check_slots(catalog.configs)
        placed = tuple(TableSpec.of(config) for config in catalog.configs)
        if share_arrays is not False:
            most = None if share_arrays else _blocks.SHARED_BYTES
            placed = _blocks.in_shared_arrays(placed, tuple(before), most)
        return cls(catalog, share_arrays, placed)

    def with_configs(self, configs: Iterable[TableConfig]) -> Self:
        return self.of(Catalog(tuple(configs)), self.share_arrays, self.placed)

    # ---- where arrays are --------------------------------------------------------

    @functools.cached_property
    def _by_name(self) -> dict[str, TableSpec]:
        return {spec.name: spec for spec in self.placed}

    def local_spec(self, name: str) -> TableSpec:
        """Returns the spec of a table as a call takes it."""
        return self._by_name[self.catalog.table(name).name]

    def local_specs(self, names: Collection[str]) -> list[TableSpec]:
        """Returns the specs of some tables, in the order of a call."""
        return [spec for spec in self.placed if spec.name in names]

    def state_name(self, table: str) -> str:
        return self.local_spec(table).state_name

    def buckets(self, table: str) -> int:
        own = self.local_spec(table)
        return own.local_buckets if own.block is None else own.block.num_buckets

    def extent(self, table: str) -> Mapping[str, Any]:
        block = self.local_spec(table).block
        if block is None:
            return {}
        fields = ("arrays", "first_bucket", "first_row")
        return {field: getattr(block, field) for field in fields}

    def counter_rows(self, table: str) -> slice:
        return self.local_spec(table).own_counters

    def counted(self, state: States, table: str) -> TableState:
        own = self.local_spec(table)
        arrays = state[own.state_name]
        if own.block is None:
            return arrays
        counters: Any = on_host(arrays.counters)[own.own_counters]
        return dataclasses.replace(arrays, counters=counters)

    def removed_log(self, state: States, table: str) -> np.ndarray:
        return on_host(state[self.state_name(table)].removed)

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        return self._with_homes(_blocks.init(self.placed, seed, new_run()))

    def _with_homes(self, state: States) -> States:
        tiered = [spec for spec in self.placed if spec.tier is not None]
        return state | {
            spec.state_name: ops.with_homes(spec, state[spec.state_name])
            for spec in tiered
        }

    def empty(self, table: str, like: TableState) -> TableState:
        some = _blocks.by_arrays(self.placed)[self.state_name(table)]
        like = shard.without_homes(like)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, like)
        make = jax.jit(empty_arrays, static_argnums=0, out_shardings=shardings)
        seeds = [jnp.zeros(2, jnp.uint32)] * len(some)
        new = make(tuple(some), seeds, jnp.asarray(new_run()))
        return ops.with_homes(some[0], new)

    def clear(self, state: States, tables: Collection[str]) -> States:
        return _blocks.clear(self.local_specs(tables), state)

    def growing_together(self, table: str) -> list[str]:
        return [self.catalog.table(table).name]

    def grow(self, arrays: TableState, factors: Mapping[str, int]) -> TableState:
        return _blocks.grown(self.local_specs(factors), factors, arrays)

    def grow_homes(
        self, before: TableState, after: TableState, factors: Mapping[str, int]
    ) -> TableState:
        (name, factor), *_ = factors.items()
        table = self.local_spec(name)
        if table.tier is None:
            return after
        move = functools.partial(shard.moved_on_one_device, table, factor)
        return shard.with_grown_homes(table, factor, before, after, move)

    def stats_async(self, state: States) -> StatsFuture:
        return StatsFuture.of(self._counts, self._read(state), self._stats)

    def compile_stats(self, types: States) -> list[Any]:
        return compile_counts(self._counts, self._read(types))

    @functools.cached_property
    def _counts(self) -> _blocks.Counts:
        return _blocks.Counts.of(self.placed)

    def _read(self, state: States) -> shard.CountedArrays:
        names = {spec.state_name for spec in self.placed}
        return shard.CountedArrays.of({name: state[name] for name in sorted(names)})

    def _stats(self, copied: Any) -> dict[str, int | float]:
        counters, most, tiers = copied
        fullest = _blocks.by_table(self.placed, most)
        result: dict[str, int | float] = {}
        for name, config in self.catalog.tables.items():
            own = self.local_spec(name)
            words = counters[own.state_name][own.own_counters]
            numbers = shard.counter_totals(words)
            result |= shard.stats(config, numbers, fullest[name])
            result |= shard.tier_stats(config, tiers.get(own.state_name))
        return result

    def shards(self, state: States, table: str) -> shard.Shards:
        """Returns the arrays of a table with its spec."""
        own = self.local_spec(table)
        return [(own, state[own.state_name])]

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        return shard.export(self.shards(state, table), query)

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return shard.export_index(self.shards(state, table))

    # ---- a step ------------------------------------------------------------------

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
        del ids, weights  # one device sends nothing

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], None]:
        return OrderedDict(ids), None

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        given: Given,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], Residual, States]:
        del sent
        return _steps.lookup(self, state, ids, weights, given, flags)

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        return _steps.find(self, state, ids, weights)

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        given: Given,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        return _steps.touch(self, state, ids, given, flags)

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        return _steps.prefetch(self, state, ids)

    def flush(self, state: States) -> States:
        tiered = [spec for spec in self.placed if spec.tier is not None]
        return dict(state) | ops.flush(tiered, state)

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        return _steps.apply_gradients(self, state, residual, d_rows, hyper)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        return _steps.reduce_gradients(self, state, residual, d_rows)

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        return _steps.weight_gradients(self, state, residual, d_rows)

    # ---- single rows -------------------------------------------------------------

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        rows, new = {}, dict(state)
        for name, each in slots.items():
            own = self.local_spec(name)
            arrays = new[own.state_name]
            rows[name], new[own.state_name] = ops.gather(own, arrays, each)
        return rows, new

    def scatter(
        self,
        state: States,
        slots: Mapping[str, jax.Array],
        rows: Mapping[str, Mapping[str, jax.Array]],
    ) -> States:
        new = dict(state)
        for name, each in slots.items():
            own = self.local_spec(name)
            arrays = new[own.state_name]
            new[own.state_name] = ops.scatter(own, arrays, each, rows[name])
        return new

    def insert(self, arrays: TableState, table: str, new: NewRows) -> TableState:
        return shard.insert(self.local_spec(table), arrays, new)

    def erase(self, arrays: TableState, table: str, ids: Any) -> TableState:
        _, given = prepare(self.catalog.table(table), table, ids)
        return ops.erase(self.local_spec(table), arrays, given.ids)

    def pin(self, arrays: TableState, table: str, ids: Any, pins: bool) -> TableState:
        _, given = prepare(self.catalog.table(table), table, ids)
        return shard.set_pins(self.local_spec(table), arrays, given.ids, pins)

    def hold(
        self, arrays: TableState, table: str, ids: Any, lookups: int
    ) -> TableState:
        _, given = prepare(self.catalog.table(table), table, ids)
        return shard.hold_rows(self.local_spec(table), arrays, given.ids, lookups)

    def read_departed(self, rings: Mapping[str, Any], table: str) -> Exported:
        own = self.local_spec(table)
        return shard.read_rings(own, [rings[own.state_name]])

    def erase_where(
        self, arrays: TableState, table: str, rule: Rule, dry_run: bool
    ) -> tuple[jax.Array, TableState]:
        own = self.local_spec(table)
        return shard.erase_where(own, arrays, rule, dry_run, shard.ALONE)

    def bucket_stats(self, arrays: TableState, table: str) -> BucketStats:
        return shard.bucket_stats(self.local_spec(table), arrays, shard.ALONE)

    def decay(self, arrays: TableState, table: str, factor: jax.Array) -> TableState:
        return ops.decay(self.local_spec(table), arrays, factor)


def _check_slots(configs: Iterable[TableConfig]) -> None:
    for table in configs:
        if table.num_slots > MAX_SLOTS:
            raise ValueError(
                f"Table '{table.name}': capacity {table.capacity} needs more than "
                "2**31 slots on one device; split the features over several tables, "
                "or shard the table over a mesh (of more devices)"
            )
