# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which distinct ids of a device go to which owner.

Everything else in this package sees only the arrays of a ``Route``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
from jaxtyping import Array, Int32, UInt32

from jax_dynemb._src import ops
from jax_dynemb._src.ops import RouteTable


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Route:
    """Holds the distinct ids of a device, in order of (table, owner, hash).

    Positions count the ids of all tables, one table after the other.

    Attributes:
      unique_of: for each position the number of its distinct id; ``n`` for padding.
      first: for each distinct id the position where it first occurs; ``n`` past the
        last one.
      starts: where each segment begins, and where the last one ends; segment ``stack
        * shards + owner``, where a stack is a table or several that share arrays.
      order: positions, those of one distinct id side by side; None where nothing needs
        it.
    """

    unique_of: Int32[Array, " n"]
    first: Int32[Array, " n"]
    starts: Int32[Array, " segments_and_one"]
    order: Int32[Array, " n"] | None = None


def route(
    ids: UInt32[Array, "n 2"],
    parts: Sequence[RouteTable],
    segments: int,
    ordered: bool = False,
) -> Route:
    """Finds the distinct ids and their owners.

    Args:
      ids: of all tables, one after the other; -1 is padding.
      parts: of each table, in order of their segments.
      segments: how many there are.
      ordered: whether the route has an ``order``.
    """
    return Route(*ops.route(ids, parts, segments, ordered))
