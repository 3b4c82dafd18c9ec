# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows between one table and its store, on the host and in one thread."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.shard import words_of
from jax_dynemb._src.rows import Exported, padded
from jax_dynemb._src.stores import Store
from jax_dynemb._src.tiers.batches import offered_size, padded_ids
from jax_dynemb._src.tiers.together import Places


class Inserted(NamedTuple):
    """Says what became of the rows of an offer; on the device."""

    placed: Any  # bool[size], rows that were not in the table before, and are now
    present: Any  # bool[size], rows that are in the table now


@dataclasses.dataclass
class Offer:
    """Holds the rows of a coming batch that were in the store."""

    table: str
    number: int
    keys: np.ndarray  # int64[n], in order
    packed: np.ndarray  # uint8[n, row_bytes]
    places: Places
    # On the device and padded: ids, rows, optimizer states, scores. One for each array
    # that the ids need. Of several processes ``Traffic.ready`` adds them.
    arrays: list[tuple[jax.Array, Any, dict[str, Any], Any]]
    # For each of these, what became of the rows; the main thread adds it.
    inserted: list[Inserted] = dataclasses.field(default_factory=list)

    def masks(self) -> Inserted:
        """Reads what became of the rows, bool[n] each; waits for the device."""
        none = np.zeros(len(self.keys), bool)
        pairs = [
            [self.places.own(mask)[: len(self.keys)] for mask in each]
            for each in self.inserted
        ]
        placed, present = (
            np.logical_or.reduce([none, *masks])
            for masks in (zip(*pairs, strict=True) if pairs else ((), ()))
        )
        return Inserted(placed, present)

    def absent(self) -> int:
        """How many rows the table has not taken; waits for the device."""
        return int((~self.masks().present).sum())


_COMMITS = 4  # that may be gone back to, where a store keeps no older rows


