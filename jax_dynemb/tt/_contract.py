# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as products of two factors: what stands before the cut, and the rest.

Row i is ``prefix[a(i)] @ suffix[b(i)]``, an (M x K) times a (K x N) matrix, flat. Rows
come in order of their prefix, each pair of factors once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb import ops


@dataclasses.dataclass(frozen=True)
class Product:
    """Describes a product: its static part.

    Attributes:
      rank: K, the rank at the cut.
      compute_dtype: see ``TTConfig``.
    """

    rank: int
    compute_dtype: str


def einsum(formula: str, compute_dtype: str, *arrays: jax.Array) -> jax.Array:
    """Multiplies in the dtype of a config and sums in float32."""
    if compute_dtype == "bfloat16":
        arrays = tuple(x.astype(jnp.bfloat16) for x in arrays)
    exact = compute_dtype == "float32"
    return jnp.einsum(
        formula,
        *arrays,
        precision=jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(
    product: Product,
    prefix: jax.Array,
    suffix: jax.Array,
    of_prefix: jax.Array,
    of_suffix: jax.Array,
    count: jax.Array,
) -> jax.Array:
    """Multiplies factors row by row.

    Args:
      product: its static part.
      prefix: float32[A0, M0, A1, M1 * K], see ``ops.pair_rows``.
      suffix: float32[B, K * N].
      of_prefix: int32[rows], below A0 * A1, never falling before ``count``.
      of_suffix: int32[rows], below B; no pair of factors occurs twice before ``count``.
      count: int32[], how many rows there are; those behind are undefined.

    Returns:
      float32[rows, M0 * M1 * N].
    """
    return _rows(product, *_operands(prefix, suffix, of_prefix, of_suffix, count))


def _rows(
    product: Product,
    prefix: jax.Array,
    suffix: jax.Array,
    starts: jax.Array,
    of_suffix: jax.Array,
) -> jax.Array:
    arrays = prefix, suffix, starts, of_suffix
    return ops.pair_rows(*arrays, rank=product.rank, exact=_is_exact(product))


def _forward(
    product: Product,
    prefix: jax.Array,
    suffix: jax.Array,
    of_prefix: jax.Array,
    of_suffix: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, Any]:
    kept = _operands(prefix, suffix, of_prefix, of_suffix, count)
    return _rows(product, *kept), kept


def _backward(product: Product, kept: Any, d_rows: Any) -> tuple[Any, ...]:
    prefix, suffix, starts, of_suffix = kept
    how: Any = {"rank": product.rank, "exact": _is_exact(product)}
    d_prefix, d_suffix = ops.pair_gradients(
        prefix, suffix, starts, of_suffix, d_rows, **how
    )
    return d_prefix, d_suffix, None, None, None


contract.defvjp(_forward, _backward)


def _is_exact(product: Product) -> bool:
    return product.compute_dtype == "float32"


def _operands(
    prefix: jax.Array,
    suffix: jax.Array,
    of_prefix: jax.Array,
    of_suffix: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Finds the first row of each prefix, and where the last one ends."""
    prefixes = prefix.shape[0] * prefix.shape[2]
    live = jnp.arange(of_prefix.shape[0], dtype=jnp.int32) < count
    every = jnp.arange(prefixes + 1, dtype=jnp.int32)
    # Unrolled: one kernel on a GPU instead of one for each step of the search.
    starts = jnp.searchsorted(
        jnp.where(live, of_prefix, prefixes), every, method="scan_unrolled"
    )
    return prefix, suffix, starts.astype(jnp.int32), jnp.where(live, of_suffix, -1)
