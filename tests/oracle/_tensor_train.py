# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A tensor-train table as the dense table that its cores stand for."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._bags import bags_of, of_each_id, pool, position_factors
from ._hash import bucket_of

Cores = Sequence[np.ndarray]


def tt_table(cores: Cores) -> np.ndarray:
    """Multiplies all cores [p_t, R_t, q_t, R_{t+1}] out: float64[prod(p), prod(q)]."""
    whole, _ = _joined(cores, last=1)
    return whole[:, :, 0]


def tt_row_numbers(
    ids: np.ndarray, num_embeddings: int, num_rows: int, hashed: bool
) -> np.ndarray:
    """The row of each id, int64[n]; -1 where there is none."""
    if hashed:
        return np.array([-1 if i == -1 else bucket_of(int(i), num_rows) for i in ids])
    return np.where((ids >= 0) & (ids < num_embeddings), ids, -1)


def tt_lookup(
    cores: Cores, rows: np.ndarray, ids: Any, weights: Any, pooling: str | None
) -> np.ndarray:
    """Pools rows of the dense table; ``rows`` int64[n] is -1 for a zero row."""
    table = tt_table(cores)
    found = np.where(rows[:, None] < 0, 0.0, table[np.maximum(rows, 0)])
    return pool(bags_of(ids, pooling is not None), found, weights, pooling)


def tt_core_gradients(
    cores: Cores,
    rows: np.ndarray,
    ids: Any,
    weights: Any,
    pooling: str | None,
    d_rows: np.ndarray,
) -> list[np.ndarray]:
    """The gradients of the cores, through that of the dense table."""
    bags = bags_of(ids, pooling is not None)
    factors = position_factors(bags, weights, pooling)
    flat = np.asarray(d_rows, np.float64).reshape(bags.num_bags, -1)
    of_ids = factors[:, None] * of_each_id(bags, flat)
    p = [core.shape[0] for core in cores]
    q = [core.shape[2] for core in cores]
    d_table = np.zeros((int(np.prod(p)), int(np.prod(q))))
    np.add.at(d_table, rows[rows >= 0], of_ids[rows >= 0])
    result = []
    for t, core in enumerate(cores):
        left, m = _joined(cores[:t], last=core.shape[1])
        right, n = _joined_behind(cores[t + 1 :], first=core.shape[3])
        parts = d_table.reshape(len(left), p[t], len(right), m, q[t], n)
        result.append(np.einsum("amr,apbmqn,bsn->prqs", left, parts, right))
    return result


def _joined(cores: Cores, last: int) -> tuple[np.ndarray, int]:
    """float64[prod(p), prod(q), R] of the first cores, and its columns."""
    whole = np.ones((1, 1, 1))
    for core in cores:
        both = np.einsum("amr,prqs->apmqs", whole, core.astype(np.float64))
        rows, columns = both.shape[0] * both.shape[1], both.shape[2] * both.shape[3]
        whole = both.reshape(rows, columns, -1)
    assert whole.shape[2] == last
    return whole, whole.shape[1]


def _joined_behind(cores: Cores, first: int) -> tuple[np.ndarray, int]:
    """float64[prod(p), R, prod(q)] of the last cores, and its columns."""
    whole = np.ones((1, 1, 1))
    for core in reversed(cores):
        both = np.einsum("prqs,bsn->pbrqn", core.astype(np.float64), whole)
        rows, columns = both.shape[0] * both.shape[1], both.shape[3] * both.shape[4]
        whole = both.reshape(rows, -1, columns)
    assert whole.shape[1] == first
    return whole, whole.shape[2]
