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

from jax_dynemb._src import ops


@dataclasses.dataclass(frozen=True)
class Product:
    """Describes a product: its static part."""

    rank: int  # K, the rank at the cut
    compute_dtype: str  # see ``TTConfig``


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


@jax.custom_vjp
def half_prefixes(left: jax.Array, right: jax.Array) -> jax.Array:
    """Multiplies prefixes out in bfloat16, and sums in float32.

    Factors float32 [A0, M0, rank] and [rank, A1, M1 * K] make [A0, M0, A1, M1 * K].
    Their gradients are float32: autodiff would round them to the product's dtype.
    """
    return _half_product("aqk,kbs->aqbs", left, right, jnp.bfloat16)


def _half_forward(left: jax.Array, right: jax.Array) -> tuple[jax.Array, Any]:
    return half_prefixes(left, right), (left, right)


def _half_backward(factors: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    left, right = factors
    return (
        _half_product("aqbs,kbs->aqk", gradient, right, jnp.float32),
        _half_product("aqk,aqbs->kbs", left, gradient, jnp.float32),
    )


def _half_product(formula: str, a: jax.Array, b: jax.Array, dtype: Any) -> jax.Array:
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jnp.einsum(formula, a, b, preferred_element_type=dtype)


half_prefixes.defvjp(_half_forward, _half_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(
    product: Product,
    prefix: jax.Array,
    suffix: jax.Array,
    starts: jax.Array,
    of_suffix: jax.Array,
) -> jax.Array:
    """Multiplies factors row by row: [rows, M0 * M1 * N] in the prefixes' dtype.

    ``prefix`` is float32 or bfloat16 [A0, M0, A1, M1 * K], see ``ops.pair_rows``;
    ``suffix`` float32[B, K * N], rounded to that. ``starts`` is int32[A0 * A1 + 1], the
    first row of each prefix; rows behind the last are undefined. ``of_suffix`` is
    int32[rows], -1 where there is no row; no pair of factors occurs twice.
    """
    return _rows(product, prefix, suffix, starts, of_suffix)


def _rows(product: Product, prefix: jax.Array, suffix: Any, *others: Any) -> jax.Array:
    how: Any = {"rank": product.rank, "exact": _is_exact(product)}
    return ops.pair_rows(prefix, suffix.astype(prefix.dtype), *others, **how)


def _forward(product: Product, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    return _rows(product, *arrays), arrays


def _backward(product: Product, arrays: Any, d_rows: Any) -> tuple[Any, ...]:
    prefix, suffix, starts, of_suffix = arrays
    how: Any = {"rank": product.rank, "exact": _is_exact(product)}
    d_prefix, d_suffix = ops.pair_gradients(
        prefix, suffix.astype(prefix.dtype), starts, of_suffix, d_rows, **how
    )
    return d_prefix, d_suffix, None, None


contract.defvjp(_forward, _backward)


def _is_exact(product: Product) -> bool:
    return product.compute_dtype == "float32"
