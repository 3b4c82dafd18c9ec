# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of 16 bits that updates round at random: which bits, and what they are worth."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from optimizer_kinds import KINDS
from oracle import round_stochastically, rounding_bits, table_seed
from support import Twins, export, gradients

HALVES = ("bfloat16", "float16")
# These have kernels of their own on a GPU.
TUNED = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.1),
}
EDGES = np.array(
    [
        *(0.0, 1.0, -1.5, np.inf, -np.inf, np.nan),
        *(65504.0, 65519.0, 65535.9, -65535.9, 65536.0, 1e30),
        *(3.3895314e38, 3.3961775e38, np.finfo("f").max, -np.finfo("f").max),
        *(2.0**-14, 2.0**-14 * (1 - 2.0**-24), 2.0**-24, 1.5 * 2.0**-24, 2.0**-26),
        *(-(2.0**-25), 1e-37, 2.0**-126, 1 + 2.0**-23),
    ],
    np.float32,
)


def make(optimizer, dtype="bfloat16", dim=16, **options):
    options = {"initializer": jde.initializers.zeros(), "capacity": 256} | options
    return jde.TableConfig(
        "t",
        dim,
        optimizer=optimizer,
        param_dtype=dtype,
        dtype=dtype,
        rounding="stochastic",
        **options,
    )


def stored_after(table, keys, wanted, steps=1, **placement):
    """Rows of zeros that take one SGD step each to ``wanted``, exactly in float32."""
    coll = jde.Tables([table], **placement)
    state = coll.init(3)
    for step in range(steps):
        _, residual, state = coll.lookup(state, {"t": jde.ids(keys)})
        d_rows = -wanted if step == steps - 1 else np.zeros_like(wanted)
        state = coll.apply_gradients(state, residual, {"t": jnp.asarray(d_rows)})
    rows = export(coll, state, "t")
    return np.stack([rows[int(key)].values for key in keys])


