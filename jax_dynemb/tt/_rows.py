# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a table from its cores."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jax_dynemb.tt._contract import Product, contract, einsum
from jax_dynemb.tt._distinct import distinct

# Columns of a prefix: those of one tile of a tensor core's product.
_TILE = 16


def rows_of(
    cores: Sequence[jax.Array],
    numbers: jax.Array,
    count: jax.Array,
    compute_dtype: str,
) -> jax.Array:
    """Makes the rows of distinct numbers; differentiable in the cores.

    Args:
      cores: float32[p_t, R_t, q_t, R_{t+1}], the first with R_0 = 1.
      numbers: uint32[n], ascending, below the product of p.
      count: int32[], how many numbers there are.
      compute_dtype: see ``TTConfig``.

    Returns:
      float32[n, prod(q) * R_T].
    """
    if len(cores) == 1:
        (core,) = cores
        return core.reshape(core.shape[0], -1)[numbers]
    cut = _cut(cores)
    suffix = dense(cores[cut:], compute_dtype)
    rest = jnp.uint32(suffix.shape[0])
    of_suffix = (numbers % rest).astype(jnp.int32)
    prefix, of_prefix = _prefix(cores[:cut], numbers // rest, count, compute_dtype)
    product = Product(cores[cut].shape[1], compute_dtype)
    suffix = suffix.reshape(suffix.shape[0], -1)
    return contract(product, prefix, suffix, of_prefix, of_suffix, count)


def _prefix(
    cores: Sequence[jax.Array],
    numbers: jax.Array,
    count: jax.Array,
    compute_dtype: str,
) -> tuple[jax.Array, jax.Array]:
    """The prefixes, as ``contract`` takes them, and which of them each row has.

    All of them are one product of large matrices. Where that would be more than twice
    the rows of the call, those that occur are made one by one.
    """
    n, every = numbers.shape[0], math.prod(core.shape[0] for core in cores)
    if every <= 2 * n:
        return _every_prefix(cores, compute_dtype), numbers.astype(jnp.int32)
    live = jnp.arange(n, dtype=jnp.int32) < count
    some = distinct(jnp.where(live, numbers, jnp.uint32(0xFFFF_FFFF)))
    prefix = rows_of(cores, some.values, some.count, compute_dtype)
    return prefix[None, None], jnp.maximum(some.inverse, 0)


def _every_prefix(cores: Sequence[jax.Array], compute_dtype: str) -> jax.Array:
    """Multiplies all prefixes out, in the order that a product of matrices has.

    Returns:
      float32[A0, M0, A1, M1 * K], where A1 and M1 are of the last core.
    """
    *before, last = cores
    p, rank, *_ = last.shape
    if not before:
        return last.reshape(1, 1, p, -1)
    left = dense(before, compute_dtype)
    left = left.reshape(left.shape[0], -1, rank)
    # The second factor with its rank in front: so XLA transposes it, not the product.
    right = last.reshape(p, rank, -1).swapaxes(0, 1)
    return einsum("aqk,kbs->aqbs", compute_dtype, left, right)


def dense(cores: Sequence[jax.Array], compute_dtype: str) -> jax.Array:
    """Multiplies cores out: float32[prod(p), R_first, prod(q) * R_last]."""

    def joined(left: jax.Array, right: jax.Array) -> jax.Array:
        p1, r1, q1, _ = left.shape
        p2, _, q2, r2 = right.shape
        both = einsum("arqk,bkst->abrqst", compute_dtype, left, right)
        return both.reshape(p1 * p2, r1, q1 * q2, r2)

    whole = functools.reduce(joined, cores)
    return whole.reshape(*whole.shape[:2], -1)


def _cut(cores: Sequence[jax.Array]) -> int:
    """Chooses how many cores the prefix has.

    A row reads ``R * (M + N)`` numbers. 16 columns of the prefix fill a tile of a
    tensor core. All suffixes are made in each call, so they must be few; of prefixes
    those that occur would do.
    """
    best, choice = math.inf, 1
    for cut in range(1, len(cores)):
        m = math.prod(core.shape[2] for core in cores[:cut])
        n = math.prod(core.shape[2] for core in cores[cut:]) * cores[-1].shape[3]
        read = cores[cut].shape[1] * (m + n) / (2 if m == _TILE else 1)
        suffixes = math.prod(core.shape[0] for core in cores[cut:])
        work = read + suffixes / 100
        if work < best:
            best, choice = work, cut
    return choice
