# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The peer that everybody has: static tables in plain JAX, touched rows only.

Ids are row numbers here: nothing is hashed. SGD scatters gradients straight into the
table; the other optimizers sum the gradients of each distinct row first.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from suite.workloads import Case

LEARNING_RATE, EPS, B1, B2 = 1e-3, 1e-8, 0.9, 0.999

Table = dict[str, jax.Array]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["numbers", "rows"],
    meta_fields=["adds"],
)
@dataclasses.dataclass(frozen=True)
class Change:
    """Rows to write: to add at any row numbers, or to put at distinct ones."""

    numbers: jax.Array
    rows: Table
    adds: bool


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
    """Returns the step: lookup, then the update unless `work` is "eval".

    Reading and writing are separate programs. In one program XLA may copy the whole
    table, to read old values while it writes new ones; on the CPU it does.
    """
    read = jax.jit(functools.partial(_read, case, work))
    write = jax.jit(_write, donate_argnums=0)

    def run(tables: list[Table], ids: list[jax.Array], d_rows: list[jax.Array]) -> Any:
        outputs, changes = read(tables, ids, d_rows)
        return (tables if work == "eval" else write(tables, changes)), outputs

    return run


def _read(case: Case, work: str, tables: list[Table], ids: Any, d_rows: Any) -> Any:
    outputs = [_forward(case, t, i) for t, i in zip(tables, ids, strict=True)]
    triples = zip(tables, ids, d_rows, strict=True)
    changes = [] if work == "eval" else [_change(case, work, *each) for each in triples]
    return outputs, changes


def _forward(case: Case, table: Table, ids: jax.Array) -> jax.Array:
    rows = jnp.take(table["rows"], ids, axis=0, mode="clip")
    return rows.reshape(-1, case.bag, case.dim).sum(axis=1) if case.pooled else rows


def _change(
    case: Case, work: str, table: Table, ids: jax.Array, d_out: jax.Array
) -> Change:
    grads = jnp.repeat(d_out, case.bag, axis=0) if case.pooled else d_out
    if work == "sgd":
        return Change(ids, {"rows": -LEARNING_RATE * grads}, adds=True)
    fill = case.rows  # beyond the table: dropped by the scatter
    size = ids.shape[0]
    distinct, run = jnp.unique(ids, return_inverse=True, size=size, fill_value=fill)
    grads = jax.ops.segment_sum(grads, run, num_segments=size)
    touched = {name: x.at[distinct].get(mode="clip") for name, x in table.items()}
    return Change(distinct, _UPDATES[work](touched, grads), adds=False)


def _write(tables: list[Table], changes: list[Change]) -> list[Table]:
    return [_apply(t, change) for t, change in zip(tables, changes, strict=True)]


def _apply(table: Table, change: Change) -> Table:
    at = {name: x.at[change.numbers] for name, x in table.items()}
    if change.adds:
        return {k: at[k].add(v, mode="drop") for k, v in change.rows.items()}
    return {
        k: at[k].set(v, mode="drop", unique_indices=True)
        for k, v in change.rows.items()
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
