# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes become float rows again."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.files.fbgemm.layout import check_bits, code_bytes, tail_bytes


def fbgemm_rows(data: Any, dim: int, bits: int = 8) -> np.ndarray:
    """Reads rows that FBGEMM, or ``jde.export.fbgemm_rows``, has quantized.

    Args:
      data: uint8[n, bytes of a row].
      dim: columns of a row.
      bits: of a column: 8, 4 or 2.

    Returns:
      float32[n, dim].

    Raises:
      ValueError: ``bits`` is none of these, or ``data`` has another width or dtype.
    """
    check_bits(bits)
    given = np.asarray(data)
    wanted = code_bytes(dim, bits) + tail_bytes(bits)
    if dim < 1 or given.dtype != np.uint8 or given.shape[1:] != (wanted,):
        raise ValueError(
            f"rows of {dim} columns with {bits} bits are uint8[n, {wanted}], not "
            f"{given.dtype}{list(given.shape)}; give the dim and bits of the table"
        )
    number = np.float32 if bits == 8 else np.float16
    tail = np.ascontiguousarray(given[:, -tail_bytes(bits) :]).view(number)
    # FBGEMM rounds once, after a fused product and sum; so does this.
    scale, bias = tail[:, :1].astype(np.float64), tail[:, 1:].astype(np.float64)
    codes = _unpacked(given[:, : -tail_bytes(bits)], bits)[:, :dim]
    with np.errstate(over="ignore", invalid="ignore"):  # of bytes that are no rows
        return (codes * scale + bias).astype(np.float32)


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    places = data[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    columns = data.shape[1] * (8 // bits)
    return (places & np.uint8(2**bits - 1)).reshape(len(data), columns)
