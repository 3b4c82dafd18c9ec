# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""From ids to the numbers of rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jax_dynemb.ops import as_words, bucket_of, hash_words, is_padding
from jax_dynemb.tt._config import TTConfig
from jax_dynemb.tt._distinct import NO_ROW


class Numbers(NamedTuple):
    """Of each id of a call.

    Attributes:
      rows: uint32[n], the number of its row, or NO_ROW.
      padding: bool[n], whether it is -1.
      outside: uint32[], how many ids are neither padding nor rows.
    """

    rows: jax.Array
    padding: jax.Array
    outside: jax.Array

    @property
    def found(self) -> jax.Array:
        """bool[n], whether each id has a row."""
        return self.rows != jnp.uint32(NO_ROW)


def numbers_of(config: TTConfig, ids: jax.Array) -> Numbers:
    """Finds the row of each id.

    Args:
      config: of the table.
      ids: flat, in any form that a lookup takes.
    """
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
