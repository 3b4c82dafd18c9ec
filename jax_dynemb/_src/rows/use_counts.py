# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads uses from the scores of LFU tables, on the host (see core/score.h)."""

from __future__ import annotations

import numpy as np

from jax_dynemb._src import ffi as _ffi

PIN = np.uint64(1 << 62)  # of a pinned row
_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


def use_counts(scores: np.ndarray, halflife: int, clock: int) -> np.ndarray:
    """Decodes how many uses rows weigh beside one by the latest lookup: float64[n].

    ``scores`` is uint64[n], of an LFU table. Without ``halflife`` numbers are whole.
    """
    high = (scores >> _HIGH).astype(np.float64)
    if not halflife:
        return high
    passed = clock % halflife
    age = np.uint32(clock & 0xFFFF_FFFF) - scores.astype(np.uint32)  # wraps
    epochs = -(-(age.astype(np.int64) - passed) // halflife)
    return np.ldexp(high, -np.maximum(epochs, 0)) / _weight(passed, halflife)


def leaving_order(scores: np.ndarray, halflife: int) -> np.ndarray:
    """Numbers that order rows as a table evicts them, the first one lowest: uint64[n].

    Scores are those of one table, with the bits of pinned rows.
    """
    if not halflife:
        return scores
    high = (scores & ~PIN) >> _HIGH
    digits = np.frexp(high.astype(np.float64))[1]
    epoch = (scores & _LOW) // np.uint64(halflife)
    exponent = epoch + digits.astype(np.uint64)
    mantissa = high << (30 - digits).astype(np.uint64)
    order = np.where(high == 0, np.uint64(0), exponent << np.uint64(30) | mantissa)
    return np.where(scores & PIN, ~np.uint64(0), order)


def _weight(passed: int, halflife: int) -> int:
    use = _ffi.constants()["use"]
    phase = passed * use // halflife
    return use + phase - (phase * (use - phase) * 88 >> 16)
