# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the update of a lookup by hosts need not exchange again."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from jax_dynemb._src.engines.hash.exchange import Route
from jax_dynemb._src.ops import FeatureResidual


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["route", "fits", "features", "below", "bags"],
    meta_fields=["devices"],
)
@dataclasses.dataclass(frozen=True)
class HostResidual:
    """Holds the exchange of a host, and that between all devices.

    Attributes:
      route: where the distinct ids of this device went in the host; None if the host
        gathers none.
      fits: bool[1], whether they went there; or None.
      features: of the ids that this device is the gateway of, one for each table.
      below: what ``row_wise`` keeps of the lookup of these, and of tables of which
        sums travel at once; None if there are none.
      bags: by table of which sums travel by host, the bags that this owner pooled.
      devices: of a host.
    """

    route: Route | None
    fits: jax.Array | None
    features: list[FeatureResidual]
    below: Any
    bags: dict[str, list[FeatureResidual]]
    devices: int
