# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The peer that everybody has: static tables in plain JAX, touched rows only.

Ids are row numbers here: nothing is hashed. SGD scatters gradients straight into the
table; the other optimizers sum the gradients of each distinct row first.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from suite.workloads import Case

LEARNING_RATE, EPS, B1, B2 = 1e-3, 1e-8, 0.9, 0.999

Table = dict[str, jax.Array]
# Row numbers, and the lengths of jagged bags.
Batch = tuple[jax.Array, jax.Array | None]


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


def init(parts: Sequence[Case], optimizer: str, dtype: str) -> list[Table]:
    """Makes the tables of a case, float32 states of an optimizer beside them."""
    return [_table(part, optimizer, dtype) for part in parts]


def _table(part: Case, optimizer: str, dtype: str) -> Table:
    shape = (part.rows, part.dim)
    states = {
        "rowwise_adagrad": {"sum": shape[:1]},
        "adagrad": {"sum": shape},
        "adam": {"mu": shape, "nu": shape},
    }.get(optimizer, {})
    rows = {"rows": jnp.zeros(shape, dtype)}
    return rows | {name: jnp.zeros(shape) for name, shape in states.items()}


def to_device(parts: Sequence[Case], ids: Any) -> list[Batch]:
    """Moves `int64[n]` of each table to the device as 32-bit row numbers."""
    pairs = zip(parts, ids, strict=True)
    return [_batch(part, column) for part, column in pairs]


def _batch(part: Case, ids: np.ndarray) -> Batch:
    lengths = jnp.asarray(part.bag_lengths) if part.jagged else None
    return jnp.asarray(ids.astype(np.int32)), lengths


def gradients(parts: Sequence[Case], dtype: str) -> list[jax.Array]:
    """Makes the fixed gradients of the outputs of each table."""
    return [jnp.full((part.num_outputs, part.dim), 1e-3, dtype) for part in parts]


def step(parts: Sequence[Case], work: str) -> Callable[..., tuple[Any, Any]]:
    """Returns the step: lookup, then the update unless `work` is "eval".

    Reading and writing are separate programs. In one program XLA may copy the whole
    table, to read old values while it writes new ones; on the CPU it does.
    """
    read = jax.jit(functools.partial(_read, tuple(parts), work))
    write = jax.jit(_write, donate_argnums=0)

    def run(tables: list[Table], ids: list[Batch], d_rows: list[jax.Array]) -> Any:
        outputs, changes = read(tables, ids, d_rows)
        return (tables if work == "eval" else write(tables, changes)), outputs

    return run


def _read(
    parts: Sequence[Case], work: str, tables: list[Table], ids: Any, d_rows: Any
) -> Any:
    outputs = [_forward(*each) for each in zip(parts, tables, ids, strict=True)]
    if work == "eval":
        return outputs, []
    each = zip(parts, tables, ids, d_rows, strict=True)
    return outputs, [_change(work, *arguments) for arguments in each]


def _forward(part: Case, table: Table, batch: Batch) -> jax.Array:
    ids, lengths = batch
    rows = jnp.take(table["rows"], ids, axis=0, mode="clip")
    if lengths is not None:
        return jax.ops.segment_sum(
            rows,
            _bags(part, lengths),
            num_segments=part.batch,
            indices_are_sorted=True,
        )
    return rows.reshape(-1, part.bag, part.dim).sum(axis=1) if part.pooled else rows


def _bags(part: Case, lengths: jax.Array) -> jax.Array:
    """The bag of each id."""
    bags = jnp.arange(part.batch, dtype=jnp.int32)
    return jnp.repeat(bags, lengths, total_repeat_length=part.num_ids)


def _grads(part: Case, batch: Batch, d_out: jax.Array) -> jax.Array:
    if batch[1] is not None:
        return jnp.take(d_out, _bags(part, batch[1]), axis=0, mode="clip")
    return jnp.repeat(d_out, part.bag, axis=0) if part.pooled else d_out


def _change(
    work: str, part: Case, table: Table, batch: Batch, d_out: jax.Array
) -> Change:
    ids, grads = batch[0], _grads(part, batch, d_out)
    if work == "sgd":
        return Change(ids, {"rows": -LEARNING_RATE * grads}, adds=True)
    fill = part.rows  # beyond the table: dropped by the scatter
    size = ids.shape[0]
    distinct, run = jnp.unique(ids, return_inverse=True, size=size, fill_value=fill)
    grads = jax.ops.segment_sum(grads.astype(jnp.float32), run, num_segments=size)
    touched = {name: x.at[distinct].get(mode="clip") for name, x in table.items()}
    new = _UPDATES[work](touched, grads)
    return Change(
        distinct, {k: v.astype(table[k].dtype) for k, v in new.items()}, False
    )


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
