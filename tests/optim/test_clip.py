# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm of dense and row gradients together."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde

KEYS, DIM = 10, 4


@pytest.fixture
def setup(platform):
    tables = [
        jde.TableConfig("a", DIM, 256, ("x", "y"), optimizer=jde.optim.sgd(1.0)),
        jde.TableConfig("b", DIM, 256, pooling="sum", optimizer=optax.sgd(1.0)),
    ]
    coll = jde.Tables(tables)
    draw = np.random.default_rng(0)
    index = {
        "x": draw.integers(0, KEYS, 12),
        "y": draw.integers(0, KEYS, 5),
        "b": draw.integers(0, KEYS, (6, 3)),
    }
    ids = {name: jde.ids(i) for name, i in index.items()}
    rows, residual, state = coll.lookup(coll.init(0), ids)
    dense = {"w": jnp.asarray(draw.normal(size=(3, 2)), jnp.float32)}

    def gradient_of(rows, dense):
        return (
            sum((jnp.sin(3 * r) * (i + 1)).sum() for i, r in enumerate(rows.values()))
            + (dense["w"] ** 2).sum()
        )

    d_rows, d_dense = jax.grad(gradient_of, (0, 1))(rows, dense)
    return coll, index, state, residual, d_rows, d_dense


def as_dense(index, d_rows):
    """The gradients of two dense tables of KEYS rows."""
    a = jnp.zeros((KEYS, DIM)).at[index["x"]].add(d_rows["x"])
    a = a.at[index["y"]].add(d_rows["y"])
    each = jnp.broadcast_to(d_rows["b"][:, None], (6, 3, DIM))
    return a, jnp.zeros((KEYS, DIM)).at[index["b"]].add(each)


@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_equals_optax_on_dense_tables(setup, max_norm):
    coll, index, state, residual, d_rows, d_dense = setup

    def read(state):
        every = jde.ids(np.arange(KEYS))
        rows, _, _ = coll.find(state, {"x": every, "b": every})
        return rows["x"], rows["b"]

    @jax.jit
    def step(state, residual, d_rows, d_dense):
        clipped = jde.optim.clip_by_global_norm(
            max_norm, coll, state, residual, d_rows, d_dense
        )
        state = coll.apply_gradients(clipped.state, residual, clipped.d_rows)
        return clipped, state

    clipped, after = step(state, residual, d_rows, d_dense)
    gradients = (*as_dense(index, d_rows), d_dense)
    np.testing.assert_allclose(clipped.norm, optax.tree.norm(gradients), rtol=1e-5)
    with jax.numpy_dtype_promotion("standard"):
        clip = optax.clip_by_global_norm(max_norm)
        (a, b, dense), _ = clip.update(gradients, clip.init(gradients))
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(clipped.dense_grads["w"], dense["w"], **close)
    for old, new, gradient, seen in zip(
        read(state), read(after), (a, b), (index["x"], index["b"]), strict=True
    ):
        seen = np.unique(seen)
        np.testing.assert_allclose(new[seen], (old - gradient)[seen], **close)


def test_keeps_dtypes_and_takes_traced_norms(setup):
    coll, _, state, residual, d_rows, d_dense = setup
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), d_rows)
    clip = jax.jit(
        lambda max_norm: jde.optim.clip_by_global_norm(
            max_norm, coll, state, residual, narrow, d_dense
        )
    )
    clipped = clip(jnp.float32(1.0))
    assert clipped.d_rows["x"].dtype == jnp.bfloat16
    assert clipped.norm.dtype == jnp.float32
    again = jde.optim.clip_by_global_norm(
        1e9, coll, state, residual, clipped.d_rows, clipped.dense_grads
    )
    np.testing.assert_allclose(again.norm, 1.0, rtol=1e-2)


def test_several_lookups_and_no_dense_part(setup):
    coll, index, state, residual, d_rows, _ = setup
    twice = jde.optim.clip_by_global_norm(
        1e9, coll, state, [residual, residual], [d_rows, d_rows]
    )
    once = optax.tree.norm(as_dense(index, d_rows))
    np.testing.assert_allclose(twice.norm, 2 * once, rtol=1e-5)
    assert twice.dense_grads is None


def test_zero_gradients_stay_zero(setup):
    coll, _, state, residual, d_rows, _ = setup
    zeros = jax.tree.map(jnp.zeros_like, d_rows)
    clipped = jde.optim.clip_by_global_norm(1.0, coll, state, residual, zeros)
    assert float(clipped.norm) == 0.0
    assert all(bool(jnp.all(x == 0)) for x in jax.tree.leaves(clipped.d_rows))
