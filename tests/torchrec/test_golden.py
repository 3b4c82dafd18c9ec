# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's classes with numbers measured on TorchRec, and on FBGEMM's operators.

Not replayed: ``dist*`` and ``block_bucketize`` (inside the exchange), ``bounds_check``
(no id is out of bounds), quantisation (``jde.export``). Of misc.json neither
``rw_shards`` and ``cw_shards`` (a device has whole buckets, or an equal part of the
columns) nor ``planner`` (it follows the constants of other hardware).
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from golden.load_golden import OpCase, op_cases

JT = jde.torchrec.JaggedTensor
KJT = jde.torchrec.KeyedJaggedTensor
KT = jde.torchrec.KeyedTensor
REFUSED = {
    "dist",
    "dist_init",
    "block_bucketize_sparse_features",
    "bounds_check_indices",
    "q8",
    "qn",
}
CASES = [
    case
    for file in ("kjt", "jt", "kt", "ops")
    for case in op_cases(file)
    if case.op not in REFUSED
]
ROOM = 7  # of each key, where a case is repeated with padded regions


def kjt_of(given: dict[str, Any], capacity: Any = None) -> Any:
    inverse = given.get("inverse_indices")
    return KJT.from_lengths_sync(
        given["keys"],
        given["values"],
        given["lengths"],
        given.get("weights"),
        stride_per_key_per_rank=given.get("stride_per_key_per_rank"),
        inverse_indices=None if inverse is None else (inverse[0], inverse[1]),
        capacity=capacity,
    )


def jt_of(given: dict[str, Any]) -> Any:
    return JT(
        given["values"],
        lengths=given.get("lengths"),
        offsets=given.get("offsets"),
        weights=given.get("weights"),
    )


def kts_of(given: list[dict[str, Any]]) -> list[Any]:
    return [KT.from_tensor_list(kt["keys"], kt["tensors"]) for kt in given]


