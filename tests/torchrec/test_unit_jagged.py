# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks jagged tensors as TorchRec's unit tests do, with numbers of our own."""

import jax
import numpy as np
import pytest
from jax_dynemb.torchrec.sparse.jagged_tensor import (
    ComputeJTDictToKJT,
    ComputeKJTToJTDict,
    JaggedTensor,
    KeyedJaggedTensor,
    jt_is_equal,
    kjt_is_equal,
)
from jax_dynemb.torchrec.sparse.jagged_tensor_validator import (
    validate_keyed_jagged_tensor,
)

FLOATS = np.float32([10, 20, 30, 40, 50])
WEIGHTS = np.float32([0.5, 1.5, 2.5, 3.5, 4.5])
NONE = np.array([])  # float64, as libraries make what has no numbers


def bags_of(jt):
    return [bag.tolist() for bag in jt.to_dense()]


def jagged(**more):
    return JaggedTensor(FLOATS, lengths=np.array([2, 0, 3]), **more)


def test_one_tensor_is_made_in_four_ways():
    dense = np.float32([[10, 20, 9], [8, 7, 6], [30, 40, 50]])
    weights = np.float32([[0.5, 1.5, 9], [8, 7, 6], [2.5, 3.5, 4.5]])
    lists = [FLOATS[:2], FLOATS[:0], FLOATS[2:]]
    ways = [
        JaggedTensor(FLOATS, WEIGHTS, np.array([2, 0, 3])),
        JaggedTensor(FLOATS, WEIGHTS, offsets=np.array([0, 2, 2, 5])),
        JaggedTensor.from_dense_lengths(dense, np.array([2, 0, 3]), weights),
        JaggedTensor.from_dense(lists, [WEIGHTS[:2], WEIGHTS[:0], WEIGHTS[2:]]),
    ]
    for made in ways:
        assert jt_is_equal(made, ways[0])
        assert bags_of(made) == [[10, 20], [], [30, 40, 50]]
        assert [w.tolist() for w in made.to_dense_weights()] == [
            [0.5, 1.5],
            [],
            [2.5, 3.5, 4.5],
        ]
        assert made.offsets().tolist() == [0, 2, 2, 5]


def test_tensors_differ_in_values_lengths_weights_or_kind():
    one = jagged()
    others = [
        JaggedTensor(FLOATS + 1, lengths=np.array([2, 0, 3])),
        JaggedTensor(FLOATS, lengths=np.array([2, 1, 2])),
        jagged(weights=WEIGHTS),
        "no tensor",
        None,
    ]
    assert not any(jt_is_equal(one, other) for other in others)
    assert not any(jt_is_equal(other, one) for other in others)
    assert not jt_is_equal(jagged(weights=WEIGHTS), jagged(weights=WEIGHTS * 2))


def test_what_has_no_weights_has_no_padded_or_dense_ones():
    assert jagged().to_dense_weights() is None
    assert jagged().to_padded_dense_weights(2) is None
    assert jagged().weights_or_none() is None


def test_padding_cuts_and_fills_values_and_weights_of_any_width():
    padded = jagged().to_padded_dense(desired_length=2, padding_value=-5)
    assert padded.tolist() == [[10, 20], [-5, -5], [30, 40]]
    assert jagged().to_padded_dense().shape == (3, 3)
    wide = np.arange(8).reshape(4, 2)
    jt = JaggedTensor(wide, np.float32(wide) / 2, np.array([1, 0, 2, 0]))
    padded = jt.to_padded_dense(3)
    assert padded.dtype == np.int64 and padded.shape == (4, 3, 2)
    assert padded[2].tolist() == [[2, 3], [4, 5], [0, 0]] and not padded[1].any()
    weights = jt.to_padded_dense_weights(3, padding_value=1)
    assert weights[0].tolist() == [[0, 0.5], [1, 1], [1, 1]]


