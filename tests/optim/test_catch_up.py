# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that were absent: what they make up for, against dense training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from optimizer_kinds import LOOSE
from support import Twins, export

NUM_KEYS, DIM = 10, 8


def table(optimizer):
    initializer = jde.initializers.normal(0.5)
    return jde.TableConfig("t", DIM, 256, optimizer=optimizer, initializer=initializer)


def trained(optimizer, touched, grads):
    """Rows after steps that touch some keys each; the first rows of all; the states."""
    coll = jde.Tables([table(optimizer)])
    everything = {"t": jde.ids(np.arange(NUM_KEYS))}
    first, _, state = coll.lookup(coll.init(2), everything)
    step = jax.jit(
        lambda state, ids, d_rows: coll.apply_gradients(
            *_residual_and_state(coll, state, ids), {"t": d_rows}
        )
    )
    for keys, g in zip(touched, grads, strict=True):
        padded = np.where(np.isin(np.arange(NUM_KEYS), keys), np.arange(NUM_KEYS), -1)
        state = step(state, jde.ids(padded), jnp.asarray(g))
    rows = export(coll, state, "t")
    return np.asarray(first["t"]), [rows[key] for key in range(NUM_KEYS)]


def _residual_and_state(coll, state, ids):
    _, residual, state = coll.lookup(state, {"t": ids})
    return state, residual


def stream(steps=30, seed=0):
    """Some keys a step, and their gradients; all of them at both ends."""
    rng = np.random.default_rng(seed)
    everything = np.arange(NUM_KEYS)
    some = [rng.choice(NUM_KEYS, 3, replace=False) for _ in range(steps)]
    touched = [everything, *some, everything]
    grads = np.zeros((len(touched), NUM_KEYS, DIM), np.float32)
    for g, keys in zip(grads, touched, strict=True):
        g[keys] = rng.normal(size=(len(keys), DIM))
    return touched, grads


@pytest.mark.parametrize("nesterov", [False, True])
def test_smart_momentum_is_dense_momentum(platform, nesterov):
    """Rows that were absent end where gradients of zero would have taken them."""
    touched, grads = stream()
    own = jde.optim.momentum(0.05, 0.8, nesterov, catch_up="smart")
    first, rows = trained(own, touched, grads)
    tx = optax.sgd(0.05, momentum=0.8, nesterov=nesterov)
    dense, opt_state = jnp.asarray(first), tx.init(jnp.asarray(first))
    for g in grads:
        updates, opt_state = tx.update(jnp.asarray(g), opt_state, dense)
        dense = optax.apply_updates(dense, updates)
    got = np.stack([row.values for row in rows])
    np.testing.assert_allclose(got, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["adam", "rowwise_adagrad"])
