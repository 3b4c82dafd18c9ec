# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a sharded lookup leaves for the update."""

from __future__ import annotations

import dataclasses

import jax

from jax_dynemb.engines.mesh._route import Route
from jax_dynemb.ops import FeatureResidual, Stamps


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShardedResidual:
    """A pytree; every array is that of one device, and split over all of them.

    Attributes:
      features: by name. The slots of a feature of a row-wise table are the numbers of
        its distinct ids on the device; those of a replicated table are slots.
      route: where distinct ids went; None without row-wise tables.
      fits: bool[1], whether they all went in the first round.
      received: by table, the ids that this owner got in it, uint32[places, 2], and
        their slots, int32[places].
      bags: by table of which sums travelled, the bags that this owner pooled.
      stamps: of the tables on this device, uint32[1, 4] each.
    """

    features: dict[str, FeatureResidual]
    route: Route | None
    fits: jax.Array | None
    received: dict[str, tuple[jax.Array, jax.Array]]
    bags: dict[str, list[FeatureResidual]]
    stamps: Stamps
