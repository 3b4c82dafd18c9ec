# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what ``Tables`` is made of, and makes its engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import Catalog, LookupEngine
from jax_dynemb._src.engines.hash import HashEngine, OneDevice, Placement, Plan
from jax_dynemb._src.engines.tensor_train import TTEngine
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.table.by_kind import ByKind, by_kind, with_residuals
from jax_dynemb._src.tt import TTConfig


def dynamic(configs: Iterable[Any]) -> tuple[TableConfig, ...]:
    """Returns the configs of dynamic tables, in their order."""
    return tuple(c for c in configs if isinstance(c, TableConfig))


def configs_of(tables: Any) -> tuple[Any, ...]:
    """Checks that ``Tables`` takes a list of ``TableConfig`` and ``TTConfig``."""
    if isinstance(tables, (TableConfig, TTConfig)):
        raise TypeError(
            f"Tables takes a list of {type(tables).__name__}, not a single one: write "
            f"jde.Tables([config]) for table '{tables.name}'. Several go into one list."
        )
    if isinstance(tables, Mapping):
        raise TypeError(
            "Tables takes a list of TableConfig, not a dict: write "
            "jde.Tables(list(configs.values())). Each config has its name inside."
        )
    if not isinstance(tables, Iterable):
        raise TypeError(
            f"Tables takes a list of TableConfig, not {kind_of(tables)}: write "
            "jde.Tables([jde.TableConfig(name=..., dim=..., capacity=...)])."
        )
    configs = tuple(tables)
    for config in configs:
        if not isinstance(config, (TableConfig, TTConfig)):
            raise TypeError(
                f"Tables takes a list of TableConfig, but it has {kind_of(config)} in "
                "it: write jde.TableConfig(name=..., dim=..., capacity=...) for each."
            )
    return configs


def check_mesh(mesh: Any, axis: Any, axis_name: Any, share_arrays: bool | None) -> None:
    """Refuses what contradicts itself, and a second table where the mesh belongs."""
    if mesh is not None and not hasattr(mesh, "axis_names"):
        raise TypeError(
            f"mesh must be a jax.sharding.Mesh, not {kind_of(mesh)}. All tables go "
            "into one list: jde.Tables([first, second], mesh=...)."
        )
    if share_arrays not in (None, True, False):
        raise TypeError(
            f"share_arrays must be True, False or None, not {share_arrays!r}."
        )
    if mesh is None and axis is not None:
        raise ValueError(
            f"axis={axis!r} names an axis of a mesh, so mesh=... is needed too; "
            "inside your own shard_map write axis_name=... instead of both."
        )
    if mesh is not None and axis_name is not None:
        raise ValueError(
            f"axis_name={axis_name!r} takes the place of mesh= and axis=; with a "
            "mesh, which works inside a shard_map too, write axis=..."
        )


def check_plan(plan: Any, mesh: Any, axis_name: Any) -> None:
    """Refuses a plan that is none, or that has no devices."""
    if not isinstance(plan, Plan):
        raise TypeError(
            f"plan must be a jde.Plan, not {kind_of(plan)}: call "
            "jde.Tables(tables, mesh=...).plan(), or write "
            "jde.Plan((jde.TablePlan(table, sharding),))."
        )
    if mesh is None and axis_name is None:
        raise ValueError(
            "plan=... says where tables lie on a mesh: give mesh=... too, or leave the "
            "plan out on one device."
        )


def _check_devices(plan: Plan, placement: Placement) -> None:
    """Refuses a plan that a planner made for another number of devices."""
    planned = len(getattr(plan, "devices", ()))
    if planned not in (0, placement.shards):
        raise ValueError(
            f"plan=... was made for {planned} devices, and its tables would lie on "
            f"{placement.shards}: plan again, with a Topology of {placement.shards} "
            "devices."
        )


def engine_of(
    configs: tuple[Any, ...],
    placement: Placement | None,
    share_arrays: bool | None,
    plan: Plan | None,
) -> LookupEngine:
    """Chooses the engine of a collection, or one for each kind of table."""
    layout = OneDevice(share_arrays) if placement is None else placement
    catalog = Catalog(with_residuals(configs, layout.shards))
    dynamic, others = by_kind(catalog)
    engine = None
    if dynamic:
        if plan is not None and placement is not None:
            _check_devices(plan, placement)
        engine = HashEngine.of(Catalog(dynamic), layout, plan)
    if engine is not None and not others:
        return engine
    return ByKind(catalog, engine, TTEngine(Catalog(others), layout))
