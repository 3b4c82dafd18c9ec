# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Any row-local optax transformation as a table's optimizer, unmodified."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.optim.optax import OptaxOptimizer

KEYS, DIM, STEPS = 20, 6, 4
SCHEDULE = optax.cosine_decay_schedule(0.1, STEPS)

TRANSFORMS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(SCHEDULE),
    "adamw": optax.chain(optax.clip(0.5), optax.adamw(0.1, weight_decay=0.1)),
    "rmsprop": optax.rmsprop(0.1, centered=True, momentum=0.9),
    "lion": optax.lion(0.01),
    "adagrad": optax.adagrad(0.1),
    "amsgrad": optax.amsgrad(0.1),
    "inject_hyperparams": optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE),
    "bfloat16 moments": optax.adam(0.1, mu_dtype=jnp.bfloat16),
    "named_chain": optax.named_chain(("a", optax.centralize()), ("b", optax.sgd(0.1))),
}
NOT_ROW_LOCAL = {
    "clip_by_global_norm": optax.chain(optax.clip_by_global_norm(1e6), optax.adam(0.1)),
    "scale_by_trust_ratio": optax.lamb(0.1),
    "scale_by_lbfgs": optax.lbfgs(),
    "clip_by_block_rms": optax.adafactor(0.1),
    "add_noise": optax.chain(optax.sgd(0.1), optax.add_noise(0.1, 0.5, key=0)),
    "scale_by_muon": optax.contrib.muon(0.1),
    "scale_by_sm3": optax.sm3(0.1),
    "scale_by_novograd": optax.novograd(0.1),
    "apply_if_finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "adaptive_grad_clip": optax.named_chain(
        ("clip", optax.adaptive_grad_clip(0.1)), ("sgd", optax.sgd(0.1))
    ),
    "dadapt_adamw": optax.contrib.dadapt_adamw(),
    "schedule_free": optax.contrib.schedule_free_sgd(0.1),
    "scale_by_polyak": optax.polyak_sgd(),
    r"inject_hyperparams\(lamb\)": optax.inject_hyperparams(optax.lamb)(0.1),
}


def make(tx, **options):
    table = jde.TableConfig("t", DIM, 256, optimizer=tx, **options)
    coll = jde.Tables([table])
    rows, _, state = coll.lookup(coll.init(3), {"t": jde.ids(np.arange(KEYS))})
    return coll, rows["t"], state


def train(coll, state, steps):
    """Applies (ids, d_rows) of each step, jitted with a donated state."""

    @jax.jit
    def step(state, ids, d_rows):
        _, residual, state = coll.lookup(state, {"t": ids})
        return coll.apply_gradients(state, residual, {"t": d_rows})

    for ids, d_rows in steps:
        state = step(state, jde.ids(ids), d_rows)
    found, _, _ = coll.find(state, {"t": jde.ids(np.arange(KEYS))})
    return found["t"], state


def gradients(seed, count):
    draw = np.random.default_rng(seed)
    return jnp.asarray(draw.normal(size=(count, DIM)), jnp.float32)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_equals_optax_on_a_dense_table(platform, name):
    tx = TRANSFORMS[name]
    coll, rows, state = make(tx)
    # Every id, some twice: their gradients are summed before the one update.
    ids = np.concatenate([np.arange(KEYS), np.arange(0, KEYS, 3)])
    steps = [(ids, gradients(s, len(ids))) for s in range(STEPS)]
    with jax.numpy_dtype_promotion("standard"):
        opt_state, dense = tx.init(rows), rows
        for each, d_rows in steps:
            summed = jnp.zeros_like(dense).at[each].add(d_rows)
            updates, opt_state = tx.update(summed, opt_state, dense)
            dense = optax.apply_updates(dense, updates)
    types = jax.tree.map(jax.typeof, state)
    trained, state = train(coll, state, steps)
    assert jax.tree.map(jax.typeof, state) == types  # so that lax.scan can carry it
    tolerance = 2e-2 if "bfloat16" in name else 1e-5
    np.testing.assert_allclose(trained, dense, rtol=tolerance, atol=tolerance)
    assert coll.stats(state)["t/step"] == STEPS


