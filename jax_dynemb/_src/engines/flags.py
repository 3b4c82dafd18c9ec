# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Static choices of one lookup: whether it moves scores, and whether it inserts."""

from __future__ import annotations

import dataclasses

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class LookupFlags:
    """Says what a lookup may change besides its rows' values.

    Attributes:
      touch: rows that are found get the score of this lookup. Without it a row in use
        is not protected, so such a lookup evicts nothing.
      insert: unseen ids get a row, as far as the table admits them.
      timed: the caller brings the time; a device need not read its clock.
    """

    touch: bool = True
    insert: bool = True
    timed: bool = False

    def of(self, table: TableSpec) -> TableSpec:
        """Returns the spec with which this lookup calls the table."""
        if not self.insert:
            table = dataclasses.replace(table, unseen="none")
        if not self.touch:
            table = dataclasses.replace(table, keeps_scores=True, evicts=False)
        if self.timed and table.score_strategy is ScoreStrategy.TIMESTAMP:
            table = dataclasses.replace(table, takes_time=True)
        return table


TRAINING = LookupFlags()
TOUCHING = LookupFlags(insert=False)  # of a serving lookup
