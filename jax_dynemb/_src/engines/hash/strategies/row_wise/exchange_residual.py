# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what the update of a row-wise lookup need not exchange again."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.exchange import Route
from jax_dynemb._src.ops import FeatureGradient, FeatureResidual, joined
from jax_dynemb._src.spec import TableSpec


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["ids", "slots"],
    meta_fields=["tables", "counts"],
)
@dataclasses.dataclass(frozen=True)
class ReceivedIds:
    """Holds what an owner received in the first round, one table after the other.

    Attributes:
      tables: their names.
      counts: of each table, how many places there are.
      ids: uint32[places, 2].
      slots: int32[places].
    """

    tables: tuple[str, ...]
    counts: tuple[int, ...]
    ids: jax.Array
    slots: jax.Array

    @classmethod
    def of(
        cls,
        tables: Sequence[TableSpec],
        counts: Sequence[int],
        ids: jax.Array,
        slots: jax.Array,
    ) -> ReceivedIds:
        """Holds the ids of these tables."""
        return cls(tuple(t.name for t in tables), tuple(counts), ids, slots)

    def select(self, tables: Sequence[TableSpec]) -> tuple[jax.Array, jax.Array]:
        """Returns ids and slots of some of the tables."""
        names = [table.name for table in tables]
        if names == [*self.tables]:
            return self.ids, self.slots
        ends = np.cumsum(self.counts).tolist()
        own = [self.tables.index(name) for name in names]
        ranges = [slice(ends[n] - self.counts[n], ends[n]) for n in own]
        ids = joined([self.ids[part] for part in ranges])
        return ids, joined([self.slots[part] for part in ranges])


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["slots"],
    meta_fields=["features"],
)
@dataclasses.dataclass(frozen=True)
class LaterSlots:
    """Holds the owners' slots of the ids that travelled in further rounds.

    Residuals of features have the same numbers. But XLA copies each part of an array
    that a loop takes, so the update takes the whole array where it can.

    Attributes:
      features: their names, in the order of their ids.
      slots: int32[ids], negative for ids of the first round.
    """

    features: tuple[str, ...]
    slots: jax.Array

    def of(self, features: Sequence[FeatureGradient]) -> jax.Array:
        """Joins the slots of some features."""
        if [each.layout.feature for each in features] == [*self.features]:
            return self.slots
        return jnp.concatenate([each.slots for each in features])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ExchangeResidual:
    """Holds the exchange of a lookup; every array is that of one device.

    Attributes:
      route: where the distinct ids went; None if sums of bags travelled alone.
      fits: bool[1], whether they all went in the first round.
      received: the ids that this owner received in it, and their slots; or None.
      later: the slots of those that went in further rounds; or None.
      bags: by table of which sums travelled, the bags that this owner pooled.
    """

    route: Route | None
    fits: jax.Array | None
    received: ReceivedIds | None
    later: LaterSlots | None
    bags: dict[str, list[FeatureResidual]]