def test_values_of_three_axes_have_no_text():
    deep = np.arange(8.0).reshape(4, 1, 2)
    jt = JaggedTensor(deep, lengths=np.array([1, 0, 2, 1]))
    kjt = KeyedJaggedTensor(["a"], deep, lengths=np.array([1, 0, 2, 1]))
    for x in (jt, kjt):
        with pytest.raises(ValueError, match="3 axes have no text: write repr"):
            str(x)
    assert "(4, 1, 2)" in repr(jt) and "4 bags" in repr(kjt)
    wide = JaggedTensor(deep[:, 0], lengths=np.array([1, 0, 2, 1]))
    assert str(wide).count("[") == 1 + 4 + 4 and "6.0, 7.0" in str(wide)


def test_nothing_has_the_dtypes_that_were_given():
    nothing = JaggedTensor.empty(True, "cuda", np.int64, np.float16, np.int64)
    assert nothing.values().dtype == np.int64 and nothing.values().shape == (0,)
    assert nothing.weights().dtype == np.float16
    assert nothing.lengths().dtype == np.int64 and nothing.to_dense() == []
    assert JaggedTensor.empty().offsets().shape == (0,)


def test_lengths_and_offsets_are_whole():
    for wrong in ({"lengths": [2.0, 3.0]}, {"offsets": [0.0, 2.0, 5.0]}):
        given = {name: np.array(x) for name, x in wrong.items()}
        with pytest.raises(AssertionError, match="integers"):
            JaggedTensor(FLOATS, **given)
        with pytest.raises(AssertionError, match="integers"):
            KeyedJaggedTensor(["a"], FLOATS, **given)


@pytest.mark.parametrize("place", ["cpu", "cuda:0", None])
def test_calls_about_devices_leave_tensors_as_they_are(place):
    kjt = KeyedJaggedTensor(["a"], FLOATS, WEIGHTS, np.array([2, 3]))
    for x in (jagged(weights=WEIGHTS), kjt):
        assert x.to(place, non_blocking=True) is x and x.pin_memory() is x
        assert x.record_stream(None) is None and x.device() is None
    assert kjt.sync() is kjt.unsync() is kjt


def test_a_device_of_jax_is_where_a_tensor_goes():
    device = jax.devices()[-1]
    kjt = KeyedJaggedTensor(["a"], np.array([2**40, 7]), lengths=np.array([1, 1]))
    moved = kjt.to(device)
    assert moved.device() == device == moved["a"].device()
    assert kjt.device() is None and kjt_is_equal(moved, kjt)
    assert jax.jit(lambda x: 0.0 if x.device() is None else 1.0)(moved) == 0.0


def test_keys_become_tensors_and_back():
    keys, lengths = ["a", "b"], np.array([1, 1, 0, 2, 1, 0])
    kjt = KeyedJaggedTensor(keys, FLOATS, WEIGHTS, lengths)
    parts = ComputeKJTToJTDict()(kjt)
    assert bags_of(parts["a"]) == [[10], [20], []]
    assert bags_of(parts["b"]) == [[30, 40], [50], []]
    assert parts["b"]._offsets.tolist() == [0, 2, 3, 3]  # private names of TorchRec
    assert kjt._offsets.tolist() == [0, 1, 2, 2, 4, 5, 5]
    assert kjt._length_per_key == [2, 3] and kjt._offset_per_key == [0, 2, 5]
    assert kjt_is_equal(ComputeJTDictToKJT()(parts), kjt)
    uneven = {"a": jagged(), "b": JaggedTensor(FLOATS[:2], lengths=np.array([2]))}
    joined = KeyedJaggedTensor.from_jt_dict(uneven)
    assert joined.stride_per_key_per_rank() == [[3], [1]]
    assert joined.stride_per_key() == [3, 1] and joined.variable_stride_per_key()
    assert bags_of(joined["b"]) == [[10, 20]]


