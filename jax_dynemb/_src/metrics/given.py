# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions, labels and weights as flat float32 arrays of one length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.kind_of import kind_of


def flat(predictions: Any, labels: Any, weights: Any) -> tuple[jax.Array, ...]:
    """Flattens what a metric is given, of one shape; weights of None are 1."""
    predictions = jnp.asarray(predictions, jnp.float32)
    labels = jnp.asarray(labels, jnp.float32)
    weights = jnp.ones_like(labels) if weights is None else weights
    weights = jnp.asarray(weights, jnp.float32)
    shapes = [predictions.shape, labels.shape, weights.shape]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"predictions, labels and weights have the shapes {shapes}, but need one "
            "number an example each: squeeze or broadcast them to one shape."
        )
    return predictions.ravel(), labels.ravel(), weights.ravel()


def check_same_kind(metric: Any, other: Any) -> None:
    """Refuses to merge two kinds of metrics, whose sums mean different things."""
    if type(metric) is not type(other):
        own = type(metric).__name__
        raise TypeError(
            f"{own}.merge takes another {own}, not {kind_of(other)}: keep one metric "
            "of each kind, e.g. in a dict."
        )
