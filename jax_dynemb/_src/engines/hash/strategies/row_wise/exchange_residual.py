# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the update of a row-wise lookup need not exchange again."""

from __future__ import annotations

import dataclasses

import jax

from jax_dynemb._src.engines.hash.exchange import Route
from jax_dynemb._src.ops import FeatureResidual


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ExchangeResidual:
    """Holds the exchange of a lookup; every array is that of one device.

    Attributes:
      route: where the distinct ids went; None if sums of bags travelled alone.
      fits: bool[1], whether they all went in the first round.
      received: by table, the ids that this owner received in it, uint32[places, 2],
        and their slots, int32[places].
      bags: by table of which sums travelled, the bags that this owner pooled.
    """

    route: Route | None
    fits: jax.Array | None
    received: dict[str, tuple[jax.Array, jax.Array]]
    bags: dict[str, list[FeatureResidual]]
