# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics that are quotients of sums over examples."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.metrics.given import check_same_kind, flat
from jax_dynemb._src.metrics.two_floats import Pair, added, summed

LEAST_CHANCE = 1e-12  # under the logarithm


@dataclasses.dataclass(frozen=True)
class Rate:
    """Sums over examples, and what they come to.

    Attributes:
      high: float32[sums].
      low: float32[sums], what rounding took from ``high``.
    """

    high: jax.Array
    low: jax.Array

    sums: ClassVar[int]

    @classmethod
    def empty(cls) -> Self:
        """Returns the metric of no examples; ``compute`` gives NaN."""
        return cls(jnp.zeros(cls.sums, jnp.float32), jnp.zeros(cls.sums, jnp.float32))

    @classmethod
    def from_model_output(
        cls, predictions: Any, labels: Any, weights: Any = None
    ) -> Self:
        """Returns the metric of one batch.

        Args:
          predictions: float[...], chances from 0 to 1.
          labels: [...], 0 or 1, or anything between.
          weights: float[...], of the examples; 1 each if None. An example of weight 0
            counts for nothing, whatever its prediction is.

        Raises:
          ValueError: the shapes differ.
        """
        return cls(*_sums(cls, *flat(predictions, labels, weights)))

    def merge(self, other: Self) -> Self:
        """Returns the metric of the examples of both."""
        check_same_kind(self, other)
        return self._with(added((self.high, self.low), (other.high, other.low)))

    def reduce(self) -> Self:
        """Merges metrics that ``lax.scan`` or ``vmap`` has stacked."""
        return self._with(summed(self.high, self.low))

    def all_reduce(self, axis_name: str | tuple[str, ...]) -> Self:
        """Merges the metrics of all devices inside a ``shard_map``.

        The parts are gathered and added in one order: a ``psum`` would round the high
        parts.

        Args:
          axis_name: of the mesh.
        """
        return jax.tree.map(lambda x: jax.lax.all_gather(x, axis_name), self).reduce()

    def compute(self) -> jax.Array:
        """Returns the metric, float32[]; NaN where it is not defined."""
        return self._value(*(self.high + self.low))

    def _with(self, sums: Pair) -> Self:
        return dataclasses.replace(self, high=sums[0], low=sums[1])

    @staticmethod
    def _terms(p: jax.Array, y: jax.Array) -> list[jax.Array]:
        """Returns what is summed, arrays of one number an example."""
        raise NotImplementedError

    @staticmethod
    def _value(*sums: jax.Array) -> jax.Array:
        return _quotient(*sums)


@functools.partial(jax.jit, static_argnums=0)
def _sums(kind: type[Rate], p: jax.Array, y: jax.Array, w: jax.Array) -> Pair:
    terms = jnp.stack(kind._terms(p, y), axis=-1) * w[:, None]
    return summed(jnp.where(w[:, None] == 0, 0.0, terms))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NE(Rate):
    """Measures normalized entropy, the log loss divided by that of the mean label.

    Below 1 the model is better than one that predicts the mean label for every
    example. NaN if all labels are equal.
    """

    sums: ClassVar[int] = 3

    @staticmethod
    def _terms(p: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [_entropy(p, y), y, 1 - y]

    @staticmethod
    def _value(*sums: jax.Array) -> jax.Array:
        entropy, clicks, others = sums
        total = clicks + others
        base = -clicks * jnp.log2(clicks / total) - others * jnp.log2(others / total)
        return _quotient(entropy, base)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Calibration(Rate):
    """Measures calibration, the sum of predictions divided by that of labels."""

    sums: ClassVar[int] = 2

    @staticmethod
    def _terms(p: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [p, y]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CTR(Rate):
    """Measures the click-through rate, the mean label."""

    sums: ClassVar[int] = 2

    @staticmethod
    def _terms(p: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [y, jnp.ones_like(p)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LogLoss(Rate):
    """Measures the mean log loss of an example in bits (logarithms to base 2)."""

    sums: ClassVar[int] = 2

    @staticmethod
    def _terms(p: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [_entropy(p, y), jnp.ones_like(p)]


def _entropy(p: jax.Array, y: jax.Array) -> jax.Array:
    click = jnp.log2(jnp.maximum(p, LEAST_CHANCE))
    other = jnp.log2(jnp.maximum(1 - p, LEAST_CHANCE))
    return -y * click - (1 - y) * other


def _quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(b > 0, a / b, jnp.nan)
