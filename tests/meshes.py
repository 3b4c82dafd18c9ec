# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Meshes of CPU devices, keys by the shard that owns them, and what a program sends."""

import collections
import functools
import re

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jax_dynemb.reference import bucket_of

COLLECTIVE = re.compile(
    r" (all-to-all|all-gather|all-reduce|reduce-scatter|collective-permute)"
    r"(?:-start)?\("
)


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


def collectives(text: str) -> tuple[collections.Counter, collections.Counter]:
    """Those that always run, and those in the bodies of loops."""
    entry, loops = collections.Counter(), collections.Counter()
    inside = loops
    for line in text.splitlines():
        if line.startswith(("ENTRY", "%", "region")):
            inside = entry if line.startswith("ENTRY") else loops
        if match := COLLECTIVE.search(line):
            inside[match[1]] += 1
    return entry, loops
