# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many buckets and slots a table has, and into how many parts they can be cut."""

from __future__ import annotations

import math

from jax_dynemb import _ffi

# A shard's slots are numbered by int32, and claims use a few values below zero.
MAX_SLOTS = 2**31 - 1024


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
