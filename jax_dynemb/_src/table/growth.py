# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Decides when tables grow, and grows them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import jax

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import LookupEngine, States, StatsFuture
from jax_dynemb._src.engines.hash import HashEngine
from jax_dynemb._src.engines.shard import larger, without_homes
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.store_tier import with_room
from jax_dynemb._src.table.arguments import check_mapping, check_not_donated
from jax_dynemb._src.table.by_kind import hash_of
from jax_dynemb._src.table.declared import Declared
from jax_dynemb._src.table.memory import check_pinned
from jax_dynemb._src.table_sizes import MAX_SLOTS

Described = TypeVar("Described", bound=Declared)
Stats = Mapping[str, int | float]
Factors = tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Growth(Generic[Described]):
    """Holds larger sizes of some tables until they apply; see ``Tables.plan_growth``.

    Attributes:
      before: the tables as they are.
      coll: the tables as they will be.
      factors: by the name of the arrays, how many times as many buckets each of their
        tables gets.
    """

    before: Described
    coll: Described
    factors: Mapping[str, Factors]

    def apply(self, state: States) -> States:
        """Copies the tables into larger arrays; donates nothing.

        Args:
          state: of ``before``.

        Returns:
          The state of ``coll``.
        """
        check_not_donated(state, "grow")
        if self.has_tier:  # otherwise the sizes of many tables take a part of the swap
            self._check_pinned()
        new, engine = dict(state), self.before.hash_engine
        for arrays, factors in self.factors.items():
            grown = grown_arrays(engine, factors, state[arrays])
            new[arrays] = engine.grow_homes(state[arrays], grown, dict(factors))
        return new

    @property
    def has_tier(self) -> bool:
        """Whether rows of some table lie in host memory."""
        return any(
            config.tier is not None
            for config in self.before.engine.catalog.dynamic.values()
        )

    def _check_pinned(self) -> None:
        """Raises unless the homes of both sizes have room in host memory."""
        sizes = {f"{name} before": x for name, x in self.before.memory().items()}
        new = self.coll.memory()
        for arrays, factors in self.factors.items():
            sizes |= {f"{arrays} {n}": new[n] for n, f in factors if f > 1}
        placement = self.before.placement
        check_pinned(sizes, 1 if placement is None else placement.shards)

    def compile(self, state: Any) -> dict[str, Any]:
        """Compiles ``apply``, which then takes no longer than its copies.

        Args:
          state: of ``before``; arrays, or ``jax.ShapeDtypeStruct`` with the shardings
            of arrays that are committed to devices.

        Returns:
          ``jax.stages.Compiled`` by the name of the arrays. Keep them until ``apply``.
        """
        engine = self.before.hash_engine
        return {
            arrays: grown_arrays.lower(engine, factors, state[arrays]).compile()
            for arrays, factors in self.factors.items()
        }

    def needed_bytes(self, programs: Mapping[str, Any]) -> int:
        """Computes what a device needs for new arrays, beside the old ones.

        Args:
          programs: what ``compile`` returned.
        """
        sizes = [program.memory_analysis() for program in programs.values()]
        new = sum(each.output_size_in_bytes for each in sizes)
        return new + max((each.temp_size_in_bytes for each in sizes), default=0)


def planned(coll: Described, capacities: Mapping[str, int]) -> Growth[Described]:
    """Chooses the new sizes, see ``Tables.grow``."""
    engine, configs = coll.engine, dict(coll.tables)
    check_mapping(capacities, "grow: capacities", "table", configs)
    for name, capacity in capacities.items():
        config = larger(engine.catalog.dynamic_table(name, "grow"), capacity)
        for other in coll.hash_engine.growing_together(name):
            configs[other] = with_room(configs[other], config.num_slots)
    factors = {
        name: configs[name].num_buckets // config.num_buckets
        for name, config in engine.catalog.dynamic.items()
    }
    by_arrays: dict[str, Factors] = {}
    for arrays in {coll.state_name(name): None for name in capacities}:
        here = {n: f for n, f in factors.items() if coll.state_name(n) == arrays}
        if max(here.values()) > 1:
            by_arrays[arrays] = tuple(here.items())
    new = coll.with_tables(configs.values())
    new.memory()  # refuses a tier whose size does not suit its table
    return Growth(coll, new, by_arrays)


