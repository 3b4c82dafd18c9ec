# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The steps that are timed, written as a user writes them.

A step is one jitted function that takes the donated tables, looks ids up, and applies
the gradients of the rows. In place of a model and its loss there is one fixed array of
gradients for each table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jax_dynemb as jde
from suite.filled import States

Ids = dict[str, jax.Array]


def evaluation_step(coll: jde.Tables) -> Any:
    """`tables, ids -> rows`: changes nothing, so the tables stay the caller's."""

    def evaluate(state: States, ids: Ids) -> Ids:
        return coll.find(state, ids)[0]

    return jax.jit(evaluate)


def training_step(coll: jde.Tables) -> Any:
    """`tables, ids, d_rows -> tables, rows`: inserts unseen ids, applies gradients."""

    def train(state: States, ids: Ids, d_rows: Ids) -> tuple[States, Ids]:
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, d_rows), rows

    options = jde.compiler_options()
    return jax.jit(train, donate_argnums=0, compiler_options=options)


class NnxStep:
    """The same step as a user of flax writes it: a model without a dense part.

    Called like a compiled step; the carry is this object, whose model holds the tables.
    """

    def __init__(self, coll: jde.Tables, state: Mapping[str, Any], work: str):
        """Puts tables that exist already into a model."""
        self.model = nnx.eval_shape(lambda: _Model(coll))
        self.model.sparse.set_state(state)
        self._optimizer = jde.nnx.Optimizer(self.model, optax.sgd(1e-3))
        self._train = work == "train"
        self._addresses = _addresses(state)

    @property
    def in_place(self) -> bool:
        """Whether the rows still are where they were at the start."""
        return self._addresses == _addresses(self.model.sparse.get_state())

    def __call__(self, carry: NnxStep, *batch: Ids) -> tuple[NnxStep, Any]:
        """Takes one step with a batch as the plain steps have it."""
        del carry
        if self._train:
            return self, _nnx_train(self.model, self._optimizer, *batch)
        return self, _nnx_evaluate(self.model, *batch)

    def block_until_ready(self) -> NnxStep:
        """Waits for the tables; `jax.block_until_ready` calls it."""
        jax.block_until_ready(self.model.sparse.get_state())
        return self


def _addresses(state: Mapping[str, Any]) -> list[int]:
    return [table.values.unsafe_buffer_pointer() for table in state.values()]


class _Model(nnx.Module):
    def __init__(self, coll: jde.Tables):
        tables = tuple(coll.tables.values())
        pools = tables[0].pooling is not None
        kind = jde.nnx.EmbeddingBagCollection if pools else jde.nnx.EmbeddingCollection
        self.sparse = kind(tables, rngs=nnx.Rngs(0), share_arrays=coll.share_arrays)


@jde.nnx.jit
def _nnx_train(model: _Model, optimizer: Any, ids: Ids, d_rows: Ids) -> jax.Array:
    loss, grads = jde.nnx.value_and_grad(_nnx_loss)(model, ids, d_rows)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def _nnx_evaluate(model: _Model, ids: Ids) -> Ids:
    return model.sparse(ids, train=False)


def _nnx_loss(model: _Model, ids: Ids, d_rows: Ids) -> jax.Array:
    return _linear(model.sparse(ids), d_rows)


@jax.custom_vjp
def _linear(rows: Ids, d_rows: Ids) -> jax.Array:
    """A loss whose gradient is `d_rows`, and that reads no row."""
    del rows, d_rows
    return jnp.zeros(())


def _forward(rows: Ids, d_rows: Ids) -> tuple[jax.Array, Ids]:
    # A cotangent has the type of the rows, a mapping that keeps its order.
    return _linear(rows, d_rows), type(rows)((name, d_rows[name]) for name in rows)


def _backward(d_rows: Ids, _: Any) -> tuple[Ids, Ids]:
    return d_rows, dict(jax.tree.map(jnp.zeros_like, d_rows))


_linear.defvjp(_forward, _backward)
