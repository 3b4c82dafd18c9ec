# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows and gradients of cores against the dense table that they stand for."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from oracle import (
    tt_core_gradients,
    tt_lookup,
    tt_row_numbers,
    tt_table,
)
from support import HostJagged

# Rows, columns, ranks of two to five cores: odd factors, ones, and rank 1.
SHAPES = {
    "two": ((11, 13), (3, 5), (7,)),
    "three": ((9, 10, 11), (4, 4, 4), (8, 12)),
    "rank_1": ((7, 5, 6), (2, 3, 2), (1, 1)),
    "one_column": ((5, 4, 3), (1, 1, 1), (3, 2)),
    "long_end": ((3, 4, 50), (2, 2, 13), (6, 5)),
    "four": ((5, 3, 4, 6), (2, 1, 3, 2), (4, 6, 5)),
    "five": ((3, 2, 4, 3, 2), (2, 1, 2, 1, 3), (2, 5, 3, 4)),
    "tiles": ((9, 10, 11), (4, 4, 4), (8, 32)),  # whole ones of tensor cores
}


def config_of(shape: str, **options: Any) -> jde.TTConfig:
    rows, columns, ranks = SHAPES[shape]
    settings = {
        "num_embeddings": int(np.prod(rows)) - 3,
        "rows_shape": rows,
        "dim_shape": columns,
        "compute_dtype": "float32",
        "initializer": jde.tt.normal(1.0),
    }
    return jde.TTConfig("t", int(np.prod(columns)), ranks=ranks, **(settings | options))


def cores_of(state: jde.tt.TTState) -> list[np.ndarray]:
    return [np.asarray(core) for core in state.cores]


def on_device(ids: Any) -> Any:
    if isinstance(ids, HostJagged):
        return jde.Jagged(jde.ids(ids.values), jnp.asarray(ids.lengths))
    return jde.ids(ids)


@functools.cache
def jitted(name: str):
    return jax.jit(getattr(jde.tt, name), static_argnums=0)


def check(config: jde.TTConfig, ids: Any, weights: Any = None, tolerance=2e-6) -> None:
    """Compares rows, gradients of cores, and counts with the oracle."""
    state = jde.tt.init(config, 3)
    cores = cores_of(state)
    flat = np.asarray(ids.values if isinstance(ids, HostJagged) else ids).reshape(-1)
    live = flat
    if isinstance(ids, HostJagged):
        live = np.where(np.arange(len(flat)) < np.sum(ids.lengths), flat, -1)
    hashed = config.ids == "hash"
    numbers = tt_row_numbers(live, config.num_embeddings, config.num_rows, hashed)
    given_weights = None if weights is None else jnp.asarray(weights, jnp.float32)
    rows, residual, new = jitted("lookup")(config, state, on_device(ids), given_weights)
    wanted = tt_lookup(cores, numbers, ids, weights, config.pooling)
    size = np.abs(wanted).max() + 1e-30
    np.testing.assert_allclose(rows / size, wanted / size, atol=tolerance)
    assert int(new.out_of_range) == int(((numbers < 0) & (live != -1)).sum())

    d_rows = np.random.default_rng(5).normal(size=wanted.shape).astype(np.float32)
    got = jitted("core_gradients")(config, state, residual, d_rows)
    truth = tt_core_gradients(cores, numbers, ids, weights, config.pooling, d_rows)
    for mine, theirs in zip(got, truth, strict=True):
        size = np.abs(theirs).max() + 1e-30
        np.testing.assert_allclose(mine / size, theirs / size, atol=5 * tolerance)
        # A slice of a core that no id reads does not move, and every other one does.
        touched = (theirs != 0).any(axis=(1, 2, 3))
        np.testing.assert_array_equal((np.asarray(mine) != 0).any((1, 2, 3)), touched)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_an_id(platform, shape):
    config = config_of(shape)
    ids = np.random.default_rng(0).integers(-1, config.num_embeddings + 2, (9, 4))
    check(config, ids)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_with_weights_and_padding(platform, shape, pooling):
    rng = np.random.default_rng(1)
    config = config_of(shape, pooling=pooling)
    ids = rng.integers(-1, config.num_embeddings, (17, 5))
    ids[3] = -1  # an empty bag
    ids[4] = ids[5]  # duplicates
    check(config, ids)
    check(config, ids, rng.random(ids.shape))


