# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizer states of 16 bits: their bits, their mark, and every way in and out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import Rows, Twins, assert_same_rows, compiled, export, gradients

OPTIM = jde.optim
NEAREST = {
    "adam": (OPTIM.adam(0.05), {"mu": "bfloat16"}),
    "adam_row": (OPTIM.adam(0.05, bias_correction="row"), {"mu": "bfloat16"}),
    "partial": (OPTIM.partial_rowwise_adam(0.05), {"mu": "bfloat16"}),
    "momentum": (OPTIM.momentum(0.05), {"trace": "bfloat16"}),
    "smart": (OPTIM.momentum(0.05, catch_up="smart"), {"trace": "bfloat16"}),
    "lion": (OPTIM.lion(0.01), {"mu": "bfloat16"}),
    "lamb": (OPTIM.lamb(0.05), {"mu": "bfloat16"}),
    "lars": (OPTIM.lars(0.5, eta=0.1), {"trace": "bfloat16"}),
}
STOCHASTIC = {
    "adam": (OPTIM.adam(0.05), {"mu": "bfloat16", "nu": "bfloat16"}),
    "adagrad": (
        OPTIM.adagrad(0.1, initial_accumulator_value=0.1),
        {"sum_of_squares": "bfloat16"},
    ),
    "ftrl": (OPTIM.ftrl(0.1), {"z": "bfloat16", "n": "bfloat16"}),
}
CASES = [
    *(pytest.param(*case, "nearest", id=name) for name, case in NEAREST.items()),
    *(pytest.param(*case, "stochastic", id=f"s_{n}") for n, case in STOCHASTIC.items()),
]


def make(optimizer, dtypes, rounding="nearest", dim=16, **options):
    return jde.TableConfig(
        "t",
        dim,
        256,
        optimizer=optimizer,
        state_dtype=dtypes,
        rounding=rounding,
        initializer=jde.initializers.normal(1.0),
        **options,
    )


def train(twins, keys, seed):
    """A step of both; a sum of another order may round a state to a neighbour."""
    dim = twins.coll.tables["t"].dim
    ids = {"t": np.asarray(keys)}
    given = {"t": jde.ids(ids["t"])}
    _, residual, twins.state = twins.jit.lookup(twins.state, given, None, None)
    _, expected = twins.oracle.lookup(ids)
    twins.apply((residual, expected), {"t": gradients((len(keys), dim), seed)})


def assert_rounded(got, want):
    """Halves with the same bits but for a few, which are neighbours."""
    np.testing.assert_allclose(got, want, rtol=2.0**-7, atol=0.01 * abs(want).max())
    assert np.mean(got != want) < 0.02


