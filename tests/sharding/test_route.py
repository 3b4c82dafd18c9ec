# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which distinct ids a device has, for whom."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from jax_dynemb.sharding._keys import hash_words, owner_of
from jax_dynemb.sharding._route import route

jitted = jax.jit(route, static_argnums=(1, 2))


def check(keys, sizes, shards):
    """Compares with a dict of (table, key), one position after the other."""
    n = len(keys)
    ids = jnp.asarray(jde.ids(np.array(keys, np.int64)).reshape(n, 2))
    found = jitted(ids, tuple(sizes), shards)
    numbers, firsts = np.asarray(found.unique_of), np.asarray(found.first)
    starts = np.asarray(found.starts)
    owners = np.asarray(owner_of(*hash_words(ids), shards)) if n else np.zeros(0, int)
    tables = np.repeat(np.arange(len(sizes)), sizes)

    expected: dict[tuple[int, int], int] = {}  # -> the position where it first occurs
    for position, (table, key) in enumerate(zip(tables, keys, strict=True)):
        if key == -1:
            assert numbers[position] == n
        else:
            expected.setdefault((int(table), key), position)
            assert firsts[numbers[position]] == expected[int(table), key]
    assert (firsts[: len(expected)] < n).all() and (firsts[len(expected) :] == n).all()

    by_segment = [0] * (len(sizes) * shards)
    for (table, _), position in expected.items():
        segment = table * shards + int(owners[position])
        by_segment[segment] += 1
        number = numbers[position]
        assert starts[segment] <= number < starts[segment + 1]
    assert np.diff(starts).tolist() == by_segment


SIZES = ((9,), (6, 0, 9), (3, 4, 5, 6))  # few, since each is compiled anew


@given(st.sampled_from(SIZES), st.sampled_from([1, 8]), st.data())
def test_any_ids(sizes, shards, data):
    total = sum(sizes)
    keys = data.draw(st.lists(st.integers(-1, 6), min_size=total, max_size=total))
    check(keys, list(sizes), shards)


def test_more_tables_than_a_byte_counts():
    rng = np.random.default_rng(0)
    check(rng.integers(-1, 4, 300 * 5).tolist(), [5] * 300, 4)
