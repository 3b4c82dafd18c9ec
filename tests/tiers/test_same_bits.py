# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The bits of a tiered table are those of an untiered one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import assert_same_rows, export, gradients
from tiered import ADAM, TIER, Both, batch


@pytest.mark.parametrize(
    "optimizer",
    [
        ADAM,
        jde.optim.rowwise_adagrad(0.1),
        jde.optim.lamb(0.01),
    ],
    ids=["adam", "rowwise_adagrad", "lamb"],
)
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_random_batches(platform, optimizer, pooling):
    table = jde.TableConfig("t", 5, 512, optimizer=optimizer, pooling=pooling)
    both = Both(table)
    for seed in range(5):
        ids = batch(120, seed).reshape(-1, 3)
        shape = (40, 5) if pooling else (40, 3, 5)
        both.train({"t": ids}, {"t": jnp.asarray(gradients(shape, seed))})
    both.check()


def test_several_tables_and_features(platform):
    both = Both(
        jde.TableConfig("a", 4, 256, ("x", "y"), optimizer=ADAM),
        jde.TableConfig("b", 8, 256, optimizer=jde.optim.sgd(0.1)),
    )
    for seed in range(4):
        ids = {name: batch(64, seed + i) for i, name in enumerate(("x", "y", "b"))}
        d_rows = {
            n: jnp.asarray(gradients((64, 8 if n == "b" else 4), seed)) for n in ids
        }
        both.train(ids, d_rows)
    both.check()


def test_one_cold_id_fills_the_batch(platform):
    both = Both(jde.TableConfig("t", 4, 256, optimizer=ADAM))
    for seed in range(4):
        both.train({"t": batch(200, seed)}, {"t": jnp.ones((200, 4))})
    cold = np.full(200, int(batch(200, 0)[7]))
    for _ in range(2):
        both.train({"t": cold}, {"t": jnp.ones((200, 4))})
    both.check()


@pytest.mark.slow
@pytest.mark.parametrize("devices", [None, 4])
@pytest.mark.parametrize("spill_rows", [1, None])
def test_optax_outside_jit(devices, spill_rows):
    """One program computes an update there as well."""
    optax = pytest.importorskip("optax")
    tx = optax.chain(optax.scale_by_adam(), optax.scale(-0.01))
    mesh = {} if devices is None else {"mesh": mesh_of(devices), "axis": "data"}
    held = []
    for tier in (None, jde.tiers.host(hbm_fraction=4 / 128, spill_rows=spill_rows)):
        config = jde.TableConfig("t", 3, 1000, optimizer=tx, tier=tier)
        coll = jde.Tables([config], **mesh)
        state = coll.init(0)
        for seed in range(4):
            ids = {"t": jde.ids(batch(120, seed))}
            rows, residual, state = coll.lookup(state, ids)
            d_rows = {"t": 0.3 * rows["t"] + 0.7}
            state = coll.apply_gradients(state, residual, d_rows)
        held.append(export(coll, state, "t"))
    assert_same_rows(*held)


def test_optax_updates_the_same_rows(platform):
    optax = pytest.importorskip("optax")
    both = Both(jde.TableConfig("t", 4, 256, optimizer=optax.adam(0.01)))
    for seed in range(3):
        both.train(
            {"t": batch(150, seed)}, {"t": jnp.asarray(gradients((150, 4), seed))}
        )
    both.check()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_of_16_bits(platform, dtype):
    both = Both(jde.TableConfig("t", 7, 256, optimizer=ADAM, param_dtype=dtype))
    for seed in range(3):
        both.train(
            {"t": batch(150, seed)}, {"t": jnp.asarray(gradients((150, 7), seed))}
        )
    both.check()


@pytest.mark.parametrize("sizes", [{"hbm_fraction": 1 / 128}, {"hbm_rows": 10**9}])
def test_fewest_and_most_rows_in_device_memory(platform, sizes):
    """One row of each bucket, and half of them where the budget covers all."""
    tier = jde.tiers.host(**sizes, spill_rows=48)
    both = Both(jde.TableConfig("t", 5, 512, optimizer=ADAM), tier=tier)
    for seed in range(5):
        d_rows = {"t": jnp.asarray(gradients((120, 5), seed))}
        both.train({"t": batch(120, seed)}, d_rows)
    both.check()


