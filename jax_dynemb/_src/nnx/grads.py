# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what jde.nnx.value_and_grad returns, and sums micro-batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.table import Tables


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LookupGradients:
    """Holds the row gradients of one lookup.

    Attributes:
      path: where the collection is in the model; static.
      tables: the functional core that made the lookup; static.
      residual: which slots the rows came from.
      d_rows: by feature, the gradient of the rows, in the rows' shape.
    """

    path: tuple[Any, ...] = dataclasses.field(metadata={"static": True})
    tables: Tables = dataclasses.field(metadata={"static": True})
    residual: Any
    d_rows: dict[str, jax.Array]


class _Dense(str):
    """A key that says what to write where Flax shows it beside those of a model.

    Plain ``nnx.Optimizer`` runs no code of this package. But its error, of two trees
    that differ, names their keys.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return (
            "dense, of jde.nnx.Grads: write jde.nnx.Optimizer(model, tx) in place of "
            "nnx.Optimizer; or update the dense part with optimizer.update(model, "
            "grads.dense) and the tables with jde.nnx.update_tables(model, grads)"
        )


_KEYS = (  # no attribute of a model has a dot
    jax.tree_util.GetAttrKey(_Dense("Grads.dense")),
    jax.tree_util.GetAttrKey("rows"),
)


@dataclasses.dataclass(frozen=True)
class Grads:
    """Holds the gradients of a model with tables: a pytree of ordinary arrays.

    Micro-batches can be applied one after the other, each with its own
    ``optimizer.update``, or put together and applied once: ``(a + b) * 0.5``. In the
    sum a row that several lookups touched gets one update with its summed gradient.

    Attributes:
      dense: the ``nnx.State`` that ``nnx.value_and_grad`` would return.
      rows: one entry a lookup.
    """

    dense: Any
    rows: tuple[LookupGradients, ...]

    def __add__(self, other: Grads) -> Grads:
        dense = jax.tree.map(jnp.add, self.dense, other.dense)
        return Grads(dense, self.rows + other.rows)

    def __mul__(self, factor: float | jax.Array) -> Grads:
        def scaled(tree):
            return jax.tree.map(lambda x: x * jnp.asarray(factor, x.dtype), tree)

        rows = (dataclasses.replace(r, d_rows=scaled(r.d_rows)) for r in self.rows)
        return Grads(scaled(self.dense), tuple(rows))

    __rmul__ = __mul__

    def sum_over_scan(self) -> Grads:
        """Sums gradients that ``nnx.scan`` stacked along a new leading axis.

        Dense gradients are summed here. Row gradients stay stacked: the update sums
        them row by row, over all micro-batches at once.
        """
        return Grads(jax.tree.map(lambda x: x.sum(axis=0), self.dense), self.rows)


def _with_keys(grads: Grads) -> tuple[tuple[tuple[Any, Any], ...], None]:
    return tuple(zip(_KEYS, (grads.dense, grads.rows), strict=True)), None


jax.tree_util.register_pytree_with_keys(
    Grads,
    _with_keys,
    lambda _, children: Grads(*children),
    lambda grads: ((grads.dense, grads.rows), None),
)
