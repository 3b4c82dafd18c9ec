# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The peer that everybody has: static tables in plain JAX, touched rows only.

Ids are row numbers here: nothing is hashed. SGD scatters gradients straight into the
table; the other optimizers sum the gradients of each distinct row first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workloads import Case

LEARNING_RATE, EPS, B1, B2 = 1e-3, 1e-8, 0.9, 0.999

Table = dict[str, jax.Array]


def init(case: Case, optimizer: str) -> list[Table]:
    """Makes the tables of a case with the states of an optimizer."""
    shape = (case.rows, case.dim)
    states = {
        "rowwise_adagrad": {"sum": shape[:1]},
        "adagrad": {"sum": shape},
        "adam": {"mu": shape, "nu": shape},
    }.get(optimizer, {})
    make = functools.partial(jnp.zeros, dtype=jnp.float32)
    return [
        {"rows": make(shape)} | {name: make(shape) for name, shape in states.items()}
        for _ in range(case.tables)
    ]


def to_device(ids: np.ndarray) -> list[jax.Array]:
    """Moves `int64[tables, n]` to the device as 32-bit row numbers."""
    return [jnp.asarray(column.astype(np.int32)) for column in ids]


def gradients(case: Case) -> list[jax.Array]:
    """Makes the fixed gradients of the outputs of each table."""
    shape = (case.num_outputs // case.tables, case.dim)
    return [jnp.full(shape, 1e-3, jnp.float32) for _ in range(case.tables)]


def step(case: Case, work: str) -> Callable[..., tuple[Any, Any]]:
    """Returns the jitted step: lookup, then the update unless `work` is "eval"."""

    def run(tables: list[Table], ids: list[jax.Array], d_rows: list[jax.Array]) -> Any:
        outputs = [_forward(case, t, i) for t, i in zip(tables, ids, strict=True)]
        if work != "eval":
            triples = zip(tables, ids, d_rows, strict=True)
            tables = [_train(case, work, *triple) for triple in triples]
        return tables, outputs

    return jax.jit(run, donate_argnums=0)


def _forward(case: Case, table: Table, ids: jax.Array) -> jax.Array:
    rows = jnp.take(table["rows"], ids, axis=0)
    return rows.reshape(-1, case.bag, case.dim).sum(axis=1) if case.pooled else rows


def _train(
    case: Case, work: str, table: Table, ids: jax.Array, d_out: jax.Array
) -> Table:
    grads = jnp.repeat(d_out, case.bag, axis=0) if case.pooled else d_out
    if work == "sgd":
        return {"rows": table["rows"].at[ids].add(-LEARNING_RATE * grads)}
    fill = case.rows  # beyond the table: dropped by the scatter
    size = ids.shape[0]
    distinct, run = jnp.unique(ids, return_inverse=True, size=size, fill_value=fill)
    grads = jax.ops.segment_sum(grads, run, num_segments=size)
    touched = {name: x.at[distinct].get(mode="clip") for name, x in table.items()}
    moved = _UPDATES[work](touched, grads)
    return {
        name: x.at[distinct].set(moved[name], mode="drop", unique_indices=True)
        for name, x in table.items()
    }


def _rowwise_adagrad(t: Table, g: jax.Array) -> Table:
    total = t["sum"] + jnp.mean(g * g, axis=-1)
    move = g / (jnp.sqrt(total)[:, None] + EPS)
    return {"rows": t["rows"] - LEARNING_RATE * move, "sum": total}


def _adagrad(t: Table, g: jax.Array) -> Table:
    total = t["sum"] + g * g
    move = g / (jnp.sqrt(total) + EPS)
    return {"rows": t["rows"] - LEARNING_RATE * move, "sum": total}


def _adam(t: Table, g: jax.Array) -> Table:
    """Without bias correction: it costs nothing that could be measured."""
    mu = B1 * t["mu"] + (1 - B1) * g
    nu = B2 * t["nu"] + (1 - B2) * g * g
    rows = t["rows"] - LEARNING_RATE * mu / (jnp.sqrt(nu) + EPS)
    return {"rows": rows, "mu": mu, "nu": nu}


_UPDATES = {"rowwise_adagrad": _rowwise_adagrad, "adagrad": _adagrad, "adam": _adam}
