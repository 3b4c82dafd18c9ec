# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How a function of cores and a batch runs: on one device, or on each of a mesh.

On a mesh every device has all cores and a part of the batch. What is summed over the
batch is then summed over the devices.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb.engines.mesh import (
    MeshBatch,
    Placement,
    global_numbers,
    padded_gradient,
)
from jax_dynemb.ops import FeatureInput, FeatureLayout, prepare

Inputs = list[tuple[FeatureLayout, FeatureInput]]
ALL = PartitionSpec()


class OneDevice:
    """Runs functions as they are."""

    def batch(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
    ) -> WholeBatch:
        """Takes the ids and weights of a call; ``configs`` is by feature."""
        return WholeBatch(configs, ids, weights)

    def run(self, function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
        """Returns the function; ``specs`` of arguments and results say nothing."""
        del specs
        return function

    def split(self, stacked: int = 0) -> Any:
        """Returns the spec of an array whose first axis is split."""
        del stacked

    def total(self, number: jax.Array) -> jax.Array:
        """Sums over the devices."""
        return number

    def padded(self, layout: FeatureLayout, stacked: int, gradient: Any) -> jax.Array:
        """Returns a gradient with the rows that were looked up."""
        del layout, stacked
        return jnp.asarray(gradient)

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves the function."""
        del offsets
        return per_id

    def per_id_spec(self, offsets: jax.Array | None) -> Any:
        """Returns the spec of what ``whole`` returns."""
        del offsets

    def cut(self, per_id: jax.Array, rows: int) -> jax.Array:
        """Drops what was padded."""
        del rows
        return per_id

    def replicated(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns a function whose results are on every device."""
        return make


class WholeBatch:
    """Holds the batch of a call on one device; see ``MeshBatch``."""

    ids_specs = weights_specs = per_id_specs = None

    def __init__(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
    ):
        self.configs, self.ids, self.weights = dict(configs), dict(ids), dict(weights)
        self.layout = self

    def local(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Inputs:
        """Prepares the features."""
        return [
            prepare(config, name, ids[name], weights.get(name))
            for name, config in self.configs.items()
        ]

    def rows(self, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the rows in the order of the features."""
        return OrderedDict((name, rows[name]) for name in self.configs)

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves the function."""
        del offsets
        return per_id

    def restored(self, name: str, per_id: jax.Array) -> jax.Array:
        """Returns one number an id in the shape of the ids."""
        del name
        return per_id


@dataclasses.dataclass(frozen=True)
class OnMesh:
    """Runs a function once a device, with its part of the batch.

    Attributes:
      placement: the mesh; inside a shard_map its own.
      inside: whether the caller is in a shard_map.
    """

    placement: Placement
    inside: bool

    @classmethod
    def here(cls, placement: Placement) -> Self:
        """Returns the devices of the running code."""
        return cls(placement.here(), placement.is_inside())

    def batch(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
    ) -> MeshBatch:
        """Splits the ids and weights of a call; ``configs`` is by feature."""
        return MeshBatch(self.placement, configs, ids, weights)

    def run(
        self, function: Callable[..., Any], in_specs: Any, out_specs: Any
    ) -> Callable[..., Any]:
        """Returns the function under shard_map, unless it runs in one already."""
        return self.placement.mapped(function, in_specs, out_specs)

    def split(self, stacked: int = 0) -> PartitionSpec:
        """Returns the spec of an array with its first axis split, behind scan's."""
        return PartitionSpec(*[None] * stacked, self.placement.axes)

    def total(self, number: jax.Array) -> jax.Array:
        """Sums over the devices."""
        return jax.lax.psum(number, self.placement.axes)

    def padded(self, layout: FeatureLayout, stacked: int, gradient: Any) -> jax.Array:
        """Returns a gradient with as many rows as the devices looked up."""
        if self.inside:
            return jnp.asarray(gradient)
        return padded_gradient(self.placement, layout, stacked, gradient)

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves shard_map."""
        if self.inside:
            return per_id
        return global_numbers(self.placement, offsets, per_id)

    def per_id_spec(self, offsets: jax.Array | None) -> PartitionSpec:
        """Returns the spec of what ``whole`` returns."""
        return self.split() if offsets is None else ALL

    def cut(self, per_id: jax.Array, rows: int) -> jax.Array:
        """Drops what was padded."""
        if self.inside or per_id.shape[0] == rows:
            return per_id
        return self.placement.gathered(per_id)[:rows]

    def replicated(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns a function whose results are on every device."""
        return self.run(make, (ALL,), ALL)


Devices = OneDevice | OnMesh
