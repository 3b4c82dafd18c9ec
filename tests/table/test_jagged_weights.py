# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged ids: offsets, padded bags and weights, beside Python lists."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde

BAGS = st.lists(st.lists(st.integers(0, 2**62), max_size=4), min_size=1, max_size=5)
TABLES = [
    jde.TableConfig("a", 4, 512, pooling="sum"),
    jde.TableConfig("b", 4, 512, pooling="mean"),
]


def signed(pairs: Any) -> list[Any]:
    pairs = np.ascontiguousarray(pairs)
    return (pairs.view(np.int64)[..., 0] if pairs.size else pairs[..., 0]).tolist()


@settings(max_examples=25, deadline=None)
@given(BAGS, st.integers(0, 5), st.integers(0, 3))
def test_offsets_and_padded_bags(bags, length, room):
    flat = [i for bag in bags for i in bag]
    jagged = jde.Jagged.from_lists(bags, capacity=len(flat) + room)
    ends = np.cumsum([0, *map(len, bags)]).tolist()
    wanted = [(bag + [-1] * length)[:length] for bag in bags]
    host = jde.Jagged(np.array(flat, np.int64), [len(bag) for bag in bags])
    assert np.asarray(jagged.offsets).tolist() == host.offsets.tolist() == ends
    assert isinstance(host.offsets, np.ndarray)
    assert signed(jagged.to_padded(length)) == wanted
    assert host.to_padded(length).tolist() == wanted
    longest = max(map(len, bags))
    assert host.to_padded().shape == (len(bags), longest)
    padded = jax.jit(lambda j: j.to_padded(3, padding_value=7))(jagged)
    assert signed(padded) == [(bag + [7] * 3)[:3] for bag in bags]


@settings(max_examples=10)
@given(BAGS, st.integers(0, 5), st.integers(0, 3))
def test_padded_rows_and_their_mask(bags, length, room):
    flat = [i for bag in bags for i in bag]
    jagged = jde.Jagged.from_lists(bags, capacity=len(flat) + room)
    rows = np.arange(2 * (len(flat) + room), dtype=np.float32).reshape(-1, 2) + 1
    wanted = np.zeros((len(bags), length, 2), np.float32)
    live = np.zeros((len(bags), length), bool)
    for number, (begin, bag) in enumerate(zip(jagged.offsets, bags, strict=False)):
        count = min(len(bag), length)
        wanted[number, :count] = rows[int(begin) : int(begin) + count]
        live[number, :count] = True
    for one in (rows, jnp.asarray(rows)):
        np.testing.assert_array_equal(jagged.to_padded(length, rows=one), wanted)
    np.testing.assert_array_equal(jagged.mask(length), live)
    lists = jde.Jagged(np.array(flat, np.int64), [len(bag) for bag in bags])
    mask = lists.mask(length)
    assert isinstance(mask, np.ndarray) and mask.tolist() == live.tolist()


