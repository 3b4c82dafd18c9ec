# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A KeyedJaggedTensor that does not fit is made and shown, and no bag of it is read."""

import re

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde

T = jde.torchrec
KJT = T.KeyedJaggedTensor
KEYS, VALUES = ["a", "b"], np.arange(10, 15)
FITS = np.array([1, 2, 0, 2])

# What contradicts itself, our sentence, and the words of TorchRec's validator.
MISFITS = {
    "neither": ({}, "give lengths=", "lengths and offsets cannot be both empty"),
    "too many": (
        {"lengths": [3, 3, 2, 1]},
        "add up to 9, but there are 5 values",
        "Sum of lengths must equal the number of values",
    ),
    "too few": (
        {"lengths": [1, 0, 0, 1]},
        "add up to 2, but there are 5 values",
        "Sum of lengths must equal the number of values",
    ),
    "no lengths": (
        {"lengths": []},
        "add up to 0",
        "Sum of lengths must equal the number of values",
    ),
    "no offsets": ({"offsets": []}, "add up to 0", "offsets cannot be empty"),
    "negative": (
        {"lengths": [3, 3, -2, 1]},
        "has 0 entries or more",
        "",
    ),
    "a late start": (
        {"lengths": [1, 2, 0, 2], "offsets": [1, 2, 4, 4, 6]},
        "offsets begin with 1",
        "Expected first offset to be 0",
    ),
    "a late end": (
        {"lengths": [1, 2, 0, 2], "offsets": [0, 2, 4, 4, 6]},
        "contradict each other",
        "The last element of offsets must equal to the number of values",
    ),
    "an offset too few": (
        {"lengths": [1, 2, 0, 2], "offsets": [0, 1, 3, 5]},
        "contradict each other",
        "Expected lengths size to be 1 more than offsets size",
    ),
    "other offsets": (
        {"lengths": [1, 2, 0, 2], "offsets": [0, 2, 3, 3, 5]},
        "contradict each other",
        "offsets is not equal to the cumulative sum of lengths",
    ),
    "falling": ({"offsets": [0, 3, 2, 4, 5]}, "offsets fall", ""),
    "a key twice": (
        {"keys": ["a", "a"], "lengths": [1, 2, 0, 2]},
        "occur twice",
        "keys must be unique",
    ),
    "no key": (
        {"keys": [], "lengths": [1, 2, 0, 2]},
        "but no keys",
        "keys is empty but lengths or offsets is not",
    ),
    "three keys": (
        {"keys": ["a", "b", "c"], "lengths": [1, 2, 0, 2]},
        "4 lengths are not those of 3 keys",
        "lengths size must be divisible by keys size",
    ),
    "few weights": (
        {"lengths": [1, 2, 0, 2], "weights": np.ones(4, np.float32)},
        "one weight for each value",
        "weights size must equal to values size",
    ),
    "many weights": (
        {"lengths": [1, 2, 0, 2], "weights": np.ones(50, np.float32)},
        "one weight for each value",
        "weights size must equal to values size",
    ),
    "rows of strides": (
        {"lengths": [1, 2, 0, 2], "stride_per_key_per_rank": [[4]]},
        "1 rows for the 2 keys",
        "",
    ),
    "columns told": (
        {"lengths": [1, 2, 0, 2], "length_per_key": [4, 1]},
        r"length_per_key=\[4, 1\] contradicts",
        "",
    ),
    "begins told": (
        {"lengths": [1, 2, 0, 2], "offset_per_key": [0, 4]},
        r"give \[0, 3, 5\]",
        "",
    ),
    "places told": (
        {"lengths": [1, 2, 0, 2], "index_per_key": {"a": 1, "b": 0}},
        "index_per_key=",
        "",
    ),
    "bags told": (
        {"lengths": [1, 2, 0, 2], "lengths_offset_per_key": [0, 1, 4]},
        r"give \[0, 2, 4\]",
        "",
    ),
}


def made(name, **more):
    given = dict(MISFITS[name][0]) | more
    keys = given.pop("keys", KEYS)
    for each in ("lengths", "offsets"):
        if each in given:
            given[each] = np.array(given[each])
    return KJT(keys, VALUES, **given)


def bags(tables=("a",), **options):
    configs = [
        T.EmbeddingBagConfig(8, 4, name, feature_names=[name]) for name in tables
    ]
    return T.EmbeddingBagCollection(configs, rngs=nnx.Rngs(0), **options)


READERS = {
    "to_dict": lambda kjt: kjt.to_dict(),
    "a key": lambda kjt: kjt["a"],
    "split": lambda kjt: kjt.split([1]),
    "permute": lambda kjt: kjt.permute([0]),
    "packed": lambda kjt: kjt.packed(),
    "with_weights": lambda kjt: kjt.with_weights(np.ones(5, np.float32)),
    "empty_like": KJT.empty_like,
    "to_torch": T.to_torch,
    "jagged_by_feature": lambda kjt: kjt.jagged_by_feature(),
    "a module": T.ComputeKJTToJTDict(),
    "validate": T.validate_keyed_jagged_tensor,
    "a lookup": lambda kjt: bags()(kjt),
    "a compiled lookup": lambda kjt: nnx.jit(lambda m, x: m(x).values())(bags(), kjt),
    "weights of places": lambda kjt: T.PositionWeightedModuleCollection({"a": 3})(kjt),
}


