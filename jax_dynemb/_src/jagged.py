# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged ids: bags of different lengths in one flat array of static size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.is_whole import is_whole


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Jagged:
    """Holds bags of any length one after the other, as a KeyedJaggedTensor does.

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
      weights: float[capacity], factors of the rows of a table that pools; or None.
        Every lookup takes them as those of its argument ``weights``, and refuses both.

    Raises:
      ValueError: lengths on the host are no integers, one is negative, or they add up
        to more than there are ids. Or weights are not one an id.
    """

    values: Any
    lengths: Any
    weights: Any = None

    def __post_init__(self) -> None:
        """Checks what can be checked before JAX makes 32 bits of 64."""
        _check_weights(self.weights, self.values)
        lengths = self.lengths
        if type(lengths) in (list, tuple):  # a PartitionSpec may be a tuple
            lengths = np.asarray(lengths if len(lengths) else np.zeros(0, np.int32))
        if not isinstance(lengths, np.ndarray) or lengths.ndim != 1:
            return
        shape = getattr(self.values, "shape", None)
        if shape is not None and len(shape) in (1, 2):
            lengths = check_lengths(lengths, shape[0])
            object.__setattr__(self, "lengths", lengths)

    @property
    def offsets(self) -> Any:
        """Where bags begin, and where the last one ends: integers [bags + 1].

        In NumPy where the lengths are. A negative length counts as 0, and no bag
        reaches past the ids.
        """
        on_host = isinstance(self.lengths, (np.ndarray, list, tuple))
        module = np if on_host else jnp
        lengths = module.maximum(module.asarray(self.lengths), 0)
        ends = module.minimum(module.cumsum(lengths), self.values.shape[0])
        return module.concatenate([module.zeros(1, np.int32), ends.astype(np.int32)])

    def to_padded(
        self,
        length: int | None = None,
        padding_value: float | None = None,
        *,
        rows: Any = None,
    ) -> Any:
        """Returns bags of equal size, each its first ids, filled up.

        Args:
          length: ids of each bag; the longest bag's if None.
          padding_value: what bags are filled up with; None: -1, which is no id, and 0
            in floats.
          rows: [capacity, ...], what a lookup of these ids returned one an id, to be
            padded in place of the ids; differentiable.

        Returns:
          Ids of [bags, length] as the values have them: pairs of words
          uint32[bags, length, 2], or integers. Of rows [bags, length, ...].

        Raises:
          TypeError: without ``length`` under jit, where shapes are static.
          ValueError: a negative length, or rows that are not one an id.

        Example:
          >>> jagged = jde.Jagged.from_lists([[1, 2], [3], []])
          >>> rows = jnp.ones((3, 8))  # of a lookup of jagged
          >>> jagged.to_padded(20, rows=rows).shape, jagged.mask(20).shape
          ((3, 20, 8), (3, 20))
        """
        offsets, size = self.offsets, self._size("to_padded", length)
        values = self.values if rows is None else rows
        if values.shape[:1] != self.values.shape[:1]:
            raise ValueError(
                f"to_padded takes one row for each of the {self.values.shape[0]} ids, "
                f"not rows of shape {values.shape}: look the ids up in a table without "
                "pooling."
            )
        return _padded(values, offsets, size, padding_value)

    def mask(self, length: int | None = None) -> Any:
        """Returns which places of ``to_padded`` have an id of the bag.

        Args:
          length: as for ``to_padded``.

        Returns:
          bool[bags, length].

        Raises:
          TypeError: without ``length`` under jit.
          ValueError: a negative length.
        """
        offsets, size = self.offsets, self._size("mask", length)
        return _places(size) < (offsets[1:] - offsets[:-1])[:, None]

    def _size(self, call: str, length: int | None) -> int:
        if length is None:
            if isinstance(self.offsets, Tracer):
                raise TypeError(
                    f"Jagged.{call} needs a length under jit, where shapes are static: "
                    f"write {call}(20)."
                )
            return int(np.diff(np.asarray(self.offsets)).max(initial=0))
        if not is_whole(length):
            raise TypeError(f"{call} takes the ids of each bag, not {length!r}.")
        if length < 0:
            raise ValueError(f"{call} needs a length of 0 or more, not {length}.")
        return int(length)

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
        from jax_dynemb._src.ids import ids

        counts, flat = [], []
        for bag in bags:
            if not hasattr(bag, "__len__"):
                raise TypeError(
                    "Jagged.from_lists takes lists of ids, [[1, 2], [3]], not single "
                    f"ones such as {bag!r}: put each into a list."
                )
            counts.append(len(bag))
            flat.extend(bag)
        lengths = np.array(counts, np.int32)
        for i in flat:
            if not is_whole(i):
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


def split_weights(
    ids: Any, weights: Mapping[str, Any] | None
) -> tuple[Any, Mapping[str, Any] | None]:
    """Takes weights out of Jagged ids and adds them to others; no feature has both."""
    own = {}
    if isinstance(ids, Mapping):
        bags = {f: x for f, x in ids.items() if isinstance(x, Jagged)}
        own = {f: x.weights for f, x in bags.items() if x.weights is not None}
    if not own:
        return ids, weights
    if twice := sorted(f for f in own if (weights or {}).get(f) is not None):
        raise ValueError(
            f"features {twice} have weights in their Jagged and in weights=...: give "
            "them once."
        )
    bare = {f: dataclasses.replace(bags[f], weights=None) for f in own}
    return {**ids, **bare}, {**(weights or {}), **own}


def _check_weights(weights: Any, values: Any) -> None:
    """Refuses weights that are not one number an id, where shapes are known."""
    found, ids = getattr(weights, "shape", None), getattr(values, "shape", None)
    if found is None or not ids or len(ids) > 2:
        return
    if tuple(found) != tuple(ids[:1]):
        raise ValueError(
            f"Jagged.weights have shape {tuple(found)}, but there are {ids[0]} ids: "
            "give one weight for each, or None."
        )


def _places(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.int32)[None, :]


def _padded(values: Any, offsets: Any, size: int, padding_value: float | None) -> Any:
    on_host = isinstance(values, np.ndarray)
    if on_host and not isinstance(offsets, np.ndarray):
        if isinstance(offsets, Tracer):
            from jax_dynemb._src.ids import words_of

            wide = values.dtype.kind in "iu" and values.dtype.itemsize == 8
            values, on_host = jnp.asarray(words_of(values) if wide else values), False
        else:
            offsets = np.asarray(offsets)
    module = np if on_host else jnp
    index = offsets[:-1, None] + _places(size)
    live = _places(size) < (offsets[1:] - offsets[:-1])[:, None]
    live = live.reshape(*live.shape, *[1] * (values.ndim - 1))
    padding = _padding_of(values, padding_value)
    if values.shape[0] == 0:
        shape = (*index.shape, *values.shape[1:])
        return module.broadcast_to(module.asarray(padding), shape)
    taken = module.take(values, module.minimum(index, values.shape[0] - 1), axis=0)
    return module.where(live, taken, padding)


def _padding_of(values: Any, padding_value: float | None) -> np.ndarray:
    """The value that fills bags, in the form of the values."""
    integers = jnp.dtype(values.dtype).kind in "iu"
    if padding_value is None:
        padding_value = -1 if integers else 0
    if values.dtype == np.uint32 and values.ndim == 2:
        return np.array([[[int(padding_value)]]], np.int64).view(np.uint32)
    return np.asarray(padding_value).astype(values.dtype)


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

    Returns the lengths; int32[bags] if they were in NumPy.
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
