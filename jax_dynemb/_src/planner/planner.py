# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses a sharding for each table of a collection."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash import TablePlan
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.planner.checks import (
    PlannerError,
    PlannerErrorType,
    check_number,
    check_whole,
)
from jax_dynemb._src.planner.constraints import ParameterConstraints
from jax_dynemb._src.planner.demand import core_config, demand_of
from jax_dynemb._src.planner.layout import Layout
from jax_dynemb._src.planner.options import Option, Options, exchange_placement
from jax_dynemb._src.planner.report import DeviceLoad, Imbalance, TableChoice
from jax_dynemb._src.planner.search import Search
from jax_dynemb._src.planner.sharding_plan import ShardingPlan
from jax_dynemb._src.planner.storage import StorageReservation
from jax_dynemb._src.planner.topology import Topology
from jax_dynemb._src.shardings import splits_columns, splits_rows


@dataclasses.dataclass(frozen=True)
class EmbeddingShardingPlanner:
    """Plans where tables lie, from what a step has to move.

    It predicts bytes and time of every sharding of every table, then minimises the
    time of the slowest device within its memory. The same inputs give the same plan.

    Attributes:
      topology: the devices.
      batch_size: examples of a batch on each device.
      constraints: by table; tables without any may lie anywhere.
      storage_reservation: memory for everything else; 15 % if None.
      exchange_factor: as ``jde.Tables`` will get it.
      exchange_dtype: likewise.
      exchange_pooled: likewise.

    Example:
      >>> planner = jde.EmbeddingShardingPlanner(jde.Topology.measure(mesh), 512)
      >>> plan = planner.plan(tables)  # doctest: +SKIP
      >>> coll = jde.Tables(tables, mesh=mesh, plan=plan)  # doctest: +SKIP
    """

    topology: Topology
    batch_size: int
    constraints: Mapping[str, ParameterConstraints] | None = None
    storage_reservation: StorageReservation | None = None
    exchange_factor: float = 0.5
    exchange_dtype: Any = None
    exchange_pooled: str = "auto"

    def __post_init__(self) -> None:
        """Checks the arguments.

        Raises:
          TypeError: one is of another type.
          ValueError: a number is out of range.
        """
        check_whole("EmbeddingShardingPlanner", "batch_size", self.batch_size)
        kinds = {
            "topology": Topology,
            "constraints": Mapping,
            "storage_reservation": StorageReservation,
        }
        for field, kind in kinds.items():
            given = getattr(self, field)
            if not isinstance(given, kind) and (given is not None or kind is Topology):
                raise TypeError(
                    f"EmbeddingShardingPlanner: {field} must be a {kind.__name__}, not "
                    f"{kind_of(given)}; constraints are a dict by table."
                )
        for name, one in (self.constraints or {}).items():
            if not isinstance(one, ParameterConstraints):
                raise TypeError(
                    f"the constraints of table '{name}' are {kind_of(one)}: write "
                    "jde.ParameterConstraints(...)."
                )
        check_number(
            "EmbeddingShardingPlanner",
            "exchange_factor",
            self.exchange_factor,
            positive=True,
        )
        if self.exchange_pooled not in ("auto", "rows", "sums"):
            raise ValueError(
                "EmbeddingShardingPlanner: exchange_pooled must be 'auto', 'rows' or "
                f"'sums', not {self.exchange_pooled!r}."
            )

    def plan(self, tables: Iterable[TableConfig], *sharders: object) -> ShardingPlan:
        """Plans the tables of a collection.

        Args:
          tables: one config each, whose own ``sharding`` is not read; those of
            ``jde.torchrec`` too.
          *sharders: none; TorchRec's are refused.

        Returns:
          The plan; every table stands in it once, in the order given.

        Raises:
          PlannerError: the tables do not fit (INSUFFICIENT_STORAGE), or a constraint
            leaves a table without a sharding (STRICT_CONSTRAINTS).
          TypeError: something else than a list of ``TableConfig``, or sharders.
          ValueError: a table occurs twice, or there is none.
        """
        if sharders:
            raise TypeError(
                "plan takes no sharders: write planner.plan(tables) with the configs "
                "of a collection. ParameterConstraints limit the shardings of a table."
            )
        configs = self._checked(tables)
        given = self.constraints or {}
        options = {
            config.name: self._options(config, given.get(config.name))
            for config in configs
        }
        room = self._reservation.left(self.topology.hbm_cap)
        layout = Search(options, self.topology, room).best()
        return self._planned(configs, options, layout, room)

    def inputs(self, tables: Iterable[TableConfig]) -> dict[str, str]:
        """Hashes what a plan of these tables depends on.

        Measured speeds are left out: they differ from run to run.

        Args:
          tables: one config each.

        Returns:
          A hash by the name of an input, to be compared by
          ``ShardingPlan.from_json(text, inputs)``.
        """
        configs = [core_config(config) for config in tables]
        devices = self.topology
        return {
            "tables": hash_of([described(config) for config in configs]),
            "devices": hash_of(
                [
                    devices.world_size,
                    devices.per_host,
                    devices.hbm_cap,
                    devices.compute_device,
                ]
            ),
            "batch_size": hash_of([self.batch_size]),
            "constraints": hash_of(sorted((self.constraints or {}).items())),
            "storage_reservation": hash_of([self._reservation]),
            "exchange": hash_of(
                [self.exchange_factor, self._dtype, self.exchange_pooled]
            ),
        }

    @property
    def _reservation(self) -> StorageReservation:
        return self.storage_reservation or StorageReservation()

    @property
    def _dtype(self) -> str | None:
        return (
            None if self.exchange_dtype is None else jnp.dtype(self.exchange_dtype).name
        )

    def _checked(self, tables: Iterable[TableConfig]) -> list[TableConfig]:
        if isinstance(tables, (TableConfig, Mapping)) or not isinstance(
            tables, Iterable
        ):
            raise TypeError(
                f"plan takes a list of TableConfig, not {kind_of(tables)}: write "
                "planner.plan([config]), or give the configs of a collection: "
                "embedding_bag_configs() or embedding_configs()."
            )
        configs = [core_config(config) for config in tables]
        names = [config.name for config in configs]
        if not configs or len(set(names)) < len(names):
            raise ValueError(
                f"plan needs one TableConfig or more, each name once, not {names}."
            )
        for name in self.constraints or {}:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f" Did you mean '{close[0]}'?" if close else ""
                raise PlannerError(
                    f"there are constraints for table '{name}', which is not among "
                    f"the tables.{hint}",
                    PlannerErrorType.STRICT_CONSTRAINTS,
                )
        return configs

    def _options(
        self, config: TableConfig, constraints: ParameterConstraints | None
    ) -> Options:
        demand = demand_of(
            config, constraints or ParameterConstraints(), self.batch_size
        )
        placement = exchange_placement(
            self.topology.world_size,
            self.exchange_factor,
            self._dtype,
            self.exchange_pooled,
        )
        return Options(demand, self.topology, placement)

    def _planned(
        self,
        configs: list[TableConfig],
        options: dict[str, Options],
        layout: Layout,
        room: int,
    ) -> ShardingPlan:
        world = self.topology.world_size
        plans, choices = [], []
        for config in configs:
            option, shards = layout.options[config.name], layout.shards[config.name]
            plans.append(_table_plan(config, options[config.name], option, shards))
            choices.append(_choice(options[config.name], option, world))
        devices = _devices(layout)
        return ShardingPlan(
            tuple(plans),
            (layout.arrays,) * world,
            tuple(choices),
            devices,
            Imbalance.of([device.ms for device in devices]),
            room,
            self.inputs(configs),
            self.topology.part_at_once,
        )


