# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as products of two factors: what stands before the cut, and the rest.

Row i is ``prefix[a(i)] @ suffix[b(i)]``, an (M x K) times a (K x N) matrix, flat. Rows
are made in chunks: the factors of all rows together would be many times the rows. The
number of chunks follows the number of distinct rows, which only the device knows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb.tt._sums import sum_by_group

_CHUNK_BYTES = 1 << 28
_LEAST_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class Product:
    """Describes a product: its static part.

    Attributes:
      m: columns that the prefix gives.
      k: the rank at the cut.
      n: columns that the suffix gives.
      compute_dtype: see ``TTConfig``.
    """

    m: int
    k: int
    n: int
    compute_dtype: str

    def chunk(self, rows: int) -> int:
        """Returns how many rows a chunk has, of so many."""
        widest = 4 * max(self.m * self.k, self.k * self.n, self.m * self.n)
        return max(1, min(rows, max(_LEAST_ROWS, _CHUNK_BYTES // widest)))


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
      product: sizes.
      prefix: float32[A, M * K].
      suffix: float32[B, K * N].
      of_prefix: int32[rows], below A.
      of_suffix: int32[rows], below B.
      count: int32[], how many rows there are; those behind are zeros or unused.

    Returns:
      float32[rows, M * N].
    """
    left, right = _stored(product, prefix), _stored(product, suffix)
    total = of_prefix.shape[0]

    def one(begin: jax.Array, rows: jax.Array) -> jax.Array:
        p, s, _ = _chunk_of(product, left, right, of_prefix, of_suffix, begin, count)
        new = einsum("cmk,ckn->cmn", product.compute_dtype, p, s)
        new = new.reshape(-1, product.m * product.n)
        return jax.lax.dynamic_update_slice_in_dim(rows, new, begin, axis=0)

    rows = jnp.zeros((total, product.m * product.n), jnp.float32)
    return _over_chunks(product.chunk(total), total, count, one, rows)


def _forward(product: Product, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    return contract(product, *arrays), arrays


def _backward(product: Product, arrays: Any, d_rows: jax.Array) -> tuple[Any, ...]:
    prefix, suffix, of_prefix, of_suffix, count = arrays
    left, right = _stored(product, prefix), _stored(product, suffix)
    total = of_prefix.shape[0]
    size = product.chunk(total)

    def one(begin: jax.Array, sums: tuple[jax.Array, jax.Array]) -> Any:
        p, s, live = _chunk_of(product, left, right, of_prefix, of_suffix, begin, count)
        d = jax.lax.dynamic_slice_in_dim(d_rows, begin, size)
        d = d.reshape(size, product.m, product.n)
        d_p = einsum("cmn,ckn->cmk", product.compute_dtype, d, s).reshape(size, -1)
        d_s = einsum("cmk,cmn->ckn", product.compute_dtype, p, d).reshape(size, -1)
        groups = [
            jnp.where(live, jax.lax.dynamic_slice_in_dim(of, begin, size), -1)
            for of in (of_prefix, of_suffix)
        ]
        return (
            sums[0] + sum_by_group(d_p, groups[0], prefix.shape[0]),
            sums[1] + sum_by_group(d_s, groups[1], suffix.shape[0]),
        )

    zeros = jnp.zeros(prefix.shape, jnp.float32), jnp.zeros(suffix.shape, jnp.float32)
    d_prefix, d_suffix = _over_chunks(size, total, count, one, zeros)
    return d_prefix, d_suffix, None, None, None


contract.defvjp(_forward, _backward)


def _stored(product: Product, factor: jax.Array) -> jax.Array:
    """Halves the bytes that rows gather, where products round to bfloat16 anyway."""
    return (
        factor.astype(jnp.bfloat16) if product.compute_dtype == "bfloat16" else factor
    )


def _chunk_of(
    product: Product,
    left: jax.Array,
    right: jax.Array,
    of_prefix: jax.Array,
    of_suffix: jax.Array,
    begin: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The factors of a chunk's rows, and which of them this chunk is the first to have.

    The last chunk begins early, so that it ends with the rows: what it shares with the
    one before counts once.
    """
    total = of_prefix.shape[0]
    size = product.chunk(total)
    a = jax.lax.dynamic_slice_in_dim(of_prefix, begin, size)
    b = jax.lax.dynamic_slice_in_dim(of_suffix, begin, size)
    place = begin + jnp.arange(size, dtype=jnp.int32)
    new = place >= -(-begin // size) * size
    p = left[a].reshape(size, product.m, product.k)
    s = right[b].reshape(size, product.k, product.n)
    return p, s, new & (place < count)


def _over_chunks(
    size: int,
    total: int,
    count: jax.Array,
    one: Callable[[jax.Array, Any], Any],
    carry: Any,
) -> Any:
    """Calls ``one(begin, carry)`` for the chunks that have rows."""
    if total <= size:
        return one(jnp.int32(0), carry)
    last = total - size

    def body(n: jax.Array, carry: Any) -> Any:
        return one(jnp.minimum(n * size, last), carry)

    return jax.lax.fori_loop(0, -(-count // size), body, carry)
