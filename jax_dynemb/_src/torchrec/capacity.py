# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Capacity: room for the entries of each key, so that few programs are compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from jax_dynemb._src.is_whole import is_whole


class Capacity:
    """Remembers how many entries each key had, and gives it room in large steps.

    A program is compiled for the capacities of its KeyedJaggedTensor. That of a key
    grows at least twofold when it grows. So a key whose largest batch is n times its
    first one causes at most 1 + log2(n) compilations. Pass one object to every
    ``from_lengths_sync`` of a run, and save it with the run.

    Args:
      multiple: capacities are multiples of it.
      headroom: a capacity is this many times the entries that made it grow.

    Example:
      >>> capacity = jde.torchrec.Capacity()
      >>> capacity.of(["user"], [100]), capacity.of(["user"], [120])
      ((128,), (128,))
    """

    def __init__(self, multiple: int = 64, headroom: float = 1.25):
        if _whole(multiple) < 1 or not 1.0 <= headroom < math.inf:
            raise ValueError(
                f"Capacity needs multiple >= 1 and a finite headroom >= 1.0, not "
                f"{multiple} and {headroom}."
            )
        self.multiple = int(multiple)
        self.headroom = float(headroom)
        self.by_key: dict[str, int] = {}

    def of(self, keys: Sequence[str], counts: Sequence[int]) -> tuple[int, ...]:
        """Returns room for the entries of a batch, and remembers it.

        Args:
          keys: names.
          counts: entries of each key.
        """
        short = {k: n for k, n in zip(keys, counts, strict=True) if n > self._room(k)}
        for key, count in short.items():
            needed = max(math.ceil(count * self.headroom), 2 * self._room(key), 1)
            self.by_key[key] = -(-needed // self.multiple) * self.multiple
        for key in keys:
            self.by_key.setdefault(key, self.multiple)
        return tuple(self.by_key[key] for key in keys)

    def _room(self, key: str) -> int:
        return self.by_key.get(key, 0)

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold, for ``from_dict``."""
        return {
            "multiple": self.multiple,
            "headroom": self.headroom,
            "by_key": dict(self.by_key),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Makes the one that ``to_dict`` was called on.

        Args:
          saved: what ``to_dict`` returned.
        """
        new = cls(saved["multiple"], saved["headroom"])
        new.by_key = {str(key): int(n) for key, n in saved["by_key"].items()}
        return new

    def __repr__(self) -> str:
        """Shows the capacities."""
        return f"Capacity({self.multiple}, {self.headroom}, by_key={self.by_key})"


def capacities_of(
    capacity: Any, keys: Sequence[str], counts: Sequence[int] | None
) -> tuple[int, ...]:
    """Returns room for each key from whatever form a user gave it in.

    ``capacity`` is an int for every key, a dict by key, a sequence, or a ``Capacity``.
    ``counts`` has the entries of each key, or is None under jit, where a ``Capacity``
    is refused.
    """
    if isinstance(capacity, Capacity):
        if counts is None:
            raise TypeError(
                "a Capacity reads lengths on the host, so it cannot be used inside "
                "jit: call from_lengths_sync(..., capacity=policy) outside, or give "
                "numbers, capacities=policy.of(keys, counts)."
            )
        return capacity.of(keys, counts)
    if isinstance(capacity, Mapping):
        if missing := [key for key in keys if key not in capacity]:
            raise ValueError(f"capacity has no number for keys {missing}: add them")
        given = [capacity[key] for key in keys]
    elif isinstance(capacity, Sequence) and not isinstance(capacity, (str, bytes)):
        given = list(capacity)
    else:
        given = [_whole(capacity)] * len(keys)
    sizes = tuple(map(_whole, given))
    if len(sizes) != len(keys) or any(n < 0 for n in sizes):
        raise ValueError(
            f"capacity gives {sizes}, but there are {len(keys)} keys: give each key "
            "room for 0 entries or more."
        )
    for key, size, count in zip(keys, sizes, counts or (), strict=False):
        if count > size:
            raise ValueError(
                f"key '{key}' has {count} values, but capacity {size}: raise its "
                "capacity, or pass a jde.torchrec.Capacity(), which grows by itself."
            )
    return sizes


def _whole(size: Any) -> int:
    """Returns the room of a key; TypeError if it is no whole number."""
    if not is_whole(size):
        raise TypeError(
            f"capacity is {size!r}: give a whole number for every key, a dict or list "
            "of them by key, or a jde.torchrec.Capacity(), which grows by itself."
        )
    return int(size)
