# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of lengths, offsets, keys and weights, each with the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.torchrec.arrays import is_traced
from jax_dynemb._src.torchrec.asserted import AssertedError, MisfitError, NeitherError

_MOST = 2**31 - 1


def lengths_from_offsets(lengths: Any, offsets: Any) -> Any:
    """Returns the lengths of bags from what a user gave of both; None of none."""
    if offsets is None:
        return lengths
    if not hasattr(offsets, "dtype"):
        offsets = np.asarray(offsets, np.int32)
    if offsets.ndim != 1 or (offsets.shape[0] == 0 and lengths is None):
        if offsets.shape == (0,):
            return np.zeros(0, np.int32)
        raise ValueError(f"offsets must be integers [bags + 1], not {offsets.shape}")
    if offsets.shape[0] and np.dtype(offsets.dtype).kind not in "iu":
        found = f"{offsets.dtype}{list(offsets.shape)}"
        raise AssertedError(f"offsets must be integers [bags + 1], not {found}.")
    own = offsets[1:] - offsets[:-1]
    if is_traced(offsets, lengths):
        return own if lengths is None else lengths
    known = np.asarray(offsets)
    if known.size and known[0] != 0:
        raise MisfitError(
            f"offsets begin with {known[0]}, but the first bag begins at entry 0: "
            "write offsets - offsets[0], and cut the values to these bags."
        )
    steps = np.diff(known)
    if (steps < 0).any():
        bag = int(np.argmax(steps < 0))
        raise MisfitError(
            f"offsets fall from {known[bag]} to {known[bag + 1]} at bag {bag}; they "
            "are where bags begin. If these are lengths, write lengths=..."
        )
    if lengths is not None and not np.array_equal(np.asarray(lengths), steps):
        raise MisfitError(
            f"offsets and lengths contradict each other: np.diff(offsets) is "
            f"{steps.tolist()}, lengths are {np.asarray(lengths).tolist()}. Give one."
        )
    return own


def check_lengths_of(lengths: Any, capacity: int | None) -> Any:
    """Refuses lengths that no bags have, where their numbers are known.

    ``capacity`` is None where bags have room of their own. Returns the lengths; int32
    if they were in NumPy or a list.
    """
    if lengths is None:
        raise NeitherError(
            "give lengths=... (entries of each bag) or offsets=... by name: behind the "
            "values come weights."
        )
    if not hasattr(lengths, "dtype"):
        lengths = np.asarray(lengths)
    if isinstance(lengths, np.ndarray) and lengths.size == 0:
        return np.zeros(0, np.int32)  # whatever dtype a library gives to no numbers
    if lengths.ndim != 1 or np.dtype(lengths.dtype).kind not in "iu":
        found = f"{lengths.dtype}{list(lengths.shape)}"
        raise AssertedError(f"lengths must be integers [bags], not {found}.")
    if is_traced(lengths):
        return lengths
    known = np.asarray(lengths)
    if known.size and known.min() < 0:
        bag = int(np.argmin(known))
        raise MisfitError(
            f"lengths have {known[bag]} at bag {bag}; a bag has 0 entries or more. "
            "Give the number of entries of each bag."
        )
    total = int(known.sum(dtype=np.int64)) if known.size else 0
    if total > _MOST or (known.size and known.max() > _MOST):
        raise ValueError(
            f"lengths add up to {total}, more than int32 counts: cut the batch into "
            "several of fewer than 2**31 entries."
        )
    if capacity is not None and total > capacity:
        raise MisfitError(
            f"lengths add up to {total}, but there are {capacity} values. Make the "
            "lengths those of the bags in values; np.diff(offsets) if these are "
            "offsets."
        )
    return known.astype(np.int32) if isinstance(lengths, np.ndarray) else lengths


def check_weights(weights: Any, count: int) -> None:
    """Refuses weights that are not one number an entry."""
    if weights is not None and np.shape(weights)[:1] != (count,):
        raise MisfitError(
            f"weights have shape {np.shape(weights)}, but there are {count} values: "
            "give one weight for each value, or weights=None."
        )


def check_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Refuses keys that occur twice, and a string where a list belongs."""
    if isinstance(keys, str):
        raise TypeError(f"keys must be a list of names: write keys=[{keys!r}]")
    keys = tuple(keys)
    if wrong := [key for key in keys if not isinstance(key, str)]:
        raise TypeError(f"keys must be names, not {wrong[0]!r}: write str(key)")
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise MisfitError(
            f"keys {twice} occur twice, so to_dict() would lose one: rename them, or "
            "select them again with permute."
        )
    return keys
