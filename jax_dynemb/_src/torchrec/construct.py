# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Turns the arguments that TorchRec takes into the arrays of a KeyedJaggedTensor."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.torchrec import regions as _regions
from jax_dynemb._src.torchrec.arrays import is_traced, stored
from jax_dynemb._src.torchrec.asserted import MisfitError
from jax_dynemb._src.torchrec.capacity import capacities_of
from jax_dynemb._src.torchrec.check import (
    check_lengths_of,
    check_weights,
    lengths_from_offsets,
)
from jax_dynemb._src.torchrec.layout import Layout, strides_of

_UNBOUNDED = (
    "the batches of keys %s had %d different numbers of values so far. jit compiles a "
    "program for each, since capacity=None makes them part of the shape. Pass one "
    "jde.torchrec.Capacity() to every from_lengths_sync(..., capacity=policy)."
)
_TELL_AFTER = 8
_seen: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
_told: list[bool] = []  # once it has been said


@dataclasses.dataclass(frozen=True)
class Given:
    """The arguments of a constructor.

    Attributes:
      values: entries of all keys, one after the other.
      lengths: int[bags].
      weights: float[n] or None.
      stride: bags of each key, or None.
      ranks: bags of each key on each rank, or None.
      inverse: keys and int[F, B], or None.
    """

    keys: Sequence[str]
    values: Any
    lengths: Any
    weights: Any
    stride: int | None
    ranks: Any
    inverse: Any

    @classmethod
    def of(
        cls,
        keys: Sequence[str],
        values: Any,
        lengths: Any,
        offsets: Any,
        weights: Any,
        *others: Any,
    ) -> Given:
        """Brings every array into its stored form and checks each by itself."""
        lengths = lengths_from_offsets(lengths, offsets)
        lengths = check_lengths_of(lengths, None)
        values = stored(values)
        if weights is not None and not hasattr(weights, "dtype"):
            weights = np.asarray(weights, np.float32)
        check_weights(weights, values.shape[0])
        return cls(keys, values, lengths, weights, *others)

    def layout(self, capacities: tuple[int, ...] | None = None) -> Layout:
        """The static part; without capacities they are left empty."""
        bags = self.lengths.shape[0]
        keys, strides, stride, ranks = strides_of(
            self.keys, bags, self.stride, self.ranks
        )
        inverse_keys = None
        if self.inverse is not None:
            inverse_keys = tuple(self.inverse[0])
            stride = int(np.shape(self.inverse[1])[1])
        return Layout(keys, strides, capacities or (), stride, ranks, inverse_keys)

    def arrays(self) -> list[Any]:
        """Values, and weights if there are any."""
        return [self.values] + ([] if self.weights is None else [self.weights])


def on_host(given: Given, capacity: Any, check: bool) -> tuple[Layout, list, Any]:
    """Makes regions where counts are known: exact ones, or of the capacity given.

    Returns the layout; values (and weights) in regions; and the lengths.
    """
    if is_traced(given.lengths):
        raise TypeError(
            "from_lengths_sync, from_offsets_sync and KeyedJaggedTensor(...) read "
            "lengths on the host, so they cannot be used inside jit: write "
            "KeyedJaggedTensor.from_lengths(..., capacities=...) there."
        )
    layout = given.layout()
    lengths = np.asarray(given.lengths)
    counts = _regions.counts_of(lengths, layout.strides).tolist()
    if check:
        _check_total(sum(counts), given.values.shape[0])
    if capacity is None:
        _count_programs(layout.keys, counts)
        exact = dataclasses.replace(layout, capacities=tuple(counts))
        return exact, given.arrays(), given.lengths
    sizes = capacities_of(capacity, layout.keys, counts)
    padded = dataclasses.replace(layout, capacities=sizes)
    if all(isinstance(array, np.ndarray) for array in given.arrays()):
        moved = [_regions.copied(a, np.array(counts), padded) for a in given.arrays()]
        return padded, moved, given.lengths
    moved, lengths, _ = _regions.gathered(given.arrays(), given.lengths, padded)
    return padded, moved, lengths


def in_program(given: Given, capacities: Any) -> tuple[Layout, list, Any, Any]:
    """Makes regions where counts are data; what does not fit is counted.

    Returns the layout; values (and weights) in regions; the lengths; and uint32[F].
    """
    layout = given.layout()
    sizes = capacities_of(capacities, layout.keys, None)
    layout = dataclasses.replace(layout, capacities=sizes)
    return layout, *_regions.gathered(given.arrays(), given.lengths, layout)


def _check_total(total: int, values: int) -> None:
    if total != values:
        raise MisfitError(
            f"lengths add up to {total}, but there are {values} values. Give each "
            "value to a bag: the lengths of all keys must add up to len(values)."
        )


def _count_programs(keys: tuple[str, ...], counts: Sequence[int]) -> None:
    """Says once a process that exact regions compile a program a batch."""
    if _told:
        return
    kinds = _seen.setdefault(keys, set())
    kinds.add(tuple(counts))
    if len(kinds) < _TELL_AFTER:
        return
    names = list(keys[:3]) + (["..."] if len(keys) > 3 else [])
    logging.getLogger("jax_dynemb").warning(_UNBOUNDED, names, len(kinds))
    _told.append(True)
    _seen.clear()
