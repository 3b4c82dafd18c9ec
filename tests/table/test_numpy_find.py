# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""`find(as_numpy=True)` returns the bits of `find`, whatever kinds of ids there are."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.table.numpy_find import _program

CONFIGS = [
    jde.TableConfig("plain", 4, 1000, feature_names=("a", "b", "c")),
    jde.TableConfig("mean", 3, 1000, pooling="mean", param_dtype="bfloat16"),
    jde.TableConfig("narrow", 5, 1000, key_dtype="int32"),
    jde.TableConfig("bags", 2, 1000, pooling="sum", dtype="bfloat16"),
]


@pytest.fixture(scope="module")
def stored():
    coll = jde.Tables(CONFIGS)
    types = {"narrow": np.int32}
    ids = {f: np.arange(50, dtype=types.get(f, np.int64)) for f in coll.features}
    return coll, coll.lookup(coll.init(0), ids)[2]


def _batch(dtype):
    """Ids of which some are not stored, and some are padding."""
    rng = np.random.default_rng(0)
    few = rng.integers(0, 80, (3, 4)).astype(dtype)
    few[0, 1] = np.array(-1).astype(dtype)
    values = rng.integers(0, 80, 9).astype(dtype)
    ids = {
        "c": rng.integers(0, 80, 7),
        "a": few[:, ::2],  # not contiguous
        "b": few[:1, :2].reshape(2),
        "mean": few,
        "narrow": rng.integers(0, 80, 6).astype(np.int32),
        "bags": jde.Jagged(values, np.array([2, 0, 5])),
    }
    return ids, {"mean": rng.random((3, 4))}


def _on_device(ids):
    if isinstance(ids, jde.Jagged):
        return jde.Jagged(jde.ids(ids.values), ids.lengths)
    return ids if ids.dtype == np.int32 else jde.ids(ids)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_bits_and_types_are_those_of_find(stored, dtype):
    coll, state = stored
    ids, weights = _batch(dtype)
    rows, found, same = coll.find(state, ids, weights, as_numpy=True)
    of_device = {feature: _on_device(each) for feature, each in ids.items()}
    rows_there, found_there, _ = coll.find(state, of_device, weights)
    assert same is state
    assert list(rows) == list(rows_there) and list(found) == list(found_there)
    for ours, theirs in ((rows, rows_there), (found, found_there)):
        for feature, array in theirs.items():
            assert type(ours[feature]) is np.ndarray
            assert ours[feature].dtype == array.dtype
            np.testing.assert_array_equal(ours[feature], np.asarray(array))


def test_one_program_for_equal_shapes(stored):
    coll, state = stored
    coll.find(state, {"a": np.arange(5), "b": np.arange(6)}, as_numpy=True)
    before = _program.cache_info().misses
    ids = {"b": np.arange(6) + 47, "a": np.arange(5)}
    rows, found, _ = coll.find(state, ids, as_numpy=True)
    assert _program.cache_info().misses == before
    assert found["b"].tolist() == [True] * 3 + [False] * 3
    assert rows["a"].shape == (5, 4)


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ({"a": jde.ids([1, 2])}, TypeError, "without jde.ids"),
        ({"a": np.array([1, -2])}, ValueError, "reserved"),
        ({"a": np.array([1.0], object)}, TypeError, "32 or 64 bits"),
        ({"a": np.arange(3, dtype=np.int32)}, TypeError, "jde.ids"),
        ({"z": np.arange(3)}, ValueError, "z"),
        ({}, ValueError, "one feature or more"),
        ([np.arange(3)], TypeError, "dict by feature"),
    ],
)
def test_refuses_what_it_cannot_take(stored, ids, error, words):
    coll, state = stored
    with pytest.raises(error, match=words):
        coll.find(state, ids, as_numpy=True)


def test_refuses_what_changes_the_state(stored):
    coll, state = stored
    with pytest.raises(ValueError, match="leave out touch"):
        coll.find(state, {"a": np.arange(3)}, touch=True, as_numpy=True)


def test_inside_jit_the_sentence_says_to_leave_it_out(stored):
    coll, state = stored
    with pytest.raises(TypeError, match="inside of jit leave as_numpy out"):
        jax.jit(lambda x: coll.find(state, {"narrow": x}, as_numpy=True)[0])(
            np.arange(3, dtype=np.int32)
        )