def _table_plan(
    config: TableConfig, options: Options, option: Option, shards: tuple[int, ...]
) -> TablePlan:
    part = option.width if splits_columns(option.sharding) else 1
    ids, rows, gradients = option.sent
    return TablePlan(
        config.name,
        option.sharding,
        shards,
        option.exchange,
        len(shards),
        config.num_slots // (option.width if splits_rows(option.sharding) else 1),
        config.dim // part,
        option.arrays,
        options.demand.num_ids,
        ids,
        rows,
        gradients,
    )


def _choice(options: Options, option: Option, world: int) -> TableChoice:
    demand = options.demand
    others: dict[str, float | str] = dict(options.reasons)
    for sharding in options.allowed:
        if sharding != option.sharding:
            others[sharding] = options.alone(sharding).mean_seconds(world) * 1e3
    return TableChoice(
        demand.name,
        option.sharding,
        (sum(option.everywhere) + sum(option.owner)) * 1e3,
        demand.num_ids / max(1, demand.num_bags),
        demand.config.dim,
        demand.config.num_slots,
        dict(sorted(others.items())),
    )


def _devices(layout: Layout) -> tuple[DeviceLoad, ...]:
    tables = [collections.Counter[str]() for _ in layout.seconds]
    for name, option in layout.options.items():
        for number in layout.shards[name]:
            tables[number][option.sharding] += 1
    sent = [option.sent for option in layout.options.values()]
    ids, rows, _ = (sum(n) for n in zip(*sent, strict=True))
    times = (layout.seconds * 1e3).tolist()
    return tuple(
        DeviceLoad(
            number,
            layout.arrays,
            layout.batch_bytes,
            forward,
            there,
            backward,
            back,
            ids,
            rows,
            dict(sorted(tables[number].items())),
        )
        for number, (forward, there, backward, back) in enumerate(times)
    )


def described(config: TableConfig) -> dict[str, Any]:
    """Returns what of a table decides its bytes and its work."""
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    for name in ("hash_seed", "max_capacity", "grow_at", "sharding"):
        del fields[name]
    fields["optimizer"] = sorted((k, v.shape) for k, v in config.states.items())
    return {name: str(value) for name, value in fields.items()}


def hash_of(inputs: list[Any]) -> str:
    """Hashes what ``repr`` shows of some values."""
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
