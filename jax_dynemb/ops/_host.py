# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small arrays on the host, also those of a mesh of several processes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def on_host(array: Any) -> np.ndarray:
    """A small array as numpy, on every process; all of them must call it."""
    if isinstance(array, np.ndarray):
        return array
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    mesh = getattr(array.sharding, "mesh", None)
    assert mesh is not None  # arrays of several processes lie on a mesh
    everywhere = NamedSharding(mesh, PartitionSpec())
    return np.asarray(_identity(everywhere)(array))


@functools.lru_cache(maxsize=8)
def _identity(sharding: NamedSharding):
    return jax.jit(lambda x: x, out_shardings=sharding)
