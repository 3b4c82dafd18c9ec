# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The engine of hash tables on a mesh; every operation is one shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb.config import TableConfig
from jax_dynemb.engines import shard
from jax_dynemb.engines._catalog import Catalog
from jax_dynemb.engines._engine import States
from jax_dynemb.engines._flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines._stats_future import StatsFuture, compile_counts
from jax_dynemb.engines.mesh import (
    _columns,
    _growth,
    _hosts,
    _maintenance,
    _rules,
    _serving,
    _slots,
    _training,
)
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._packed_ids import PackedIds, pack
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._plan import Plan
from jax_dynemb.engines.mesh._residual import ShardedResidual
from jax_dynemb.engines.mesh._stacks import states_of
from jax_dynemb.engines.shard import (
    BucketStats,
    NewRows,
    Query,
    RowGradients,
    Rule,
)
from jax_dynemb.ops import TableState, on_host
from jax_dynemb.rows import Exported


@dataclasses.dataclass(frozen=True)
class MeshEngine:
    """Runs hash tables that are sharded over the devices of a mesh; see ``Engine``.

    Attributes:
      tables: with their places on the mesh.
    """

    tables: MeshTables

    @classmethod
    def of(
        cls,
        catalog: Catalog[TableConfig],
        placement: Placement,
        plan: Plan | None = None,
    ) -> Self:
        """Places tables on a mesh.

        Args:
          catalog: the tables, with the shardings of the plan.
          placement: the mesh; tables of the same names keep its places.
          plan: the shards of table-wise tables.
        """
        planned = {} if plan is None else plan.shards
        return cls(MeshTables(catalog, placement.with_tables(catalog.configs, planned)))

    @property
    def catalog(self) -> Catalog[TableConfig]:
        return self.tables.catalog

    @property
    def placement(self) -> Placement:
        """Returns the mesh, and where the tables lie on it."""
        return self.tables.placement

    def with_configs(self, configs: Iterable[TableConfig]) -> Self:
        return self.of(Catalog(tuple(configs)), self.placement)

    # ---- where arrays are --------------------------------------------------------

    def state_name(self, table: str) -> str:
        return self.placement.stack_of(self.catalog.table(table).name).name

    def buckets(self, table: str) -> int | None:
        placement, stack = self.placement, self.placement.stack_of(table)
        is_part = placement.is_inside()
        if placement.mesh is None and not is_part:
            return None
        here = placement.here().stack_of(table)
        copies = is_part or stack.sharding == "replicated"
        return here.local.local_buckets * (1 if copies else placement.shards)

    def extent(self, table: str) -> Mapping[str, Any]:
        stack = self.placement.stack_of(table)
        if stack.sharding == "column_wise":
            return {"column_parts": stack.shards}
        if stack.blocks == 1:
            return {}
        block = stack.block_of(table)
        return {"arrays": stack.name, "place": block, "places": stack.blocks}

    def counter_rows(self, table: str) -> slice:
        return _hosts.counter_rows(self.placement.stack_of(table), table)

    def counted(self, state: States, table: str) -> TableState:
        stack = self.placement.stack_of(table)
        return _hosts.table_counters(stack, table, state[stack.name])

    def removed_log(self, state: States, table: str) -> np.ndarray:
        stack = self.placement.stack_of(table)
        rows = _hosts.first_counter_rows(stack, table)
        return on_host(state[stack.name].removed)[rows]

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        return _maintenance.init(self.tables, seed)

    def empty(self, table: str, like: TableState) -> TableState:
        del like  # the mesh says where each shard lies
        name = self.state_name(table)
        seed = jnp.zeros(2, jnp.uint32)
        return _maintenance.init(self.tables, seed, (name,))[name]

    def clear(self, state: States, tables: Collection[str]) -> States:
        return _maintenance.clear(self.tables, state, tables)

    def growing_together(self, table: str) -> list[str]:
        arrays = self.state_name(table)
        return [t for t in self.catalog.tables if self.state_name(t) == arrays]

    def grow(self, arrays: TableState, factors: Mapping[str, int]) -> TableState:
        placement = self.tables.here()
        name, factor = next(iter(factors.items()))
        stack = placement.stack_of(name)
        return _growth.grow(placement, stack, factor, arrays)

    def grow_homes(
        self, before: TableState, after: TableState, factors: Mapping[str, int]
    ) -> TableState:
        placement = self.tables.here()
        name, factor = next(iter(factors.items()))
        stack = placement.stack_of(name)
        return _growth.grow_homes(placement, stack, factor, before, after)

    def stats_async(self, state: States) -> StatsFuture:
        return StatsFuture.of(self, self._read(state), self._stats)

    def compile_stats(self, types: States) -> list[Any]:
        return compile_counts(self, self._read(types))

    def _read(self, state: States) -> shard.CountedArrays:
        return shard.CountedArrays.of(states_of(state, self.tables.here().stacks))

    def count(self, arrays: shard.CountedArrays) -> Any:
        """See ``Counts``: counters, rows of shards and buckets, counters of tiers."""
        rows = _hosts.count_rows(self.tables.here(), arrays.index)
        return arrays.counters, rows, arrays.tier

    def _stats(self, copied: Any) -> dict[str, int | float]:
        placement, (words, rows, tiers) = self.tables.here(), copied
        counted = _hosts.by_stack(placement, rows)
        fullest = _hosts.fullest_buckets(placement, counted)
        result: dict[str, int | float] = {}
        for name, config in self.catalog.tables.items():
            stack = self.placement.stack_of(name)
            own = words[stack.name][_hosts.first_counter_rows(stack, name)]
            counters = shard.counter_totals(own)
            result |= shard.stats(config, counters, fullest[name])
            result |= _hosts.exchange_stats(placement, config, counted, counters)
            own = _hosts.first_counter_rows(stack, name)
            result |= shard.tier_stats(config, tiers.get(stack.name), own)
        return result

    def shards(self, state: States, table: str) -> shard.Shards:
        """Returns the shards on this process's devices, each as a table of one."""
        config = self.catalog.table(table)
        arrays = state[self.state_name(table)]
        return _maintenance.local_shards(self.tables, config, arrays)

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        columns = self.catalog.table(table).sharding == "column_wise"
        stream = _columns.export_columns if columns else shard.export
        return stream(self.shards(state, table), query)

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        shards = self.shards(state, table)
        if self.catalog.table(table).sharding == "column_wise":
            shards = shards[:1]  # each has all keys
        return shard.export_index(shards)

    # ---- a step ------------------------------------------------------------------

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        return _training.route(self.tables, ids, weights)

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], PackedIds | None]:
        return pack(self.tables, ids)

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        given: Given,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], ShardedResidual, States]:
        return _training.lookup(self.tables, state, ids, weights, given, sent, flags)

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        return _serving.find(self.tables, state, ids, weights)

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        given: Given,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        return _serving.touch(self.tables, state, ids, given, flags)

    def hold(
        self, arrays: TableState, table: str, ids: Any, lookups: int
    ) -> TableState:
        config = self.catalog.table(table)
        return _maintenance.hold(self.tables, arrays, config, ids, lookups)

    def read_departed(self, rings: Mapping[str, Any], table: str) -> Exported:
        config = self.catalog.table(table)
        return _maintenance.read_departed(self.tables, rings, config)

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        return _maintenance.prefetch(self.tables, state, ids)

    def flush(self, state: States) -> States:
        return _maintenance.flush(self.tables, state)

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        return _training.apply_gradients(self.tables, state, residual, d_rows, hyper)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        return _training.reduce_gradients(self.tables, state, residual, d_rows)

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        return _serving.weight_gradients(self.tables, state, residual, d_rows)

    # ---- single rows -------------------------------------------------------------

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        return _slots.gather(self.tables, state, slots)

    def scatter(
        self,
        state: States,
        slots: Mapping[str, jax.Array],
        rows: Mapping[str, Mapping[str, jax.Array]],
    ) -> States:
        return _slots.scatter(self.tables, state, slots, rows)

    def insert(self, arrays: TableState, table: str, new: NewRows) -> TableState:
        config = self.catalog.table(table)
        return _maintenance.insert(self.tables, arrays, config, new)

    def erase(self, arrays: TableState, table: str, ids: Any) -> TableState:
        return _maintenance.erase(self.tables, arrays, self.catalog.table(table), ids)

    def pin(self, arrays: TableState, table: str, ids: Any, pins: bool) -> TableState:
        config = self.catalog.table(table)
        return _maintenance.pin(self.tables, arrays, config, ids, pins)

    def erase_where(
        self, arrays: TableState, table: str, rule: Rule, dry_run: bool
    ) -> tuple[jax.Array, TableState]:
        return _rules.erase_where(self.tables, arrays, table, rule, dry_run)

    def bucket_stats(self, arrays: TableState, table: str) -> BucketStats:
        return _rules.bucket_stats(self.tables, arrays, table)

    def decay(self, arrays: TableState, table: str, factor: jax.Array) -> TableState:
        return _rules.decay(self.tables, arrays, table, factor)
