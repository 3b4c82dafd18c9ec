# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The optimizers of the shared loop against the oracle, and at the edges of floats."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from optimizer_kinds import KINDS, LOOSE
from support import Twins, export, gradients, stat


def make(name, **options):
    options = {"dim": 16, "capacity": 256} | options
    return Twins(jde.TableConfig(name="t", optimizer=KINDS[name], **options))


@pytest.mark.parametrize("dim", [1, 3, 16, 130])
@pytest.mark.parametrize("name", KINDS)
def test_many_steps_with_duplicates(platform, name, dim):
    twins = make(name, dim=dim)
    rng = np.random.default_rng(0)
    for _ in range(8):
        _, residuals = twins.lookup({"t": rng.integers(-1, 60, 64)})
        twins.apply(residuals, {"t": rng.normal(size=(64, dim)).astype("f")})
    assert stat(twins, "t/step") == 8
    twins.check(LOOSE)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["momentum", "lamb", "partial_rowwise_adam"])
def test_rows_of_16_bits(platform, name, dtype):
    twins = make(name, param_dtype=dtype, dtype=dtype)
    for step in range(3):
        _, residuals = twins.lookup({"t": [1, 2, 3, 2]})
        twins.apply(residuals, {"t": gradients((4, 16), step)})
    got = export(twins.coll, twins.state, "t")
    for key, row in twins.oracle.export("t").items():
        want = row.values.astype(np.float32)
        np.testing.assert_allclose(
            got[key].values.astype(np.float32), want, rtol=2**-5, atol=2e-3
        )


@pytest.mark.parametrize("name", KINDS)
def test_a_zero_gradient_and_a_zero_row(platform, name):
    """No quotient of two zeros makes a NaN, at any step."""
    twins = make(name, initializer=jde.initializers.zeros())
    for d_rows in (np.zeros((4, 16)), gradients((4, 16), 1), np.zeros((4, 16))):
        _, residuals = twins.lookup({"t": [1, 2, 3, 3]})
        twins.apply(residuals, {"t": d_rows})
    twins.check(LOOSE)
    for row in export(twins.coll, twins.state, "t").values():
        assert np.isfinite(row.values).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_learning_rate_0_moves_nothing(platform, name):
    if "max_norm" in name:
        pytest.skip("a new row is scaled down whatever the rate")
    twins = make(name)
    before, residuals = twins.lookup({"t": [1, 2, 3]})
    twins.apply(residuals, {"t": gradients((3, 16), 1)}, learning_rate=0.0)
    after, _ = twins.find({"t": [1, 2, 3]})
    np.testing.assert_array_equal(before["t"], after["t"])


@pytest.mark.parametrize("size", [1e20, 1e-20, 1e-30])
@pytest.mark.parametrize("name", KINDS)
def test_huge_and_tiny_gradients(platform, name, size):
    coll = jde.Tables([jde.TableConfig("t", 16, 256, optimizer=KINDS[name])])
    state = coll.init(0)
    for step in range(2):
        _, residual, state = coll.lookup(state, {"t": jde.ids(np.arange(3))})
        d_rows = {"t": jnp.asarray(gradients((3, 16), step) * np.float32(size))}
        state = coll.apply_gradients(state, residual, d_rows)
    for row in export(coll, state, "t").values():
        assert not np.isnan(row.values).any()
        for state in row.state.values():
            assert not np.isnan(state).any()


@pytest.mark.parametrize("dim", [16, 130])
@pytest.mark.parametrize("name", KINDS)
def test_nonfinite_rows_are_skipped_and_counted(platform, name, dim):
    twins = make(name, dim=dim)
    for step, bad in enumerate((np.nan, np.inf, -np.inf)):
        d_rows = gradients((4, dim), step)
        d_rows[step, dim - 1] = bad
        _, residuals = twins.lookup({"t": [1, 2, 3, 4]})
        twins.apply(residuals, {"t": d_rows})
    assert stat(twins, "t/nonfinite") == 3
    twins.check(LOOSE)


