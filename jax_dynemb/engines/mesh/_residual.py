# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a sharded lookup keeps for the update."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jax_dynemb.ops import FeatureResidual, Stamps


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShardedResidual:
    """Holds what a lookup leaves for its update: a pytree, split over all devices.

    Attributes:
      features: by name. Slots of a replicated table are those of the device's copy. Of
        a row-wise one the owner's, for ids that travelled in a further round only.
      kept: by strategy, what its update need not exchange again.
      stamps: of the tables on this device, uint32[1, 8] each.
    """

    features: dict[str, FeatureResidual]
    kept: dict[str, Any]
    stamps: Stamps