def normals(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def same_bits(got, want):
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("dim", [1, 3, 8, 20, 130])
@pytest.mark.parametrize("dtype", HALVES)
def test_bits_are_those_of_the_oracle(platform, dtype, dim):
    keys = np.array([0, 7, -9, 2**40 + 3, -(2**62)])
    rng = np.random.default_rng(dim)
    size = 2.0 ** rng.uniform(-30, 14, (len(keys), dim))
    wanted = (rng.normal(size=size.shape) * size).astype("f")
    got = stored_after(make(jde.optim.sgd(1.0), dtype, dim), keys, wanted, steps=2)
    seed = table_seed(3, "t")
    bits = rounding_bits(seed, keys.view(np.uint64), dim, step=2)
    same_bits(got, round_stochastically(wanted, bits, dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_edges(platform, dtype):
    """Exact, infinite and NaN stay; a finite number is not rounded to infinity."""
    keys = np.arange(200)
    wanted = np.tile(EDGES, (len(keys), 1))
    table = make(jde.optim.sgd(1.0), dtype, len(EDGES), nonfinite="propagate")
    got = stored_after(table, keys, wanted)
    seed = table_seed(3, "t")
    bits = rounding_bits(seed, keys.astype(np.uint64), len(EDGES), step=1)
    want = round_stochastically(wanted, bits, dtype)
    numbers = ~np.isnan(EDGES)
    same_bits(got[:, numbers], want[:, numbers])
    floats = got.astype("f")
    assert np.isnan(floats[:, ~numbers]).all()
    with np.errstate(over="ignore"):
        exact = EDGES.astype(dtype).astype("f") == EDGES
    np.testing.assert_array_equal(floats[:, exact], wanted[:, exact])
    finite = np.isfinite(EDGES) & ((np.abs(EDGES) < 65536) | (dtype == "bfloat16"))
    assert np.isfinite(floats[:, finite]).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_the_mean_of_many_roundings_is_the_number(platform, dtype):
    """Within four standard deviations, for normal and for subnormal numbers."""
    keys, dim = np.arange(2_000), 32
    for number in (1.0 + 0.3 * 2.0**-7, -3.14159, 2.0**-20 * 1.2345):
        wanted = np.full((len(keys), dim), number, "f")
        table = make(jde.optim.sgd(1.0), dtype, dim, capacity=4_096)
        got = stored_after(table, keys, wanted).astype(np.float64)
        unit = np.ptp(got)
        share = abs((np.float64(np.float32(number)) - got.min()) / unit)
        deviation = unit * np.sqrt(share * (1 - share) / got.size)
        assert len(np.unique(got)) == 2
        assert abs(got.mean() - np.float64(np.float32(number))) < 4 * deviation


def test_small_steps_add_up(platform):
    """2,000 steps of 1e-4 from 1: 1.2, where rounding to nearest stays at 1."""
    means = {}
    for rounding in ("nearest", "stochastic"):
        table = jde.TableConfig(
            "t",
            64,
            256,
            initializer=jde.initializers.constant(1.0),
            optimizer=jde.optim.sgd(1e-4),
            param_dtype="bfloat16",
            rounding=rounding,
        )
        coll = jde.Tables([table])

        @jax.jit
        def train(state, coll=coll):
            def step(_, state):
                ids = {"t": jde.ids(np.arange(16))}
                _, residual, state = coll.lookup(state, ids)
                d_rows = {"t": jnp.full((16, 64), -1.0)}
                return coll.apply_gradients(state, residual, d_rows)

            return jax.lax.fori_loop(0, 2_000, step, state)

        rows = export(coll, train(coll.init(0)), "t")
        means[rounding] = np.mean([row.values.astype("f") for row in rows.values()])
    assert means["nearest"] == 1.0
    assert abs(means["stochastic"] - 1.2) < 0.01


@pytest.mark.parametrize("name", [*TUNED, *KINDS])
def test_every_optimizer_rounds_what_float32_gives(platform, name):
    """Each number is one of the two neighbours of that of a table of float32."""
    optimizer = TUNED.get(name) or KINDS[name]
    half = make(optimizer, initializer=jde.initializers.constant(0.5))
    whole = jde.TableConfig(
        "t", 16, 256, optimizer=optimizer, initializer=half.initializer
    )
    rows = {}
    for table in (half, whole):
        coll = jde.Tables([table])
        _, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(np.arange(20))})
        d_rows = {"t": jnp.asarray(gradients((20, 16), 1), table.dtype)}
        if table is whole:  # the same gradients
            d_rows = {"t": jnp.asarray(gradients((20, 16), 1).astype("bfloat16"), "f")}
        state = coll.apply_gradients(state, residual, d_rows)
        exported = export(coll, state, "t")
        rows[table.param_dtype] = np.stack([exported[k].values for k in range(20)])
    exact, got = rows["float32"], rows["bfloat16"].astype("f")
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 1e-30))) - 7)
    assert (np.abs(got - exact) < unit).all()
    nearest = exact.astype("bfloat16").astype("f")
    assert (got != nearest).any()


