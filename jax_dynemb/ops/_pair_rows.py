# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are products of two factors, in order of the first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb.ops._call import Call


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
      prefix: float32[A, M * rank].
      suffix: float32[B, rank * N].
      starts: int32[A + 1]; prefix a has the rows from ``starts[a]`` to
        ``starts[a + 1]``.
      of_suffix: int32[n], the suffix of each row; without one (-1) it is zeros.
      rank: columns of a prefix's matrix.
      exact: float32 on every platform; False: a GPU may round factors to TF32.

    Returns:
      float32[n, M * N]. Rows behind ``starts[A]`` are undefined.
    """
    call = _call("pair_rows", (), rank, exact)
    for array in (prefix, suffix, starts, of_suffix):
        call.operand(array)
    width = prefix.shape[1] // rank * (suffix.shape[1] // rank)
    call.result((of_suffix.shape[0], width), jnp.float32)
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
      of_suffix: likewise; rows behind ``starts[A]`` must have none.
      d_rows: float32[n, M * N], gradients of the rows.
      rank: columns of a prefix's matrix.
      exact: as for ``pair_rows``.

    Returns:
      float32[A, M * rank] and float32[B, rank * N].
    """
    sizes = (*suffix.shape, *of_suffix.shape)
    call = _call("pair_gradients", sizes, rank, exact)
    for array in (prefix, suffix, starts, of_suffix, d_rows):
        call.operand(array)
    call.result(prefix.shape, jnp.float32)
    call.result(suffix.shape, jnp.float32)
    d_prefix, d_suffix = call.run()
    return d_prefix, d_suffix


def _call(op: str, sizes: tuple[int, ...], rank: int, exact: bool) -> Call:
    return Call(op, (), sizes, rank=np.int64(rank), exact=np.int64(exact))
