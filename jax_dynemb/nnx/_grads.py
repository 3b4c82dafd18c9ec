# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what jde.nnx.value_and_grad returns, and sums micro-batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb.table import Tables


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


@jax.tree_util.register_dataclass
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
