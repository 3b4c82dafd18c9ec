# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What our kernels for products of factors compute, in plain XLA, for comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops


def pair_rows(
    prefix: jax.Array,
    suffix: jax.Array,
    starts: jax.Array,
    of_suffix: jax.Array,
    *,
    rank: int,
    exact: bool,
) -> jax.Array:
    """Gathers both factors of each row, and multiplies; see ``ops.pair_rows``."""
    of_prefix = _prefixes(starts, of_suffix)
    p = _in_order(prefix)[of_prefix].reshape(len(of_suffix), -1, rank)
    s = suffix[of_suffix].reshape(len(of_suffix), rank, -1)
    return _product("imk,ikn->imn", p, s, exact).reshape(len(of_suffix), -1)


def pair_gradients(
    prefix: jax.Array,
    suffix: jax.Array,
    starts: jax.Array,
    of_suffix: jax.Array,
    d_rows: jax.Array,
    *,
    rank: int,
    exact: bool,
) -> tuple[jax.Array, jax.Array]:
    """Multiplies row by row, and sums by scatter; see ``ops.pair_gradients``."""
    n = len(of_suffix)
    of_prefix = _prefixes(starts, of_suffix)
    live = jnp.arange(n) < starts[-1]
    flat = _in_order(prefix)
    p = flat[of_prefix].reshape(n, -1, rank)
    s = suffix[of_suffix].reshape(n, rank, -1)
    d = jnp.where(live[:, None], d_rows, 0.0).reshape(n, p.shape[1], s.shape[2])
    d_p = _product("imn,ikn->imk", d, s, exact).reshape(n, -1)
    d_s = _product("imk,imn->ikn", p, d, exact).reshape(n, -1)
    d_flat = jax.ops.segment_sum(d_p, of_prefix, len(flat), indices_are_sorted=True)
    a0, m0, a1, width = prefix.shape
    d_prefix = d_flat.reshape(a0, a1, m0, width).swapaxes(1, 2)
    return d_prefix, jax.ops.segment_sum(d_s, of_suffix, len(suffix))


@contextlib.contextmanager
def in_place_of_kernels() -> Iterator[None]:
    """Replaces our kernels by these two functions, and compiles programs again."""
    kernels: Any = ops.pair_rows, ops.pair_gradients
    jax.clear_caches()
    ops.pair_rows, ops.pair_gradients = pair_rows, pair_gradients
    try:
        yield
    finally:
        ops.pair_rows, ops.pair_gradients = kernels
        jax.clear_caches()


def _in_order(prefix: jax.Array) -> jax.Array:
    a0, _, a1, _ = prefix.shape
    return prefix.swapaxes(1, 2).reshape(a0 * a1, -1)


def _prefixes(starts: jax.Array, of_suffix: jax.Array) -> jax.Array:
    every = jnp.arange(len(of_suffix), dtype=jnp.int32)
    found = jnp.searchsorted(starts, every, side="right", method="scan_unrolled") - 1
    return jnp.minimum(found, len(starts) - 2)


def _product(formula: str, a: jax.Array, b: jax.Array, exact: bool) -> jax.Array:
    how = jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT
    return jnp.einsum(formula, a, b, precision=how)
