# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Newer rows of a table on a CPU, in arrays that grow while threads look up.

A row is never overwritten: what changes is appended, and a key finds its newest row
through a hash table. Each row names the one before of its key. A view ends at a row: it
passes over those behind, so it stays as it was while the writer goes on.
"""

from __future__ import annotations

import torch

from jax_dynemb_torch._table import PADDING

_WIDTH = 16  # keys of a bucket: two lines of a CPU's cache
_MOST_FILLED = 4  # keys a bucket on average: then one in a million overflows
_FACTORS = (-7046029254386353131, -4658895280553007687)  # odd, of splitmix64


class Newer:
    """Rows that replace those of a base table: one version, which never changes.

    Args:
      arrays: what all versions share.
      end: the first place that is not of this version.
      size: distinct keys of this version.
    """

    def __init__(self, arrays: _Arrays, end: int, size: int):
        self._arrays, self._end, self.size = arrays, end, size

    @classmethod
    def empty(cls, dim: int) -> Newer:
        """Returns a version without rows."""
        return cls(_Arrays(dim, 1, 1), 1, 0)

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """int64[n]: the place of each id of int64[n], or 0."""
        arrays = self._arrays
        slots, found = arrays.slots_of(ids)
        places = arrays.newest.index_select(0, slots) * found
        while (behind := places >= self._end).any():  # the writer is at work
            before = arrays.before.index_select(0, places)
            places = torch.where(behind, before, places)
        return places

    def holds(self, places: torch.Tensor) -> torch.Tensor:
        """bool[n]: which places are those of rows."""
        return places > 0

    def gather(self, places: torch.Tensor) -> torch.Tensor:
        """float32[n, dim]: rows at int64[n]; zeros at 0."""
        return self._arrays.rows.index_select(0, places)

    def bags(
        self,
        places: torch.Tensor,
        offsets: torch.Tensor,
        weights: torch.Tensor | None,
    ) -> torch.Tensor:
        """float32[bags, dim]: weighted sums of rows, as ``Table.bags``."""
        return torch.embedding_bag(
            self._arrays.rows, places, offsets, False, 0, False, weights, True, None
        )[0]

    def with_rows(self, keys: torch.Tensor, rows: torch.Tensor) -> Newer:
        """Returns the next version, in time that grows with its rows.

        Only the newest version may be given more rows, by one thread.

        Args:
          keys: int64[n], distinct.
          rows: float32[n, dim].
        """
        arrays, end = self._arrays, self._end
        size = self.size + int((~arrays.slots_of(keys)[1]).sum())
        buckets = arrays.buckets
        while size > _MOST_FILLED * buckets:
            buckets *= 2
        if buckets > arrays.buckets or end + len(keys) > len(arrays.rows):
            arrays, end = arrays.larger(buckets, len(keys))
        while not arrays.append(keys, rows, end):  # a bucket is full
            arrays, end = arrays.larger(2 * arrays.buckets, len(keys))
        return Newer(arrays, end + len(keys), size)


class _Arrays:
    """Holds rows by place, and a hash table of keys in buckets.

    The writer writes a row, then its place, then its key. So a thread that reads in the
    other order finds rows that are whole.
    """

    def __init__(self, dim: int, room: int, buckets: int):
        self.rows = torch.empty(room, dim)
        self.rows[0] = 0.0
        self.before = torch.zeros(room, dtype=torch.int64)  # places by place
        self.buckets = buckets  # a power of two
        self.keys = torch.full((buckets, _WIDTH), PADDING)
        self.newest = torch.zeros(buckets * _WIDTH, dtype=torch.int64)

    def slots_of(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int64[n] and bool[n]: where a key stands, and whether it is there."""
        buckets = self._buckets_of(ids)
        same = self.keys.index_select(0, buckets) == ids.unsqueeze(1)
        found, at = same.max(dim=1)
        return buckets * _WIDTH + at, found

    def append(self, keys: torch.Tensor, rows: torch.Tensor, end: int) -> bool:
        """Writes rows from a place on; False, and nothing, if a bucket is full."""
        slots, found = self.slots_of(keys)
        new = ~found
        slots[new], fits = self._free_slots(keys[new])
        if not fits:
            return False
        places = torch.arange(end, end + len(keys))
        self.rows[end : end + len(keys)] = rows
        self.before[end : end + len(keys)] = self.newest.index_select(0, slots) * found
        self.newest.index_copy_(0, slots, places)
        self.keys.view(-1).index_copy_(0, slots[new], keys[new])
        return True

    def larger(self, buckets: int, more: int) -> tuple[_Arrays, int]:
        """Returns arrays with the newest row of each key and room, and where it is."""
        keys, slots = self._stored()
        places = self.newest.index_select(0, slots)
        room = 1 + 2 * (len(keys) + more)
        while True:
            new = _Arrays(self.rows.shape[1], room, buckets)
            if new.append(keys, self.rows.index_select(0, places), 1):
                return new, 1 + len(keys)
            buckets *= 2

    def _stored(self) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self.keys.view(-1)
        slots = (keys != PADDING).nonzero().view(-1)
        return keys.index_select(0, slots), slots

    def _free_slots(self, keys: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """int64[n]: slots of keys that have none; buckets are filled from the front."""
        buckets, order = self._buckets_of(keys).sort()
        filled = (self.keys.index_select(0, buckets) != PADDING).sum(dim=1)
        # How many of these keys stand before one in its bucket.
        rank = torch.arange(len(keys)) - torch.searchsorted(buckets, buckets)
        at = filled + rank
        slots = torch.empty_like(at)
        slots[order] = buckets * _WIDTH + at
        return slots, bool((at < _WIDTH).all())

    def _buckets_of(self, ids: torch.Tensor) -> torch.Tensor:
        mixed = ids * _FACTORS[0]
        mixed = (mixed ^ (mixed >> 32)) * _FACTORS[1]
        return (mixed ^ (mixed >> 32)) & (self.buckets - 1)
