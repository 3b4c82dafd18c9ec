# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tells of tables that are saved untrained, or after they have refused ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_dynemb._src.engines import shard
from jax_dynemb._src.files.checkpoint.tree import Path, Place


def warn_of_losses(leaves: Mapping[Path, Any], places: Mapping[Path, Place]) -> None:
    """Warns of tables that are never updated, or that have refused ids."""
    for place in places.values():
        coll = place.coll
        counters = leaves.get((*place.arrays, "counters"))
        dynamic = place.name in coll.engine.catalog.dynamic
        if not dynamic or not getattr(counters, "is_fully_addressable", False):
            continue
        own = np.asarray(counters)[coll.hash_engine.counter_rows(place.name)]
        shard.warn_of_losses(place.config, shard.counter_totals(own))
