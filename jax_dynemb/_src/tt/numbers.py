# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the numbers of the rows that ids have."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import as_words, bucket_of, hash_words, id_array, is_padding
from jax_dynemb._src.tt.config import TTConfig

# The number of an id that has no row; it is above all others.
NO_ROW = 0xFFFF_FFFF


class Numbers(NamedTuple):
    """Holds what is known of each id of a call."""

    rows: jax.Array  # uint32[n], the number of its row, or NO_ROW
    padding: jax.Array  # bool[n], whether it is -1
    outside: jax.Array  # uint32[], how many ids are neither padding nor rows

    @property
    def found(self) -> jax.Array:
        """bool[n], whether each id has a row."""
        return self.rows != jnp.uint32(NO_ROW)


def without_strangers(config: TTConfig, feature: str, ids: Any) -> Any:
    """Replaces ids, in any form that a lookup takes, by padding if they have no row."""
    if isinstance(ids, Jagged):
        values = without_strangers(config, feature, ids.values)
        return dataclasses.replace(ids, values=values)
    array, shape = id_array(config, feature, ids)
    if config.ids == "hash":
        return array
    found = numbers_of(config, array.reshape(-1, *array.shape[len(shape) :])).found
    found = found.reshape(*shape, *[1] * (array.ndim - len(shape)))
    return jnp.where(found, array, ~jnp.zeros((), array.dtype))


def numbers_of(config: TTConfig, ids: jax.Array) -> Numbers:
    """Finds the row of each id."""
    words = as_words(ids)
    padding = is_padding(words)
    low, high = words[:, 0], words[:, 1]
    if config.ids == "hash":
        rows = bucket_of(*hash_words(words, config.hash_seed), config.num_rows)
        inside = ~padding
    else:
        rows = low
        inside = (high == 0) & (low < jnp.uint32(config.num_embeddings))
    outside = jnp.sum(~inside & ~padding, dtype=jnp.uint32)
    return Numbers(jnp.where(inside, rows, jnp.uint32(NO_ROW)), padding, outside)
