# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of column-wise tables: what they may ask of a row that is in pieces.

Element-wise ones run on the pieces as they are. Row-wise Adagrad needs the mean over
all columns, so the pieces' sums are added over the shards: one number an id. Other
optimizers that mix the columns of a row are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.shard import check_hyper, step_of
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.optim.interface import StateSpec, TableOptimizer
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True, eq=False)
class _RowwiseAdagrad(TableOptimizer):
    """Applies the formula of core/ to pieces of rows; inside shard_map.

    Attributes:
      own: the fused optimizer that it stands for.
      axes: of the mesh, over which the columns lie.
      columns: of a whole row.
      hyper: its hyper-parameters in this step.
    """

    own: Any
    axes: tuple[str, ...]
    columns: int
    hyper: Mapping[str, Any]
    kind = ""

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Returns the states of the optimizer that it wraps."""
        return self.own.states(dim)

    def apply(
        self,
        rows: jax.Array,
        grads: jax.Array,
        states: dict[str, jax.Array],
        extra: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, ...]]:
        """See ``TableOptimizer``; a row is at the same position on every shard."""
        squares = jax.lax.psum(jnp.sum(grads * grads, axis=1), self.axes)
        total = states["sum_of_squares"] + squares / self.columns
        rate = self.hyper["learning_rate"] / (jnp.sqrt(total) + self.hyper["eps"])
        return rows - rate[:, None] * grads, {"sum_of_squares": total}, extra


def for_update(
    placement: Placement,
    table: TableSpec,
    state: TableState,
    hyper: Mapping[str, jax.Array],
) -> TableSpec:
    """Returns the spec of a column-wise table for an update.

    Args:
      placement: of the collection.
      table: as a shard sees it.
      state: before the update.
      hyper: hyper-parameters of this step that are not the optimizer's own.

    Raises:
      ValueError: a number that pieces of rows cannot use.
    """
    if "clip_row_norm" in hyper:
        raise ValueError(
            f"Table '{table.name}' is column-wise, so no device has a whole row, but "
            "clip_row_norm is about the norm of one. Leave it out, clip columns by "
            "clip_row_value, or use sharding='row_wise'."
        )
    if table.optimizer.kind != "rowwise_adagrad":
        return table
    check_hyper(table, hyper)
    numbers = table.optimizer.hyper_parameters(step_of(state)) | dict(hyper)
    columns = table.dim * placement.shards
    whole = _RowwiseAdagrad(table.optimizer, placement.axes, columns, numbers)
    return dataclasses.replace(table, optimizer=whole)
