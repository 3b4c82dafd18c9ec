# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a model with tables: optax for Params, the tables' own for rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jax_dynemb.nnx._grads import Grads, LookupGradients
from jax_dynemb.nnx._table_module import TableModule
from jax_dynemb.optim._clip import rows_sum_of_squares, scale_to_norm, sum_of_squares
from jax_dynemb.optim._row_local import optax_rules

_Rate = float | jax.Array | Mapping[str, float | jax.Array] | None


class Optimizer(nnx.Optimizer):
    """nnx.Optimizer whose update also updates the tables.

    Dense parameters go through ``tx``; every table is updated by the optimizer of its
    ``TableConfig``, whose state lives in the table beside the rows.

    Args:
      model: the model.
      tx: an optax transformation for the dense parameters.
      wrt: which Variables are dense parameters.
      options: passed on to ``nnx.Optimizer``.
    """

    def __init__(
        self,
        model: Any,
        tx: optax.GradientTransformation,
        *,
        wrt: Any = nnx.Param,
        **options: Any,
    ):
        super().__init__(model, tx, wrt=wrt, **options)

    def update(
        self,
        model: Any,
        grads: Any,
        /,
        *,
        table_learning_rate: _Rate = None,
        **kwargs: Any,
    ) -> optax.Updates:
        """Updates parameters and tables in place.

        Args:
          model: the model that was differentiated.
          grads: what ``jde.nnx.value_and_grad`` returned. A plain nnx gradient state
            (``grads.dense``) updates the dense part only.
          table_learning_rate: instead of the tables' own for this step: a number for
            all, or a dict by table.
          kwargs: passed on to ``tx.update``.

        Returns:
          The updates of the dense part, as ``nnx.Optimizer.update``.
        """
        dense = grads.dense if isinstance(grads, Grads) else grads
        with optax_rules():
            updates = super().update(model, dense, **kwargs)
        if isinstance(grads, Grads):
            update_tables(model, grads, learning_rate=table_learning_rate)
        return updates


def update_tables(model: Any, grads: Grads, *, learning_rate: _Rate = None) -> None:
    """Updates the tables of a model in place, and nothing else.

    All lookups of a collection are summed row by row before its one update.

    Args:
      model: the model that was differentiated.
      grads: what ``jde.nnx.value_and_grad`` returned.
      learning_rate: instead of the tables' own for this step: a number for all, or a
        dict by table. For ``jde.optim`` optimizers only.
    """
    for module, rows in _by_collection(model, grads.rows):
        residuals, d_rows = [r.residual for r in rows], [r.d_rows for r in rows]
        rate = learning_rate
        if isinstance(rate, Mapping):
            rate = {name: rate[name] for name in module.coll.tables if name in rate}
        state = module.coll.apply_gradients(
            module.get_state(), residuals, d_rows, learning_rate=rate
        )
        module.set_state(state)


def clip_by_global_norm(
    max_norm: float | jax.Array, model: Any, grads: Grads
) -> tuple[Grads, jax.Array]:
    """Scales dense and row gradients together to a norm of at most max_norm.

    The norm counts a row once, with the sum of its gradients, as if the table were a
    dense parameter. See ``jde.optim.clip_by_global_norm``.

    Args:
      max_norm: the largest norm to let through.
      model: the model that was differentiated.
      grads: what ``jde.nnx.value_and_grad`` returned.

    Returns:
      The scaled gradients and the norm before clipping, float32[].

    Example:
      >>> grads, norm = jde.nnx.clip_by_global_norm(
      ...     1.0, model, grads
      ... )  # doctest: +SKIP
    """
    squares = sum_of_squares(grads.dense)
    for module, rows in _by_collection(model, grads.rows):
        residuals, d_rows = [r.residual for r in rows], [r.d_rows for r in rows]
        more, state = rows_sum_of_squares(
            module.coll, module.get_state(), residuals, d_rows
        )
        module.set_state(state)
        squares += more
    norm = jnp.sqrt(squares)
    dense, d_rows = scale_to_norm(
        (grads.dense, [r.d_rows for r in grads.rows]), norm, max_norm
    )
    rows = zip(grads.rows, d_rows, strict=True)
    return Grads(dense, tuple(dataclasses.replace(r, d_rows=d) for r, d in rows)), norm


def _by_collection(
    model: Any, rows: Iterable[LookupGradients]
) -> Iterator[tuple[TableModule, list[LookupGradients]]]:
    """Groups the lookups by the module that made them."""
    groups: dict[tuple[Any, ...], list[LookupGradients]] = {}
    for lookup in rows:
        groups.setdefault(lookup.path, []).append(lookup)
    modules = dict(nnx.iter_graph(model)) if groups else {}
    for path, lookups in groups.items():
        module = modules.get(path)
        if not isinstance(module, TableModule):
            where = ".".join(map(str, path)) or "(the model itself)"
            raise ValueError(
                f"grads hold row gradients for {where}, where this model has no "
                "tables. Pass the model that was differentiated, e.g. "
                "optimizer.update(model, grads) after value_and_grad(loss)(model, ...)."
            )
        yield module, lookups
