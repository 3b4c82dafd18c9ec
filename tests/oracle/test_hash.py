# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The hash of the oracle against published values, and what a bucket rule must hold."""

from hypothesis import given
from hypothesis import strategies as st

import oracle

KEYS = st.integers(0, 2**64 - 1)


def test_a_seed_changes_the_hash_and_0_does_not():
    keys = [0, 1, -5, 2**63]
    assert [oracle.hash_of(k) for k in keys] == [oracle.fmix64(k) for k in keys]
    assert oracle.hash_of(1, 1) == 0xF3CD97446BF8762C
    assert oracle.hash_of(-5, 0x243F6A8885A308D3) == 0x34DCD5DE0B6E2F39


def test_fmix64_known_values():
    assert oracle.fmix64(0) == 0
    assert oracle.fmix64(1) == 0xB456BCFC34C2CB2C
    assert oracle.fmix64(0xCBF29CE484222325) == 0xEFD01F60BA992926
    assert oracle.fmix64(2**64 - 1) == 0x64B5720B4B825F21


def test_fnv1a64_known_values():
    assert oracle.fnv1a64(b"") == 0xCBF29CE484222325
    assert oracle.fnv1a64(b"a") == 0xAF63DC4C8601EC8C
    assert oracle.fnv1a64(b"foobar") == 0x85944171F73967E8


def test_signed_and_unsigned_keys_are_one():
    assert oracle.fmix64(-5) == oracle.fmix64(2**64 - 5)
    assert oracle.bucket_of(-5, 7) == oracle.bucket_of(2**64 - 5, 7)


@given(KEYS, st.integers(2, 2**20))
def test_bucket_is_in_range_and_follows_the_hash(key: int, num_buckets: int):
    bucket = oracle.bucket_of(key, num_buckets)
    assert 0 <= bucket < num_buckets
    first = -(-bucket * 2**64 // num_buckets)  # the first hash of this bucket
    assert first <= oracle.fmix64(key) < first + 2**64 // num_buckets + 1


@given(KEYS, st.integers(2, 2**20))
def test_doubling_splits_a_bucket_in_two(key: int, num_buckets: int):
    wide = oracle.bucket_of(key, 2 * num_buckets)
    assert wide // 2 == oracle.bucket_of(key, num_buckets)


def test_keys_spread_over_the_buckets():
    counts = [0] * 16
    for key in range(16_000):
        counts[oracle.bucket_of(key, 16)] += 1
    assert min(counts) > 800 and max(counts) < 1200


def test_table_seed_depends_on_seed_and_name():
    seeds = {oracle.table_seed(s, n) for s in range(4) for n in ("a", "b", "ab")}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**64 for seed in seeds)
