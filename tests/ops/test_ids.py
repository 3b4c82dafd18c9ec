# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The door through which 64-bit ids enter, and hashes of anything else."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jax_dynemb as jde

ALLOWED = st.integers(-(2**63), 2**63 - 1).filter(lambda x: x not in (-2, -3, -4))
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(hnp.arrays(np.int64, SHAPES, elements=ALLOWED))
def test_words_are_low_and_high(ids):
    words = jde.ids(ids)
    assert isinstance(words, jax.Array)
    assert words.dtype == np.uint32 and words.shape == (*ids.shape, 2)
    low, high = np.moveaxis(np.asarray(words).astype(object), -1, 0)
    np.testing.assert_array_equal(low + high * 2**32, ids.astype(object) % 2**64)


def test_unsigned_ids_are_taken_as_they_are():
    words = np.asarray(jde.ids(np.array([2**64 - 5, 1], np.uint64)))
    assert words.tolist() == [[2**32 - 5, 2**32 - 1], [1, 0]]


def test_lists_and_numbers():
    assert np.asarray(jde.ids([1, -1])).tolist() == [[1, 0], [2**32 - 1] * 2]
    assert jde.ids(7).shape == (2,)
    assert jde.ids([]).shape == (0, 2)


@pytest.mark.parametrize("reserved", [-2, -3, -4])
def test_reserved_values_are_refused(reserved):
    with pytest.raises(ValueError, match=str(reserved)):
        jde.ids([5, reserved, -1])
    with pytest.raises(ValueError):
        jde.ids(np.array([reserved]).astype(np.int64).view(np.uint64))


@pytest.mark.parametrize("ids", [[0.5], ["a"], np.zeros(2, bool)])
def test_other_types_are_refused(ids):
    with pytest.raises(TypeError, match="hash_ids|integers"):
        jde.ids(ids)


def test_hashes_are_stable():
    # a change of these numbers would orphan every table trained on strings
    hashes = jde.hash_ids(["user:1", b"user:1", 7, np.int32(7)])
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [
        6194577778534060666,
        9019880818923491711,
        4899303867836462146,
        4899303867836462146,
    ]
    assert jde.hash_ids(["user:1"], salt=1)[0] != hashes[0]


def test_missing_values_become_padding():
    assert jde.hash_ids([None, float("nan")]).tolist() == [-1, -1]
    with pytest.raises(TypeError, match="str"):
        jde.hash_ids([1.5])


@given(st.lists(st.text(max_size=8), max_size=8), st.integers(0, 2**32))
def test_hashes_enter_through_the_door(words, salt):
    hashes = jde.hash_ids(words, salt=salt)
    assert not ((hashes >= -4) & (hashes <= -1)).any()
    jde.ids(hashes)


def test_hashes_rarely_meet():
    hashes = jde.hash_ids([f"item {i}" for i in range(10_000)])
    assert len(set(hashes.tolist())) == 10_000


def test_hash_ids_keeps_the_shape_and_refuses_a_single_string():
    words = np.array([["a", "b"], ["c", "a"]])
    hashed = jde.hash_ids(words)
    assert hashed.shape == (2, 2)
    np.testing.assert_array_equal(hashed.ravel(), jde.hash_ids(["a", "b", "c", "a"]))
    with pytest.raises(TypeError, match="put a single one in a list"):
        jde.hash_ids("abc")
