# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pooling of per-id rows in JAX, for features with weights.

The fused lookup pools inside its kernel, which autodiff cannot see into. Features
with per-id weights therefore fetch one row per id and are pooled here. So the gradient
of the weights is right whatever made them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.table import sum_of_bags, valid_ids


def pool(
    rows: jax.Array,
    ids: jax.Array | Jagged,
    weights: jax.Array,
    table: TableConfig,
) -> jax.Array:
    """Multiplies per-id rows with their weights and pools them into bags.

    Args:
      rows: [..., L, dim] or [B, dim]; for Jagged ids [capacity, dim].
      ids: the ids of the rows; -1 is padding and has no weight.
      weights: one number an id, [..., L], [B] or [capacity].
      table: the table of the feature. Its pooling is "sum", or "sqrtn", whose weights
        are divided already. Or "mean": the sum divided by the number of ids, whatever
        their weights.

    Returns:
      [..., dim], [B, dim] for Jagged ids, in the dtype of ``rows``.

    Raises:
      ValueError: ``weights`` does not have one number an id.
    """
    if jnp.shape(weights) != rows.shape[:-1]:
        raise ValueError(
            f"table {table.name!r}: weights have shape {jnp.shape(weights)}, but there "
            f"are ids of shape {rows.shape[:-1]}. Give one weight an id."
        )
    valid = valid_ids(ids, table.key_dtype)
    weights = jnp.where(valid, weights, 0).astype(jnp.float32)
    weighted = rows.astype(jnp.float32) * weights[..., None]
    total = sum_of_bags(weighted, ids)
    if table.pooling == "mean":
        count = sum_of_bags(valid.astype(jnp.float32)[..., None], ids)
        total = total / jnp.maximum(count, 1)
    return total.astype(rows.dtype)
