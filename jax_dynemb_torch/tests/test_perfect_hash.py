# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every key finds its place; no other id does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import key_sets
from builder import perfect_hash
from devices import DEVICES
from jax_dynemb_torch import _search
from jax_dynemb_torch._perfect_hash import (
    find,
    find_on_cpu,
    low_bytes,
    steps_of,
)


def assert_finds(keys: np.ndarray, others: np.ndarray) -> None:
    stored, last = torch.tensor(keys), len(keys) + 7
    index = perfect_hash(stored)
    steps, known = steps_of(index.numbers), np.isin(others, keys)
    ways = [(find, steps, index.pilots, device) for device in DEVICES]
    low = low_bytes(index.pilots)
    ways.append((find_on_cpu, steps.as_tensors(), low, "cpu"))
    for look_up, numbers, bytes_, device in ways:
        rest = numbers, index.words.to(device), bytes_.to(device), last
        places = look_up(stored.to(device), *rest)
        assert places.tolist() == list(range(1, len(keys) + 1))
        places = look_up(torch.tensor(others, device=device), *rest).cpu().numpy()
        np.testing.assert_array_equal((places != 0) & (places != last), known)


int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.sets(int64, min_size=1, max_size=300), st.lists(int64, max_size=50))
def test_any_keys(keys, others):
    keys = np.array(list(keys))
    near = keys ^ (1 << np.random.default_rng(0).integers(0, 63, len(keys)))
    assert_finds(keys, np.concatenate([np.array(others, np.int64), near]))


@given(int64, st.integers(1, 2**62), st.integers(1, 2000))
def test_keys_in_steps(start, step, count):
    with np.errstate(over="ignore"):
        keys = np.int64(start) + np.arange(count) * np.int64(step)
    assert_finds(np.unique(keys), keys + 1)


@pytest.mark.parametrize("bits", [16, 44, 52])
def test_keys_with_a_feature_in_their_high_bits(bits):
    keys = (np.arange(50)[:, None] << bits) + np.arange(1000)
    assert_finds(np.unique(keys), keys.ravel() ^ (1 << 62))


def test_keys_with_a_feature_in_their_low_bits():
    high = np.random.default_rng(0).integers(0, 2**44, 20_000)
    keys = np.unique((high[:, None] << 20) + np.arange(3))
    assert_finds(keys, keys + 3)


def test_keys_that_differ_in_their_highest_bits_only():
    keys = np.concatenate(
        [(np.arange(6000) << 50) + each for each in range(5)], dtype=np.int64
    )
    assert_finds(np.unique(keys), keys + 5)


def test_keys_that_are_floats():
    keys = np.random.default_rng(0).normal(size=30_000).view(np.int64)
    assert_finds(np.unique(keys), -keys)


@pytest.mark.parametrize("zeros", [20, 32, 44])
def test_keys_with_zeros_in_their_low_bits(zeros):
    keys = np.random.default_rng(0).integers(-(2**19), 2**19, 30_000) << zeros
    assert_finds(np.unique(keys), keys + 1)


@pytest.mark.parametrize("count", [3, 45, 10_000, 22_900, 45_000])  # of the slots 70 %
def test_any_number_of_keys(count):
    keys = np.random.default_rng(count).integers(-(2**63), 2**63 - 1, count)
    assert_finds(np.unique(keys), keys ^ 1)


@pytest.mark.parametrize("name", key_sets.SETS)
def test_hard_keys(name):
    keys = np.concatenate([np.setdiff1d(key_sets.SETS[name], [-1, -2]), [-1, -2]])
    assert_finds(keys, np.concatenate([keys ^ (1 << 40), keys + 1, ~keys]))


@pytest.mark.parametrize("name", ["dense", "low_zeros_either_way", "crafted"])
def test_a_million_hard_keys(name):
    keys = key_sets.LARGE[name]()
    index = perfect_hash(torch.tensor(keys))
    rest = index.words, low_bytes(index.pilots), len(keys) + 1
    places = find_on_cpu(
        torch.tensor(keys), steps_of(index.numbers).as_tensors(), *rest
    )
    assert torch.equal(places, torch.arange(1, len(keys) + 1))


def test_an_index_of_a_kind_to_come():
    with pytest.raises(ValueError, match="kind 3, .* Upgrade"):
        steps_of(torch.tensor([1, 14, 12, 50, 3]))


@pytest.mark.parametrize("step", [1, 64])  # without a multiplication, and with one
def test_every_id_that_falls_on_a_slot_is_told_apart(step):
    """For each group and slot, ids that lead there."""
    keys = torch.arange(20) * step
    index = perfect_hash(keys)
    multiplier, bits, group_bits, shift, folded = index.numbers.tolist()
    assert (multiplier == 1) == (step == 1) and not folded
    inverse, ids = pow(multiplier, -1, 2**64), []
    groups, slots = 1 << group_bits, 1 << bits
    for top in range(-slots // 2, slots // 2):
        for slot in range(slots):
            low = (slot ^ top ^ int(index.pilots[top % groups])) % slots
            # Between the highest bits and the lowest, zeros and the least difference.
            for middle in (0, slots) if shift > bits else (0,):
                number = ((top << shift) + middle + low) * inverse % 2**64
                ids.append(number - (number >> 63 << 64))
    assert len(ids) > 100
    assert_finds(keys.numpy(), np.array(ids))


def test_many_ids_go_in_pieces():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100_001)
    assert_finds(np.unique(keys), keys[::-1] ^ 5)


def test_ids_of_a_column():
    """Numbers that do not lie side by side."""
    keys = torch.arange(300).view(100, 3) * 7
    index = perfect_hash(keys.view(-1))
    rest = index.words, low_bytes(index.pilots), 301
    places = find_on_cpu(keys[:, 1], steps_of(index.numbers).as_tensors(), *rest)
    assert places.tolist() == list(range(2, 301, 3))


def test_keys_that_are_there_twice_are_not_searched():
    with pytest.raises(ValueError, match="key 7 is there twice"):
        _search.sort(torch.tensor([3, 7, 9, 7]))