_ROUNDED = {
    "sgd": jde.optim.sgd(0.1),
    "adam": ADAM,
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "lamb": jde.optim.lamb(0.01),  # by the loop of all optimizers
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("optimizer", list(_ROUNDED))
def test_rows_rounded_stochastically(platform, optimizer, dtype):
    """Random bits follow from the id, not from where its row lies."""
    both = Both(
        jde.TableConfig(
            "t",
            7,
            256,
            optimizer=_ROUNDED[optimizer],
            param_dtype=dtype,
            rounding="stochastic",
        ),
        jde.TableConfig("plain", 7, 256, ("p",), optimizer=_ROUNDED[optimizer]),
    )
    for seed in range(4):
        ids = {name: batch(150, seed) for name in ("t", "p")}
        d_rows = {name: jnp.asarray(gradients((150, 7), seed)) for name in ids}
        both.train(ids, d_rows)
    both.check()


@pytest.mark.parametrize("score", ["step", "lfu"])
def test_rounded_rows_under_optax(platform, score):
    """An optax optimizer writes rows back by their slots, whose ids the index has."""
    optax = pytest.importorskip("optax")
    both = Both(
        jde.TableConfig(
            "t",
            4,
            256,
            optimizer=optax.adam(0.01),
            param_dtype="bfloat16",
            rounding="stochastic",
            score_strategy=score,
        )
    )
    for seed in range(3):
        both.train(
            {"t": batch(150, seed)}, {"t": jnp.asarray(gradients((150, 4), seed))}
        )
    both.check()


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_rounded_rows_on_a_mesh(devices):
    both = Both(
        jde.TableConfig(
            "t",
            8,
            2048,
            optimizer=ADAM,
            param_dtype="bfloat16",
            rounding="stochastic",
        ),
        mesh=mesh_of(devices),
        axis="data",
    )
    for seed in range(3):
        both.train(
            {"t": batch(200, seed)}, {"t": jnp.asarray(gradients((200, 8), seed))}
        )
    both.check()


def test_a_scan_of_steps_is_the_same_steps(platform):
    coll = jde.Tables([jde.TableConfig("t", 4, 256, optimizer=ADAM, tier=TIER)])
    ids = jde.ids(np.stack([batch(100, seed) for seed in range(4)]))

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        state = coll.apply_gradients(state, residual, rows)
        return coll.prefetch(state, {"t": ids[::-1]}), rows["t"]

    scanned, rows = jax.jit(lambda s: jax.lax.scan(step, s, ids))(coll.init(0))
    state, one = coll.init(0), jax.jit(step, donate_argnums=0)
    for i in range(4):
        state, got = one(state, ids[i])
        np.testing.assert_array_equal(got, rows[i])
    assert_same_rows(export(coll, scanned, "t"), export(coll, state, "t"))


def test_arrays_are_changed_in_place(platform):
    coll = jde.Tables([jde.TableConfig("t", 4, 256, optimizer=ADAM, tier=TIER)])
    state = coll.init(0)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        state = coll.prefetch(state, {"t": ids[::-1]})
        return coll.flush(coll.apply_gradients(state, residual, rows))

    def large_arrays():
        large = [x for x in jax.tree.leaves(state) if x.nbytes > 4096]
        return [x.unsafe_buffer_pointer() for x in large]

    state = step(state, jde.ids(batch(100, 0)))  # an array of NumPy's is copied once
    arrays = large_arrays()
    for seed in range(3):
        state = step(state, jde.ids(batch(100, seed)))
    assert large_arrays() == arrays
    assert state["t"].tier.homes.sharding.memory_kind == "pinned_host"


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_lookups_of_new_rows_without_a_frame(platform, pooling):
    """A GPU adds up new rows last, and the second lookup finds none of them new."""
    held = []
    for tier in (None, jde.tiers.host(hbm_fraction=1 / 128)):
        config = jde.TableConfig(
            "t", 5, 1024, optimizer=ADAM, pooling=pooling, tier=tier
        )
        coll = jde.Tables([config])
        state, rows = coll.init(0), []
        for seed in range(3):
            bags = np.concatenate([batch(150, seed), batch(150, seed + 1)])
            ids = {"t": jde.ids(np.random.default_rng(seed).permutation(bags))}
            ids = {"t": ids["t"].reshape(30, 10, -1)}
            residuals = []
            for _ in range(3):
                looked_up, residual, state = coll.lookup(state, ids)
                rows.append(looked_up["t"])
                residuals.append(residual)
            gradient = {"t": jnp.asarray(gradients((30, 5), seed))}
            state = coll.apply_gradients(state, residuals, [gradient] * 3)
        held.append((rows, export(coll, state, "t")))
    for untiered, tiered in zip(held[0][0], held[1][0], strict=True):
        np.testing.assert_array_equal(untiered, tiered)
    assert_same_rows(held[0][1], held[1][1])