@pytest.mark.parametrize("returned", ["bfloat16", "float32"])
def test_tables_of_one_call_round_as_each_alone(platform, returned):
    """Kinds, dtypes and roundings side by side: no kernel has all of them."""
    common = {"initializer": jde.initializers.normal(1.0)}
    tables = [
        jde.TableConfig(
            f"t{i}",
            dim,
            256,
            optimizer=TUNED[name],
            param_dtype=dtype,
            dtype=returned,
            rounding=rounding,
            **common,
        )
        for i, (name, dim, dtype, rounding) in enumerate(
            [
                ("sgd", 16, "bfloat16", "stochastic"),
                ("adam", 16, "bfloat16", "stochastic"),
                ("rowwise_adagrad", 130, "float16", "stochastic"),
                ("sgd", 16, "bfloat16", "nearest"),
                ("adagrad", 8, "float32", "nearest"),
            ]
        )
    ]
    ids = np.random.default_rng(3).integers(0, 40, 300)

    def rows(some):
        coll = jde.Tables(some)
        state = coll.init(1)
        for step in range(3):
            batch = {t.name: jde.ids(ids) for t in some}
            _, residual, state = coll.lookup(state, batch)
            d_rows = {
                t.name: jnp.asarray(gradients((300, t.dim), step), t.dtype)
                for t in some
            }
            state = coll.apply_gradients(state, residual, d_rows)
        return {t.name: export(coll, state, t.name) for t in some}

    together = rows(tables)
    for table in tables:
        alone = rows([table])[table.name]
        for key, row in together[table.name].items():
            want = alone[key].values
            if table.rounding == "stochastic":  # another kernel, another last bit
                differ = np.mean(row.values != want)
                assert differ < 0.05, (table.name, key)
            else:
                np.testing.assert_allclose(row.values, want, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_scatter_rounds_to_nearest(platform, dtype):
    coll = jde.Tables([make(jde.optim.adam(0.1), dtype, dim=21)])
    state, keys = coll.init(0), np.arange(5)
    wanted = normals((5, 21), 7)
    _, residual, state = coll.lookup(state, {"t": jde.ids(keys)})
    summed, state = coll.reduce_gradients(state, residual, {"t": jnp.zeros((5, 21))})
    rows = {"values": jnp.asarray(wanted)}
    state = coll.scatter(state, {"t": summed["t"].slots}, {"t": rows})
    got = export(coll, state, "t")
    same_bits(np.stack([got[k].values for k in range(5)]), wanted.astype(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_optax_rounds_to_the_same_bits(platform, dtype):
    keys, wanted = np.array([5, 11, -30]), normals((3, 21), 4)
    bridged = stored_after(make(optax.sgd(1.0), dtype, 21), keys, wanted)
    same_bits(bridged, stored_after(make(jde.optim.sgd(1.0), dtype, 21), keys, wanted))


def test_insert_rounds_to_nearest(platform):
    rows = normals((3, 16), 0)
    twins = Twins(make(jde.optim.sgd(1.0)))
    twins.insert({"t": np.arange(3)}, {"t": rows})
    got = export(twins.coll, twins.state, "t")
    for key in range(3):
        same_bits(got[key].values, rows[key].astype("bfloat16"))


def test_runs_are_equal_and_steps_are_not(platform):
    keys, wanted = np.arange(30), normals((30, 16), 2)
    table = make(jde.optim.sgd(1.0))
    first, again = (stored_after(table, keys, wanted) for _ in range(2))
    same_bits(first, again)
    assert (stored_after(table, keys, wanted, steps=2) != first).any()
    shuffled = np.random.default_rng(0).permutation(30)
    other = stored_after(table, keys[shuffled], wanted[shuffled])
    same_bits(other[np.argsort(shuffled)], first)


@pytest.mark.parametrize(
    "sharding", ["row_wise", "table_wise", "column_wise", "replicated"]
)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adam"])
def test_eight_devices_round_as_one(sharding, optimizer):
    keys, wanted = np.arange(40), normals((40, 96), 5)
    chosen = {"sgd": jde.optim.sgd(1.0)} | {"adam": TUNED["adam"]}
    chosen |= {"rowwise_adagrad": TUNED["rowwise_adagrad"]}
    table = make(chosen[optimizer], dim=96, capacity=2_048, sharding=sharding)
    one = stored_after(table, keys, wanted, steps=2)
    eight = stored_after(table, keys, wanted, steps=2, mesh=mesh_of(8), axis="data")
    if optimizer == "rowwise_adagrad" and sharding == "column_wise":
        # The sum over columns has another order, so float32 differs by a last bit.
        assert np.mean(one != eight) < 0.02
    else:
        same_bits(one, eight)


def test_float32_rows_are_not_rounded():
    with pytest.raises(ValueError, match="param_dtype='bfloat16'"):
        jde.TableConfig("t", 4, 256, rounding="stochastic")
    with pytest.raises(ValueError, match="rounding must be one of"):
        jde.TableConfig("t", 4, 256, rounding="up")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["adam", "lamb"])
def test_bits_do_not_depend_on_the_scores_of_a_table(platform, kind):
    """Buckets of a customized table are longer; keys are found in them all the same."""
    optimizer = {"adam": jde.optim.adam(0.1), "lamb": jde.optim.lamb(0.1)}[kind]
    keys, held = np.arange(600) * 7, []
    for strategy in ("step", "customized"):
        coll = jde.Tables(
            [make(optimizer, capacity=2048, score_strategy=strategy, dim=8)]
        )
        scores = {} if strategy == "step" else {"scores": {"t": 1}}
        _, residual, state = coll.lookup(coll.init(3), {"t": jde.ids(keys)}, **scores)
        d_rows = jnp.asarray(gradients((600, 8), 1))
        state = coll.apply_gradients(state, residual, {"t": d_rows})
        rows = export(coll, state, "t")
        held.append(np.stack([rows[int(key)].values for key in keys]))
    np.testing.assert_array_equal(*held)
