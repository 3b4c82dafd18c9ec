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
from jax_dynemb.sharding._route import Part, route

jitted = jax.jit(route, static_argnums=(1, 2))


def check(keys, parts, segments):
    """Compares with a dict of (table, key), one position after the other."""
    n = len(keys)
    ids = jnp.asarray(jde.ids(np.array(keys, np.int64)).reshape(n, 2))
    found = jitted(ids, tuple(parts), segments)
    numbers, firsts = np.asarray(found.unique_of), np.asarray(found.first)
    starts = np.asarray(found.starts)
    sizes = [part.size for part in parts]
    owners = np.zeros(n, int)
    for count in {part.owners for part in parts} if n else ():
        of = np.repeat([part.owners for part in parts], sizes) == count
        owners[of] = np.asarray(owner_of(*hash_words(ids), count))[of]
    tables = np.repeat(np.arange(len(sizes)), sizes)

    expected: dict[tuple[int, int], int] = {}  # -> the position where it first occurs
    for position, (table, key) in enumerate(zip(tables, keys, strict=True)):
        if key == -1:
            assert numbers[position] == n
        else:
            expected.setdefault((int(table), key), position)
            assert firsts[numbers[position]] == expected[int(table), key]
    assert (firsts[: len(expected)] < n).all() and (firsts[len(expected) :] == n).all()

    by_segment = [0] * segments
    for (table, _), position in expected.items():
        segment = parts[table].first + int(owners[position])
        by_segment[segment] += 1
        number = numbers[position]
        assert starts[segment] <= number < starts[segment + 1]
    assert np.diff(starts).tolist() == by_segment


def row_wise(sizes, shards):
    """Each table is on all shards."""
    parts = [Part(size, t * shards, shards) for t, size in enumerate(sizes)]
    return parts, len(parts) * shards


# Few, since each is compiled anew: row-wise tables, then one of these beside two tables
# that have a shard each (of four) and two that have two.
PLANS = [
    *(row_wise(sizes, n) for sizes in [(9,), (6, 0, 9), (3, 4, 5, 6)] for n in (1, 8)),
    (
        [Part(4, 0, 4), Part(3, 4, 1), Part(3, 6, 1), Part(5, 8, 2), Part(5, 10, 2)],
        12,
    ),
]


@given(st.sampled_from(PLANS), st.data())
def test_any_ids(plan, data):
    total = sum(part.size for part in plan[0])
    keys = data.draw(st.lists(st.integers(-1, 6), min_size=total, max_size=total))
    check(keys, *plan)


def test_more_tables_than_a_byte_counts():
    rng = np.random.default_rng(0)
    check(rng.integers(-1, 4, 300 * 5).tolist(), *row_wise([5] * 300, 4))
