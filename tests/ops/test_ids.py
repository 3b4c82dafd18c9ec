# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the functions through which 64-bit ids enter."""

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


@pytest.mark.parametrize(
    "ids, fix",
    [
        ([0.5], r"missing values by -1, and convert with \.astype\('int64'\)"),
        (["a"], r"jde\.hash_ids"),
        (np.zeros(2, bool), r"jde\.hash_ids"),
        ([None, 1], r"astype\('int64'\).*jde\.hash_ids"),
        ([2**64], r"jde\.hash_ids"),
    ],
)
def test_other_types_are_refused(ids, fix):
    with pytest.raises(TypeError, match=rf"ids must be integers, not .*{fix}"):
        jde.ids(ids)


def test_lists_that_are_no_array(coll_of_one):
    coll, state = coll_of_one
    for call in (jde.ids, lambda bags: coll.lookup(state, {"t": bags})):
        with pytest.raises(ValueError, match=r"Pad them with -1.*Jagged\.from_lists"):
            call([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"jit traces one by one.*jde\.ids\(ids\)"):
        jax.jit(coll.lookup)(state, {"t": [1, 2]})


@pytest.fixture
def coll_of_one():
    coll = jde.Tables([jde.TableConfig("t", 4, 256)])
    return coll, coll.init(0)


@pytest.mark.parametrize("seconds", ["1", None.__class__, [1.0]])
def test_a_time_is_a_number(seconds):
    with pytest.raises(TypeError, match=r"seconds must be a number"):
        jde.now(seconds)
