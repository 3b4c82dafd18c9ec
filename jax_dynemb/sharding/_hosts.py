# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small numbers of all shards on every host."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_dynemb import _ffi
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._state import TableState
from jax_dynemb.sharding._placement import Placement


def on_host(array: jax.Array) -> np.ndarray:
    """A small array as numpy, on every process; all of them must call it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    mesh = getattr(array.sharding, "mesh", None)
    assert mesh is not None  # arrays of several processes lie on a mesh
    everywhere = NamedSharding(mesh, PartitionSpec())
    return np.asarray(_identity(everywhere)(array))


@functools.lru_cache(maxsize=8)
def _identity(sharding: NamedSharding):
    return jax.jit(lambda x: x, out_shardings=sharding)


def rows_of_shards(
    placement: Placement, table: TableConfig, state: TableState
) -> list[int]:
    """Live rows of each shard, counted in the index: right after a restore too."""
    counts = on_host(_counts(placement, table)(state.index))
    return [int(n) for n in counts]


@functools.lru_cache(maxsize=64)
def _counts(placement: Placement, table: TableConfig):
    digest_words = _ffi.constants()["keys_word"]

    def body(index):
        # A digest is a byte, 0 where the slot is empty.
        digests = jax.lax.bitcast_convert_type(index[:, :digest_words], jnp.uint8)
        return jnp.sum(digests != 0, dtype=jnp.int32)[None]

    return jax.jit(
        placement.mapped(body, (placement.split,), placement.split),
    )
