# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of ranked lists: how high the relevant items of each query stand.

Items of equal score count as if they stood in random order. So a model that scores all
items alike gets what chance would give it, wherever the relevant one is in the array.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.metrics.rates import Rate
from jax_dynemb._src.metrics.two_floats import Pair, summed


@dataclasses.dataclass(frozen=True)
class _Ranking(Rate):
    """A mean over queries.

    Attributes:
      high: float32[2], see ``Rate``.
      low: float32[2].
      k: how many of the first items count; None: all.
    """

    k: int | None = dataclasses.field(default=None, metadata={"static": True})

    sums: ClassVar[int] = 2

    @classmethod
    def empty(cls, k: int | None = 10) -> Self:
        """Returns the metric of no queries; ``compute`` gives NaN.

        Args:
          k: how many of the first items count; None: all.

        Raises:
          ValueError: ``k`` is no whole number above 0.
        """
        none = jnp.zeros(cls.sums, jnp.float32)
        return cls(none, none, _checked(cls, k))

    @classmethod
    def from_model_output(
        cls, predictions: Any, labels: Any, weights: Any = None, k: int | None = 10
    ) -> Self:
        """Returns the metric of one batch of queries.

        Args:
          predictions: float[..., items], a score of each item; higher stands first.
          labels: float[..., items], what each item is worth: 1 if it is relevant, else
            0. Or integers [...], the place of the one relevant item; -1: none.
          weights: float[...], of the queries; 1 each if None. A query without relevant
            items counts for nothing.
          k: how many of the first items count; None: all.

        Raises:
          ValueError: the shapes differ, or ``k`` is no whole number above 0.
        """
        scores = jnp.asarray(predictions, jnp.float32)
        worth = jnp.asarray(labels)
        if scores.ndim and worth.shape == scores.shape[:-1]:
            worth = jax.nn.one_hot(worth, scores.shape[-1])
        queries = scores.shape[:-1]
        each = jnp.ones(queries) if weights is None else jnp.asarray(weights)
        if not scores.ndim or worth.shape != scores.shape or each.shape != queries:
            raise ValueError(
                f"{cls.__name__} takes scores [..., items], labels of that shape or "
                "the place of the relevant item [...], and weights [...], not "
                f"{scores.shape}, {jnp.shape(labels)} and {each.shape}."
            )
        k = _checked(cls, k)
        flat = (x.reshape(-1, scores.shape[-1]) for x in (scores, worth))
        high, low = _sums_of_queries(cls, k, *flat, each.reshape(-1))
        return cls(high, low, k)

    def merge(self, other: Self) -> Self:
        """Returns the metric of the queries of both.

        Raises:
          ValueError: they count to different ``k``.
        """
        if getattr(other, "k", self.k) != self.k:
            name = type(self).__name__
            raise ValueError(
                f"{name}.merge: one counts the first {self.k} items and the other the "
                f"first {other.k}; keep a metric for each k."
            )
        return super().merge(other)

    @staticmethod
    def _of_query(scores: jax.Array, worth: jax.Array, k: int) -> jax.Array:
        """Returns the metric of one query of [items], some of which are relevant."""
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RecallAtK(_Ranking):
    """Measures recall, the share of a query's relevant items among its first ``k``.

    Example:
      >>> scores = jnp.array([[0.1, 0.9, 0.5]])
      >>> metric = jde.metrics.RecallAtK.from_model_output(scores, [2], k=1)
      >>> float(metric.compute())  # item 2 stands second
      0.0
    """

    @staticmethod
    def _of_query(scores: jax.Array, worth: jax.Array, k: int) -> jax.Array:
        relevant = (worth > 0).astype(jnp.float32)
        places = jnp.arange(scores.shape[0]) < k
        found = _at_places(scores, places.astype(jnp.float32)) * relevant
        return found.sum() / relevant.sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NDCG(_Ranking):
    """Measures normalized discounted cumulative gain of the first ``k`` items.

    An item at place i, counted from 1, gives its worth divided by log2(1 + i). The sum
    is divided by that of the best order. Source: Järvelin and Kekäläinen, "Cumulated
    gain-based evaluation of IR techniques", 2002.
    """

    @staticmethod
    def _of_query(scores: jax.Array, worth: jax.Array, k: int) -> jax.Array:
        place = jnp.arange(scores.shape[0])
        discount = jnp.where(place < k, 1 / jnp.log2(place + 2.0), 0.0)
        gain = (_at_places(scores, discount) * worth).sum()
        return gain / (jnp.sort(worth, descending=True) * discount).sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MRR(_Ranking):
    """Measures the mean reciprocal rank: 1 / the place of the first relevant item.

    A place behind ``k`` counts 0. Among items of equal score it is the expected one.
    """

    @staticmethod
    def _of_query(scores: jax.Array, worth: jax.Array, k: int) -> jax.Array:
        relevant = worth > 0
        best = jnp.where(relevant, scores, -jnp.inf).max()
        equal = scores == best
        place = (scores > best).sum() + (equal.sum() + 1) / (
            (equal & relevant).sum() + 1
        )
        return jnp.where(place <= k, 1 / place, 0.0)


def _at_places(scores: jax.Array, numbers: jax.Array) -> jax.Array:
    """Returns for each item the number of its place; the mean of those it may have."""
    order = jnp.argsort(scores, descending=True)
    sorted_scores, place = scores[order], jnp.arange(scores.shape[0])
    begins = jnp.concatenate(
        [jnp.ones(1, bool), sorted_scores[1:] != sorted_scores[:-1]]
    )
    first = jax.lax.cummax(jnp.where(begins, place, 0))
    ends = jnp.concatenate([begins[1:], jnp.ones(1, bool)])
    past = jax.lax.cummin(jnp.where(ends, place + 1, place.size), reverse=True)
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(numbers)])
    mean = (sums[past] - sums[first]) / (past - first)
    # A difference of sums rounds, and most items share their score with no other.
    return (
        jnp.zeros_like(mean).at[order].set(jnp.where(past - first > 1, mean, numbers))
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sums_of_queries(
    kind: type[_Ranking],
    k: int | None,
    scores: jax.Array,
    worth: jax.Array,
    w: jax.Array,
) -> Pair:
    worth = worth.astype(jnp.float32)
    w = jnp.where((worth > 0).any(axis=-1), w.astype(jnp.float32), 0.0)
    first = scores.shape[-1] if k is None else k
    value = jax.vmap(lambda s, y: kind._of_query(s, y, first))(scores, worth)
    unknown = jnp.isnan(scores).any(axis=-1) | jnp.isnan(worth).any(axis=-1)
    value = jnp.where(w == 0, 0.0, jnp.where(unknown, jnp.nan, value))
    return summed(jnp.stack([value * w, w], axis=-1))


def _checked(kind: type, k: Any) -> int | None:
    if k is not None and (not is_whole(k) or k < 1):
        raise ValueError(
            f"{kind.__name__} counts the first k items, 1 or more, not {k!r}; None "
            "counts all."
        )
    return None if k is None else int(k)
