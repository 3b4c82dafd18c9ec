# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs without an end, or larger than memory, are refused with a sentence."""

import itertools
import sys

import numpy as np
import pytest

import jax_dynemb as jde

itself: list = []
itself.append(itself)
inner: list = [1]
pair = [inner, inner]
inner.append(pair)
twice: list = []
twice += [twice, twice]
deep: object = 1
for _ in range(20_000):
    deep = [deep]
CYCLES = {"itself": itself, "pair": pair, "twice": twice, "deep": deep}

coll = jde.Tables([jde.TableConfig("t", 4, 256, pooling="sum")])
state = coll.init(0)
ONE = {"t": jde.ids([[1]])}
CALLS = {
    "ids": jde.ids,
    "hash_ids": jde.hash_ids,
    "from_lists": jde.Jagged.from_lists,
    "lookup": lambda x: coll.lookup(state, {"t": x}),
    "find": lambda x: coll.find(state, {"t": x}),
    "erase": lambda x: coll.erase(state, {"t": x}),
    "weights": lambda x: coll.lookup(state, ONE, weights={"t": x}),
    "insert": lambda x: coll.insert(state, {"t": x}, {"t": np.ones((1, 4))}),
    "rows": lambda x: coll.insert(state, {"t": jde.ids([1])}, {"t": x}),
    "known_keys": lambda x: coll.export(state, "t", known_keys=x),
    "features": lambda x: jde.TableConfig("t", 4, 256, feature_names=x),
    "pooling_factors": lambda x: jde.TableConfig("t", 4, 256, pooling_factors=x),
}


def depth_left(depth: int = 0) -> int:
    """The calls that may still be nested."""
    try:
        return depth_left(depth + 1)
    except RecursionError:
        return depth


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", CYCLES)
def test_lists_without_a_bottom(call, kind):
    before = depth_left()
    for _ in range(3):
        with pytest.raises((TypeError, ValueError)) as error:
            CALLS[call](CYCLES[kind])
        assert len(str(error.value)) > 20
    # Nothing has eaten the interpreter's stack, as JAX does when it gives up.
    assert depth_left() > before - 20
    assert sys.getrecursionlimit() > 100


@pytest.mark.parametrize(
    "values", [itertools.count(), itertools.cycle([1]), itertools.repeat("a")]
)
def test_endless_iterators(values):
    with pytest.raises(TypeError, match=r"itertools\.islice\(values, n\)"):
        jde.hash_ids(values)
    some = itertools.islice(values, 3)
    assert jde.hash_ids(some).shape == (3,)
    assert jde.hash_ids(itertools.repeat(5, 2)).shape == (2,)
    for call in ("from_lists", "features", "pooling_factors"):
        with pytest.raises((TypeError, ValueError)):
            CALLS[call](itertools.count())


@pytest.mark.parametrize("call", ["ids", "hash_ids", "lookup", "known_keys"])
def test_more_values_than_memory_holds(call):
    with pytest.raises(MemoryError, match="in parts"):
        CALLS[call](range(2**60))
