# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Results of imports; rows that find no place are refused, or said aloud."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.rows import Keys, roomy_capacity, without_place
from jax_dynemb._src.table import Tables


class Imported(NamedTuple):
    """Holds what an import returns.

    Attributes:
      state: the tables.
      counters: admission counts by table, where the files have them: (keys int64[m],
        frequencies int64[m]).
      notes: a sentence for everything that is not as it was written.
    """

    state: States
    counters: dict[str, tuple[np.ndarray, np.ndarray]]
    notes: tuple[str, ...]


def check_room(coll: Tables, found: Mapping[str, Keys], allow_drop: bool) -> None:
    """Refuses rows without a place before any table is touched; names a capacity.

    ``found`` starts to read the keys of a table's rows; ``allow_drop`` checks nothing.
    """
    for name, keys in {} if allow_drop else found.items():
        config = coll.tables[name]
        lost = without_place(keys, config.num_buckets, config.hash_seed)
        if lost:
            rows = sum(map(len, keys()))
            raise ValueError(
                f"{no_place(name, lost, rows, config.num_slots)} Declare the table "
                f"with capacity={roomy_capacity(keys, config)}, or pass "
                "allow_drop=True to leave out what finds none."
            )


def no_place(name: str, lost: int, rows: int, slots: int) -> str:
    """Says how many rows of a table would be lost."""
    return (
        f"Table '{name}': {lost} of {rows} rows would find no place in their bucket; "
        f"the table has {slots} slots."
    )


def warn_of_loss(sentences: Iterable[str]) -> list[str]:
    """Says what was lost as warnings and in the log, and returns it for the notes."""
    said = list(sentences)
    for sentence in said:
        logging.getLogger("jax_dynemb.files").warning(sentence)
        warnings.warn(sentence, stacklevel=3)
    return said


def lost_rows(name: str, rows: int, read: int) -> list[str]:
    """Warns if a table has fewer rows than were read for it; returns the warning."""
    if rows >= read:
        return []
    return warn_of_loss(
        [
            f"Table '{name}': {read - rows} of {read} rows found no place in their "
            "bucket, or had a key twice. Raise capacity."
        ]
    )
