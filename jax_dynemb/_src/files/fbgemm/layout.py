# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says what stands where in a row.

A row is its codes, and then a scale and a bias: float32 with 8 bits, float16 with 4 and
2. A column is its code times the scale, plus the bias. Several codes of a byte begin
with the low bits.
"""

from __future__ import annotations

from jax_dynemb._src.is_whole import is_whole

_BITS = (8, 4, 2)


def check_bits(bits: int) -> None:
    """Refuses a number of bits that is not 8, 4 or 2."""
    if not is_whole(bits) or bits not in _BITS:
        raise ValueError(f"bits must be one of {_BITS}, not {bits!r}")


def code_bytes(dim: int, bits: int) -> int:
    """Computes the bytes of a row's codes."""
    return -(-dim * bits // 8)


def tail_bytes(bits: int) -> int:
    """Computes the bytes of scale and bias."""
    return 8 if bits == 8 else 4