@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_of_any_length(platform, pooling, weighted):
    rng = np.random.default_rng(2)
    config = config_of("three", pooling=pooling)
    bags = [list(rng.integers(0, 990, n)) for n in (3, 0, 7, 1, 0, 12, 0)]
    ids = HostJagged.of(bags, capacity=40)
    check(config, ids, rng.random(40) if weighted else None)


@pytest.mark.parametrize("pooling", ["sum", None])
def test_no_ids_at_all(platform, pooling):
    check(config_of("three", pooling=pooling), np.full((4, 3), -1))


@pytest.mark.parametrize("shape", ["three", "four", "five"])
def test_few_ids_of_a_large_table(platform, shape):
    """Prefixes that occur are made one by one; in a large call all of them are."""
    config = config_of(shape, pooling="sum")
    ids = np.random.default_rng(3).integers(0, config.num_embeddings, (2, 2))
    check(config, ids)


@pytest.mark.parametrize("shape", ["two", "three"])
def test_hashed_ids_of_64_bits(platform, shape):
    config = config_of(shape, ids="hash", pooling="sum")
    rng = np.random.default_rng(5)
    ids = rng.integers(-(2**62), 2**62, (20, 3))
    ids[0, 0] = -1
    check(config, ids)
    other = config_of(shape, ids="hash", pooling="sum", hash_seed=7)
    state = jde.tt.init(config, 0)
    mine = jde.tt.find(config, state.cores, jde.ids(ids))
    theirs = jde.tt.find(other, state.cores, jde.ids(ids))
    assert not np.allclose(mine, theirs)


@pytest.mark.slow
@given(data=st.data())
def test_any_table_and_any_bags(data):
    count = data.draw(st.integers(2, 5))
    small = st.integers(1, 5)
    rows = data.draw(st.lists(small, min_size=count, max_size=count))
    columns = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    ranks = data.draw(st.lists(small, min_size=count - 1, max_size=count - 1))
    config = jde.TTConfig(
        "t",
        int(np.prod(columns)),
        data.draw(st.integers(1, int(np.prod(rows)))),
        tuple(ranks),
        rows_shape=tuple(rows),
        dim_shape=tuple(columns),
        pooling=data.draw(st.sampled_from([None, "sum", "mean"])),
        compute_dtype="float32",
        initializer=jde.tt.normal(1.0),
    )
    size = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 4)))
    seed = data.draw(st.integers(0, 99))
    ids = np.random.default_rng(seed).integers(-1, config.num_embeddings + 1, size)
    check(config, ids)


def test_the_same_bits_in_every_run(platform):
    """FBTT's gradients differ from run to run, since atomics add in any order."""
    config = config_of("three", pooling="sum")
    state = jde.tt.init(config, 0)
    ids = np.random.default_rng(6).zipf(1.3, (500, 10)) % config.num_embeddings
    rows, residual, _ = jitted("lookup")(config, state, jde.ids(ids))
    first = jitted("core_gradients")(config, state, residual, rows)
    for _ in range(3):
        again = jitted("core_gradients")(config, state, residual, rows)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_every_touched_slice_of_a_long_core_moves(platform):
    """FBTT's fused update moves 130 of 250 slices of the last core."""
    config = jde.TTConfig(
        "t",
        64,
        200 * 220 * 250,
        (32, 32),
        rows_shape=(200, 220, 250),
        dim_shape=(4, 4, 4),
        pooling="sum",
        optimizer=jde.optim.sgd(0.1),
    )
    state = jde.tt.init(config, 0)
    ids = np.random.default_rng(7).integers(0, config.num_embeddings, (512, 20))
    rows, residual, state = jitted("lookup")(config, state, jde.ids(ids))
    after = jitted("apply_gradients")(config, state, residual, jnp.ones_like(rows))
    numbers = ids.reshape(-1)
    of_cores = numbers // 55_000, numbers // 250 % 220, numbers % 250
    for core, new, used in zip(state.cores, after.cores, of_cores, strict=True):
        moved = np.asarray((core != new).any(axis=(1, 2, 3)))
        assert moved.tolist() == np.isin(np.arange(len(moved)), used).tolist()


