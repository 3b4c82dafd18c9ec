# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Results of imports, and the notes that they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jax_dynemb.engines import States


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


def lost_rows(rows: int, read: int) -> Iterator[str]:
    """Says so if a table has fewer rows than were read for it."""
    if rows < read:
        yield (
            f"{read - rows} of {read} rows found no place in their bucket, or had a "
            "key twice. Raise capacity."
        )
