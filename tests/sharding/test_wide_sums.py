# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over ids and devices that 32 bits do not hold."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.engines.hash.exchange import saturating_sums
from jax_dynemb._src.engines.shard.bucket_stats import _quantile
from jax_dynemb._src.engines.shard.totals import saturating_total, total_in_words
from meshes import mesh_of
from support import export

EDGES = np.array([0, 1, 2**16 - 1, 2**16, 2**30 - 1, 2**31, 2**32 - 1], np.uint32)


@pytest.mark.parametrize("most", [2**31 - 1, 2**32 - 1])
def test_totals_end_at_their_limit(most):
    rng = np.random.default_rng(0)
    numbers = rng.choice(EDGES, (8, 400)) // rng.integers(1, 9, (8, 400), np.uint32)
    total = functools.partial(jax.lax.psum, axis_name="shards")
    one = functools.partial(saturating_total, total, most=most)
    sums = jax.vmap(one, axis_name="shards")(jnp.asarray(numbers))
    expected = np.minimum(numbers.astype(np.uint64).sum(axis=0), most)
    assert (expected == most).any() and (expected < most).any()
    np.testing.assert_array_equal(sums, np.broadcast_to(expected, (8, 400)))


@pytest.mark.parametrize("n", [1, 300, 70_000])
def test_counts_of_equal_ids_end_at_their_limit(n):
    rng = np.random.default_rng(1)
    places = rng.zipf(1.3, n) % min(n + 1, 50)
    counts = np.where(rng.random(n) < 0.9, 3, rng.choice(EDGES[:5], n))
    sums = saturating_sums(jnp.asarray(places, jnp.int32), jnp.uint32(counts))
    expected = np.zeros(n + 1, np.uint64)
    np.add.at(expected, places, counts.astype(np.uint64))
    np.testing.assert_array_equal(sums, np.minimum(expected, 2**32 - 1))


def test_repeats_of_all_devices_have_two_words():
    numbers = np.random.default_rng(2).choice(EDGES, (64, 30))
    total = functools.partial(jnp.sum, axis=1, dtype=jnp.uint32)
    words = total_in_words(total, jnp.asarray(numbers))
    low, high = (np.asarray(word, np.uint64) for word in words)
    np.testing.assert_array_equal(
        high << 32 | low, numbers.astype(np.uint64).sum(axis=0)
    )


def test_a_full_bin_has_no_quantile():
    bins = np.zeros(65, np.int32)
    bins[[3, 5]] = 2**31 - 2, 7
    assert _quantile(bins, 0.9) == 7
    bins[3] += 1
    with pytest.raises(ValueError, match="shares of all rows are not known"):
        _quantile(bins, 0.9)


@pytest.mark.collectives  # what a host sends of an id has 32 bits, too
@pytest.mark.parametrize("devices", [1, 8])
def test_uses_of_one_id_that_32_bits_do_not_hold(devices):
    """Four equal ids would add up to 0, and a fifth to less than one."""
    table = jde.TableConfig("t", 2, 1024, score_strategy="lfu")
    coll = jde.Tables([table], mesh=mesh_of(devices) if devices > 1 else None)
    ids = np.full(5 * devices, 7)
    counts = np.full(ids.size, 2**30 - 1, np.uint32)
    lookup = jax.jit(lambda s, i, c: coll.lookup(s, i, counts={"t": c})[2])
    state = lookup(coll.init(0), {"t": jde.ids(ids)}, counts)
    assert export(coll, state, "t")[7].score >> 32 == 2**29
    stats = coll.stats(state)
    # What a device sends of an id has 32 bits.
    most = 5 * (2**30 - 1) if devices == 1 else 2**32 - 1
    assert stats["t/misses"] == devices * most and stats["t/hits"] == 0
