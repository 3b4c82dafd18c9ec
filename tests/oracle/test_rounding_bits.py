# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Random bits of stochastic rounding, as a sample: fair, and of no use for each other.

Ids, columns, updates and seeds count up here, which is what tables do. Platforms have
the bits of this oracle (tests/optim/test_stochastic_rounding.py).
"""

import numpy as np
import pytest

from oracle import rounding_bits

SEED = 0x0123456789ABCDEF
KEYS = np.arange(1 << 14, dtype=np.uint64)
DIM, STEPS = 32, 16
# A chance below 2e-7 for each number that is looked at, of up to some thousands.
DEVIATIONS = 5.2


def draw(step=1, seed=SEED, array=0, keys=KEYS):
    return rounding_bits(seed, keys, DIM, step, array=array)


def standard(bits):
    """As numbers of mean 0 and variance 1, were they uniform."""
    return (bits.astype(np.float64) - (2**16 - 1) / 2) * np.sqrt(12 / (2.0**32 - 1))


def in_bounds(sums, count):
    """Checks sums of so many numbers, or products, of variance 1."""
    assert np.abs(sums).max() < DEVIATIONS * np.sqrt(count)


def test_every_bit_is_fair():
    for step in range(1, STEPS + 1):
        bits = draw(step)
        for place in range(16):
            heads = (bits >> place & 1).sum(axis=0, dtype=np.int64)
            in_bounds(2 * heads - len(KEYS), len(KEYS))


def test_means_of_columns_ids_and_updates_are_a_half():
    sample = np.stack([standard(draw(step)) for step in range(1, STEPS + 1)])
    in_bounds(sample.sum(axis=(0, 1)), STEPS * len(KEYS))
    in_bounds(sample.sum(axis=(0, 2)), STEPS * DIM)
    in_bounds(sample.sum(axis=(1, 2)), len(KEYS) * DIM)


def test_sixteen_bits_are_uniform():
    counts = np.bincount(np.concatenate([draw(s).ravel() for s in range(1, 17)]))
    expected = counts.sum() / 2**16
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = 2**16 - 1
    assert len(counts) == 2**16
    assert abs(chi_square - freedom) < DEVIATIONS * np.sqrt(2 * freedom)


def test_columns_do_not_depend_on_each_other():
    sample = standard(draw())
    products = sample.T @ sample
    np.fill_diagonal(products, 0)
    in_bounds(products, len(KEYS))


@pytest.mark.parametrize("distance", [1, 2, 3, 256])
def test_ids_side_by_side_do_not_depend_on_each_other(distance):
    sample = standard(draw())
    products = sample[:-distance].T @ sample[distance:]
    in_bounds(products, len(KEYS) - distance)


@pytest.mark.parametrize(
    "other",
    [
        {"step": 2},
        {"step": 3},
        {"step": 1 + 2**32},
        {"seed": SEED + 1},
        {"array": 1},
        {"keys": KEYS + np.uint64(2**32)},
    ],
    ids=str,
)
def test_other_updates_seeds_and_arrays_have_other_bits(other):
    sample, another = standard(draw()), standard(draw(**other))
    in_bounds(sample.T @ another, len(KEYS))


def test_sums_over_updates_wander_like_a_walk():
    """A row that takes the same step for long: its error grows by the root of time."""
    keys, steps = KEYS[:512], 1_000
    walk = np.zeros((len(keys), DIM))
    for step in range(1, steps + 1):
        walk += standard(draw(step, keys=keys))
    in_bounds(walk, steps)
    freedom = walk.size
    spread = (walk**2).sum() / steps
    assert abs(spread - freedom) < DEVIATIONS * np.sqrt(2 * freedom)
