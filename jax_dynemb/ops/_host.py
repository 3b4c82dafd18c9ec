# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small arrays on the host, also those of a mesh of several processes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def on_host(array: Any) -> np.ndarray:
    """A small array as numpy, on every process; all of them must call it."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(_on_every_process(array))


def copy_for_host(arrays: Any) -> Any:
    """Starts to copy small arrays to the host; waits for nothing.

    Args:
      arrays: a pytree of arrays. They may be donated to a later program.

    Returns:
      Arrays of the same values in buffers of their own, for ``on_host``.
    """
    if not jax.tree.leaves(arrays):
        return arrays
    return jax.tree.map(_started, _copies(arrays))


def _started(array: jax.Array) -> jax.Array:
    array = _on_every_process(array)
    array.copy_to_host_async()
    return array


def _on_every_process(array: jax.Array) -> jax.Array:
    """Replicates an array that this process cannot read whole; others stay."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    mesh = getattr(array.sharding, "mesh", None)
    assert mesh is not None  # arrays of several processes lie on a mesh
    return _identity(NamedSharding(mesh, PartitionSpec()))(array)


@jax.jit
def _copies(arrays: Any) -> Any:
    # jit returns an argument itself where nothing is computed, hence the copy.
    return jax.tree.map(jnp.copy, arrays)


@functools.lru_cache(maxsize=8)
def _identity(sharding: NamedSharding):
    return jax.jit(lambda x: x, out_shardings=sharding)