@pytest.mark.parametrize("name", MISFITS)
def test_it_is_made_of_what_was_given(name):
    kjt, (given, sentence, _) = made(name), MISFITS[name]
    assert kjt.keys() == given.get("keys", KEYS)
    assert kjt.values().tolist() == VALUES.tolist()
    if "lengths" in given:
        assert kjt.lengths().tolist() == given["lengths"]
    if "offsets" in given:
        assert kjt.offsets().tolist() == given["offsets"]
    if "weights" in given:
        assert kjt.weights().shape == given["weights"].shape
    assert kjt.to("cpu") is kjt and re.search(sentence, str(kjt))
    assert T.kjt_is_equal(kjt, made(name))


@pytest.mark.parametrize("name", MISFITS)
def test_no_bag_of_it_is_read(name):
    _, sentence, _ = MISFITS[name]
    kjt = made(name)
    for read in READERS.values():
        with pytest.raises(ValueError, match=f"(?s){sentence}.*test_misfit.py:"):
            read(kjt)


@pytest.mark.parametrize("name", MISFITS)
def test_a_validator_says_it_in_the_words_of_torchrec_too(name):
    _, sentence, words = MISFITS[name]
    with pytest.raises(ValueError, match=sentence) as error:
        T.validate_keyed_jagged_tensor(made(name))
    assert words in str(error.value)


@pytest.mark.parametrize("name", sorted(set(MISFITS) - {"no key", "rows of strides"}))
def test_with_a_capacity_it_is_refused_at_once(name):
    with pytest.raises(ValueError, match=MISFITS[name][1]):
        made(name, capacity=16)


def test_a_program_refuses_it_at_once():
    def step(values, weights):
        return KJT(KEYS, values, weights, np.array([1, 2, 0, 2])).values()

    with pytest.raises(ValueError, match="one weight for each value"):
        jax.jit(step)(np.zeros(5, np.float32), np.ones(4, np.float32))


def test_joined_with_others_it_has_their_numbers_and_no_bags():
    values, lengths = np.float32(range(9)), np.array([0, 2, 1, 0, 3, 1, 1, 1, 0])
    first = KJT(["a"], values[:4], lengths=lengths[:3])  # one value too many
    second = KJT(["b", "c"], values[4:], lengths=lengths[3:])  # one too few
    both = KJT.concat([first, second])
    whole = KJT(["a", "b", "c"], values, lengths=lengths)
    for of in ("values", "lengths", "offsets"):
        assert np.array_equal(getattr(both, of)(), getattr(whole, of)())
    assert both.length_per_key() == whole.length_per_key() == [3, 4, 2]
    assert both.keys() == ["a", "b", "c"] and both.stride() == 3
    with pytest.raises(ValueError, match="add up to 3, but there are 4 values"):
        both["b"]
    other = KJT(["d"], values[:3], lengths=np.array([1, 1, 1]))
    again = KJT.concat([both, other])
    assert again.stride_per_key() == [3] * 4 and again.values().shape == (12,)
    with pytest.raises(ValueError, match="add up to 3, but there are 4 values"):
        again.to_dict()


def test_two_that_do_not_fit_are_equal_where_their_numbers_are():
    one = made("too many")
    assert T.kjt_is_equal(one, made("too many"))
    others = [made("too few"), made("many weights"), KJT(KEYS, VALUES, lengths=FITS)]
    assert not any(T.kjt_is_equal(one, other) for other in others)
    assert not any(T.kjt_is_equal(other, one) for other in others)
    told = [
        KJT(KEYS, VALUES, lengths=FITS, length_per_key=each)
        for each in ([4, 1], [2, 3])
    ]
    assert not T.kjt_is_equal(*told)


def test_lists_that_follow_are_taken():
    kjt = KJT(
        KEYS,
        VALUES,
        lengths=FITS,
        length_per_key=np.array([3, 2]),
        offset_per_key=(0, 3, 5),
        lengths_offset_per_key=[0, 2, 4],
        index_per_key={"b": 1, "a": 0},
        jt_dict={},
    )
    assert T.validate(kjt)


def test_the_stride_of_inverse_indices_counts():
    inverse = (["a", "b"], np.array([[0, 1, 0], [0, 0, 0]]))
    kjt = KJT(
        ["a", "b", "c"],
        np.arange(8),
        lengths=np.array([3, 3, 2]),
        stride_per_key_per_rank=[[2], [1]],
        inverse_indices=inverse,
    )
    assert kjt.stride() == 3
    with pytest.raises(ValueError, match="2 rows for the 3 keys"):
        kjt["a"]


ASSERTED = {
    "lengths": lambda: KJT(KEYS, VALUES, lengths=np.array([1.0, 4.0])),
    "offsets": lambda: KJT(KEYS, VALUES, offsets=np.array([0.0, 5.0, 3.0])),
    "lengths of one": lambda: T.JaggedTensor(VALUES, lengths=np.array([1.0, 4.0])),
    "offsets of one": lambda: T.JaggedTensor(VALUES, offsets=np.array([0.0, 5.0])),
    "neither": lambda: T.JaggedTensor(VALUES),
    "weights": lambda: KJT(KEYS, VALUES, lengths=FITS).weights(),
    "weights of one": lambda: T.JaggedTensor(VALUES, lengths=[5]).weights(),
    "inverse": lambda: KJT(KEYS, VALUES, lengths=FITS).inverse_indices(),
    "strides": lambda: KJT.concat(
        [KJT(KEYS, VALUES, lengths=FITS), KJT(["c"], VALUES, lengths=[5])]
    ),
    "names of groups": lambda: T.KeyedTensor.regroup_as_dict([], [["a"]], []),
}


@pytest.mark.parametrize("name", ASSERTED)
def test_what_torchrec_asserts_is_an_assertion_error_and_a_value_error(name):
    for kind in (AssertionError, ValueError):
        with pytest.raises(kind):
            ASSERTED[name]()
