# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows in NumPy: how they are made, what their bytes say, how far they err."""

import ml_dtypes
import numpy as np

FORMATS = ("float8_e4m3fn", "int8", "int4")
LARGEST = {"float8_e4m3fn": 448, "int8": 127, "int4": 7}
# The scale of a row of smaller numbers would be subnormal: it is stored as zeros.
TINY = float(np.finfo(np.float32).tiny)


def width(row_format: str, dim: int) -> int:
    """Bytes of a row: 4 of the scale, then codes in whole words of 4 bytes."""
    codes = (dim + 1) // 2 if row_format == "int4" else dim
    return 4 + (codes + 3) // 4 * 4


def quantized(rows: np.ndarray, row_format: str) -> tuple[np.ndarray, np.ndarray]:
    """The scale of each row, and its codes as numbers; of finite rows."""
    rows = rows.astype(np.float32)
    largest = np.float32(LARGEST[row_format])
    most = np.abs(rows).max(axis=1, keepdims=True)
    scale = most / largest
    with np.errstate(over="ignore"):
        scale[np.isinf(scale * largest)] *= np.float32(1 - 2**-23)
    zero = most < largest * np.float32(TINY)
    scale = np.where(zero, np.float32(1), scale)
    quotients = np.where(zero, np.float32(0), rows / scale).clip(-largest, largest)
    if row_format == "float8_e4m3fn":
        codes = quotients.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    else:
        codes = np.rint(quotients)
    return scale[:, 0], codes


def read(data: np.ndarray, row_format: str, dim: int) -> np.ndarray:
    """float32[n, dim] of the bytes of packed rows, whatever they are."""
    scale = np.ascontiguousarray(data[:, :4]).view(np.float32)
    codes = np.ascontiguousarray(data[:, 4:])
    if row_format == "float8_e4m3fn":
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        # The only NaN of the format, which no packer writes, reads as a number.
        values[(codes & 0x7F) == 0x7F] = 480
        values[codes == 0xFF] = -480
    elif row_format == "int8":
        values = codes.view(np.int8).astype(np.float32)
    else:
        halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(data), -1)
        values = halves.astype(np.float32) - 8
    with np.errstate(over="ignore", invalid="ignore"):
        return values[:, :dim] * scale


def largest_error(rows: np.ndarray, row_format: str) -> np.ndarray:
    """How far a column may be from what is read, as float64[n, dim]."""
    rows = rows.astype(np.float64)
    scale = np.abs(rows).max(axis=1, keepdims=True) / LARGEST[row_format]
    if row_format == "float8_e4m3fn":  # 3 bits of mantissa; subnormal below 2**-6
        bound = np.maximum(np.abs(rows) * 2**-4, scale * 2**-10)
    else:
        bound = np.broadcast_to(scale / 2, rows.shape)
    rounding = 2**-21 * np.abs(rows).max(axis=1, keepdims=True)
    return bound + rounding + LARGEST[row_format] * TINY


def hard_rows(seed: int, count: int, dim: int) -> np.ndarray:
    """Rows of many magnitudes: huge, tiny, subnormal, zero, one outstanding column."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-149, 128, (count, 1)).astype(np.float64)
    rows = (rng.uniform(-1, 1, (count, dim)) * 2.0**exponents).astype(np.float32)
    rows[::7] = 0
    rows[1::7, 0] = np.finfo(np.float32).max
    rows[2::7] = np.finfo(np.float32).max
    rows[3::7, dim // 2 :] = 0
    return rows
