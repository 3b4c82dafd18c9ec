# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Histograms of a table: how full its buckets are, how old and how used its rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.shard.decaying import whole_uses
from jax_dynemb._src.engines.shard.erase_where import ALONE, ShardGroup
from jax_dynemb._src.engines.shard.scores import PACKED
from jax_dynemb._src.engines.shard.totals import saturating_total
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState, bucket_rows, scores_of_index
from jax_dynemb._src.spec import TableSpec

_BINS = 65  # bit lengths of a 64-bit number
_DIGESTS = 129  # rows that a bucket may have
_MOST = 2**31 - 1  # the limit of a bin


class BucketStats(NamedTuple):
    """Describes the rows of a table by histograms.

    Bin ``n`` of ``ages`` and ``counts`` has the rows whose number has ``n`` binary
    digits: bin 0 those with 0, bin 3 those from 4 to 7. On a mesh a bin ends at its
    limit, 2**31 - 1.

    Attributes:
      occupancy: int32[129], buckets by their number of rows.
      full: int32[], buckets without an empty slot.
      fullest: int32[], rows of the fullest bucket.
      mean: float32[], rows of a bucket on average.
      ages: int32[65], rows by units of the table's clock between their last use and
        the latest lookup.
      counts: int32[65], rows of an LFU table by their uses; None for other tables.
    """

    occupancy: Int32[Array, " 129"]
    full: Int32[Array, ""]
    fullest: Int32[Array, ""]
    mean: Float32[Array, ""]
    ages: Int32[Array, " 65"]
    counts: Int32[Array, " 65"] | None

    def age_quantile(self, share: float) -> int:
        """Bounds the ages of a share of the rows, up to a factor of 2; waits.

        Args:
          share: from 0 to 1.

        Returns:
          The highest age of the bin that holds the quantile; 0 for an empty table.

        Raises:
          ValueError: the share is out of range, or a bin has reached its limit.
        """
        return _quantile(np.asarray(self.ages), share)

    def count_quantile(self, share: float) -> int:
        """Bounds the uses of a share of the rows, see ``age_quantile``.

        Args:
          share: from 0 to 1.

        Raises:
          ValueError: the table counts no uses, or the share is out of range.
        """
        if self.counts is None:
            raise ValueError(
                "the table counts no uses: give it score_strategy='lfu', or read "
                "age_quantile."
            )
        return _quantile(np.asarray(self.counts), share)


def _quantile(bins: np.ndarray, share: float) -> int:
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, not {share!r}")
    if bins.max() == _MOST:
        raise ValueError(
            "a bin has 2**31 - 1 rows or more, so shares of all rows are not known. "
            "Read the bins."
        )
    sums = np.cumsum(bins.astype(np.int64))
    if sums[-1] == 0:
        return 0
    place = np.searchsorted(sums, max(1, np.ceil(share * sums[-1])))
    return (1 << int(place)) - 1


def bucket_stats(table: TableSpec, state: TableState, group: ShardGroup) -> BucketStats:
    """See ``Tables.bucket_stats``; of one table, on one shard.

    Args:
      table: its spec.
      state: its arrays.
      group: the shards that hold rows of the table.
    """
    if group is ALONE:
        return _describe_alone(table, state)
    return _describe(table, state, group)


# One program for all calls outside of jit; inside it the operations are the caller's.
@kept_jit(0, inline=True)
def _describe_alone(table: TableSpec, state: TableState) -> BucketStats:
    return _describe(table, state, ALONE)


def _describe(table: TableSpec, state: TableState, group: ShardGroup) -> BucketStats:
    first = 0 if table.block is None else table.block.first_bucket
    index = state.index[first : first + table.local_buckets]
    low, marked = scores_of_index(index)
    high = marked & jnp.uint32(_ffi.constants()["most_packed"])
    is_live = (low | marked) != 0
    clock = state.counters[table.first_row, _ffi.code("counters", "clock")]
    ages = _bit_lengths(*_ages(table, low, high, clock))
    histograms = [
        _histogram(bucket_rows(index), jnp.bool_(True), _DIGESTS),
        _histogram(ages, is_live, _BINS),
    ]
    if table.score_strategy is ScoreStrategy.LFU:
        counts = high
        if table.lfu_halflife is not None:
            counts = whole_uses(low, high, clock, table.lfu_halflife)
        lengths = _bit_lengths(counts, jnp.zeros_like(high))
        histograms.append(_histogram(lengths, is_live, _BINS))
    # A shard has fewer than 2**31 slots; a mesh may have more.
    here = [jnp.where(group.here, bins, 0) for bins in histograms]
    occupancy, ages, *counts = (
        saturating_total(group.total, bins, _MOST).astype(jnp.int32) for bins in here
    )
    occupancy = occupancy.at[0].add(-table.spare_buckets)
    return _described(occupancy, ages, counts[0] if counts else None)


def _described(
    occupancy: jax.Array, ages: jax.Array, counts: jax.Array | None
) -> BucketStats:
    sizes = jnp.arange(_DIGESTS, dtype=jnp.int32)
    rows = jnp.sum(sizes.astype(jnp.float32) * occupancy.astype(jnp.float32))
    return BucketStats(
        occupancy=occupancy,
        full=occupancy[-1],
        fullest=jnp.max(jnp.where(occupancy > 0, sizes, 0)),
        mean=rows / jnp.sum(occupancy).astype(jnp.float32),
        ages=ages,
        counts=counts,
    )


def _ages(
    table: TableSpec, low: jax.Array, high: jax.Array, clock: UInt32[Array, " 2"]
) -> tuple[jax.Array, jax.Array]:
    """The words of each row's age, see ``age_of`` in core/rule.h."""
    age_low = clock[0] - low  # wraps
    if table.score_strategy in PACKED:
        return age_low, jnp.zeros_like(low)
    age_high = clock[1] - high - (clock[0] < low).astype(jnp.uint32)
    is_later = (high > clock[1]) | ((high == clock[1]) & (low > clock[0]))
    nothing = jnp.uint32(0)
    return jnp.where(is_later, nothing, age_low), jnp.where(is_later, nothing, age_high)


def _bit_lengths(low: jax.Array, high: jax.Array) -> jax.Array:
    """How many binary digits numbers of two words have."""
    low_digits = 32 - jax.lax.clz(low).astype(jnp.int32)
    high_digits = 32 - jax.lax.clz(high).astype(jnp.int32)
    return jnp.where(high_digits > 0, 32 + high_digits, low_digits)


def _histogram(values: jax.Array, counted: jax.Array, bins: int) -> jax.Array:
    """Counts equal values by comparing with each bin: one read, no atomics."""
    values, counted = jnp.broadcast_arrays(values.reshape(-1), counted.reshape(-1))
    is_in = (values[:, None] == jnp.arange(bins, dtype=values.dtype)[None]) & counted[
        :, None
    ]
    return jnp.sum(is_in, axis=0, dtype=jnp.int32)
