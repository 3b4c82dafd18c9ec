# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table here does not do what FBTT-Embedding b95947c and EL-Rec 571f540 do wrong.

Other defects of theirs have their tests beside what they are about: parts of long cores
that never move, sums in any order, dims that assert, full weights past the last row,
initial values of the wrong size.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from oracle import tt_core_gradients, tt_row_numbers, tt_table

ROWS, DIM = 320, 16
ITEM = jde.TTConfig(
    "item", DIM, ROWS, (6, 5), initializer=jde.tt.normal(1.0), compute_dtype="float32"
)


def host(cores) -> list[np.ndarray]:
    return [np.asarray(core, np.float64) for core in cores]


def table_of(cores) -> np.ndarray:
    return tt_table(host(cores))[:ROWS]


def test_two_lookups_and_then_their_gradients(platform):
    """FBTT makes a lookup again in its backward, with cores that moved in between."""
    bag = jde.TTEmbeddingBag(ROWS, DIM, [6, 5], rngs=nnx.Rngs(0))
    first, second = np.array([[1, 2], [3, 319]]), np.array([[2, 2], [7, 1]])

    def loss(bag):
        return jnp.sum(bag(jde.ids(first)) ** 2 * jnp.sin(bag(jde.ids(second))))

    def dense_loss(cores):
        (a, b, c) = jax.tree.leaves(cores)
        table = jnp.einsum("aiqr,brst,ctuv->abcqsu", a, b, c).reshape(-1, DIM)
        left, right = table[first].sum(1), table[second].sum(1)
        return jnp.sum(left**2 * jnp.sin(right))

    trained = nnx.state(bag, nnx.Param)
    got = jax.tree.leaves(nnx.grad(loss)(bag))
    with jax.default_matmul_precision("highest"):
        want = jax.tree.leaves(jax.grad(dense_loss)(trained))
    tolerance = 1e-5 if jax.default_backend() == "cpu" else 2e-3  # TF32
    for mine, theirs in zip(got, want, strict=True):
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=tolerance)


@pytest.mark.slow
def test_a_new_id_in_the_slot_of_an_evicted_one_reads_the_cores():
    """FBTT serves it the row of the evicted id."""
    hot = jde.TableConfig(
        "hot", DIM, 128, initializer=jde.initializers.zeros(), score_strategy="lfu"
    )
    item = dataclasses.replace(ITEM, residual=hot, optimizer=jde.optim.sgd(0.1))
    coll = jde.Tables([item])
    state: Any = coll.init(0)
    table: Any = table_of(state["item"].cores)
    capacity = int(coll.stats(state)["hot/capacity"])
    assert capacity < ROWS

    def trained(state, ids):
        rows, residual, state = coll.lookup(state, {"item": jde.ids(ids)})
        d_rows = {"item": jnp.ones((len(ids), DIM))}
        after = coll.apply_gradients(state, residual, d_rows)
        # The cores keep their values: only the residual learns.
        return rows["item"], after | {"item": state["item"]}

    def kept(state):
        return {int(k) for chunk in coll.export(state, "hot") for k in chunk.keys}

    first, then = np.arange(capacity), np.arange(capacity, ROWS)
    _, state = trained(state, first)
    before = kept(state)
    rows, state = trained(state, then)
    np.testing.assert_allclose(rows, np.take(table, then, axis=0), atol=1e-4)
    assert kept(state) - before  # newcomers, in slots of others
    gone: Any = np.array(sorted(before - kept(state)))
    assert len(gone)
    found, _, _ = coll.find(state, {"item": jde.ids(gone.tolist())})
    expected = np.take(table, gone, axis=0)
    np.testing.assert_allclose(np.asarray(found["item"]), expected, atol=1e-4)


