# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the ids of a device travel in a round, of all tables at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Shaped

from jax_dynemb._src.engines.hash.links import Live


class RoundRange(NamedTuple):
    """Says which distinct ids of each segment travel in a round: [begin, end)."""

    begin: Int32[Array, "tables shards"]
    end: Int32[Array, "tables shards"]


def live_rows(round_range: RoundRange) -> Live:
    """Counts the rows that this device gets of each table from each owner."""
    return Live(round_range.end - round_range.begin, by_sender=False)


def live_sums(round_range: RoundRange) -> Live:
    """Counts the sums of gradients that this device sends to each owner."""
    return Live(round_range.end - round_range.begin, by_sender=True)


class Places(NamedTuple):
    """Says where each id of this device travels in a round.

    Attributes:
      owner: to which shard.
      table: its number.
      number: in the owner's section of the table.
      live: whether it travels; nothing else is known of others.
    """

    owner: Int32[Array, " n"]
    table: Int32[Array, " n"]
    number: Int32[Array, " n"]
    live: Bool[Array, " n"]

    def cut(self, begin: int, end: int) -> Places:
        """Selects neighbours."""
        return Places(*(each[begin:end] for each in self))

    def groups(self, capacities: Sequence[int]) -> Int32[Array, " n"]:
        """Numbers the places of a table, [shards * capacity]; -1 if an id has none."""
        capacity = jnp.array(capacities, jnp.int32)[self.table]
        return jnp.where(self.live, self.owner * capacity + self.number, -1)

    def answers(
        self,
        of_shards: Shaped[Array, "shards places"],
        capacities: Sequence[int],
        fill: int,
    ) -> Shaped[Array, " n"]:
        """Reads what owners have answered; ``fill`` if an id has no place.

        Args:
          of_shards: the sections of all tables, side by side.
          capacities: places in a section of each table.
          fill: a number.
        """
        widths = np.array(capacities)
        begin = jnp.array(np.cumsum(widths) - widths, jnp.int32)[self.table]
        at = self.owner * of_shards.shape[1] + begin + self.number
        at = jnp.where(self.live, at, of_shards.size)
        return jnp.take(of_shards.reshape(-1), at, mode="fill", fill_value=fill)
