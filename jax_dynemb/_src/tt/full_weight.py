# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""All rows of a table, in chunks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.rows import distinct_of, rows_of


def full_weight(
    config: TTConfig, cores: Sequence[jax.Array], chunk_rows: int = 1 << 20
) -> Iterator[np.ndarray]:
    """Streams the rows 0 to num_embeddings - 1 to the host.

    Rows that the cores have beyond these, since their factors round up, are left out.

    Args:
      config: of the table.
      cores: its arrays.
      chunk_rows: the most rows of a chunk.

    Returns:
      An iterator over float32[rows, dim].

    Raises:
      ValueError: a chunk of no rows.
    """
    if chunk_rows < 1:
        raise ValueError(
            f"Table '{config.name}': chunk_rows must be 1 or more, not {chunk_rows}; "
            "the default is 2**20"
        )
    return _chunks(config, cores, chunk_rows)


def _chunks(
    config: TTConfig, cores: Sequence[jax.Array], chunk_rows: int
) -> Iterator[np.ndarray]:
    size = min(chunk_rows, config.num_embeddings)
    make = jax.jit(functools.partial(_some, config.compute_dtype, size))
    for begin in range(0, config.num_embeddings, size):
        # The last chunk ends with the table, so that all have one shape.
        first = min(begin, config.num_embeddings - size)
        rows = np.asarray(make(tuple(cores), jnp.uint32(first)))
        yield rows[begin - first :]


def _some(
    compute_dtype: str, size: int, cores: Sequence[jax.Array], first: jax.Array
) -> jax.Array:
    numbers = first + jnp.arange(size, dtype=jnp.uint32)
    some = distinct_of([core.shape for core in cores], numbers)
    return rows_of(cores, some, compute_dtype).astype(jnp.float32)
