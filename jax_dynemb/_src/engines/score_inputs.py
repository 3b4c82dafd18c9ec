# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that a lookup takes besides ids and weights; they move scores only."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, Self

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ScoreInputs:
    """Holds scores, times and counts of one lookup.

    Attributes:
      tables: by table, uint32[2]: the score of a customized table, whose highest bit
        says that there is one; or the words of the time.
      counts: by feature, uint32 in the shape of its ids: how many each one stands for.
      scores: by feature of customized tables, two of these: the low and the high
        words of the score of each id, with that bit.
    """

    tables: dict[str, jax.Array]
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)
    scores: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_per_id(self) -> bool:
        """Whether ids have numbers of their own."""
        return bool(self.counts or self.scores)

    def of(self, features: Collection[str]) -> Self:
        """Returns what is about some features."""
        counts = {f: x for f, x in self.counts.items() if f in features}
        scores = {f: x for f, x in self.scores.items() if f in features}
        return dataclasses.replace(self, counts=counts, scores=scores)
