# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizes a model with tables: optax for Params, the tables' own for rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jax_dynemb._src.nnx.grads import Grads, LookupGradients
from jax_dynemb._src.nnx.table_module import TableModule
from jax_dynemb._src.nnx.tape import without_gradients
from jax_dynemb._src.nnx.variable import Table
from jax_dynemb._src.optim.interface import (
    TableOptimizer,
    optax_rules,
    rows_sum_of_squares,
    scale_to_norm,
    sum_of_squares,
)

_Rate = float | jax.Array | Mapping[str, float | jax.Array] | None


class Optimizer(nnx.Optimizer):
    """Optimizes dense parameters as ``nnx.Optimizer``, and updates the tables too.

    Dense parameters go through ``tx``; every table is updated by the optimizer of its
    ``TableConfig``, whose state lives in the table beside the rows.

    Args:
      model: the model.
      tx: an optax transformation for the dense parameters.
      wrt: which Variables are dense parameters.
      options: passed on to ``nnx.Optimizer``.

    Raises:
      TypeError: ``tx`` is no optax transformation.
      ValueError: ``wrt`` takes in tables, which have optimizers of their own.
    """

    def __init__(
        self,
        model: Any,
        tx: optax.GradientTransformation,
        *,
        wrt: Any = nnx.Param,
        **options: Any,
    ):
        _check_transformation(tx)
        if jax.tree.leaves(nnx.state(model, nnx.All(wrt, Table))):
            raise ValueError(
                f"wrt={wrt!r} takes in jde.nnx.Table Variables. Tables are updated by "
                "the optimizer of their TableConfig: leave wrt out, or write "
                "wrt=nnx.Param."
            )
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

        Raises:
          TypeError: ``grads`` are no gradients of one model.
          ValueError: they are of plain ``nnx.grad``, which left the lookups' rows out.
        """
        _check_gradients(model, grads, table_learning_rate)
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
    _check_row_gradients("update_tables", grads)
    _check_names(model, learning_rate)
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
    _check_row_gradients("clip_by_global_norm", grads)
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


def _check_transformation(tx: Any) -> None:
    if hasattr(tx, "init") and hasattr(tx, "update") and not isinstance(tx, type):
        return
    if isinstance(tx, TableOptimizer):
        what = (
            f"jde.optim.{tx.kind}(...), which updates rows: write it into the table, "
        )
        what += f"jde.TableConfig(..., optimizer=jde.optim.{tx.kind}(...))"
    elif callable(tx):
        what = f"the function {getattr(tx, '__name__', tx)!s}: call it"
    else:
        what = repr(tx)
    raise TypeError(
        "jde.nnx.Optimizer takes an optax transformation for the dense parameters, "
        f"e.g. optax.adam(1e-3), not {what}."
    )


def _check_gradients(model: Any, grads: Any, table_learning_rate: _Rate) -> None:
    if isinstance(model, Grads | nnx.State):
        raise TypeError("update takes the model first: optimizer.update(model, grads)")
    if isinstance(grads, tuple) and not hasattr(grads, "_fields"):
        raise TypeError(
            f"grads is a tuple of {len(grads)}: value_and_grad returns loss, grads, "
            "and one entry an argument where argnums is a tuple. Pass the gradients of "
            "this model: optimizer.update(model, grads)."
        )
    modules = _modules(model)
    _check_names(model, table_learning_rate)
    forgotten = without_gradients(module.coll for module in modules)
    if isinstance(grads, Grads):
        return
    if forgotten:
        raise ValueError(_PLAIN_GRADIENTS)
    if modules and table_learning_rate is not None:
        _check_row_gradients("table_learning_rate", grads)


def _modules(model: Any) -> list[TableModule]:
    return [m for _, m in nnx.iter_graph(model) if isinstance(m, TableModule)]


def _check_names(model: Any, learning_rate: _Rate) -> None:
    """Refuses a rate for a table that no collection of the model has."""
    if not isinstance(learning_rate, Mapping):
        return
    known = [name for module in _modules(model) for name in module.coll.tables]
    if unknown := [name for name in learning_rate if name not in known]:
        raise ValueError(
            f"learning rates of {unknown}, but the tables of this model are {known}."
        )


def _check_row_gradients(call: str, grads: Any) -> None:
    if not isinstance(grads, Grads):
        raise TypeError(
            f"{call} takes the row gradients that jde.nnx.value_and_grad returns, not "
            f"a {type(grads).__name__}: write loss, grads = "
            "jde.nnx.value_and_grad(loss_fn)(model, batch)."
        )


_PLAIN_GRADIENTS = (
    "these gradients have no rows: the model looked its tables up for training, but "
    "outside of jde.nnx.value_and_grad, so its tables would never be trained. Write "
    "loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch) in place of "
    "nnx.value_and_grad or nnx.grad. To train the dense part alone, look up with "
    "train=False or call model.eval() first."
)


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