def test_adam_is_adam(platform):
    """FBTT runs Adagrad for every optimizer that is not SGD."""
    rate, b1, b2, eps = 0.05, 0.9, 0.99, 1e-8
    optimizer = jde.optim.adam(rate, b1=b1, b2=b2, eps=eps)
    config = jde.TTConfig(
        "item", DIM, ROWS, (6, 5), optimizer=optimizer, compute_dtype="float32"
    )
    state = jde.tt.init(config, 1)
    truth = host(state.cores)
    m, v = [[np.zeros_like(core) for core in truth] for _ in range(2)]
    lookup = jax.jit(functools.partial(jde.tt.lookup, config))
    update = jax.jit(functools.partial(jde.tt.apply_gradients, config))
    for step in range(1, 4):
        ids = np.random.default_rng(step).integers(0, ROWS, 40)
        rows, residual, state = lookup(state, jde.ids(ids))
        d_rows = np.cos(np.arange(40 * DIM).reshape(40, DIM) + step)
        state = update(state, residual, jnp.asarray(d_rows, jnp.float32))
        numbers = tt_row_numbers(ids, ROWS, config.num_rows, False)
        sums = tt_core_gradients(truth, numbers, ids, None, None, d_rows)
        for t, g in enumerate(sums):
            m[t] = b1 * m[t] + (1 - b1) * g
            v[t] = b2 * v[t] + (1 - b2) * g * g
            mean, square = m[t] / (1 - b1**step), v[t] / (1 - b2**step)
            truth[t] = truth[t] - rate * mean / (np.sqrt(square) + eps)
    moved = [np.abs(a - b).max() for a, b in zip(host(state.cores), truth, strict=True)]
    assert max(moved) < 2e-4


HOSTILE = [-5, -(2**31), -(2**63), ROWS, ROWS + 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1]


def test_ids_outside_of_the_table_read_and_write_nothing(platform):
    """FBTT reads and adds past the ends of its cores."""
    state = jde.tt.init(ITEM, 0)
    ids = np.array([*HOSTILE, 5], np.int64)
    rows, residual, state = jde.tt.lookup(ITEM, state, jde.ids(ids))
    assert int(state.out_of_range) == len(HOSTILE)
    np.testing.assert_array_equal(rows[:-1], np.zeros((len(HOSTILE), DIM)))
    got = jde.tt.core_gradients(ITEM, state, residual, jnp.ones_like(rows))
    want = tt_core_gradients(
        host(state.cores), np.array([5]), np.array([5]), None, None, np.ones((1, DIM))
    )
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * np.abs(theirs).max())


def test_rows_past_the_numbers_that_a_float_holds(platform):
    """EL-Rec divides ids as floats: rows are wrong from about 16.78 million on."""
    rows = 256**3 * 255
    config = jde.TTConfig(
        "t",
        8,
        rows,
        (2, 3, 2),
        rows_shape=(256, 256, 256, 255),
        compute_dtype="float32",
        initializer=jde.tt.normal(1.0),
    )
    state = jde.tt.init(config, 0)
    near = [2**24, 2**25, 2**31, 2**31 + 2**24, rows - 4]
    ids = np.array([base + step for base in near for step in range(-3, 4)])
    ids = ids[ids < rows]
    found, _, _ = jde.tt.lookup(config, state, jde.ids(ids))
    digits = (
        ids // (256 * 256 * 255),
        ids // (256 * 255) % 256,
        ids // 255 % 256,
        ids % 255,
    )
    parts = [core[digit] for core, digit in zip(host(state.cores), digits, strict=True)]
    want = np.einsum("naib,nbjc,nckd,ndle->nijkl", *parts).reshape(len(ids), -1)
    np.testing.assert_allclose(found, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("calls", [1, 3])
def test_a_module_is_the_same_after_any_calls(calls):
    """FBTT's get_params adds an array to the module's own list of cores."""
    bag = jde.TTEmbeddingBag(ROWS, DIM, [6, 5], rngs=nnx.Rngs(0))
    before = jax.tree.map(np.asarray, nnx.state(bag, nnx.Param))
    for _ in range(calls):
        list(bag.full_weight(100))
        bag(jde.ids([[1, 2]]))
        optax.tree.norm(nnx.state(bag, nnx.Param))
    after = nnx.state(bag, nnx.Param)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for mine, theirs in zip(
        jax.tree.leaves(before), jax.tree.leaves(after), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