class Traffic:
    """Moves the rows of one table; called by one thread only.

    A row stays in the store until the table is known to have it. So it may be offered
    to several batches; the table takes it once, since it only takes absent rows. A
    store that cannot go back keeps it longer: until all checkpoints have it that may be
    restored. Meanwhile the row of the table counts.
    """

    def __init__(self, config: TableConfig, store: Store, places: Places):
        self.config = config
        self.counts: Counter[str] = Counter()
        self.waiting: dict[int, np.ndarray] = {}  # rows by key that the store refused
        self._store, self._places = store, places
        self._offers: dict[int, Offer] = {}
        self._coming: dict[int, np.ndarray] = {}
        self._goes_back = bool(getattr(store, "goes_back", False))
        self._commits = 0
        self._came: dict[int, int] = {}  # keys that stay below, and the commits before

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows that the store refused."""
        return len(self.waiting) * self._store.layout.row_bytes

    def put(self, chunk: Exported, first: int, taken: bool) -> None:
        """Stores departed rows; those that the store refuses wait in memory.

        Before the lookup of batch ``first``; RuntimeError if it or a later one needs a
        row. Rows that were not taken out of the state come again, and are counted then.
        """
        if not len(chunk.keys):
            return
        self._coming = {n: k for n, k in self._coming.items() if n >= first}
        if any(np.isin(keys, chunk.keys).any() for keys in self._coming.values()):
            raise RuntimeError(
                f"Table '{self.config.name}' evicted a row that a coming batch needs. "
                "Call lookup once for each prefetcher.next, with the ids that it "
                "returned; and go on from the last checkpoint."
            )
        self._put(chunk.keys, self._store.layout.pack(chunk), first)
        self.counts["departed"] += taken * len(chunk.keys)

    def put_waiting(self, step: int) -> None:
        """Puts the rows again that the store has refused."""
        if self.waiting:
            keys = np.fromiter(self.waiting, np.int64, len(self.waiting))
            self._put(keys, np.stack(list(self.waiting.values())), step)

    def _put(self, keys: np.ndarray, packed: np.ndarray, step: int) -> None:
        stored = self._store.put(keys, packed, step)
        for key in keys[stored].tolist() if self.waiting else ():
            self.waiting.pop(key, None)
        self.waiting |= zip(keys[~stored].tolist(), packed[~stored], strict=True)
        for key in keys.tolist() if self._came else ():
            self._came.pop(key, None)
        self.counts["bytes_down"] += (count := int(stored.sum())) * packed.shape[1]
        self.counts["refused"] += len(keys) - count

    def offer(self, number: int, keys: np.ndarray) -> Offer:
        """Reads the rows that the store has of a batch's keys, int64[n] in order."""
        found = np.zeros(len(keys), bool)
        packed = np.zeros((len(keys), self._store.layout.row_bytes), np.uint8)
        for offer in self._offers.values():
            have = np.isin(keys, offer.keys)
            packed[have] = offer.packed[np.searchsorted(offer.keys, keys[have])]
            found |= have
        for at, key in enumerate(keys.tolist()) if self.waiting else ():
            if key in self.waiting:
                found[at], packed[at] = True, self.waiting[key]
        missing = np.flatnonzero(~found)
        stored, rows = self._store.get(keys[missing])
        hits = missing[stored]
        found[hits], packed[hits] = True, rows[stored]
        self.counts["wanted"] += len(keys)
        self.counts["hits"] += int(found.sum())
        self.counts["bytes_up"] += len(hits) * packed.shape[1]
        wanted, rows = keys[found], packed[found]
        new = Offer(self.config.name, number, wanted, rows, self._places, [])
        if self._places.is_alone and len(wanted):
            self.ready(new, len(wanted))
        self._coming[number] = keys
        if len(wanted):
            self._offers[number] = new
        return new

    def confirm(self, offer: Offer) -> None:
        """Discards the rows that the table has taken; waits for the device."""
        self._offers.pop(offer.number, None)
        placed, present = offer.masks()
        gone = offer.keys[placed]
        if self._goes_back:
            self._store.discard(gone)
        else:
            self._came |= dict.fromkeys(gone.tolist(), self._commits)
        for key in gone.tolist() if self.waiting else ():
            self.waiting.pop(key, None)
        self.counts["returned"] += len(gone)
        self.counts["no_room"] += int((~present).sum())

    def commit(self, tag: str, step: int | None) -> None:
        """Commits the store; discards rows that no kept commit needs below.

        The checkpoint of the commit before is complete by now.
        """
        self._store.commit(tag, step)
        self._commits += 1
        last = self._commits - _COMMITS
        old = [key for key, commits in self._came.items() if commits < last]
        self._store.discard(np.array(old, np.int64))
        for key in old:
            del self._came[key]

    def erase(self, keys: np.ndarray) -> None:
        """Removes rows, also those that batches on their way have been offered.

        The main thread waits meanwhile, and has inserted none of these offers.
        """
        self._store.discard(keys)
        for key in keys.tolist():
            self.waiting.pop(key, None)
            self._came.pop(key, None)
        for number, offer in list(self._offers.items()):
            stays = ~np.isin(offer.keys, keys)
            if stays.all():
                continue
            offer.keys, offer.packed = offer.keys[stays], offer.packed[stays]
            offer.arrays = []
            if not len(offer.keys):  # alone it is not inserted, so nothing confirms it
                del self._offers[number]
            elif self._places.is_alone:
                self.ready(offer, len(offer.keys))

    def ready(self, offer: Offer, most: int) -> None:
        """Makes the arrays of an offer; the main thread may call it, too.

        Args:
          offer: of this table.
          most: rows of the offers of all processes; 0: there is nothing to insert.
        """
        if most:
            size = self._places.room(offered_size(most))
            chunk = self._store.layout.unpack(offer.keys, offer.packed)
            chunk = padded(chunk, size)
            parts = chunk.rows, chunk.optimizer_state, words_of(chunk.scores)
            rest = self._places.spread(parts)
            ids = padded_ids(self.config, offer.keys, size, self._places)
            offer.arrays = [(each, *rest) for each in ids]
