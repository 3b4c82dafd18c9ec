# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names the formats of rows that are packed for serving, and sizes their rows.

A packed row is a float32 scale, then a small code for each column; a column is its code
times the scale. core/packed_row.h says where each code lies.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

# The largest code of each format: a row's scale is its largest magnitude over this.
LARGEST_CODES = {"float8_e4m3fn": 448.0, "int8": 127.0, "int4": 7.0}
ROW_FORMATS = tuple(LARGEST_CODES)

SCALE_BYTES = 4
_WORD = 4  # bytes; codes fill whole words


def dtype_name(given: Any) -> str:
    """Names a dtype, or what a caller gave in place of one."""
    try:
        return jnp.dtype(given).name
    except TypeError:
        return str(given)


def row_format_of(dtype: Any) -> str:
    """Names the format of a dtype or its name; ValueError if rows have no such."""
    name = dtype_name(dtype)
    if name not in ROW_FORMATS:
        raise ValueError(
            f"dtype must be one of {list(ROW_FORMATS)}, or None to keep the rows as "
            f"they are, not {dtype!r}"
        )
    return name


def scaled_codes(rows: Any, largest: float, xp: Any) -> tuple[Any, Any]:
    """Rounds rows to the nearest integers of a scale of their own.

    Args:
      rows: [n, dim].
      largest: the largest integer.
      xp: NumPy or ``jax.numpy``.

    Returns:
      int8[n, dim] and the scales, float32[n]; those of rows of zeros are 0.
    """
    wide = rows.astype(xp.float32)
    scales = xp.abs(wide).max(axis=1, initial=0.0) / xp.float32(largest)
    safe = xp.where(scales > 0, scales, xp.float32(1))
    return xp.rint(wide / safe[:, None]).astype(xp.int8), scales


def packed_bytes(row_format: str, dim: int) -> int:
    """Computes the bytes of a row: its scale, and its codes in whole words."""
    per_word = _WORD * (2 if row_format == "int4" else 1)
    return SCALE_BYTES + -(-dim // per_word) * _WORD
