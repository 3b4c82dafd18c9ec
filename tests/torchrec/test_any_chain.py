# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Any KeyedJaggedTensor and any chain of operations on it equal Python lists."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde

KJT = jde.torchrec.KeyedJaggedTensor
Bag = list[tuple[int, float]]  # (id, weight)
IDS = st.integers(-(2**63), 2**63 - 1).filter(lambda i: not -4 <= i <= -1)


@dataclasses.dataclass
class Truth:
    """Bags of ids and weights by key, in order; and which bag each example has."""

    bags: list[tuple[str, list[Bag]]]
    inverse: dict[str, list[int]] | None
    weighted: bool


@st.composite
def truths(draw: Any, prefix: str = "k", batch: int | None = None) -> Truth:
    """Any tensor: from no keys to four, bags empty or not, a variable batch or not."""
    keys = [f"{prefix}{k}" for k in range(draw(st.integers(1, 4)))]
    batch = draw(st.integers(0, 4)) if batch is None else batch
    variable = draw(st.booleans()) and prefix == "k" and batch > 0
    weight = st.floats(-4, 4, width=32)
    entry = st.tuples(IDS | st.integers(0, 3), weight)
    bags, inverse = [], {}
    for key in keys:
        count = draw(st.integers(1, batch)) if variable else batch
        bags.append((key, [draw(st.lists(entry, max_size=4)) for _ in range(count)]))
        example = st.integers(0, count - 1)
        inverse[key] = (
            draw(st.lists(example, min_size=3, max_size=3)) if variable else 0
        )
    return Truth(bags, inverse if variable else None, draw(st.booleans()))


def tensor_of(truth: Truth, capacity: Any) -> Any:
    """Builds the tensor with these bags."""
    flat = [entry for _, bags in truth.bags for bag in bags for entry in bag]
    values = np.array([i for i, _ in flat], np.int64)
    weights = np.array([w for _, w in flat], np.float32)
    lengths = [len(bag) for _, bags in truth.bags for bag in bags]
    variable = truth.inverse is not None
    inverse = truth.inverse or {}
    return KJT.from_lengths_sync(
        [key for key, _ in truth.bags],
        values,
        np.array(lengths, np.int32),
        weights if truth.weighted else None,
        stride_per_key_per_rank=[[len(b)] for _, b in truth.bags] if variable else None,
        inverse_indices=(
            (list(inverse), np.array(list(inverse.values()))) if variable else None
        ),
        capacity=capacity,
    )


def check(kjt: Any, truth: Truth) -> None:
    """Every way to read the tensor gives the bags of the truth."""
    assert jde.torchrec.validate(kjt)
    assert kjt.keys() == [key for key, _ in truth.bags]
    flat = [entry for _, bags in truth.bags for bag in bags for entry in bag]
    counts = [sum(map(len, bags)) for _, bags in truth.bags]
    assert np.asarray(kjt.length_per_key()).tolist() == counts
    assert np.asarray(kjt.offset_per_key()).tolist() == np.cumsum([0, *counts]).tolist()
    assert kjt.stride_per_key() == [len(bags) for _, bags in truth.bags]
    packed = kjt.packed()
    assert as_ids(packed.values()) == [i for i, _ in flat]
    if truth.weighted:
        assert np.asarray(packed.weights()).tolist() == [w for _, w in flat]
    ends = np.cumsum([0] + [len(bag) for _, bags in truth.bags for bag in bags])
    assert np.asarray(packed.offsets()).tolist() == ends.tolist()
    for (key, bags), jt in zip(truth.bags, kjt.to_dict().values(), strict=True):
        assert [as_ids(bag) for bag in jt.to_dense()] == [
            [i for i, _ in b] for b in bags
        ]
        padded = (
            np.asarray(kjt[key].to_padded_dense_weights(3, -9.0)).tolist()
            if (truth.weighted)
            else None
        )
        if padded is not None:
            expected = [([w for _, w in bag] + [-9.0] * 3)[:3] for bag in bags]
            assert padded == expected
    if truth.inverse is not None and truth.bags:
        keys, inverse = kjt.inverse_indices()
        assert (
            dict(zip(keys, np.asarray(inverse).tolist(), strict=True)) == truth.inverse
        )


def as_ids(values: Any) -> list[int]:
    values = np.asarray(values)
    if values.dtype == np.uint32:
        values = np.ascontiguousarray(values).view(np.int64)[:, 0]
    return values.tolist()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["split", "permute", "concat", "to_dict", "packed", "device"]),
        st.integers(0, 2**16),
    ),
    max_size=4,
)


def apply(name: str, number: int, kjt: Any, truth: Truth) -> tuple[Any, Truth]:
    """One operation on the tensor and on the lists."""
    draw = np.random.default_rng(number)
    count = len(truth.bags)

    def select(indices: list[int]) -> Truth:
        bags = [truth.bags[i] for i in indices]
        kept = {key for key, _ in bags}
        inverse = truth.inverse and {
            k: v for k, v in truth.inverse.items() if k in kept
        }
        return dataclasses.replace(truth, bags=bags, inverse=inverse)

    match name:
        case "split":
            first = int(draw.integers(0, count + 1))
            parts = kjt.split([first, 0, count - first])
            assert parts[1].keys() == []
            which = 0 if first else 2
            chosen = range(first) if first else range(count)
            return parts[which], select(list(chosen))
        case "permute":
            order = draw.permutation(count).tolist()[: max(1, number % (count + 1))]
            return kjt.permute(order), select(order)
        case "concat":
            first = int(draw.integers(0, count + 1))
            parts = kjt.split([first, count - first])
            return KJT.concat(parts), truth
        case "to_dict":
            again = KJT.from_jt_dict(kjt.to_dict())
            if truth.inverse is not None:
                return kjt, truth  # a dict of bags has no inverse indices
            return again, truth
        case "packed":
            return kjt.packed(), truth
    return jax.device_put(kjt), truth


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(truths(), OPERATIONS, st.sampled_from([None, 16, 20]))
def test_any_chain_of_operations_equals_lists(truth, operations, capacity):
    kjt = tensor_of(truth, capacity)
    check(kjt, truth)
    for name, number in operations:
        kjt, truth = apply(name, number, kjt, truth)
        check(kjt, truth)


