# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The area under the ROC curve of the latest examples."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.metrics.given import check_same_kind, flat
from jax_dynemb._src.metrics.two_floats import summed


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AUC:
    """Measures the area under the ROC curve, the chance that a click scores higher.

    It sorts examples, so it keeps them. ``AUC.empty(window)`` keeps the latest
    ``window`` of them in arrays of that size, for use inside jit and scan. Metrics of
    batches that are merged without a window keep all examples.

    Attributes:
      predictions: float32[n], oldest first.
      labels: float32[n].
      weights: float32[n]; 0 where there is no example yet.
      window: how many examples to keep; None for all.
    """

    predictions: jax.Array
    labels: jax.Array
    weights: jax.Array
    window: int | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def empty(cls, window: int | None = 65_536) -> Self:
        """Returns the metric of no examples; ``compute`` gives 0.5.

        Args:
          window: how many of the latest examples to keep; None for all, which changes
            shapes with every merge.

        Raises:
          ValueError: the window is no number above 0.
        """
        if window is not None and (not isinstance(window, int) or window < 1):
            raise ValueError(
                f"AUC keeps a window of 1 example or more, not {window!r}; write None "
                "to keep all of them."
            )
        none = jnp.zeros(window or 0, jnp.float32)
        return cls(none, none, none, window)

    @classmethod
    def from_model_output(
        cls, predictions: Any, labels: Any, weights: Any = None
    ) -> Self:
        """Returns the metric of one batch.

        Args:
          predictions: float[...], chances, logits or any other score.
          labels: [...], 0 or 1, or anything between.
          weights: float[...], of the examples; 1 each if None.

        Raises:
          ValueError: the shapes differ.
        """
        p, y, w = flat(predictions, labels, weights)
        return cls(p, y, w)

    def merge(self, other: Self) -> Self:
        """Returns the metric of the examples of both; those of ``other`` are later."""
        check_same_kind(self, other)
        windows = [w for w in (self.window, other.window) if w is not None]
        window = max(windows, default=None)
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        both = [jnp.concatenate(pair) for pair in pairs]
        if window is not None:
            both = [x[-window:] for x in both]
        predictions, labels, weights = both
        return type(self)(predictions, labels, weights, window)

    def reduce(self) -> Self:
        """Merges metrics that ``lax.scan`` or ``vmap`` has stacked."""
        arrays = [x.reshape(-1) for x in self._arrays()]
        window = self.window and arrays[0].shape[0]
        predictions, labels, weights = arrays
        return type(self)(predictions, labels, weights, window)

    def all_reduce(self, axis_name: str | tuple[str, ...]) -> Self:
        """Gathers the examples of all devices inside a ``shard_map``.

        Args:
          axis_name: of the mesh.
        """
        return jax.tree.map(lambda x: jax.lax.all_gather(x, axis_name), self).reduce()

    def compute(self) -> jax.Array:
        """Returns the area, float32[]; 0.5 where all labels are equal.

        Equal scores count one half. A NaN among the scores or labels makes it NaN.
        """
        return _area(*self._arrays())

    def _arrays(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self.predictions, self.labels, self.weights


@jax.jit
def _area(predictions: jax.Array, labels: jax.Array, w: jax.Array) -> jax.Array:
    p = jnp.where(w == 0, 0.0, predictions)
    labels = jnp.where(w == 0, 0.0, labels)
    order = jnp.argsort(p)
    score = p[order]
    click, other = (w * labels)[order], (w * (1 - labels))[order]
    before = jnp.concatenate([jnp.zeros(1, jnp.float32), jnp.cumsum(other)])
    below = before[jnp.searchsorted(score, score, side="left")]
    reached = before[jnp.searchsorted(score, score, side="right")]
    won = _total(click * (below + reached) / 2)
    pairs = _total(click) * _total(other)
    area = jnp.where(pairs > 0, won / pairs, 0.5)
    return jnp.where(jnp.isnan(score).any() | jnp.isnan(pairs), jnp.nan, area)


def _total(numbers: jax.Array) -> jax.Array:
    high, low = summed(numbers)
    return high + low
