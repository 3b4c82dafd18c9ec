# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged ids: bags of different lengths in one flat array of static size."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Jagged:
    """Bags one after the other, like a feature of a KeyedJaggedTensor.

    Attributes:
      values: ids, uint32[capacity, 2] (or [capacity] of a 64-bit dtype, or 32-bit on
        a 32-bit table). The capacity is static; ids from ``sum(lengths)`` on are
        ignored.
      lengths: int32[bags], the number of ids of each bag.
    """

    values: Any
    lengths: Any

    @classmethod
    def from_lists(cls, bags: Any, capacity: int | None = None) -> Jagged:
        """Makes one from Python lists of integers.

        Args:
          bags: a sequence of sequences of ids.
          capacity: room for ids; the number of ids if None.

        Raises:
          ValueError: the ids do not fit into ``capacity``.
        """
        from jax_dynemb._ids import ids

        lengths = np.array([len(bag) for bag in bags], np.int32)
        flat = np.array([i for bag in bags for i in bag], np.int64)
        room = len(flat) if capacity is None else capacity
        if len(flat) > room:
            raise ValueError(
                f"{len(flat)} ids do not fit into capacity {room}; raise capacity"
            )
        padded = np.full(room, -1, np.int64)
        padded[: len(flat)] = flat
        return cls(ids(padded), jnp.asarray(lengths))


def offsets_of(lengths: jax.Array, capacity: int) -> jax.Array:
    """int32[bags + 1]: where each bag begins, and where the last one ends."""
    ends = jnp.cumsum(jnp.asarray(lengths, jnp.int32), dtype=jnp.int32)
    return jnp.minimum(jnp.concatenate([jnp.zeros(1, jnp.int32), ends]), capacity)