def test_decay_is_that_of_every_update(platform, kind):
    """With gradients of zero a row shrinks by each update of the table, seen or not."""
    touched, grads = stream()
    make = getattr(jde.optim, kind)
    own = make(0.1, weight_decay=0.3, catch_up="decay")
    first, rows = trained(own, touched, np.zeros_like(grads))
    got = np.stack([row.values for row in rows])
    want = first * (1 - 0.1 * 0.3) ** len(touched)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_smart_adam_without_a_second_moment_is_dense(platform):
    """If the root rests, late steps are those that a dense Adam makes."""
    touched, grads = stream()
    # eps so large that the root does not count
    options = {"b1": 0.7, "b2": 0.9, "eps": 1e6, "bias_correction": "none"}
    first, rows = trained(
        jde.optim.adam(1e5, catch_up="smart", **options), touched, grads
    )
    tx = optax.chain(optax.ema(0.7, debias=False), optax.scale(-0.1))
    dense, opt_state = jnp.asarray(first), tx.init(jnp.asarray(first))
    for g in grads:
        updates, opt_state = tx.update(jnp.asarray(g), opt_state, dense)
        dense = optax.apply_updates(dense, updates)
    got = np.stack([row.values for row in rows])
    np.testing.assert_allclose(got, dense, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dim", [16, 130])
def test_a_floor_and_a_rate_that_decays_to_nothing(platform, dim):
    for floor in (0.0, 0.25):
        optimizer = jde.optim.rowwise_adagrad(
            0.5, weight_decay=3.0, catch_up="decay", catch_up_floor=floor
        )
        twins = Twins(jde.TableConfig("t", dim, 256, optimizer=optimizer))
        for seed, keys in enumerate(([1, 2], [1], [1], [1, 2], [2])):
            twins.train({"t": keys}, seed=seed)
        twins.check(LOOSE)


def test_counts_are_exact_beyond_what_float32_counts(platform):
    """2^24 + 1: the float32 count of FBGEMM stands there."""
    optimizer = jde.optim.adam(0.1, bias_correction="row")
    twins = Twins(jde.TableConfig("t", 4, 256, optimizer=optimizer))
    states = {n: np.full((1, 4), 0.5, "f") for n in ("mu", "nu")}
    states["count"] = np.full(1, 2**24, np.int32)
    twins.insert({"t": np.array([1])}, {"t": np.ones((1, 4))}, {"t": states})
    twins.train({"t": [1]}, seed=1)
    twins.check(LOOSE)
    row = export(twins.coll, twins.state, "t")[1]
    assert row.state["count"].dtype == np.int32
    assert row.state["count"] == 2**24 + 1


@pytest.mark.parametrize("first", [2**24, 2**32 - 2])
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_steps_of_a_table_that_float32_does_not_count(platform, name, first):
    """A row that misses one update makes up for one, also where `last` wraps."""
    options = {"bias_correction": "none"} if name == "adam" else {}
    optimizer = getattr(jde.optim, name)(0.1, catch_up="smart", **options)
    rows = []
    for start in (first, 8):
        coll = jde.Tables([table(optimizer)])
        state = coll.init(0)
        words = jnp.array([start & 0xFFFFFFFF, start >> 32], jnp.uint32)
        place = _ffi.code("counters", "step")
        counters = state["t"].counters.at[:, place].set(words)
        state["t"] = dataclasses.replace(state["t"], counters=counters)
        for keys in ([1, 2], [1], [1, 2]):
            _, residual, state = coll.lookup(state, {"t": jde.ids(keys)})
            d_rows = {"t": jnp.ones((len(keys), DIM))}
            state = coll.apply_gradients(state, residual, d_rows)
        rows.append(coll.find(state, {"t": jde.ids([1, 2])})[0]["t"])
    np.testing.assert_allclose(*rows, rtol=1e-6)


def test_integers_survive_a_checkpoint_and_growth(tmp_path, platform):
    touched, grads = stream(steps=4)
    coll = jde.Tables([table(jde.optim.momentum(0.1, catch_up="smart"))])
    state = coll.init(0)
    for keys, g in zip(touched, grads, strict=True):
        _, residual, state = coll.lookup(state, {"t": jde.ids(keys)})
        state = coll.apply_gradients(state, residual, {"t": jnp.asarray(g[keys])})
    before = export(coll, state, "t")
    jde.checkpoint.save(tmp_path / "c", 1, state, tables=coll, wait=True)
    restored = jde.checkpoint.restore(tmp_path / "c", coll.init(1), tables=coll)
    larger, grown = coll.grow(state, {"t": 4_096})
    for other in (
        export(coll, restored.tree, "t"),
        export(larger, grown, "t"),
    ):
        for key, row in before.items():
            for name, value in row.state.items():
                np.testing.assert_array_equal(other[key].state[name], value)


def test_options_that_exclude_each_other():
    adam, adagrad = jde.optim.adam, jde.optim.rowwise_adagrad
    with pytest.raises(ValueError, match="set bias_correction='none'"):
        adam(0.1, catch_up="smart")
    with pytest.raises(ValueError, match="not with 'row'"):
        adam(0.1, catch_up="decay", bias_correction="row")
    with pytest.raises(ValueError, match="weight_decay_mode='decoupled'"):
        adagrad(0.1, weight_decay=0.1, weight_decay_mode="l2", catch_up="decay")
    with pytest.raises(ValueError, match="leave these out"):
        adagrad(0.1, max_norm=1.0, cow_clip=jde.optim.CowClip(0.1))
    with pytest.raises(ValueError, match="half_life must be above 0"):
        jde.optim.CowClip(0.1, half_life=0)
    for options, sentence in (
        ({"catch_up_floor": -0.5}, "catch_up_floor must not be negative"),
        ({"catch_up_floor": 1.5}, "catch_up_floor is the least factor of a decay"),
        ({"catch_up_start": 2.5}, "catch_up_start is the number of an update"),
        ({"catch_up_start": 2**24 + 1}, r"at most 2\*\*24, not 16777217"),
    ):
        for make in (adam, adagrad):
            with pytest.raises(ValueError, match=sentence):
                make(0.1, weight_decay=0.1, catch_up="decay", **options)
    with pytest.raises(ValueError, match="learning_rate must be a float32"):
        jde.optim.sgd(1e40)


def test_counters_that_cannot_be_had_are_refused():
    Counter = jde.optim.Counter
    with pytest.raises(ValueError, match="which makes rows grow"):
        Counter(None, "decoupled")
    with pytest.raises(ValueError, match="set half_life=None"):
        Counter(4.0, "adagradw_root")
    with pytest.raises(ValueError, match="decay must be one of"):
        Counter(4.0, "L2")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="but not with weight_decay_mode, max_norm"):
        jde.optim.rowwise_adagrad(0.1, max_norm=1.0, counter=Counter(4.0))