@settings(max_examples=40, deadline=None)
@given(truths(), st.integers(0, 6))
def test_lengths_that_are_data_keep_what_fits_and_count_the_rest(truth, room):
    kjt = tensor_of(truth, None)
    arrays = (jde.ids(kjt.values()), jnp.asarray(kjt.lengths()), kjt.weights_or_none())
    ranks = kjt.stride_per_key_per_rank() or None

    def place(values, lengths, weights):
        return KJT.from_lengths(
            kjt.keys(),
            values,
            lengths,
            weights,
            stride_per_key_per_rank=ranks,
            capacities=room,
        )

    here = place(*arrays)
    jde.torchrec.validate(here)
    counts = np.asarray(kjt.length_per_key())
    np.testing.assert_array_equal(here.dropped, np.maximum(counts - room, 0))
    for key, bags in truth.bags:
        kept = [entry for bag in bags for entry in bag][:room]
        got = here[key]
        assert as_ids(got.values())[: len(kept)] == [i for i, _ in kept]
        assert as_ids(got.values())[len(kept) :] == [-1] * (room - len(kept))
        lengths = np.asarray(got.lengths())
        assert lengths.sum() == len(kept)
        ends = np.minimum(np.cumsum([len(bag) for bag in bags]), room)
        np.testing.assert_array_equal(np.cumsum(lengths), ends)


def test_negative_lengths_under_jit_count_as_zero():
    @jax.jit
    def place(values, lengths):
        return KJT.from_lengths(["a", "b"], values, lengths, capacities=3)

    kjt = place(jde.ids([1, 2, 3]), jnp.array([-5, 1, 1, 9]))
    assert as_ids(kjt["a"].values()) == [1, -1, -1]
    assert as_ids(kjt["b"].values()) == [2, 3, -1]
    np.testing.assert_array_equal(kjt.lengths(), [0, 1, 1, 1])
    np.testing.assert_array_equal(kjt.dropped, [1, 8])


OVERFLOWS = {
    "the sum wraps to 1": [2**31 - 1, 2**31 - 1, 3, 0],
    "the sum of a key wraps to 0": [1, 2**31 - 1, 2**31 - 1, 2],
    "the last length": [1, 0, 1, 2**31 - 1],
    "all": [2**31 - 1] * 4,
}


@pytest.mark.parametrize("ranks", [None, [[1], [3]]], ids=["fixed", "variable"])
@pytest.mark.parametrize("case", OVERFLOWS)
def test_lengths_that_overflow_are_cut_and_counted(case, ranks):
    lengths, bags = OVERFLOWS[case], 2 if ranks is None else 1

    @jax.jit
    def place(values, lengths):
        return KJT.from_lengths(
            ["a", "b"],
            values,
            lengths,
            stride_per_key_per_rank=ranks,
            capacities=3,
        )

    kjt = place(jde.ids([1, 2, 3]), jnp.array(lengths, jnp.int32))
    ends = np.minimum(np.cumsum(np.array(lengths, np.int64)), 3)
    held = np.diff(ends, prepend=0)
    np.testing.assert_array_equal(kjt.lengths(), held)
    for key, own in (("a", slice(None, bags)), ("b", slice(bags, None))):
        end = int(held[: own.stop or 4].sum())
        wanted = list(range(end - int(held[own].sum()) + 1, end + 1))
        assert as_ids(kjt[key].values()) == wanted + [-1] * (3 - len(wanted))
        missing = sum(lengths[own]) - int(held[own].sum())
        counted = int(kjt.dropped[0 if key == "a" else 1])
        assert counted == (2**32 - 1 if sum(lengths[own]) > 3e9 else missing)


def test_the_count_of_dropped_entries_does_not_wrap():
    table = jde.TableConfig("t", 4, 256, feature_names=("a",), pooling="sum")
    module = jde.torchrec.EmbeddingBagCollection([table], rngs=nnx.Rngs(0))

    @jde.nnx.jit
    def step(module, values, lengths):
        return module(KJT.from_lengths(["a"], values, lengths, capacities=3))

    for _ in range(2):
        step(module, jde.ids([1, 2, 3]), jnp.full(3, 2**31 - 1, jnp.int32))
    assert module.stats()["t/dropped"] == 2**32 - 1


@pytest.mark.parametrize("weighted", [False, True])
def test_floats_of_two_axes(weighted):
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    weights = np.arange(6, dtype=np.float32) if weighted else None
    kjt = KJT.from_lengths_sync(["a", "b"], rows, [2, 1, 0, 3], weights, capacity=5)
    np.testing.assert_array_equal(kjt["b"].to_dense()[1], rows[3:])
    np.testing.assert_array_equal(kjt["a"].values()[3:], np.zeros((2, 2)))
    np.testing.assert_array_equal(kjt.packed().values(), rows)
