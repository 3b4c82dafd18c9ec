# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every key finds its place; no other id does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from jax_dynemb_torch._perfect_hash import find, perfect_hash
from known import GOLDEN


def assert_finds(keys: np.ndarray, others: np.ndarray) -> None:
    stored, unknown = torch.tensor(keys), len(keys) + 7
    index = perfect_hash(stored)
    places = find(stored, stored, *index, unknown)
    assert places.tolist() == list(range(len(keys)))
    places = find(torch.tensor(others), stored, *index, unknown).numpy()
    np.testing.assert_array_equal(places != unknown, np.isin(others, keys))


int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.sets(int64, min_size=1, max_size=300), st.lists(int64, max_size=50))
def test_any_keys(keys, others):
    assert_finds(np.array(list(keys)), np.array(others, np.int64))


@given(int64, st.integers(1, 2**62), st.integers(1, 2000))
def test_keys_in_steps(start, step, count):
    with np.errstate(over="ignore"):
        keys = np.int64(start) + np.arange(count) * np.int64(step)
    assert_finds(np.unique(keys), keys + 1)


@pytest.mark.parametrize("bits", [16, 44, 52])
def test_keys_with_a_feature_in_their_high_bits(bits):
    keys = (np.arange(50)[:, None] << bits) + np.arange(1000)
    assert_finds(np.unique(keys), keys.ravel() ^ (1 << 62))


def test_keys_that_are_multiples_of_the_number_of_groups():
    count = 40_000
    groups = len(perfect_hash(torch.arange(count))[0])
    keys = np.arange(count) * groups
    assert_finds(keys, keys + 1)
    assert len(perfect_hash(torch.tensor(keys))[0]) != groups


def test_slots_are_few():
    seeds, slots = perfect_hash(torch.randint(2**62, (100_000,)).unique())
    assert 8 * len(seeds) + 4 * len(slots) <= 100_000 * 16


WITH_INDEX = sorted(
    file for file in GOLDEN.glob("*/*.safetensors") if "delta" not in file.name
)


@pytest.mark.parametrize("file", WITH_INDEX, ids=str)
def test_the_exporter_builds_the_same(file):
    tensors = load_file(file)
    keys = torch.cat([tensors["keys"], tensors["extra_keys"]])
    seeds, slots = perfect_hash(keys)
    assert torch.equal(seeds, tensors["index_seeds"])
    assert torch.equal(slots, tensors["index_slots"])
