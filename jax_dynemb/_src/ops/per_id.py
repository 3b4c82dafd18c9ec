# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the ids of a lookup, in the one array that its kernel takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.ops.layout import FeatureInput, FeatureLayout


def with_uses(
    strategy: ScoreStrategy | str,
    layout: FeatureLayout,
    given: FeatureInput,
    counts: Any,
    scores: Any,
    of_table: jax.Array,
) -> FeatureInput:
    """Adds ids' counts, uint32 in their shape, and scores, in words, to a feature.

    Ids without a score have ``of_table``, uint32[2].
    """
    if counts is None and scores is None:
        return given
    uses = _flat(layout, "counts", counts)
    words = None if scores is None else [_flat(layout, "scores", x) for x in scores]
    return dataclasses.replace(given, uses=join_uses(strategy, uses, words, of_table))


def join_uses(
    strategy: ScoreStrategy | str,
    counts: jax.Array | None,
    scores: Sequence[Any] | None,
    of_table: jax.Array,
) -> jax.Array | None:
    """Joins flat counts and scores: uint32[n], or uint32[3, n] of a customized table.

    Such a table takes both or none: 1 and ``of_table``, uint32[2], stand for None.
    """
    if strategy != ScoreStrategy.CUSTOMIZED:
        return counts
    some = counts if scores is None else scores[0]
    if some is None:
        return None
    if counts is None:
        counts = jnp.ones_like(some)
    if scores is None:
        scores = [jnp.broadcast_to(word, some.shape) for word in of_table]
    return jnp.stack([counts, *scores])


def _flat(layout: FeatureLayout, what: str, numbers: Any) -> jax.Array | None:
    if numbers is None:
        return None
    numbers = jnp.asarray(numbers)
    if numbers.size == 0 and layout.num_ids > 0:  # bags of one padding
        return jnp.zeros(layout.num_ids, jnp.uint32)
    if numbers.shape != layout.ids_shape:
        raise ValueError(
            f"Feature '{layout.feature}': {what} have shape {numbers.shape}, the ids "
            f"{layout.ids_shape}; give one number for each id."
        )
    return numbers.reshape(-1)
