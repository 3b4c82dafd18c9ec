# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The devices that a plan is for: how many, how large, how fast."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from jax.sharding import Mesh

from jax_dynemb._src.planner import measure as _measure
from jax_dynemb._src.planner.checks import check_number, check_whole
from jax_dynemb._src.planner.rates import Rates, derived, rates_of

_WHERE = "Topology (Topology.measure(mesh) fills in all numbers)"
_WHOLE = ("world_size", "hbm_cap", "local_world_size", "at_once")
_ABOVE_ZERO = ("hbm_mem_bw", "intra_host_bw")
_ZERO_OR_MORE = (
    "collective_latency",
    "step_overhead",
    "ddr_cap",
    "ddr_mem_bw",
    "hbm_to_ddr_mem_bw",
)


@dataclasses.dataclass(frozen=True)
class Topology:
    """Describes devices by numbers; ``measure`` reads them from a mesh.

    There are no default speeds: those of one card mislead on another. So ``hbm_cap``,
    ``hbm_mem_bw`` and ``intra_host_bw`` must be given.

    Attributes:
      world_size: devices that rows and batches are split over.
      hbm_cap: bytes of memory of a device.
      hbm_mem_bw: bytes a second that lookups and updates move on a device.
      intra_host_bw: bytes a second that leave a device to others of its host.
      inter_host_bw: likewise to other hosts; ``intra_host_bw`` if None.
      local_world_size: devices of a host; all of them if None.
      compute_device: "cuda", "cpu" or another platform of JAX.
      collective_latency: seconds that a small collective takes.
      step_overhead: seconds that the calls of one strategy take in a step, whatever
        the size of the batch.
      at_once: devices that compute at the same time; all of them if None. Forced CPU
        devices share the cores of one machine.
      rates: by kind of step, what its calls, ids and rows take; derived from the
        bandwidth and the two numbers before if None.
      ddr_cap: bytes of host memory. Tables do not lie there, so a plan does not
        depend on the three fields of host memory.
      ddr_mem_bw: bytes a second of host memory.
      hbm_to_ddr_mem_bw: bytes a second between the memories.
    """

    world_size: int
    hbm_cap: int = 0
    hbm_mem_bw: float = 0.0
    intra_host_bw: float = 0.0
    inter_host_bw: float | None = None
    local_world_size: int | None = None
    compute_device: str = "cuda"
    collective_latency: float = 0.0
    step_overhead: float = 0.0
    at_once: int | None = None
    rates: Mapping[str, Rates] | None = None
    ddr_cap: int = 0
    ddr_mem_bw: float = 0.0
    hbm_to_ddr_mem_bw: float = 0.0

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
          ValueError: one is not above 0, or hosts have no whole number of devices.
        """
        for field in _WHOLE:
            value = getattr(self, field)
            if value is not None or field in ("world_size", "hbm_cap"):
                check_whole(_WHERE, field, value)
        for field in _ABOVE_ZERO:
            value = getattr(self, field)
            check_number(_WHERE, field, value, positive=True, finite=False)
        for field in _ZERO_OR_MORE:
            check_number(_WHERE, field, getattr(self, field), positive=False)
        if self.local_world_size is None:
            object.__setattr__(self, "local_world_size", self.world_size)
        if self.inter_host_bw is None:
            object.__setattr__(self, "inter_host_bw", self.intra_host_bw)
        check_number(
            _WHERE, "inter_host_bw", self.inter_host_bw, positive=True, finite=False
        )
        if self.at_once is None:
            object.__setattr__(self, "at_once", self.world_size)
        rates_of(self.rates)
        if self.world_size % self.per_host:
            raise ValueError(
                f"Topology: {self.world_size} devices are not whole hosts of "
                f"{self.per_host}; set local_world_size to a divisor."
            )

    @property
    def per_host(self) -> int:
        """Devices of a host."""
        return self.local_world_size or self.world_size

    @property
    def part_at_once(self) -> float:
        """Returns the part of the devices that compute at the same time."""
        return min(1.0, (self.at_once or self.world_size) / self.world_size)

    @functools.cached_property
    def known_rates(self) -> Mapping[str, Rates]:
        """Returns the rates, measured or derived."""
        if self.rates is not None:
            return self.rates
        latency = self.collective_latency if self.world_size > 1 else 0.0
        return derived(self.hbm_mem_bw, latency, self.step_overhead)

    @classmethod
    def measure(cls, mesh: Mesh, axis: Any = None) -> Topology:
        """Measures the devices of a mesh; takes a quarter of a minute to two.

        Exchanges of two sizes run on all devices at once, and six steps of each kind:
        rows travel, sums travel, column-wise, replicated. Memory is what JAX may use
        of a device, or on a CPU an equal part of the machine's. Every process returns
        the numbers of process 0.

        Args:
          mesh: the devices.
          axis: as for ``jde.Tables``.

        Raises:
          TypeError: it is no mesh.
          ValueError: the mesh has no such axis.
        """
        return cls(**_measure.measure(mesh, axis))

    def exchange_seconds(self, handed: float) -> float:
        """Computes the time of a collective without its latency.

        Args:
          handed: bytes that a device hands to it, its own part included.
        """
        each = handed / self.world_size
        near = each * (self.per_host - 1) / self.intra_host_bw
        far = each * (self.world_size - self.per_host)
        return max(near, far / (self.inter_host_bw or self.intra_host_bw))
