# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small arrays on the host and where others lie, also on a mesh of processes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec


def on_host(array: Any) -> np.ndarray:
    """A small array as numpy, on every process; all of them must call it."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(on_every_process(array))


def settled(arrays: Any) -> Any:
    """Waits for arrays on CPUs of several processes; returns them.

    There two programs with collectives that run at the same time may wait for each
    other for ever. A GPU runs one after the other.
    """
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(arrays)
    return arrays


def start_to_host(arrays: Any) -> Any:
    """Starts to copy arrays, which no later program may donate; see ``on_host``."""
    return jax.tree.map(_started, arrays)


def compile_to_host(types: Any) -> list[Any]:
    """Compiles what ``start_to_host`` runs for types with shardings; runs nothing."""
    return [
        replicate.lower(leaf).compile()
        for leaf in jax.tree.leaves(types)
        if (replicate := _replication(leaf.sharding)) is not None
    ]


def _started(array: jax.Array) -> jax.Array:
    array = on_every_process(array)
    array.copy_to_host_async()
    return array


def on_every_process(array: jax.Array) -> jax.Array:
    """Replicates an array that this process cannot read whole; others stay."""
    replicate = _replication(array.sharding)
    return array if replicate is None else replicate(array)


def everywhere(sharding: Any) -> Any:
    """Replicates what this process could not read whole; another sharding stays."""
    if sharding.is_fully_addressable or sharding.is_fully_replicated:
        return sharding
    mesh = getattr(sharding, "mesh", None)
    assert mesh is not None  # arrays of several processes lie on a mesh
    return NamedSharding(mesh, PartitionSpec())


def _replication(sharding: Any) -> Any:
    """The program that replicates an array; None where this process can read it."""
    whole = everywhere(sharding)
    return None if whole is sharding else _identity(whole)


@functools.lru_cache(maxsize=8)
def _identity(sharding: NamedSharding):
    return jax.jit(lambda x: x, out_shardings=sharding)


def placed_like(array: Any, like: jax.Array) -> jax.Array:
    """Places an array where another lies, committed to its devices only as that is.

    A state of which some arrays are committed has types that no step returns, so the
    second call of a jitted step would compile again.

    Args:
      array: of NumPy or JAX.
      like: the other one, traced or not.
    """
    if isinstance(like, Tracer) or like.committed:
        return jax.device_put(array, like.sharding)
    (device,) = like.devices()
    if isinstance(array, jax.Array) and array.devices() != {device}:
        array = np.asarray(array)
    with jax.default_device(device):
        return jnp.asarray(array)


def placed_like_untraced(arrays: Any, like: Any) -> Any:
    """Does ``placed_like`` for two pytrees; what is traced stays as it is."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(like)):
        return arrays
    return jax.tree.map(placed_like, arrays, like)
