# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers the distinct ids of several tables in order of (table, hash)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call


class RouteTable(NamedTuple):
    """Describes the ids of one table."""

    size: int
    first: int  # the segment of the ids that the table's first owner has
    owners: int  # shards that hold rows of the table; their segments follow each other
    hash_seed: int = 0
    num_buckets: int = 0  # of the table; 0: one for each owner
    # How many of them an owner has; the last owners may have fewer.
    local_buckets: int = 1


def route(
    ids: jax.Array, tables: Sequence[RouteTable], segments: int, ordered: bool = False
) -> tuple[jax.Array, ...]:
    """Finds distinct ids of uint32[n, 2], tables in order of segments; -1 is padding.

    Returns int32[n], for each id the number of its distinct id, ``n`` for padding. Then
    int32[n], for each distinct id its first position, ``n`` past the last one. Then
    int32[segments + 1], where each segment begins, and the last one ends. If
    ``ordered``, int32[n]: the positions by table, number and position, padding last.
    """
    n = ids.shape[0]
    call = Call(
        "ordered_route" if ordered else "route",
        (),
        [table.size for table in tables],
        parts=part_attribute(tables),
    )
    call.operand(ids)
    call.result((n,), jnp.int32)
    call.result((n,), jnp.int32)
    call.result((segments + 1,), jnp.int32)
    if ordered:
        call.result((n,), jnp.int32)
    return tuple(call.run())


def part_attribute(tables: Sequence[RouteTable]) -> np.ndarray:
    """Returns the attribute ``parts`` of a call, int64[tables * fields]."""
    fields = _ffi.constants()["part_fields"]
    numbers = [getattr(table, field) for table in tables for field in fields]
    return np.array(numbers, dtype=np.uint64).view(np.int64)
