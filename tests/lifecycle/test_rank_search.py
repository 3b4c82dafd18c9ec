# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The search for the last rank to remove, on ranks that are plain Python integers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.shard.rank_search import Window, first_window, limit_of
from jax_dynemb._src.ops import RankCounts

STRATEGIES = [ScoreStrategy.STEP, ScoreStrategy.LFU, ScoreStrategy.TIMESTAMP]
ROWS = 64  # ranks of an example; those that are not given are -1
MOST_WINDOWS = 14  # 128 bits by eleven, and the first one may tell nothing

DIGIT_BITS = _ffi.constants()["rule_digit_bits"]
BINS = 1 << DIGIT_BITS


def counted(ranks: list[int], prefix: int, free: int) -> Any:
    """Counts as core/rule.h says; all rows are of kind 0."""
    bins: Any = np.zeros((2, BINS), np.uint32)
    bits: Any = np.zeros((2, 64), np.uint32)
    saturates, free = free >= 256, free % 256
    end = 64 if free > 64 else 0  # a window lies in the score or in the hash
    shift = max(free - DIGIT_BITS, end)
    for rank in ranks:
        if rank < 0 or (not saturates and rank >> free != prefix >> free):
            continue
        digit = (rank >> shift) - (0 if saturates else prefix >> free << (free - shift))
        bins[0, min(digit, (1 << (free - shift)) - 1)] += 1
        for bit in range(64):
            bits[1 - (rank >> (64 + bit) & 1), bit] = 1
    return RankCounts(bins, *bits)


def of_words(words: np.ndarray) -> int:
    score_low, score_high, hash_low, hash_high = map(int, words)
    return score_high << 96 | score_low << 64 | hash_high << 32 | hash_low


def to_words(ranks: list[int]) -> np.ndarray:
    """uint32[ROWS, 5]: whether there is a rank, and its bits from the lowest on."""
    words = [[1, *(rank >> 32 * w & 0xFFFFFFFF for w in range(4))] for rank in ranks]
    return np.array(words + [[0] * 5] * (ROWS - len(ranks)), np.uint32)


def count(ranks: np.ndarray, window: Window) -> RankCounts:
    """Counts the same inside jit."""
    shapes = jax.eval_shape(
        lambda: RankCounts(
            jnp.zeros((2, BINS), jnp.uint32), *jnp.zeros((2, 64), jnp.uint32)
        )
    )

    def on_host(ranks, prefix, free):
        each = [
            sum(int(x) << 32 * w for w, x in enumerate(r[1:])) for r in ranks if r[0]
        ]
        windows.append(int(free))
        return counted(each, of_words(prefix), int(free))

    return jax.pure_callback(on_host, shapes, ranks, *window)


windows: list[int] = []


@functools.partial(jax.jit, static_argnums=0)
def searched(strategy, clock_bits, ranks, rows):
    count_rows = functools.partial(count, ranks)
    first = first_window(strategy, clock_bits)
    return limit_of(count_rows, first, count_rows(first), jnp.int32(0), rows)


def scores() -> st.SearchStrategy[int]:
    """Few that differ, counts beside a clock, times, and anything below 2^62."""
    packed = st.builds(
        lambda high, low: high << 32 | low, st.integers(0, 2**29), st.integers(1, 9)
    )
    times = st.integers(2**60, 2**60 + 2**40)
    return st.one_of(st.integers(1, 5), packed, times, st.integers(1, 2**62 - 1))


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(scores(), min_size=1, max_size=5),
    hashes=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60, unique=True),
    share=st.floats(0, 1),
    strategy=st.sampled_from(STRATEGIES),
    clock=st.integers(1, 2**61),
)
@example([2**62 - 1], [0, 1, 2, 3], 0.5, ScoreStrategy.STEP, 1)
@example([1, 2**62 - 1], [2**64 - 1, 2**64 - 2], 0.5, ScoreStrategy.LFU, 5)
def test_exactly_so_many_ranks_are_within(scores, hashes, share, strategy, clock):
    ranks = [scores[n % len(scores)] << 64 | each for n, each in enumerate(hashes)]
    rows = round(share * len(ranks))
    windows.clear()
    bits = jnp.int32(clock.bit_length())
    limit = searched(strategy, bits, to_words(ranks), jnp.uint32(rows))
    limit = of_words(np.asarray(limit))
    assert sorted(ranks)[:rows] == sorted(r for r in ranks if r <= limit)
    assert len(windows) <= MOST_WINDOWS


def test_scores_of_lookups_and_counts_take_one_window():
    """No other score of the limit's bin, so no second count."""
    hashes = np.random.default_rng(0).integers(0, 2**63, ROWS).tolist()
    for strategy, scale in [(ScoreStrategy.STEP, 1), (ScoreStrategy.LFU, 2**32)]:
        ranks = [n // 2 * scale + 1 << 64 | each for n, each in enumerate(hashes)]
        windows.clear()
        searched(strategy, jnp.int32(6), to_words(ranks), jnp.uint32(10))
        assert len(windows) == 1
