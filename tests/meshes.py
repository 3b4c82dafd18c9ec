# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Meshes of CPU devices, and keys by the shard that owns them."""

import functools

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jax_dynemb.reference import bucket_of


@functools.cache
def mesh_of(devices: int) -> Mesh:
    """A mesh with the one axis "data"."""
    return Mesh(np.array(jax.devices("cpu")[:devices]), ("data",))


@functools.cache
def grid(explicit: bool = False) -> Mesh:
    """A mesh of 4 x 2 with the axes "data" and "model"."""
    kind = AxisType.Explicit if explicit else AxisType.Auto
    devices = jax.devices("cpu")[:8]
    return jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(kind, kind), devices=devices
    )


@functools.cache
def keys_of_shard(shard: int, shards: int, count: int) -> list[int]:
    """The first ``count`` keys that live on one of ``shards`` shards."""
    keys: list[int] = []
    key = 0
    while len(keys) < count:
        if bucket_of(key, shards) == shard:
            keys.append(key)
        key += 1
    return keys
