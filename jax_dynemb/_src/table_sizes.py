# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many buckets and slots a table has, and into how many parts they can be cut."""

from __future__ import annotations

import functools
import math

from jax_dynemb._src import ffi as _ffi

# A shard's slots are numbered by int32, and claims use a few values below zero.
MAX_SLOTS = 2**31 - 1024
# The chance that any of the ids that a table shall hold finds its bucket full.
_MOST_CHANCE = 1e-9


def buckets_for(capacity: int) -> int:
    """Computes the buckets of 128 slots of a table with so many rows.

    Two at least: core/claim.h relies on it. A power of two, a multiple of 8, or of 64
    from 1,024 buckets on: so the same arrays can be cut into equal parts for any usual
    number of devices.
    """
    needed = max(2, -(-capacity // _ffi.constants()["bucket_capacity"]))
    few = min(8, 1 << (needed - 1).bit_length())
    unit = 64 if needed >= 1024 else few
    return -(-needed // unit) * unit


def most_shards(num_buckets: int) -> int:
    """Computes the most shards of equally many buckets, a power of two up to 64."""
    return math.gcd(num_buckets, 64)


@functools.lru_cache(maxsize=1024)
def room_for(ids: int) -> int:
    """Computes the slots that a table needs to hold different ids, whichever they are.

    An id has one bucket. So a table that is as large as its ids are many loses some of
    them to full buckets. With this many slots that happens to one table in 10^9.
    """
    slots = _ffi.constants()["bucket_capacity"]
    if ids >= slots << 32:  # more than a table may have, as TableConfig says
        return ids
    least = -(-ids // slots)
    most = 2 * least
    while _chance_of_a_full_bucket(ids, most) > _MOST_CHANCE:
        most *= 2
    while least < most:
        middle = (least + most) // 2
        if _chance_of_a_full_bucket(ids, middle) > _MOST_CHANCE:
            least = middle + 1
        else:
            most = middle
    return buckets_for(least * slots) * slots


def _chance_of_a_full_bucket(ids: int, buckets: int) -> float:
    """Bounds the chance that one of the buckets gets more ids than it has slots.

    The ids of a bucket have a binomial law. Its tail is at most its first term over
    one minus the ratio of the first two, since that ratio falls from term to term.
    """
    first = _ffi.constants()["bucket_capacity"] + 1
    if ids < first:
        return 0.0
    if buckets == 1:
        return 1.0
    share = 1 / buckets
    ratio = (ids - first) / (first + 1) * share / (1 - share)
    if ratio >= 1:
        return 1.0
    ways = math.lgamma(ids + 1) - math.lgamma(first + 1) - math.lgamma(ids - first + 1)
    term = ways + first * math.log(share) + (ids - first) * math.log1p(-share)
    return buckets * math.exp(term) / (1 - ratio)