def test_gradients_by_jax(platform):
    """``find`` differentiates in cores and weights as any function does."""
    config = config_of("three", pooling="mean")
    state = jde.tt.init(config, 1)
    rng = np.random.default_rng(8)
    ids, weights = rng.integers(-1, 987, (6, 4)), jnp.asarray(rng.random((6, 4)))

    def loss(cores, weights):
        return jnp.sum(jde.tt.find(config, cores, jde.ids(ids), weights) ** 2)

    def dense_loss(cores, weights):
        a, b, c = cores
        table = jnp.einsum("aiqr,brst,ctuv->abcqsu", a, b, c).reshape(990, 64)
        rows = jnp.where((ids >= 0)[..., None], table[np.maximum(ids, 0)], 0.0)
        pooled = (rows * weights[..., None]).sum(1)
        return jnp.sum((pooled / np.maximum((ids >= 0).sum(1), 1)[:, None]) ** 2)

    got = jax.grad(loss, (0, 1))(state.cores, weights)
    with jax.default_matmul_precision("highest"):  # not TF32
        want = jax.grad(dense_loss, (0, 1))(state.cores, weights)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "error"), [("tensorfloat32", 1e-3), ("bfloat16", 1e-2)]
)
@pytest.mark.parametrize("shape", ["three", "tiles"])
@pytest.mark.parametrize("pooling", [None, "sum"])
def test_rounded_products(platform, dtype, error, shape, pooling):
    config = config_of(shape, pooling=pooling, compute_dtype=dtype)
    rng = np.random.default_rng(9)
    ids = rng.integers(0, 987, (64, 8))
    check(config, ids, tolerance=error)
    if pooling:
        check(config, ids, rng.random(ids.shape), tolerance=error)
    few = rng.integers(0, 987, (5, 4))  # prefixes that occur are made one by one
    check(config, few, tolerance=error)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_the_full_weight_is_cut_to_the_table(platform, shape, chunk):
    config = config_of(shape)
    if chunk == 1 and config.num_embeddings > 200:
        chunk = 100
    state = jde.tt.init(config, 2)
    chunks = list(jde.tt.full_weight(config, state.cores, chunk))
    assert max(map(len, chunks)) <= chunk
    want = tt_table(cores_of(state))[: config.num_embeddings]
    np.testing.assert_allclose(
        np.concatenate(chunks), want, atol=2e-6 * np.abs(want).max()
    )


def test_a_step_does_not_compile_again(platform):
    config = config_of("three", pooling="sum", optimizer=jde.optim.adagrad(0.1))
    traces = []

    @jax.jit
    def step(state, ids):
        traces.append(1)
        rows, residual, state = jde.tt.lookup(config, state, ids)
        return jde.tt.apply_gradients(config, state, residual, rows)

    state = jde.tt.init(config, 0)
    for seed in range(4):
        ids = np.random.default_rng(seed).integers(0, 987, (8, 3))
        state = step(state, jde.ids(ids))
    assert len(traces) == 1


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_gradients_of_no_bags(pooling):
    config = config_of("three", pooling=pooling)
    cores = jde.tt.init(config, 3).cores
    ids = jde.Jagged(jde.ids([1, 2, 3]), jnp.zeros(0, jnp.int32))

    def loss(cores, weights):
        return jde.tt.find(config, cores, ids, weights).sum()

    d_cores, d_weights = jax.grad(loss, argnums=(0, 1))(cores, jnp.ones(3))
    assert not np.any(d_weights) and not any(np.any(core) for core in d_cores)


@pytest.mark.parametrize("pooling", ["sum", "mean", None])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_a_batch_without_ids(platform, pooling, shape):
    config = config_of("three", pooling=pooling, optimizer=jde.optim.sgd(0.1))

    @jax.jit
    def step(state, ids):
        rows, residual, state = jde.tt.lookup(config, state, ids)
        return rows, jde.tt.apply_gradients(config, state, residual, rows + 1)

    before = jde.tt.init(config, 3)
    rows, after = step(before, jde.ids(np.zeros(shape, np.int64)))
    axes = shape if pooling is None else shape[:1]
    assert rows.shape == (*axes, config.dim) and not np.any(rows)
    for old, new in zip(before.cores, after.cores, strict=True):
        np.testing.assert_array_equal(old, new)


def test_cores_of_another_table_are_refused():
    config = config_of("three")
    cores = jde.tt.init(config, 3).cores
    for wrong in (
        cores[:2],
        [core[:2] for core in cores],
        [core.astype(jnp.bfloat16) for core in cores],
    ):
        with pytest.raises(ValueError, match="the cores are .* its config has float32"):
            jde.tt.find(config, wrong, jde.ids([[1, 700]]))