def test_rows_of_a_lookup_padded_train_as_rows_of_padded_ids():
    """A sequence model: the same rows, mask and update either way."""
    coll = jde.Tables([jde.TableConfig("i", 4, 256, optimizer=jde.optim.sgd(0.5))])
    bags = [[1, 2, 2**40], [3], [], [2, 2]]
    jagged, longest = jde.Jagged.from_lists(bags, capacity=9), 3
    factors = jnp.arange(12.0).reshape(4, longest, 1)

    def loss(rows: Any, mask: Any) -> Any:
        return jnp.sum(jnp.where(mask[..., None], rows, 0) ** 2 * factors)

    @functools.partial(jax.jit, static_argnums=2)
    def step(state: Any, jagged: jde.Jagged, is_padded: bool) -> Any:
        ids = jagged.to_padded(longest) if is_padded else jagged
        rows, residual, state = coll.lookup(state, {"i": ids})

        def of_rows(rows: Any) -> Any:
            padded = rows if is_padded else jagged.to_padded(longest, rows=rows)
            return loss(padded, jagged.mask(longest))

        value, d_rows = jax.value_and_grad(of_rows)(rows["i"])
        return value, coll.apply_gradients(state, residual, {"i": d_rows})

    one, two = (step(coll.init(0), jagged, is_padded) for is_padded in (True, False))
    np.testing.assert_allclose(one[0], two[0], rtol=1e-6)
    found = [coll.find(each[1], {"i": jagged})[0]["i"] for each in (one, two)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_lengths_that_are_data_stay_within_the_ids():
    def both(lengths):
        jagged = jde.Jagged(jnp.arange(4), lengths)
        return jagged.offsets, jagged.to_padded(2)

    offsets, padded = jax.jit(both)(jnp.array([1, -3, 9]))
    assert offsets.tolist() == [0, 1, 1, 4]
    assert padded.tolist() == [[0, -1], [-1, -1], [1, 2]]


def bag_of(weights: Any) -> jde.Jagged:
    ids = jde.ids(np.array([5, 6, 7, 2**40]))
    return jde.Jagged(ids, jnp.array([1, 2, 1]), weights)


def test_weights_inside_are_weights_given_apart():
    coll, weights = jde.Tables(TABLES), jnp.array([1.0, 2.0, -3.0, 0.5])
    inside = {"a": bag_of(weights), "b": bag_of(None)}
    bare = {"a": bag_of(None), "b": bag_of(None)}

    @jax.jit
    def step(state, ids, weights):
        rows, residual, state = coll.lookup(state, ids, weights)
        state = coll.apply_gradients(state, residual, rows)
        return rows, coll.find(state, ids, weights)[0]

    state = coll.init(0)
    one, two = step(state, inside, None), step(state, bare, {"a": weights})
    jax.tree.map(np.testing.assert_array_equal, one, two)
    routed = coll.lookup(state, coll.route(inside))[0]
    jax.tree.map(np.testing.assert_array_equal, routed, one[0])


def test_modules_differentiate_weights_inside():
    module = jde.nnx.EmbeddingBagCollection(TABLES, rngs=nnx.Rngs(0))
    weights = jnp.array([1.0, 2.0, -3.0, 0.5])

    def loss(weights, apart):
        ids, given = bag_of(None if apart else weights), {"a": weights}
        rows = module({"a": ids}, given if apart else None, train=False)
        return (rows["a"] ** 2).sum()

    module({"a": bag_of(None)})
    inside, apart = (jax.grad(loss)(weights, apart) for apart in (False, True))
    np.testing.assert_array_equal(inside, apart)
    assert np.abs(inside).min() > 0


def test_mistakes_are_named():
    coll, weights = jde.Tables(TABLES), jnp.ones(4)
    with pytest.raises(ValueError, match="one weight for each"):
        bag_of(jnp.ones(3))
    with pytest.raises(ValueError, match="give them once"):
        coll.lookup(coll.init(0), {"a": bag_of(weights)}, {"a": weights})
    single = jde.Tables([jde.TableConfig("c", 4, 512)])
    with pytest.raises(ValueError, match="does not pool"):
        single.lookup(single.init(0), {"c": bag_of(weights)})
    rows = jde.nnx.EmbeddingCollection([jde.TableConfig("c", 4, 512)], rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="does not pool"):
        rows({"c": bag_of(weights)})
    with pytest.raises(TypeError, match="static"):
        jax.jit(lambda j: j.to_padded())(bag_of(None))
    with pytest.raises(TypeError, match=r"static: write mask\(20\)"):
        jax.jit(lambda j: j.mask())(bag_of(None))
    with pytest.raises(ValueError, match="without pooling"):
        bag_of(None).to_padded(2, rows=jnp.ones((3, 4)))
    with pytest.raises(ValueError, match="0 or more"):
        bag_of(None).to_padded(-1)
    with pytest.raises(TypeError, match="ids of each bag"):
        bag_of(None).to_padded("x")
