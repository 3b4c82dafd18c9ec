# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TT-SVD: cores of a dense table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

CoreShape = tuple[int, int, int, int]


def decompose(
    table: Any, core_shapes: Sequence[CoreShape]
) -> tuple[list[np.ndarray], float]:
    """Decomposes a dense table by truncated SVDs, one core after the other.

    Algorithm 1 of Oseledets, "Tensor-train decomposition" (SIAM J. Sci. Comput. 2011).
    The error is at most sqrt(T - 1) times that of the best cores of these ranks.

    Args:
      table: float[rows, dim] on the host; missing rows up to prod(p) count as 0.
      core_shapes: (p_t, R_t, q_t, R_{t+1}), see ``TTConfig.core_shapes``.

    Returns:
      The cores, float64, and a bound of the Frobenius norm of the error. The bound is
      the root of the sum of all squared singular values that were cut off.
    """
    array = np.asarray(table, np.float64)
    rows = [shape[0] for shape in core_shapes]
    columns = [shape[2] for shape in core_shapes]
    padded = np.zeros((math.prod(rows), array.shape[1]))
    padded[: len(array)] = array
    count = len(rows)
    order = [axis for t in range(count) for axis in (t, count + t)]
    rest = padded.reshape(*rows, *columns).transpose(order)
    cores, cut = [], 0.0
    for p, before, q, after in core_shapes[:-1]:
        left, values, right = np.linalg.svd(
            rest.reshape(before * p * q, -1), full_matrices=False
        )
        kept = min(after, len(values))
        cut += float(np.sum(values[kept:] ** 2))
        core, rest = (
            np.zeros((before * p * q, after)),
            np.zeros((after, right.shape[1])),
        )
        core[:, :kept] = left[:, :kept]
        rest[:kept] = values[:kept, None] * right[:kept]
        cores.append(core.reshape(before, p, q, after).transpose(1, 0, 2, 3))
    p, before, q, after = core_shapes[-1]
    cores.append(rest.reshape(before, p, q, after).transpose(1, 0, 2, 3))
    return cores, math.sqrt(cut)
