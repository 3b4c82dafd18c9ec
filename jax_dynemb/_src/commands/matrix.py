# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of ``bench`` on matrices in plain JAX: what a table replaces.

Ids are numbers from 0 here, counted beforehand. The gradient of a matrix is as large as
the matrix, and the optimizer changes all of its rows, as optax does for ``nnx.Embed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_dynemb._src.commands.workload import Workload

MATRIX = "matrix in JAX"
_MOST_BYTES = 6e9  # of all matrices; gradients and states take as much again, each


def matrix_steps(
    work: Workload, optimizers: Sequence[str], drawn: Sequence[np.ndarray]
) -> Iterator[tuple[str, Any, Any, list[tuple[Any, Any]]]]:
    """Yields name, step, its state and batches; none if the matrices are too large.

    Args:
      work: tables and batches.
      optimizers: names; "lookup" comes first.
      drawn: ids of each batch, int64[tables, bags * ids].
    """
    if 4.0 * work.tables * work.rows * work.dim > _MOST_BYTES:
        return
    batches = [_on_device(work, each) for each in drawn]
    shape = (work.tables, work.rows, work.dim)
    matrices: Any = jnp.full(shape, 1e-2, jnp.float32)
    look_up = jax.jit(lambda matrices, ids: _rows(work, matrices, ids))
    yield "lookup", lambda m, ids, _: (m, look_up(m, ids)), matrices, batches
    for name in optimizers:
        optimizer = _optimizer(name)
        state = (jnp.array(matrices), optimizer.init(matrices))
        yield name, _training_step(work, optimizer), state, batches


def _rows(work: Workload, matrices: jax.Array, ids: jax.Array) -> jax.Array:
    """Returns float32[tables, bags, dim] for int32[tables, bags, ids]."""
    rows = jax.vmap(lambda matrix, ids: matrix[ids])(matrices, ids)
    return rows.sum(axis=2) if work.ids else rows[:, :, 0]


def _training_step(work: Workload, optimizer: optax.GradientTransformation) -> Any:
    def train(state: Any, ids: Any, gradients: Any) -> tuple[Any, Any]:
        matrices, moments = state
        rows, pull = jax.vjp(lambda matrices: _rows(work, matrices, ids), matrices)
        updates, moments = optimizer.update(pull(gradients)[0], moments, matrices)
        return (optax.apply_updates(matrices, updates), moments), rows

    return jax.jit(train, donate_argnums=0)


def _optimizer(name: str) -> optax.GradientTransformation:
    if name == "rowwise_adagrad":
        return _rowwise_adagrad(1e-3)
    return getattr(optax, name)(1e-3)


def _rowwise_adagrad(learning_rate: float) -> optax.GradientTransformation:
    def init(params: Any) -> Any:
        return jnp.zeros_like(params[..., :1])

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        state = state + (updates * updates).mean(axis=-1, keepdims=True)
        return -learning_rate * updates / (jnp.sqrt(state) + 1e-8), state

    return optax.GradientTransformation(init, update)


def _on_device(work: Workload, drawn: np.ndarray) -> tuple[Any, Any]:
    ids = drawn.reshape(work.tables, work.bags, -1).astype(np.int32)
    shape = (work.tables, work.bags, work.dim)
    return jnp.asarray(ids), jnp.full(shape, 1e-3, jnp.float32)
