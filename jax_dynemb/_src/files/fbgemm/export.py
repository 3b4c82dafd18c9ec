# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Float rows become bytes, with FBGEMM's arithmetic operation by operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.files.fbgemm.layout import check_bits

_EPSILON = np.float32(1e-8)  # FBGEMM adds it to the range, with 8 bits


def fbgemm_rows(rows: Any, bits: int = 8) -> np.ndarray:
    """Quantizes rows as FBGEMM's fused row-wise operators do.

    FBGEMM itself takes only widths that fill their bytes, with 4 and 2 bits. Here the
    last byte of a row may have codes of zero left over.

    Args:
      rows: float[n, dim], any dim from 1 on; on the host.
      bits: of a column: 8 (``FloatToFused8BitRowwiseQuantized``), 4 or 2
        (``FloatToFusedNBitRowwiseQuantizedSBHalf``).

    Returns:
      uint8[n, dim + 8], or uint8[n, ceil(dim * bits / 8) + 4].

    Raises:
      ValueError: ``bits`` is none of these, ``rows`` has another number of axes, or a
        row has numbers that its scale and bias can not hold.
    """
    check_bits(bits)
    wide = np.asarray(rows).astype(np.float32)
    if wide.ndim != 2 or wide.shape[1] == 0:
        raise ValueError(
            f"rows must be float[n, dim] with a column or more, not {wide.shape}"
        )
    return _eight_bits(wide) if bits == 8 else _few_bits(wide, bits)


def _eight_bits(rows: np.ndarray) -> np.ndarray:
    least, most = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        extent = most - least
    _check(np.isfinite(extent), rows, "their range in float32", 8)
    scale = extent / np.float32(255)
    inverse = np.float32(255) / (extent + _EPSILON)
    codes = np.rint((rows - least) * inverse).astype(np.uint8)
    return np.concatenate([codes, _bytes(scale), _bytes(least)], axis=1)


def _few_bits(rows: np.ndarray, bits: int) -> np.ndarray:
    largest = np.float32(2**bits - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        bias = rows.min(axis=1, keepdims=True).astype(np.float16)
        least = bias.astype(np.float32)
        extent = rows.max(axis=1, keepdims=True) - least
        scale = np.where(extent == 0, np.float32(1), extent / largest)
        scale = scale.astype(np.float16)
    fits = np.isfinite(least) & np.isfinite(extent) & np.isfinite(scale)
    _check(fits, rows, "scale and bias in float16", bits)
    scale = np.where(scale == 0, np.float16(1), scale)
    inverse = np.float32(1) / scale.astype(np.float32)
    codes = np.clip(np.rint((rows - least) * inverse), 0, largest).astype(np.uint8)
    return np.concatenate([_packed(codes, bits), _bytes(scale), _bytes(bias)], axis=1)


def _check(fits: np.ndarray, rows: np.ndarray, what: str, bits: int) -> None:
    if fits.all():
        return
    bad = int(np.argmin(fits[:, 0]))
    raise ValueError(
        f"row {bad} has numbers from {rows[bad].min()} to {rows[bad].max()}, too large "
        f"for {what} ({bits} bits): clip the rows, or leave this one out"
    )


def _bytes(numbers: np.ndarray) -> np.ndarray:
    """[n, 1] as its bytes."""
    return np.ascontiguousarray(numbers).view(np.uint8)


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Several codes a byte, the first in the low bits."""
    per_byte = 8 // bits
    whole = np.pad(codes, [(0, 0), (0, -codes.shape[1] % per_byte)])
    count = whole.shape[1] // per_byte
    places = whole.reshape(-1, count, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(places, axis=2)