def equal(got: Any, expected: Any) -> None:
    """The same numbers in the same lists and dicts, whatever holds them."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            equal(got[name] if isinstance(got, dict) else tell(got, name), value)
    elif expected is None or isinstance(expected, (str, bool)):
        assert got == expected
    elif isinstance(expected, list) and isinstance(got, (list, tuple)):
        assert len(got) == len(expected)
        for each, value in zip(got, expected, strict=True):
            equal(each, value)
    else:
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
        if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
            assert np.asarray(got).dtype == expected.dtype


def tell(tensor: Any, name: str) -> Any:
    optional = {"weights": "weights_or_none", "inverse_indices": None}
    if name == "inverse_indices":
        return tensor.inverse_indices_or_none()
    return getattr(tensor, optional.get(name) or name)()


def jagged_op(case: OpCase) -> Any:
    """Returns what a method of JaggedTensor or a constructor gives."""
    if case.op == "empty":
        return JT.empty(**case.input)
    if case.op in ("from_dense", "from_dense_lengths"):
        return getattr(JT, case.op)(**case.input)
    jt = jt_of(case.input)
    if case.op == "state":
        return jt
    return str(jt) if case.op == "str" else getattr(jt, case.op)(**case.args)


def keyed_jagged_op(case: OpCase, capacity: Any = None) -> Any:
    """Returns the same for KeyedJaggedTensor."""
    given = case.input
    match case.op:
        case "empty":
            return KJT.empty(**given)
        case "concat":
            return KJT.concat([kjt_of(each, capacity) for each in given])
        case "kjt_is_equal":
            first, second = given
            return jde.torchrec.kjt_is_equal(kjt_of(first, capacity), kjt_of(second))
        case "from_jt_dict":
            return KJT.from_jt_dict({key: jt_of(jt) for key, jt in given.items()})
        case "from_offsets_sync" | "from_lengths_sync":
            return getattr(KJT, case.op)(**given, capacity=capacity)
    kjt = kjt_of(given, capacity)
    match case.op:
        case "state":
            return kjt
        case "str":
            return str(kjt)
        case "getitem":
            return [kjt[key] for key in case.args["keys"]]
    return getattr(kjt, case.op)(*case.args.values())


def keyed_op(case: OpCase) -> Any:
    """Returns the same for KeyedTensor."""
    match case.op:
        case "regroup" | "regroup_as_dict":
            return getattr(KT, case.op)(kts_of(case.input), **case.args)
        case "KTRegroupAsDict":
            return jde.torchrec.KTRegroupAsDict(**case.args)(kts_of(case.input))
    (kt,) = kts_of([case.input])
    match case.op:
        case "str":
            return str(kt)
        case "getitem":
            return [kt[key] for key in case.args["keys"]]
        case "to_dict":
            return kt.to_dict()
    return kt


def keys(count: int) -> list[str]:
    return [f"f{k}" for k in range(count)]


def permuted(given: dict[str, Any]) -> list[Any]:
    lengths = np.asarray(given["lengths"])
    kjt = KJT.from_lengths_sync(
        keys(len(lengths)), given["values"], lengths.reshape(-1), given["weights"]
    ).permute(given["permute"])
    shape = (len(given["permute"]), *lengths.shape[1:])
    return [kjt.lengths().reshape(shape), kjt.values(), kjt.weights()]


def selected_bags(given: dict[str, Any]) -> list[Any]:
    count = len(given["lengths"])
    kjt = KJT.from_lengths_sync(keys(count), given["values"], given["lengths"])
    kjt = kjt.permute(given["indices"])
    return [kjt.values(), kjt.lengths()]


def bags_of(lengths: np.ndarray) -> Any:
    return JT(np.zeros(int(lengths.sum()), np.float32), lengths=lengths)


def segment_sums(given: dict[str, Any]) -> Any:
    """Segments are keys, each with a stride of its own."""
    strides = np.diff(given["csr"]) * given["batch"]
    lengths = given["values"].astype(np.int32)
    kjt = KJT.from_lengths_sync(
        keys(len(strides)),
        np.zeros(int(lengths.sum()), np.float32),
        lengths,
        stride_per_key_per_rank=strides[:, None],
    )
    return np.array(kjt.length_per_key(), np.float32)


def inverse_of(given: dict[str, Any]) -> Any:
    """Undoing a permutation of keys puts them back, and only its inverse does."""
    count = len(given["permute"])
    kjt = KJT.from_lengths_sync(keys(count), np.arange(count), np.ones(count, int))
    moved = kjt.permute(given["permute"])
    return np.array([moved.index_per_key()[key] for key in keys(count)])


OPERATORS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "asynchronous_complete_cumsum": lambda x: bags_of(x["x"]).offsets(),
    "asynchronous_inclusive_cumsum": lambda x: bags_of(x["x"]).offsets()[1:],
    "asynchronous_exclusive_cumsum": lambda x: bags_of(x["x"]).offsets()[:-1],
    "lengths_range": lambda x: bags_of(x["lengths"]).positions(),
    "offsets_range": lambda x: bags_of(
        np.diff(x["offsets"], append=x["range_size"])
    ).positions(),
    "permute_1D_sparse_data": permuted,
    "permute_2D_sparse_data": permuted,
    "jagged_index_select": selected_bags,
    "segment_sum_csr": segment_sums,
    "invert_permute": inverse_of,
    "jagged_to_padded_dense": lambda x: JT(
        x["values"], offsets=x["offsets"]
    ).to_padded_dense(x["max_length"], x["padding"]),
    "dense_to_jagged": lambda x: JT.from_dense_lengths(
        x["dense"], np.diff(x["offsets"])
    ).values(),
}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op in OPERATORS], ids=lambda case: case.name
)
def test_operators(case):
    equal(OPERATORS[case.op](case.input), case.expect)


def of_file(name: str) -> list[OpCase]:
    return [case for case in op_cases(name) if case.op not in REFUSED]


@pytest.mark.parametrize("case", of_file("kjt"), ids=lambda case: case.name)
def test_keyed_jagged_tensor(case):
    equal(keyed_jagged_op(case), case.expect)


PADDED = ("to_dict", "getitem", "str", "kjt_is_equal", "split", "permute", "concat")


@pytest.mark.parametrize(
    "case",
    [case for case in of_file("kjt") if case.op in PADDED],
    ids=lambda case: case.name,
)
def test_keyed_jagged_tensor_with_room(case):
    got = keyed_jagged_op(case, ROOM)
    if case.op in ("str", "kjt_is_equal"):
        return equal(got, case.expect)
    expected = case.expect
    if case.op in ("permute", "concat"):
        got, expected = [got], [expected]
    if case.op == "to_dict":
        got, expected = list(got.values()), list(expected.values())
    for each, wanted in zip(got, expected, strict=True):
        exact = (
            each.packed()
            if isinstance(each, KJT)
            else JT.from_dense(
                each.to_dense(),
                None if each.weights_or_none() is None else each.to_dense_weights(),
            )
        )
        equal(exact, wanted)


@pytest.mark.parametrize("case", of_file("jt"), ids=lambda case: case.name)
def test_jagged_tensor(case):
    equal(jagged_op(case), case.expect)


@pytest.mark.parametrize("case", of_file("kt"), ids=lambda case: case.name)
def test_keyed_tensor(case):
    equal(keyed_op(case), case.expect)


def test_every_operator_is_replayed_or_refused():
    names = {case.op for case in op_cases("ops")}
    assert names - REFUSED == set(OPERATORS)


def test_device_arrays_give_the_same_bags():
    for case in of_file("kjt"):
        if case.op == "to_dict":
            given = dict(case.input)
            given["values"] = jde.ids(given["values"])
            given["lengths"] = jnp.asarray(given["lengths"])
            for key, jt in kjt_of(given).to_dict().items():
                equal(
                    jt.to_dense(),
                    np.split(
                        case.expect[key]["values"], case.expect[key]["offsets"][1:-1]
                    ),
                )