@pytest.mark.parametrize("dim", [16, 130])
@pytest.mark.parametrize("optimizer, dtypes, rounding", CASES)
def test_states_are_those_of_the_oracle(platform, optimizer, dtypes, rounding, dim):
    twins = Twins(make(optimizer, dtypes, rounding, dim))
    table = twins.coll.tables["t"]
    for name in table.states:
        stored = "bfloat16" if name in dtypes else table.states[name].dtype
        assert twins.state["t"].optimizer[name].dtype == stored
    for step in range(4):
        ids = np.random.default_rng(step).integers(0, 30, 40)
        train(twins, ids, step)
    got = Rows.of(export(twins.coll, twins.state, "t"))
    want = Rows.of(twins.oracle.export("t"))
    np.testing.assert_allclose(got.values, want.values, rtol=0.02, atol=0.02)
    for name, states in got.state.items():
        assert states.dtype in (np.float32, np.int32)
        if name in dtypes:
            assert_rounded(states, want.state[name])
        else:
            np.testing.assert_allclose(states, want.state[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("optimizer, dtypes, rounding", CASES)
def test_an_unwritten_state_is_its_initial_value(platform, optimizer, dtypes, rounding):
    """Its mark is finite in 16 bits, and goes with the first update."""
    twins = Twins(make(optimizer, dtypes, rounding))
    _, (residual, _) = twins.lookup({"t": [1, 2, 3]})
    twins.check()
    state = twins.state["t"]
    for array in state.optimizer.values():
        assert np.isfinite(np.asarray(array, np.float32)).all()
    zeros = {"t": jnp.zeros((3, 16))}
    summed, twins.state = twins.coll.reduce_gradients(twins.state, residual, zeros)
    slots = {"t": summed["t"].slots}
    rows, twins.state = twins.coll.gather(twins.state, slots)
    for name, spec in twins.coll.tables["t"].states.items():
        assert rows["t"][name].dtype == spec.dtype
        assert (rows["t"][name] == spec.initial).all()
    train(twins, [1, 2], 1)
    twins.erase({"t": [1]})
    train(twins, [2], 2)
    ids = {"t": jde.ids([1])}
    _, _, twins.state = twins.jit.lookup(twins.state, ids, None, None)
    first = export(twins.coll, twins.state, "t")[1].state
    for name, spec in twins.coll.tables["t"].states.items():
        assert (first[name] == spec.initial).all()


@pytest.mark.parametrize("optimizer, dtypes, rounding", CASES)
def test_inserted_states_are_rounded_and_used(platform, optimizer, dtypes, rounding):
    twins = Twins(make(optimizer, dtypes, rounding))
    draw = np.random.default_rng(3)
    states = {}
    for name, spec in twins.coll.tables["t"].states.items():
        states[name] = draw.uniform(0.5, 1.0, (2, *spec.shape)).astype(spec.dtype)
        if name in dtypes:
            states[name] = states[name].astype("bfloat16").astype("f")
    twins.insert({"t": [1, 2]}, {"t": gradients((2, 16), 7)}, {"t": states})
    got = export(twins.coll, twins.state, "t")
    for name, given in states.items():
        np.testing.assert_array_equal([got[k].state[name] for k in (1, 2)], given)
    train(twins, [1, 2], 1)
    trained = Rows.of(export(twins.coll, twins.state, "t"))
    want = Rows.of(twins.oracle.export("t"))
    np.testing.assert_allclose(trained.values, want.values, rtol=0.02, atol=0.02)


def test_stochastic_sums_grow_where_nearest_ones_stop(platform):
    """1,000 squares of one: a bfloat16 that rounds to nearest stops at 256."""
    dim = 256
    table = make(*STOCHASTIC["adagrad"], "stochastic", dim)
    coll = jde.Tables([table])

    @jax.jit
    def train(state):
        def step(_, state):
            _, residual, state = coll.lookup(state, {"t": jde.ids(np.arange(16))})
            return coll.apply_gradients(state, residual, {"t": jnp.ones((16, dim))})

        return jax.lax.fori_loop(0, 1_000, step, state)

    rows = export(coll, train(coll.init(0)), "t")
    sums = np.stack([row.state["sum_of_squares"] for row in rows.values()])
    # Near 1,000 a unit is 4: the variance of a rounding is at most 4 a step.
    assert abs(sums.mean() - 1_000.1) < 4 * np.sqrt(4 * 1_000 / sums.size)


def trained(coll, steps=4):
    state, jit = coll.init(7), compiled(coll)
    for step in range(steps):
        ids = {"t": jde.ids(np.random.default_rng(step).integers(0, 300, 100))}
        _, residual, state = jit.lookup(state, ids, None, None)
        d_rows = {"t": jnp.asarray(gradients((100, 16), step))}
        state = jit.apply_gradients(state, residual, d_rows, None)
    return jit.lookup(state, {"t": jde.ids([900, 901])}, None, None)[2]


@pytest.mark.parametrize("to", ["same", "float32", "larger", "mesh"])
def test_checkpoints(tmp_path, to):
    optimizer, dtypes = NEAREST["adam"]
    coll = jde.Tables([make(optimizer, dtypes)])
    state = trained(coll)
    jde.checkpoint.save(tmp_path, 1, {"tables": state}, tables=coll, wait=True)
    table = make(optimizer, {} if to == "float32" else dtypes)
    if to == "larger":
        table = jde.TableConfig("t", 16, 2_048, optimizer=optimizer, state_dtype=dtypes)
    placed = {"mesh": mesh_of(2), "axis": "data"} if to == "mesh" else {}
    again = jde.Tables([table], **placed)
    result = jde.checkpoint.restore(
        tmp_path, {"tables": again.init(9)}, tables=again, strict=to != "larger"
    )
    got = export(again, result.tree["tables"], "t")
    assert_same_rows(got, export(coll, state, "t"))


def test_growth_and_files(tmp_path):
    optimizer, dtypes = NEAREST["adam"]
    coll = jde.Tables([make(optimizer, dtypes)])
    state = trained(coll)
    want = export(coll, state, "t")
    jde.export.dynamicemb(tmp_path / "dump", coll, state)
    read = jde.import_.dynamicemb(tmp_path / "dump", coll)
    for key, row in export(coll, read.state, "t").items():
        np.testing.assert_array_equal(row.values, want[key].values)
        for name in ("mu", "nu"):
            np.testing.assert_array_equal(row.state[name], want[key].state[name])
    jde.export.safetensors(tmp_path / "files", coll, state)
    grown, larger = coll.grow(state, {"t": 1_024})
    assert larger["t"].optimizer["mu"].dtype == jnp.bfloat16
    assert_same_rows(export(grown, larger, "t"), want)


@pytest.mark.parametrize("sharding", ["row_wise", "table_wise", "column_wise"])
@pytest.mark.parametrize("name", ["adam", "s_adam"])
def test_eight_devices_store_what_one_does(sharding, name):
    optimizer, dtypes = (STOCHASTIC if name == "s_adam" else NEAREST)["adam"]
    rounding = "stochastic" if name == "s_adam" else "nearest"
    rows = []
    for placed in ({}, {"mesh": mesh_of(8), "axis": "data"}):
        table = jde.TableConfig(
            "t",
            96,
            2_048,
            optimizer=optimizer,
            state_dtype=dtypes,
            rounding=rounding,
            sharding=sharding,
        )
        coll = jde.Tables([table], **placed)
        state = coll.init(3)
        for step in range(2):
            _, residual, state = coll.lookup(state, {"t": jde.ids(np.arange(40))})
            d_rows = {"t": jnp.asarray(gradients((40, 96), step))}
            state = coll.apply_gradients(state, residual, d_rows)
        rows.append(export(coll, state, "t"))
    for key, row in rows[0].items():
        for state in ("mu", "nu"):
            np.testing.assert_array_equal(row.state[state], rows[1][key].state[state])


@pytest.mark.parametrize(
    "optimizer, dtypes, sentence",
    [
        (OPTIM.adam(0.1), {"nu": "bfloat16"}, "needs rounding='stochastic'"),
        (OPTIM.adagrad(0.1), {"sum_of_squares": "bfloat16"}, "stops growing at 256"),
        (OPTIM.adam(0.1), {"momentum": "bfloat16"}, r"are \['mu', 'nu'\]"),
        (OPTIM.rowwise_adagrad(0.1), {"sum_of_squares": "bfloat16"}, "one number"),
        (OPTIM.lion(0.1), {"mu": "float16"}, "'float32' or 'bfloat16'"),
        (optax.adam(0.1), {"mu": "bfloat16"}, "Leave state_dtype out"),
        (OPTIM.adam(0.1), "bfloat16", "names the states that it is for: write {'mu'"),
    ],
)
def test_what_cannot_be_had_is_refused(optimizer, dtypes, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(optimizer, dtypes)


def test_a_tier_has_float32_states():
    with pytest.raises(ValueError, match="leave state_dtype out"):
        make(*NEAREST["adam"], tier=jde.tiers.host())


def test_float32_may_be_named():
    assert make(OPTIM.adam(0.1), {"mu": "float32"}).state_dtype == ()
    assert hash(make(*NEAREST["adam"])) == hash(make(*NEAREST["adam"]))
