# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many rows a table of some size would have no place for, by their keys alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.rows.hash import bucket_of
from jax_dynemb._src.table_sizes import MAX_SLOTS

_PIECE = 1 << 16  # keys at a time: what is made of them stays in a cache
Keys = Callable[[], Iterable[np.ndarray]]


def without_place(keys: Keys, num_buckets: int, hash_seed: int) -> int:
    """Counts the rows that would find their bucket full; every key comes once."""
    held = np.zeros(num_buckets, np.int32)
    for some in keys():
        for at in range(0, len(some), _PIECE):
            buckets = bucket_of(some[at : at + _PIECE], num_buckets, hash_seed)
            np.add.at(held, buckets, np.int32(1))
    room = _ffi.constants()["bucket_capacity"]
    return int(np.maximum(held - room, 0).sum(dtype=np.int64))


def roomy_capacity(keys: Keys, config: TableConfig, least: int = 0) -> int | None:
    """Finds a capacity, at least ``least`` slots, with a place for every row.

    It is the table's slots times a power of two; None if no table is that large.
    """
    for slots in _doubled(config.num_slots):
        buckets = slots // _ffi.constants()["bucket_capacity"]
        if slots >= least and not without_place(keys, buckets, config.hash_seed):
            return slots
    return None


def _doubled(slots: int) -> Iterator[int]:
    while (slots := 2 * slots) <= MAX_SLOTS:
        yield slots