@pytest.mark.parametrize("name", KINDS)
def test_a_row_that_returns_is_new(platform, name):
    twins = make(name)
    for _ in range(2):
        twins.train({"t": [5, 6]}, seed=1)
        twins.train({"t": [5, 6]}, seed=2)
        twins.erase({"t": [5]})
    twins.train({"t": [5, 6]}, seed=3)
    twins.check(LOOSE)


@pytest.mark.parametrize("name", KINDS)
def test_states_before_the_first_update_are_initial(platform, name):
    """Also those of one number a row, which no mark stands in."""
    twins = make(name)
    twins.lookup({"t": [1, 2, 3]})
    twins.check()
    for row in export(twins.coll, twins.state, "t").values():
        for state, first in KINDS[name].initial:
            assert (row.state[state] == np.float32(first)).all()


@pytest.mark.parametrize("name", KINDS)
def test_inserted_states_are_used(platform, name):
    twins = make(name)
    ids = np.array([1, 2])
    rng = np.random.default_rng(3)
    states = {
        state: rng.uniform(0.5, 1.0, (2, *spec.shape)).astype("f")
        for state, spec in twins.coll.tables["t"].states.items()
    }
    twins.insert({"t": ids}, {"t": gradients((2, 16), 7)}, {"t": states})
    twins.check()
    twins.train({"t": ids}, seed=1)
    twins.check(LOOSE)


@pytest.mark.parametrize("name", KINDS)
def test_a_schedule_and_numbers_of_the_call_need_one_compilation(platform, name):
    own = KINDS[name]
    schedule = optax.cosine_decay_schedule(0.5, 4)
    kind = type(own)(own.kind, schedule, own.numbers, own.initial)
    coll = jde.Tables([jde.TableConfig("t", 8, 256, optimizer=kind)])
    number = own.numbers[0][0]

    @jax.jit
    def step(state, given):
        _, residual, state = coll.lookup(state, {"t": jde.ids(np.arange(3))})
        hyper = {"t": {number: given}}
        return coll.apply_gradients(
            state, residual, {"t": jnp.ones((3, 8))}, hyper=hyper
        )

    state = coll.init(0)
    for given in (0.1, 0.2, 0.3):
        state = step(state, jnp.float32(given))
    assert step._cache_size() == 1


def test_a_late_row_takes_a_first_step_of_its_own(platform):
    """Its bias correction counts from its own first update."""
    steps = {}
    for mode in ("table", "row"):
        table = jde.TableConfig(
            "t", 4, 256, optimizer=jde.optim.adam(0.1, bias_correction=mode)
        )
        twins = Twins(table)
        for seed in range(40):
            twins.train({"t": [1]}, seed=seed)
        before, residuals = twins.lookup({"t": [2]})
        twins.apply(residuals, {"t": np.ones((1, 4))})
        after, _ = twins.find({"t": [2]})
        steps[mode] = float((before["t"] - after["t"])[0, 0])
    np.testing.assert_allclose(steps["row"], 0.1, rtol=1e-4)
    assert steps["table"] < 0.09 or steps["table"] > 0.11


@pytest.mark.parametrize("halves", [(), ("n",), ("z", "n")])
def test_a_consistent_row_goes_on_from_where_it_is(platform, halves):
    """Zero gradients leave warm rows of FTRL where they are, and z_init="zero" not."""
    moved, options = {}, {"rounding": "stochastic"} if halves else {}
    for mode in ("zero", "consistent"):
        optimizer = jde.optim.ftrl(0.1, beta=1.0, z_init=mode)
        dtypes = dict.fromkeys(halves, "bfloat16")
        twins = Twins(
            jde.TableConfig(
                "t", 8, 256, optimizer=optimizer, state_dtype=dtypes, **options
            )
        )
        before, residuals = twins.lookup({"t": [1, 2]})
        twins.apply(residuals, {"t": np.zeros((2, 8))})
        after, _ = twins.find({"t": [1, 2]})
        moved[mode] = np.abs(after["t"] - before["t"]).max()
    assert moved["consistent"] < 1e-7 < moved["zero"]