def test_a_tensor_without_numbers_takes_them_in_any_dtype():
    one = KeyedJaggedTensor(["a"], NONE, lengths=NONE)
    other = KeyedJaggedTensor(["b"], NONE, offsets=NONE)
    both = KeyedJaggedTensor.concat([one, other])
    for key in both.keys():  # noqa: SIM118
        assert both[key].to_dense() == [] and both[key].offsets().size == 0
    rows = KeyedJaggedTensor(["a", "b"], NONE, lengths=NONE.reshape(2, 0))
    assert rows.stride() == 0 and rows.length_per_key() == [0, 0]
    ranks = KeyedJaggedTensor(["a"], NONE, lengths=NONE, stride_per_key_per_rank=[[]])
    assert ranks.stride() == 0
    assert KeyedJaggedTensor.empty().to_dict() == {}
    assert KeyedJaggedTensor.empty_like(one).to_dict() == {}
    assert str(KeyedJaggedTensor([], NONE)) == "KeyedJaggedTensor()\n"


def test_lists_of_a_tensor_follow_from_its_lengths():
    lengths = np.array([1, 0, 2, 0, 1, 1])
    given = {"length_per_key": [3, 2], "offset_per_key": [0, 3, 5], "jt_dict": None}
    kjt = KeyedJaggedTensor(["a", "b"], FLOATS, lengths=lengths, **given)
    assert kjt.length_per_key() == [3, 2] and kjt.offset_per_key() == [0, 3, 5]
    assert kjt.lengths_offset_per_key() == [0, 3, 6]
    assert kjt.index_per_key() == {"a": 0, "b": 1}
    assert all(type(n) is int for n in kjt.length_per_key() + kjt.offset_per_key())
    uneven = KeyedJaggedTensor(
        ["a", "b"], FLOATS, lengths=lengths, stride_per_key=[2, 4]
    )
    assert uneven.length_per_key() == [1, 4] and uneven.stride_per_key() == [2, 4]


def test_keyed_tensors_differ_in_order_keys_values_weights_or_kind():
    def made(keys="ab", values=FLOATS, **more):
        lengths = np.array([1, 1, 2, 1])
        return KeyedJaggedTensor(list(keys), values, lengths=lengths, **more)

    one = made()
    swapped = one.permute([1, 0])
    others = [swapped, made("ac"), made(values=FLOATS + 1), made(weights=WEIGHTS), 3]
    assert kjt_is_equal(one, made()) and kjt_is_equal(swapped.permute([1, 0]), one)
    assert not any(kjt_is_equal(one, other) for other in others)
    assert not kjt_is_equal("kjt", one)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"lengths": [1, 2, 0, 2], "offsets": [0, 1, 3, 5]},
        {"lengths": []},
        {"lengths": [3, 3, 2, 1]},
        {"offsets": []},
        {"lengths": [1, 2, 0, 2], "offsets": [1, 2, 4, 4, 6]},
        {"lengths": [1, 2, 0, 2], "offsets": [0, 2, 3, 3, 5]},
        {"offsets": [0, 2, 4, 4, 6]},
        {"keys": ["a", "a"], "lengths": [1, 2, 0, 2]},
        {"keys": [], "lengths": [1, 2, 0, 2]},
        {"keys": ["a", "b", "c"], "lengths": [1, 2, 0, 2]},
        {"lengths": [1, 2, 0, 2], "weights": np.ones(4)},
        {"lengths": [1, 2, 0, 2], "weights": np.ones(6)},
    ],
)
def test_what_does_not_fit_is_refused_by_a_validator(wrong):
    given = {n: np.array(x) if n != "keys" else x for n, x in wrong.items()}
    keys = given.pop("keys", ["a", "b"])
    with pytest.raises(ValueError):
        validate_keyed_jagged_tensor(KeyedJaggedTensor(keys, np.arange(5), **given))


def test_what_is_made_is_valid():
    kjt = KeyedJaggedTensor(["a"], np.arange(5), offsets=np.array([0, 2, 5]))
    assert validate_keyed_jagged_tensor(kjt)
    assert validate_keyed_jagged_tensor(KeyedJaggedTensor.empty())