def due(engine: LookupEngine, stats: Stats, before: Stats | None) -> dict[str, int]:
    """Finds the tables that shall grow, see ``Tables.growth_due``."""
    if isinstance(stats, StatsFuture):
        raise TypeError("growth_due takes numbers: pass stats_async(state).result()")
    check_mapping(stats, "growth_due: stats", "name", ["table/rows"])
    result = {}
    for name, config in engine.catalog.dynamic.items():
        try:
            rows, refused = stats[f"{name}/rows"], stats[f"{name}/refused"]
        except KeyError as error:
            raise ValueError(
                f"growth_due takes what stats() of these tables returns, but there is "
                f"no {error}: write coll.growth_due(coll.stats_async(state).result())"
            ) from None
        lost = stats.get(f"{name}/evicted_young", 0)
        more = refused > (before or {}).get(f"{name}/refused", 0)
        young = lost > (before or {}).get(f"{name}/evicted_young", 0)
        crowded = rows > config.grow_at * config.num_slots
        pressed = young if config.evicts else more
        if not config.grows or not (crowded or pressed):
            continue
        others = hash_of(engine).growing_together(name)
        together = [engine.catalog.dynamic[n] for n in others]
        most = min(_most_slots(engine), *(t.max_slots for t in together))
        size = _next_size(config, rows, most)
        if size > config.num_slots:
            result[name] = size
    return result


def _most_slots(engine: LookupEngine) -> int:
    """Returns the slots of the largest table, which int32 numbers on each device."""
    return MAX_SLOTS if engine.placement is None else 1 << 38


def _next_size(config: TableConfig, rows: float, most: float) -> int:
    """Doubles until there is room, within ``most``; at least once where it can."""
    while True:
        bigger = larger(
            dataclasses.replace(config, max_capacity=None), 2 * config.num_slots
        )
        if bigger.num_slots > most:
            return config.num_slots
        config = bigger
        if rows <= config.grow_at * config.num_slots:
            return config.num_slots


@kept_jit(0, 1)
def grown_arrays(
    engine: HashEngine, factors: Factors, arrays: TableState
) -> TableState:
    """Multiplies the buckets of the tables that lie in some arrays."""
    return engine.grow(arrays, dict(factors))


def abstract(tree: Any) -> Any:
    """Replaces arrays, deleted ones too, by types that distinguish jitted programs."""
    return jax.tree.map(_abstract, tree)


def _abstract(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return leaf
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type
    )


def abstract_after(growth: Growth, state: Any, programs: Mapping[str, Any]) -> Any:
    """Returns the types of the arrays that ``Growth.apply`` returns."""
    new = dict(state)
    for arrays, program in programs.items():
        shapes = jax.eval_shape(
            functools.partial(
                grown_arrays, growth.before.hash_engine, growth.factors[arrays]
            ),
            state[arrays],
        )
        before = state[arrays]
        grown = jax.tree.map(
            _of_type, shapes, program.output_shardings, without_homes(before)
        )
        new[arrays] = _with_abstract_homes(grown, before)
    return new


def _with_abstract_homes(grown: Any, before: Any) -> Any:
    """Adds the type of the homes of a tiered table."""
    if before.tier is None:
        return grown
    homes = before.tier.homes
    shape = (grown.tier.location.shape[0], homes.shape[1])
    homes = jax.ShapeDtypeStruct(shape, homes.dtype, sharding=homes.sharding)
    tier = dataclasses.replace(grown.tier, homes=homes)
    return dataclasses.replace(grown, tier=tier)


def _of_type(shape: Any, sharding: Any, before: Any) -> jax.ShapeDtypeStruct:
    sharding = sharding if before.sharding is not None else None
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
