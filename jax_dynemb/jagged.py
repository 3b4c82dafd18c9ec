# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged ids: bags of different lengths in one flat array of static size."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Jagged:
    """Bags one after the other, like a feature of a KeyedJaggedTensor.

    Lengths in NumPy, or in lists, are checked here. Those of a jax Array are checked
    in a lookup outside of ``jit``, where that needs no transfer from a GPU. Lengths
    inside ``jit`` are data, and data never raises. A negative length counts as 0, and
    no bag reaches past the ids. A training lookup counts the bags that were cut in
    ``stats()["<table>/malformed_lengths"]``.

    Attributes:
      values: ids, uint32[capacity, 2] (or [capacity] of a 64-bit dtype, or 32-bit on
        a 32-bit table). The capacity is static; ids from ``sum(lengths)`` on are
        ignored.
      lengths: integers [bags], the number of ids of each bag.

    Raises:
      ValueError: lengths on the host are no integers, one is negative, or they add up
        to more than there are ids.
    """

    values: Any
    lengths: Any

    def __post_init__(self) -> None:
        """Checks what can be checked before JAX makes 32 bits of 64."""
        lengths = self.lengths
        if type(lengths) in (list, tuple):  # a PartitionSpec may be a tuple
            lengths = np.asarray(lengths if len(lengths) else np.zeros(0, np.int32))
        if not isinstance(lengths, np.ndarray) or lengths.ndim != 1:
            return
        shape = getattr(self.values, "shape", None)
        if shape is not None and len(shape) in (1, 2):
            lengths = check_lengths(lengths, shape[0])
            object.__setattr__(self, "lengths", lengths)

    @classmethod
    def from_lists(cls, bags: Any, capacity: int | None = None) -> Jagged:
        """Makes one from Python lists of integers.

        Args:
          bags: a sequence of sequences of ids.
          capacity: room for ids; the number of ids if None.

        Raises:
          TypeError: an id is no integer.
          ValueError: the ids do not fit into ``capacity``; or one is reserved, or has
            more than 64 bits.
        """
        from jax_dynemb._ids import ids

        lengths = np.array([len(bag) for bag in bags], np.int32)
        flat = [i for bag in bags for i in bag]
        for i in flat:
            if isinstance(i, bool) or not isinstance(i, (int, np.integer)):
                raise TypeError(
                    f"ids must be integers, not {type(i).__name__}. Hash strings and "
                    "other values to 64-bit ids with jde.hash_ids."
                )
            if not -(2**63) <= i < 2**64:
                raise ValueError(f"{i} is no 64-bit id; hash it with jde.hash_ids")
        room = len(flat) if capacity is None else capacity
        if len(flat) > room:
            raise ValueError(
                f"{len(flat)} ids do not fit into capacity {room}; raise capacity"
            )
        words = ids(np.array([int(i) % 2**64 for i in flat], np.uint64))
        padding = np.full((room - len(flat), 2), 0xFFFFFFFF, np.uint32)
        values = jnp.concatenate([words, padding]) if len(padding) else words
        return cls(values, jnp.asarray(lengths))


_NOT_LENGTHS = "{where} must be integers [bags], not {found}."
_NEGATIVE = (
    "{where} has {value} at bag {bag}; a bag has 0 ids or more. Give the number of ids "
    "of each bag."
)
_OFFSETS = (
    "{where} look like offsets: they begin with 0, never fall, and end at {last}, the "
    "number of ids. Give the number of ids of each bag: lengths = np.diff(offsets)."
)
_TOO_MANY = (
    "{where} add up to {total}, but there are {capacity} ids. Make the lengths those "
    "of the bags in values, or give values room for all of their ids."
)


def check_lengths(lengths: Any, capacity: int, feature: str | None = None) -> Any:
    """Refuses lengths that no bags have, as far as they are known on the host.

    Args:
      lengths: of bags.
      capacity: how many ids there are.
      feature: for messages.

    Returns:
      The lengths; int32[bags] if they were in NumPy.

    Raises:
      ValueError: they are no integers [bags], or are known not to fit.
    """
    where = "Jagged.lengths" if feature is None else f"Feature '{feature}': lengths"
    if not hasattr(lengths, "dtype"):
        lengths = np.asarray(lengths)
    if lengths.ndim != 1 or np.dtype(lengths.dtype).kind not in "iu":
        found = f"{lengths.dtype}{list(lengths.shape)}"
        raise ValueError(_NOT_LENGTHS.format(where=where, found=found))
    known = _known(lengths)
    if known is None or known.size == 0:
        return lengths
    if known.dtype.kind == "i" and known.min() < 0:
        bag = int(np.argmax(known < 0))
        raise ValueError(_NEGATIVE.format(where=where, value=known[bag], bag=bag))
    total = sum(known.tolist()) if known.max() > capacity else int(known.sum(dtype=int))
    if total > capacity:
        last = int(known[-1])
        steps = known[1:] >= known[:-1]
        if len(known) > 1 and known[0] == 0 and steps.all() and last == capacity:
            raise ValueError(_OFFSETS.format(where=where, last=last))
        raise ValueError(_TOO_MANY.format(where=where, total=total, capacity=capacity))
    return known.astype(np.int32) if isinstance(lengths, np.ndarray) else lengths


def _known(lengths: Any) -> np.ndarray | None:
    """The numbers, if they are on the host already."""
    if isinstance(lengths, np.ndarray):
        return lengths
    if isinstance(lengths, Tracer) or not isinstance(lengths, jax.Array):
        return None
    here = lengths.is_fully_addressable
    if here and all(device.platform == "cpu" for device in lengths.devices()):
        return np.asarray(lengths)
    return None