@pytest.mark.parametrize("name", ["momentum", "rmsprop", "adagrad"])
def test_a_row_sees_its_own_steps_only(name):
    tx = TRANSFORMS[name]
    coll, rows, state = make(tx)
    steps = [
        (np.random.default_rng(s).choice(KEYS, 7, replace=False), gradients(s, 7))
        for s in range(STEPS)
    ]
    trained, _ = train(coll, state, steps)
    for key in range(KEYS):
        row, opt_state = rows[key], tx.init(rows[key])
        for ids, d_rows in steps:
            if key in ids:
                gradient = d_rows[list(ids).index(key)]
                updates, opt_state = tx.update(gradient, opt_state, row)
                row = optax.apply_updates(row, updates)
        np.testing.assert_allclose(trained[key], row, rtol=1e-5, atol=1e-6)


def test_states_carry_the_names_of_optax():
    coll, _, state = make(TRANSFORMS["adam"])
    assert set(state["t"].optimizer) == {"mu", "nu"}
    assert state["t"].optimizer["mu"].shape == (256, DIM)
    assert [x.shape for x in state["t"].extra] == [(), ()]  # two counts
    _, state = train(coll, state, [(np.arange(KEYS), gradients(0, KEYS))] * 3)
    assert [int(x) for x in state["t"].extra] == [3, 3]
    (chunk,) = coll.export(state, "t")
    assert set(chunk.optimizer_state) == {"mu", "nu"}


def test_new_rows_start_with_the_initial_state():
    coll, _, state = make(optax.adagrad(0.1, initial_accumulator_value=0.5))
    (chunk,) = coll.export(state, "t")
    np.testing.assert_array_equal(chunk.optimizer_state["sum_of_squares"], 0.5)


@pytest.mark.parametrize("name", NOT_ROW_LOCAL)
def test_refused_by_name(name):
    sentence = f"optax {name} is not row-local and cannot be applied to the touched"
    with pytest.raises(ValueError, match=sentence):
        jde.TableConfig("t", DIM, 256, optimizer=NOT_ROW_LOCAL[name])


def test_the_sentence_holds_the_fix():
    with pytest.raises(ValueError, match="jde.optim.clip_by_global_norm"):
        jde.TableConfig("t", DIM, 256, optimizer=NOT_ROW_LOCAL["clip_by_global_norm"])
    with pytest.raises(ValueError, match="part of lamb and lars.*Use a row-local one"):
        lamb = NOT_ROW_LOCAL["scale_by_trust_ratio"]
        jde.TableConfig("t", DIM, 256, optimizer=lamb)


def test_what_shows_on_wide_tables_only():
    factored = optax.scale_by_factored_rms()
    OptaxOptimizer(factored).states(64)  # not factored below 128 columns
    with pytest.raises(ValueError, match="scale_by_factored_rms.*part of adafactor"):
        OptaxOptimizer(factored).states(256)


def test_multi_steps_is_judged_by_its_inner_transformation():
    coll, rows, state = make(optax.MultiSteps(optax.sgd(0.1), 2))
    same = [(np.arange(KEYS), gradients(s, KEYS)) for s in range(2)]
    trained, _ = train(coll, state, same)
    mean = (same[0][1] + same[1][1]) / 2
    np.testing.assert_allclose(trained, rows - 0.1 * mean, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="clip_by_global_norm"):
        inner = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
        jde.TableConfig("t", DIM, 256, optimizer=optax.MultiSteps(inner, 2))


def test_too_many_states():
    tx = optax.chain(optax.scale_by_amsgrad(), optax.rmsprop(0.1, centered=True))
    with pytest.raises(ValueError, match="keeps 5 numbers"):
        jde.TableConfig("t", DIM, 256, optimizer=tx)


def test_can_be_made_under_a_trace_and_with_nan_checks():
    with jax.debug_nans(True):
        jde.TableConfig("t", 5, 256, optimizer=optax.adam(0.2))

    @jax.jit
    def inside(x):
        table = jde.TableConfig("t", 7, 256, optimizer=optax.adam(0.3))
        return x + len(jde.Tables([table]).init(0)["t"].extra)

    assert int(inside(1)) == 2


def test_equal_transformations_make_equal_tables():
    tx = optax.adam(0.1)
    one, two = (jde.TableConfig("t", DIM, 256, optimizer=tx) for _ in range(2))
    assert one == two and hash(one) == hash(two)
