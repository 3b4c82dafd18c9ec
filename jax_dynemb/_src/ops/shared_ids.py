# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids, and slots, of several features one after the other in one array.

A call then has one operand for all of them, and no operation cuts it by feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np


def joined(parts: Sequence[jax.Array], axis: int = 0) -> jax.Array:
    """Joins arrays of which some may be empty."""
    # XLA of jaxlib 0.11.2 crashes on a CPU where an array of size 0 is joined.
    some = [part for part in parts if part.size > 0] or [parts[0]]
    return some[0] if len(some) == 1 else jnp.concatenate(some, axis)


def slots_of_all(outputs: Sequence[Mapping[str, jax.Array]]) -> jax.Array:
    """Joins the slots of features that shared their ids, in the order of these."""
    whole = [output["slots_of_all"] for output in outputs if "slots_of_all" in output]
    if len(whole) == 1:  # they were in one call
        return whole[0]
    return joined([output["slots"] for output in outputs])


class SharedArray:
    """An array of which features of a call have parts; it goes with the first one."""

    def __init__(self, whole: Sequence[jax.Array | None], parts: Sequence[jax.Array]):
        """Joins the parts, unless they are all of the array.

        Args:
          whole: of each feature of the call, the array that it is a part of, or None.
          parts: of each feature, its own numbers.
        """
        pairs = list(zip(whole, parts, strict=True))
        self._counts = [0 if x is None else part.shape[0] for x, part in pairs]
        self._ends = np.cumsum(self._counts).tolist()
        self._array: jax.Array | None = None
        self._slots: jax.Array | None = None
        for array, _ in pairs:
            if array is not None and array.shape[0] == self._ends[-1]:
                self._array = array
        if self._array is None:  # other parts are in another call
            self._array = joined([p for x, p in pairs if x is not None])

    def add_counts(self, fields: Sequence[dict[str, int]]) -> None:
        """Adds to the fields of each feature how many numbers it has in the array."""
        for row, count in zip(fields, self._counts, strict=True):
            row["has_uses"] += 2 * count

    def operand(self, feature: int, own: jax.Array) -> jax.Array | None:
        """Returns what a call takes with a feature: the array, its own, or nothing."""
        if not self.has(feature):
            return own
        return self._array if self._is_first(feature) else None

    def slots(self, feature: int, own: int) -> int | None:
        """Counts the slots that a call returns with a feature; None: nothing."""
        if not self.has(feature):
            return own
        return self._ends[-1] if self._is_first(feature) else None

    def take_slots(
        self, feature: int, results: Iterator[jax.Array], output: dict[str, jax.Array]
    ) -> None:
        """Sets the slots of a feature; with the first of them, those of all."""
        if self._is_first(feature):
            self._slots = output["slots_of_all"] = next(results)
        end, count = self._ends[feature], self._counts[feature]
        assert self._slots is not None
        output["slots"] = self._slots[end - count : end]

    def has(self, feature: int) -> bool:
        """Whether a feature has a part of the array."""
        return self._counts[feature] > 0

    def _is_first(self, feature: int) -> bool:
        return 0 < self._counts[feature] == self._ends[feature]
