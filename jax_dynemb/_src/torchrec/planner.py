# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The planner with TorchRec's arguments and defaults."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jax_dynemb._src import planner
from jax_dynemb._src.torchrec.distributed import collections_of

_BATCH_SIZE = 512  # TorchRec's default
_NUMBERS = ("hbm_cap", "hbm_mem_bw", "intra_host_bw")


class Topology(planner.Topology):
    """Describes devices, as ``jde.Topology``; without numbers it measures them.

    Args:
      world_size: devices.
      compute_device: "cuda" or "cpu"; that of JAX's default devices if None.
      hbm_cap: bytes of memory of a device.
      ddr_cap: bytes of host memory.
      local_world_size: devices of a host.
      numbers: other fields of ``jde.Topology``. If ``hbm_cap``, ``hbm_mem_bw`` and
        ``intra_host_bw`` are all left out, the first devices of JAX are measured,
        which takes a quarter of a minute to two.

    Raises:
      TypeError: the device is no name.
      ValueError: there are fewer devices, or some of the numbers are missing.
    """

    def __init__(
        self,
        world_size: int,
        compute_device: str | None = None,
        hbm_cap: int | None = None,
        ddr_cap: int | None = None,
        local_world_size: int | None = None,
        **numbers: Any,
    ):
        if not isinstance(compute_device, str | None):
            raise TypeError(
                f"Topology: compute_device is {compute_device!r}: TorchRec's order is "
                "world_size, compute_device, hbm_cap. Write names for the numbers."
            )
        given = {
            "compute_device": compute_device,
            "hbm_cap": hbm_cap,
            "ddr_cap": ddr_cap,
            "local_world_size": local_world_size,
            **numbers,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if not any(name in given for name in _NUMBERS):
            given = _measured(world_size, given.get("compute_device")) | given
        super().__init__(**{"world_size": world_size, **given})


def _measured(world_size: int, platform: Any) -> dict[str, Any]:
    found = jax.devices()
    known = {"cpu": ("cpu",), "cuda": ("gpu", "cuda")}.get(platform, (platform,))
    if len(found) < world_size or platform and found[0].platform not in known:
        raise ValueError(
            f"Topology: JAX has {len(found)} devices of {found[0].platform}, so "
            f"{world_size} of {platform or 'these'} cannot be measured: give hbm_cap, "
            "hbm_mem_bw and intra_host_bw, which Topology.measure(mesh) finds there."
        )
    mesh = Mesh(np.array(found[:world_size]), ("devices",))
    return vars(planner.Topology.measure(mesh))


class EmbeddingShardingPlanner(planner.EmbeddingShardingPlanner):
    """Plans as ``jde.EmbeddingShardingPlanner``, with TorchRec's defaults.

    Args:
      topology: the devices; all of JAX's, measured, if None.
      batch_size: examples of a batch on each device; 512 if None, as in TorchRec.
      options: other fields of ``jde.EmbeddingShardingPlanner``.
    """

    def __init__(
        self,
        topology: planner.Topology | None = None,
        batch_size: int | None = None,
        **options: Any,
    ):
        known = Topology(jax.device_count()) if topology is None else topology
        size = _BATCH_SIZE if batch_size is None else batch_size
        super().__init__(known, size, **options)

    def plan(self, tables: Any, *sharders: object) -> planner.ShardingPlan:
        """Plans the tables of a list, of a collection, or of a model with collections.

        Args:
          tables: configs, a collection, or a model with collections.
          *sharders: ignored.

        Raises:
          PlannerError: as ``jde.EmbeddingShardingPlanner.plan``.
          TypeError: likewise.
          ValueError: likewise.
        """
        if isinstance(tables, nnx.Module):
            modules = collections_of(tables).values()
            tables = [table for m in modules for table in m.coll.tables.values()]
        return super().plan(tables)

    def collective_plan(
        self, module: Any, sharders: Any = None, pg: Any = None
    ) -> planner.ShardingPlan:
        """Plans as ``plan``: every process finds the same plan by itself.

        Args:
          module: as for ``plan``.
          sharders: ignored.
          pg: ignored.
        """
        return self.plan(module)
