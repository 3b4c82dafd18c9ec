# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an optimizer may run on some columns of a row without the others."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import optax

from jax_dynemb._src.optim.functor import Functor
from jax_dynemb._src.optim.optax import OptaxOptimizer
from jax_dynemb._src.optim.row_local import optax_rules, probe, same, updates_of

_COLUMNS = 16
_ROW_SUMS = (
    "rowwise_adagrad",
    "partial_rowwise_adam",
    "lamb",
    "partial_rowwise_lamb",
    "lars",
    "rowwise_rmsprop",
    "caught_up_rowwise_adagrad",
    "cow_clip_rowwise_adagrad",
    "counter_rowwise_adagrad",
    "shrinking_rowwise_rmsprop",
)


def check_columns(table: str, optimizer: Any) -> None:
    """Raises ValueError if an optimizer mixes columns, but for row-wise Adagrad."""
    if isinstance(optimizer, Functor) and (
        optimizer.kind in _ROW_SUMS or optimizer.clip_row_norm > 0
    ):
        raise ValueError(
            f"Table '{table}' is column-wise, so no device has a whole row, but "
            f"jde.optim.{optimizer.name} as it is set sums over all columns of a row. "
            "Use an element-wise optimizer (jde.optim.adam, momentum, lion, ftrl), "
            "jde.optim.rowwise_adagrad without decay and max_norm, or "
            "sharding='row_wise'."
        )
    optax_one = isinstance(optimizer, OptaxOptimizer)
    if optax_one and not _is_column_local(optimizer.tx):
        raise ValueError(
            f"Table '{table}' is column-wise, so no device has a whole row, but the "
            "update of a column by its optax optimizer changes with the row's other "
            "columns. Use an element-wise optimizer (jde.optim.adam, optax.adamw), "
            "jde.optim.rowwise_adagrad, or sharding='row_wise'."
        )


@functools.lru_cache(maxsize=256)
def _is_column_local(tx: optax.GradientTransformation) -> bool:
    rows, grads, keep = probe(_COLUMNS)  # other rows hold what is not a number
    rows, grads = rows[keep], [g[keep] for g in grads]
    half = slice(0, _COLUMNS // 2)
    with jax.ensure_compile_time_eval(), jax.debug_nans(False), optax_rules():
        run = jax.jit(functools.partial(updates_of, tx))
        whole, _ = run(rows, grads)
        part, _ = run(rows[:, half], [g[:, half] for g in grads])
    pairs = zip(whole, part, strict=True)
    return all(same(np.asarray(a)[:, half], np.asarray(b)) for a, b in pairs)
