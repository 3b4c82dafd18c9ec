# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs any row-local optax transformation as the optimizer of a table.

The transformation itself runs unmodified, on the touched rows only. Its state is
split leaf by leaf. Leaves with one entry per row live in the table beside the rows; all
others (step counts, schedules) are stored once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jax_dynemb._src.optim.base import StateSpec, TableOptimizer
from jax_dynemb._src.optim.optax_state import (
    at_once,
    check_state,
    join_state,
    part_state,
    row_shape,
    state_leaves,
)
from jax_dynemb._src.optim.row_local import check_row_local, optax_rules


@dataclasses.dataclass(frozen=True)
class OptaxOptimizer(TableOptimizer):
    """Runs a row-local optax transformation as the optimizer of a table.

    Given as ``TableConfig(optimizer=optax.adamw(1e-3))``, which wraps it. The
    meaning is the lazy one. The rows a batch touches are updated with the sum of their
    gradients; untouched rows keep value and state. A step count inside the
    transformation counts the table's updates, not the row's.

    Attributes:
      tx: the transformation; hashable, like every optax transformation.
    """

    tx: optax.GradientTransformation
    kind = ""

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Names the per-row states: ``"mu"``, ``"nu"``, ``"trace"``, ...

        Args:
          dim: columns of a row.

        Returns:
          For each per-row leaf its shape per row, ``(dim,)`` or ``()``, and its
          initial value.

        Raises:
          ValueError: the transformation is not row-local; the sentence names the
            part that is not and what to use instead.
        """
        check_state(self.tx, dim)
        check_row_local(self.tx, dim)
        return {
            leaf.name: StateSpec(row_shape(leaf, dim), leaf.initial or 0.0)
            for leaf in state_leaves(self.tx, dim)
            if leaf.name is not None
        }

    def extra(self, dim: int) -> tuple[jax.Array, ...]:
        """Returns the initial values of the leaves that are stored once.

        Args:
          dim: columns of a row.
        """
        with at_once():
            state = jax.tree.leaves(self.tx.init(jnp.zeros((2, dim), jnp.float32)))
            pairs = zip(state_leaves(self.tx, dim), state, strict=True)
            # With the dtype said: a weak type would change after the first update.
            return tuple(
                jnp.asarray(x, leaf.dtype) for leaf, x in pairs if leaf.name is None
            )

    def apply(
        self,
        rows: jax.Array,
        grads: jax.Array,
        states: dict[str, jax.Array],
        extra: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, ...]]:
        """Updates distinct rows once.

        Args:
          rows: float32[n, dim], the rows before the update.
          grads: float32[n, dim], their summed gradients.
          states: per-row states by name, float32[n, dim] or float32[n].
          extra: the leaves stored once, as ``extra`` made them.

        Returns:
          New rows, new states and new extra leaves, in the same shapes.
        """
        count, dim = rows.shape
        leaves = state_leaves(self.tx, dim)
        with optax_rules():
            tree = jax.tree.structure(jax.eval_shape(self.tx.init, rows))
            state = jax.tree.unflatten(tree, join_state(leaves, count, states, extra))
            updates, state = self.tx.update(grads, state, rows)
            new_rows = optax.apply_updates(rows, updates)
        states, extra = part_state(leaves, jax.tree.leaves(state), dim)
        return jnp.asarray(new_rows, rows.dtype), states, extra


def as_optimizer(optimizer: Any) -> Any:
    """Wraps an optax transformation; every other optimizer is passed through."""
    if isinstance(optimizer, optax.MultiSteps):
        optimizer = optimizer.gradient_transformation()
    if isinstance(optimizer, optax.GradientTransformation):
        return OptaxOptimizer(optimizer)
    return optimizer
