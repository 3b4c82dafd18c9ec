# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm of everything: dense gradients and the rows of the tables."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class SumsGradients(Protocol):
    """Has the gradient of each distinct row: ``jde.Tables``."""

    def reduce_gradients(self, state: Any, residual: Any, d_rows: Any) -> Any:
        """Sums the gradient of each distinct row, see ``jde.Tables``."""


class Clipped(NamedTuple):
    """Holds what ``clip_by_global_norm`` returns.

    Attributes:
      d_rows: the row gradients, scaled; same structure, shapes and dtypes.
      dense_grads: the dense gradients, scaled likewise.
      norm: float32[], the norm before clipping, for the log.
      state: the table state, unchanged in meaning; carry on with this one.
    """

    d_rows: Any
    dense_grads: Any
    norm: Float[Array, ""]
    state: Any


def clip_by_global_norm(
    max_norm: float | jax.Array,
    coll: SumsGradients,
    state: Any,
    residual: Any,
    d_rows: Any,
    dense_grads: Any = None,
) -> Clipped:
    """Scales dense and row gradients together so that their norm is at most max_norm.

    The norm is that of a dense model. Gradients of one id are summed first, since they
    are one row and get one update. So the norm is
    ``sqrt(sum dense**2 + sum over distinct rows of |summed row gradient|**2)``.

    Call it between ``jax.grad`` and ``coll.apply_gradients``.

    Args:
      max_norm: the largest norm to let through.
      coll: the tables.
      state: their state; donate it with the rest of the step.
      residual: what ``coll.lookup`` returned, or a list of them.
      d_rows: the gradients of the looked-up rows, or a list of them.
      dense_grads: gradients of all other parameters, any pytree.

    Returns:
      A ``Clipped``: scaled gradients, the norm before clipping, and the state.

    Example:
      >>> clipped = jde.optim.clip_by_global_norm(
      ...     1.0, coll, state, residual, d_rows, dense_grads
      ... )  # doctest: +SKIP
      >>> state = coll.apply_gradients(
      ...     clipped.state, residual, clipped.d_rows
      ... )  # doctest: +SKIP
    """
    squares, state = rows_sum_of_squares(coll, state, residual, d_rows)
    norm = jnp.sqrt(squares + sum_of_squares(dense_grads))
    d_rows, dense_grads = scale_to_norm((d_rows, dense_grads), norm, max_norm)
    return Clipped(d_rows, dense_grads, norm, state)


def rows_sum_of_squares(
    coll: SumsGradients, state: Any, residual: Any, d_rows: Any
) -> tuple[Float[Array, ""], Any]:
    """Sums the squares of the gradients of distinct rows; returns it and the state."""
    reduced, state = coll.reduce_gradients(state, residual, d_rows)
    total = jnp.zeros((), jnp.float32)
    for each in reduced.values():
        total = total + each.sum_of_squares()
    return total, state


def sum_of_squares(tree: Any) -> Float[Array, ""]:
    """Sums the squares of all leaves in float32."""
    leaves = (jnp.asarray(x, jnp.float32) for x in jax.tree.leaves(tree))
    return sum((jnp.sum(x * x) for x in leaves), jnp.float32(0))


def scale_to_norm(tree: Any, norm: Float[Array, ""], max_norm: float | jax.Array):
    """Scales every leaf by ``min(1, max_norm / norm)``, keeping its dtype."""
    max_norm = jnp.asarray(max_norm, jnp.float32)
    factor = jnp.where(norm > max_norm, max_norm / norm, jnp.float32(1))
    return jax.tree.map(lambda x: x * factor.astype(x.dtype), tree)