def test_max_norm_bounds_every_touched_row(platform):
    twins = make("rowwise_adagrad_max_norm")
    for seed in range(4):
        twins.train({"t": np.arange(20)}, seed=seed)
    for row in export(twins.coll, twins.state, "t").values():
        assert np.linalg.norm(row.values) <= 0.4 * (1 + 1e-5)


def test_a_lars_or_lamb_row_of_zeros_moves(platform):
    for name in ("lars", "lamb", "partial_rowwise_lamb"):
        twins = make(name, initializer=jde.initializers.zeros())
        twins.train({"t": [1]}, seed=1)
        row = export(twins.coll, twins.state, "t")[1]
        assert np.abs(row.values).max() > 0


def test_tuned_and_shared_loops_in_one_collection(platform):
    tables = [
        jde.TableConfig("a", 16, 256, optimizer=jde.optim.adam(0.1)),
        jde.TableConfig("b", 16, 256, optimizer=KINDS["lamb"]),
        jde.TableConfig("c", 8, 256, optimizer=KINDS["ftrl"], pooling="mean"),
        jde.TableConfig("d", 8, 256, optimizer=optax.lion(0.1)),
    ]
    coll = jde.Tables(tables)
    state = coll.init(0)
    singles = {t.name: jde.Tables([t]) for t in tables}
    alone = {name: each.init(0) for name, each in singles.items()}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ids = {n: jde.ids(rng.integers(0, 20, (6, 2))) for n in "abcd"}
        rows, residual, state = coll.lookup(state, ids)
        d_rows = {n: jnp.asarray(gradients(x.shape, seed)) for n, x in rows.items()}
        state = coll.apply_gradients(state, residual, d_rows)
        for name, each in singles.items():
            _, own, alone[name] = each.lookup(alone[name], {name: ids[name]})
            alone[name] = each.apply_gradients(alone[name], own, {name: d_rows[name]})
    # On a GPU tables of several optimizers have another kernel, and another last bit.
    limits = [0.0, 0.0] if platform == "cpu" else [2e-6, 1e-6]
    for name, each in singles.items():
        together, apart = export(coll, state, name), export(each, alone[name], name)
        for key, row in apart.items():
            got = together[key].values
            np.testing.assert_allclose(got, row.values, *limits)


def test_the_shared_loop_agrees_with_the_tuned_ones(platform):
    """A limit that no gradient reaches leaves the formulas of the four."""
    for name in ("sgd", "adagrad", "rowwise_adagrad", "adam"):
        results = []
        for options in ({}, {"clip_row_value": 1e6}):
            optimizer = getattr(jde.optim, name)(0.1, **options)
            twins = Twins(jde.TableConfig("t", 24, 256, optimizer=optimizer))
            for seed in range(3):
                twins.train({"t": [1, 2, 3, 2]}, seed=seed)
            results.append(twins.find({"t": [1, 2, 3]})[0]["t"])
        np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-7)


def test_the_same_inputs_give_the_same_bits(platform):
    rng = np.random.default_rng(7)
    ids, d_rows = rng.zipf(1.3, 5_000), rng.normal(size=(5_000, 16)).astype("f")
    results = []
    for _ in range(2):
        twins = make("lamb", capacity=16_384)
        _, residuals = twins.lookup({"t": ids})
        twins.apply(residuals, {"t": d_rows})
        results.append(twins.find({"t": ids[:300]})[0]["t"])
    np.testing.assert_array_equal(*results)


def test_flags_and_scales_are_named_as_they_are_given():
    for options in ({"initial_scale": -1.0}, {"eps_in_sqrt": "yes"}):
        (name,) = options
        with pytest.raises(ValueError, match=f"jde.optim.rmsprop: {name} must"):
            jde.optim.rmsprop(0.1, **options)
    with pytest.raises(ValueError, match="nesterov must be True or False, not 'yes'"):
        jde.optim.momentum(0.1, nesterov="yes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="Only the learning rate takes a schedule"):
        jde.optim.adam(0.1, b1=optax.constant_schedule(0.9))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="learning_rate must be a number, not True"):
        jde.optim.lion(True)
