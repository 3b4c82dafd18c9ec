# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are products of two factors, in order of the first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call


def pair_rows(
    prefix: jax.Array,
    suffix: jax.Array,
    starts: jax.Array,
    of_suffix: jax.Array,
    *,
    rank: int,
    exact: bool,
) -> jax.Array:
    """Multiplies the factors of each row.

    Args:
      prefix: float32 or bfloat16 [A0, M0, A1, M1 * rank], as a product of two cores
        leaves it. Of prefix a0 * A1 + a1 it holds row m0 * M1 + m1. bfloat16 only where
        ``may_be_half``.
      suffix: [B, rank * N] in the dtype of the prefixes.
      starts: int32[A0 * A1 + 1]; prefix a has the rows from ``starts[a]`` to
        ``starts[a + 1]``.
      of_suffix: int32[n], the suffix of each row; without one (-1) it is zeros.
      rank: columns of a prefix's matrix.
      exact: float32 on every platform; False: a GPU may round factors to TF32.

    Returns:
      [n, M0 * M1 * N] in the dtype of the prefixes, summed in float32. Rows behind the
      last of ``starts`` are undefined.
    """
    call = _call("pair_rows", (), prefix, rank, exact)
    call.operand(_segments(prefix), suffix, starts, of_suffix)
    columns = prefix.shape[1] * (prefix.shape[3] // rank) * (suffix.shape[1] // rank)
    call.result((of_suffix.shape[0], columns), prefix.dtype)
    return next(call.run())


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
    """Computes the gradients of both factors, the same bits in every run.

    Args:
      prefix: as for ``pair_rows``, and so on.
      suffix: likewise.
      starts: likewise.
      of_suffix: likewise; rows behind the last of ``starts`` must have none, and no two
        rows of a prefix the same.
      d_rows: [n, M0 * M1 * N] in the dtype of the prefixes, gradients of the rows.
      rank: columns of a prefix's matrix.
      exact: as for ``pair_rows``.

    Returns:
      [A0, M0, A1, M1 * rank] in the dtype of the prefixes, and float32[B, rank * N].
      Sums are in float32.
    """
    if of_suffix.shape[0] == 0:  # an empty batch may have no prefixes to divide
        return jnp.zeros_like(prefix), jnp.zeros(suffix.shape, jnp.float32)
    segments = _segments(prefix)
    outer, segments_m, inner, width = prefix.shape
    factors = (segments_m * (width // rank), rank, suffix.shape[1] // rank)
    sizes = (outer * inner, suffix.shape[0], *factors, *of_suffix.shape)
    call = _call("pair_gradients", sizes, prefix, rank, exact)
    call.operand(segments, suffix, starts, of_suffix, d_rows)
    call.result(segments.shape, prefix.dtype)
    call.result(suffix.shape, jnp.float32)
    d_prefix, d_suffix = call.run()
    return d_prefix.reshape(prefix.shape), d_suffix


def may_be_half(m: int, rank: int, n: int, suffixes: int) -> bool:
    """Whether a GPU has bfloat16 kernels for m x rank and rank x n factors."""
    return _ffi.cpu_module().may_be_half(m, rank, n, suffixes)


def _segments(prefix: jax.Array) -> jax.Array:
    return prefix.reshape(-1, prefix.shape[3])


def _call(
    op: str, sizes: tuple[int, ...], prefix: jax.Array, rank: int, exact: bool
) -> Call:
    return Call(
        op,
        (),
        sizes,
        rank=np.int64(rank),
        segments=np.int64(prefix.shape[1]),
        inner=np.int64(prefix.shape[2]),
        exact=np.int64(exact),
    )
