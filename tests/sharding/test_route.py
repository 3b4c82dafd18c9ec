# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks distinct ids of a device and their owners: all bits, as a sort of integers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines.hash.exchange.route import Route, route
from jax_dynemb._src.ops.route import RouteTable
from meshes import grid
from oracle import bucket_of, fmix64, hash_of

jitted = jax.jit(route, static_argnums=(1, 2, 3))
MASK = 2**64 - 1
PADDING = MASK


def key_of(hashed: int) -> int:
    """The key that has this hash, a bijection of 64-bit words."""
    hashed ^= hashed >> 33
    hashed = hashed * pow(0xC4CEB9FE1A85EC53, -1, 2**64) & MASK
    hashed ^= hashed >> 33
    hashed = hashed * pow(0xFF51AFD7ED558CCD, -1, 2**64) & MASK
    return hashed ^ hashed >> 33


def words(keys) -> jax.Array:
    """Keys, from -4 to 2**64 - 1, as uint32[n, 2]."""
    wide = np.array([key & MASK for key in keys], np.uint64)
    return jnp.asarray(wide.view(np.uint32).reshape(-1, 2))


def true_route(keys, parts, segments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three arrays, one id after the other."""
    n = len(keys)
    unique_of, first = np.full(n, n), np.full(n, n)
    of_segment = np.zeros(segments, int)
    begin = number = 0
    for part in parts:
        positions: dict[int, list[int]] = {}
        for position in range(begin, begin + part.size):
            if keys[position] & MASK != PADDING:
                positions.setdefault(keys[position] & MASK, []).append(position)
        seed = part.hash_seed
        for key in sorted(positions, key=functools.partial(hash_of, hash_seed=seed)):
            of_segment[part.first + bucket_of(key, part.owners, seed)] += 1
            first[number] = positions[key][0]
            unique_of[positions[key]] = number
            number += 1
        begin += part.size
    return unique_of, first, np.concatenate([[0], np.cumsum(of_segment)])


def compare(found: Route, expected) -> None:
    for name, want in zip(("unique_of", "first", "starts"), expected, strict=True):
        got = getattr(found, name)
        assert got.dtype == jnp.int32
        np.testing.assert_array_equal(np.asarray(got), want, err_msg=name)


def true_order(unique_of, parts) -> np.ndarray:
    """Positions by part and number, padding last: the sort is stable."""
    of_part = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    return np.lexsort((unique_of, of_part))


def check(keys, parts, segments, ordered=True):
    found = jitted(words(keys), tuple(parts), segments, ordered)
    expected = true_route(keys, parts, segments)
    compare(found, expected)
    if ordered:
        assert found.order is not None
        order = true_order(expected[0], parts)
        np.testing.assert_array_equal(np.asarray(found.order), order)
    else:
        assert found.order is None


def row_wise(sizes, shards):
    """Each table is on all shards; every second one has a hash of its own."""
    parts = [
        RouteTable(size, t * shards, shards, t % 2 * (MASK - t))
        for t, size in enumerate(sizes)
    ]
    return parts, len(parts) * shards


# There are few, since each is compiled: row-wise tables, then one of these beside two
# tables that have a shard each (of four) and two that have two.
PLANS = [
    *(row_wise(sizes, n) for sizes in [(9,), (6, 0, 9), (3, 4, 5, 6)] for n in (1, 8)),
    (
        [
            RouteTable(4, 0, 4),
            RouteTable(3, 4, 1),
            RouteTable(3, 6, 1),
            RouteTable(5, 8, 2),
            RouteTable(5, 10, 2),
        ],
        12,
    ),
]
# There is one upper half of the hash, or two: the last, and the one before.
TIES = [key_of(7 << 32 | lower) for lower in (0, 1, MASK >> 32)]
LAST = [key_of(MASK - lower) for lower in (0, 1, 1 << 32)]
KEYS = st.sampled_from([-1, -1, -2, -3, -4, 0, 1, 2, 3, fmix64(5), *TIES, *LAST])


@given(st.sampled_from(PLANS), st.booleans(), st.data())
def test_any_ids(plan, ordered, data):
    total = sum(part.size for part in plan[0])
    keys = data.draw(st.lists(KEYS, min_size=total, max_size=total))
    check(keys, *plan, ordered)


@pytest.mark.parametrize(
    ("parts", "segments"),
    [
        ([], 3),
        ([RouteTable(0, 0, 1)], 1),
        ([RouteTable(0, 0, 4), RouteTable(0, 5, 2)], 8),
    ],
)
def test_no_ids(platform, parts, segments):
    check([], parts, segments)
    check([], parts, segments, ordered=False)


def test_padding_alone(platform):
    parts, segments = row_wise((3, 0, 5000), 4)
    check([-1] * 5003, parts, segments)


def test_tables_without_ids(platform):
    keys = [5, -1, 5, 6, 7, 5, -1, -1, 8]
    check(keys, *row_wise((0, 4, 0, 0, 3, 2, 0), 2))
    check(
        keys,
        [
            RouteTable(0, 1, 2),
            RouteTable(4, 5, 3),
            RouteTable(5, 20, 1),
            RouteTable(0, 22, 4),
        ],
        30,
    )


def test_an_id_of_two_tables_is_two_ids(platform):
    parts, segments = row_wise((4, 4), 2)
    found = jitted(words([8, 9, 8, 9] * 2), tuple(parts), segments)
    assert sorted(np.asarray(found.unique_of).tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    check([8, 9, 8, 9] * 2, parts, segments)


LIMIT = _ffi.constants()["max_tables"]


@pytest.mark.parametrize("count", [26, LIMIT, LIMIT + 1, 300])
def test_many_tables(platform, count):
    rng = np.random.default_rng(count)
    sizes = rng.integers(0, 20, count).tolist()
    check(rng.integers(-1, 8, sum(sizes)).tolist(), *row_wise(sizes, 4))


@pytest.mark.parametrize("size", [3000, 100_000])
def test_large_tables_of_different_owners(platform, size):
    """A GPU sorts them in many tiles, which are larger where there are more ids."""
    rng = np.random.default_rng(size)
    parts = [
        RouteTable(size, 0, 8),
        RouteTable(size // 3, 8, 1),
        RouteTable(2 * size, 16, 100),
    ]
    total = sum(part.size for part in parts)
    keys = (rng.zipf(1.2, total) % size - 1).tolist()
    check(keys, parts, 120)


def test_hashes_at_the_borders_of_owners(platform):
    """The lower half of the hash decides which shard owns an id, or nearly does."""
    owners = 7
    firsts = [-(-owner * 2**64 // owners) for owner in range(1, owners)]
    near = [first + step for first in firsts for step in (-(2**32), -1, 0, 1, 2**32)]
    keys = [key_of(hashed) for hashed in [0, MASK, *near]]
    check(keys * 2, *row_wise((len(keys), len(keys)), owners))


@pytest.mark.parametrize("distinct", [2, 3, 5000])
@pytest.mark.parametrize("upper", [0x1234_5678, 0xFFFF_FFFE, 0xFFFF_FFFF])
@pytest.mark.parametrize("size", [250, 3000, 100_000])
def test_hashes_with_the_same_upper_half(platform, size, upper, distinct):
    """No two neighbours are one id: in a few places, in a tile, in many tiles."""
    rng = np.random.default_rng(0)
    pool = [key_of(upper << 32 | int(low)) for low in rng.integers(0, 2**32, distinct)]
    ties = [pool[i % distinct] for i in range(size)]
    others = rng.integers(-1, 50, 700).tolist()
    check([*others, *ties, -1, *others], *row_wise((700, size + 701), 4))


def test_many_pairs_with_the_same_upper_half(platform):
    rng = np.random.default_rng(0)
    pool = [key_of(upper << 32 | low) for upper in range(2000) for low in (3, 9)]
    keys = [pool[i] for i in rng.integers(0, len(pool), 9000)]
    check(keys, *row_wise((5000, 4000), 4))


def test_both_largest_upper_halves_beside_padding(platform):
    rng = np.random.default_rng(0)
    hashes = [MASK, MASK - 1, MASK - 2**32, MASK - 2**32 + 1, (MASK >> 32) - 1 << 32]
    pool = [-1, -1, 5, *(key_of(hashed) for hashed in hashes)]
    for size in (40, 4000):
        keys = [pool[i] for i in rng.integers(0, len(pool), size)]
        check(keys, *row_wise((size,), 8))


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("check_vma", [False, True])
def test_on_each_device_of_a_mesh(explicit, check_vma):
    parts, segments = row_wise((30, 20), 8)
    keys = np.random.default_rng(0).integers(-1, 20, 8 * 50).tolist()
    mesh, spec = grid(explicit), PartitionSpec(("data", "model"))
    on_mesh = jax.shard_map(
        functools.partial(route, parts=parts, segments=segments),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=check_vma,
    )
    ids = jax.device_put(words(keys), jax.NamedSharding(mesh, spec))
    found = jax.jit(on_mesh)(ids)
    mine = [true_route(keys[i : i + 50], parts, segments) for i in range(0, 400, 50)]
    compare(found, [np.concatenate(arrays) for arrays in zip(*mine, strict=True)])


@pytest.mark.parametrize(
    ("parts", "fix"),
    [
        ([RouteTable(2, 0, 4), RouteTable(3, 3, 1)], "follow each other"),
        ([RouteTable(5, 0, 9)], "follow each other"),
        ([RouteTable(4, 0, 2)], "as many ids"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, fix):
    with pytest.raises(Exception, match=fix):
        jax.block_until_ready(jitted(words([1, 2, 3, 4, 5]), tuple(parts), 8))
