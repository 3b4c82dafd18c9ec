# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A metric of the latest batches beside that of all."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.metrics.auc import AUC


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Windowed:
    """Keeps a metric of the latest batches and one since the start.

    Attributes:
      lifetime: of all batches.
      ring: of each of the latest batches, stacked along a first axis.
      merged: int32[], batches so far.

    Example:
      >>> seen = jde.metrics.Windowed.of(jde.metrics.NE, batches=100)
      >>> seen = seen.merge(jde.metrics.NE.from_model_output(p, y))  # doctest: +SKIP
      >>> seen.compute()["window"]  # doctest: +SKIP
    """

    lifetime: Any
    ring: Any
    merged: jax.Array

    @classmethod
    def of(cls, metric: Any, batches: int) -> Self:
        """Returns a window without batches.

        Args:
          metric: a class with ``empty``, ``merge``, ``reduce`` and ``compute``, whose
            arrays do not grow; ``AUC`` has a window of its own. Or what ``empty``
            returned: ``jde.metrics.RecallAtK.empty(k=20)``.
          batches: how many of them the window has.

        Raises:
          TypeError: it is ``AUC``.
          ValueError: there is no batch in the window.
        """
        if metric is AUC or isinstance(metric, AUC):
            raise TypeError(
                "Windowed merges sums, and an AUC keeps examples: write "
                "jde.metrics.AUC.empty(window) for the latest of them."
            )
        if not isinstance(batches, int) or batches < 1:
            raise ValueError(
                f"Windowed needs a window of 1 batch or more, not {batches!r}."
            )
        one = metric.empty() if isinstance(metric, type) else metric
        ring = jax.tree.map(lambda x: jnp.broadcast_to(x, (batches, *x.shape)), one)
        return cls(one, ring, jnp.zeros((), jnp.int32))

    def merge(self, batch: Any) -> Self:
        """Returns the window after one more batch.

        Args:
          batch: its metric, from ``from_model_output``.
        """
        size = jax.tree.leaves(self.ring)[0].shape[0]
        place = self.merged % size
        ring = jax.tree.map(lambda x, new: x.at[place].set(new), self.ring, batch)
        return type(self)(self.lifetime.merge(batch), ring, self.merged + 1)

    def compute(self) -> dict[str, jax.Array]:
        """Returns the metric of both: "window" and "lifetime"."""
        return {
            "window": self.ring.reduce().compute(),
            "lifetime": self.lifetime.compute(),
        }
