# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""State dicts of FBTT-Embedding, in and out, with cores and outputs that it made."""

import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = [
    case
    for case in json.loads((GOLDEN / "fbtt.json").read_text())["cases"]
    if case["mode"] == "dense"
]


@pytest.fixture(scope="module")
def arrays():
    with np.load(GOLDEN / "fbtt.npz") as archive:
        return {name: archive[name] for name in archive.files}


def config_of(case) -> jde.TTConfig:
    return jde.TTConfig(
        "item",
        case["dim"],
        case["num_embeddings"],
        case["tt_ranks"],
        rows_shape=case["tt_p_shapes"],
        dim_shape=case["tt_q_shapes"],
        pooling="sum",
        compute_dtype="float32",
    )


def state_dict(arrays, case):
    cores = len(case["tt_ranks"]) + 1
    return {f"tt_cores.{t}": arrays[f"{case['name']}.core{t}"] for t in range(cores)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_fbtt_cores_give_fbtt_rows(platform, arrays, case):
    config, name = config_of(case), case["name"]
    cores = jde.tt.from_fbtt(config, state_dict(arrays, case)).cores
    lengths = np.diff(arrays[f"{name}.offsets"])
    ids = jde.Jagged(jde.ids(arrays[f"{name}.ids"]), lengths)
    got = jax.jit(lambda cores, ids: jde.tt.find(config, cores, ids))(cores, ids)
    np.testing.assert_allclose(got, arrays[f"{name}.output"], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_out_again_with_the_same_bits(arrays, case):
    config, given = config_of(case), state_dict(arrays, case)
    out = jde.tt.to_fbtt(config, jde.tt.from_fbtt(config, given))
    for name, core in given.items():
        np.testing.assert_array_equal(out[name], core)
    p = case["tt_p_shapes"]
    assert out["L"].tolist() == [int(np.prod(p[t + 1 :])) for t in range(len(p))]


def test_the_module_takes_cores_in_and_gives_them_out(arrays):
    case = CASES[0]
    shapes = (case["tt_ranks"], case["tt_p_shapes"], case["tt_q_shapes"])
    sizes = (case["num_embeddings"], case["dim"])
    bag = jde.TTEmbeddingBag(*sizes, *shapes, rngs=nnx.Rngs(0))
    given = state_dict(arrays, case)
    bag.load_fbtt(given)
    name, out = case["name"], bag.to_fbtt()
    for key, core in given.items():
        np.testing.assert_array_equal(out[key], core)
    got = bag(jde.ids(arrays[f"{name}.ids"]), arrays[f"{name}.offsets"])
    np.testing.assert_allclose(got, arrays[f"{name}.output"], rtol=1e-4, atol=1e-3)


def fused(mode: str) -> list:
    cases = json.loads((GOLDEN / "fbtt.json").read_text())["cases"]
    return [case for case in cases if case["mode"] == mode]


def stepped(arrays, case, tx) -> list:
    """The cores after one update of the module, in FBTT's shapes."""
    shapes = (case["tt_ranks"], case["tt_p_shapes"], case["tt_q_shapes"])
    sizes = (case["num_embeddings"], case["dim"])
    options = {"compute_dtype": "float32"}
    bag = jde.TTEmbeddingBag(*sizes, *shapes, rngs=nnx.Rngs(0), **options)
    bag.load_fbtt(state_dict(arrays, case))
    optimizer = nnx.Optimizer(bag, tx, wrt=nnx.Param)
    name = case["name"]
    lengths = np.diff(arrays[f"{name}.offsets"]).astype(np.int32)
    ids = jde.Jagged(jde.ids(arrays[f"{name}.ids"]), lengths)
    upstream = arrays[f"{name}.d_output"]
    grads = nnx.grad(lambda bag: jnp.vdot(bag(ids), upstream))(bag)
    optimizer.update(bag, grads)
    after = bag.to_fbtt()
    return [after[f"tt_cores.{t}"] for t in range(len(case["tt_ranks"]) + 1)]


@pytest.mark.parametrize(
    "case", [*fused("adagrad"), *fused("sgd")], ids=lambda case: case["name"]
)
def test_the_optimizers_that_the_page_names_are_fbtts(arrays, case):
    rate, eps = case["learning_rate"], case["eps"]
    is_sgd = case["mode"] == "sgd"
    adagrad = jde.tt.core_optimizer(jde.optim.adagrad(rate, eps=eps))
    found = stepped(arrays, case, optax.sgd(rate) if is_sgd else adagrad)
    for t, mine in enumerate(found):
        theirs = arrays[f"{case['name']}.core_after{t}"]
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=2e-5)


def test_optax_has_another_adagrad(arrays):
    case = fused("adagrad")[0]
    found = stepped(arrays, case, optax.adagrad(case["learning_rate"]))
    theirs = arrays[f"{case['name']}.core_after0"]
    assert np.abs(found[0] - theirs).max() > 0.9 * case["learning_rate"]


def test_sums_that_stay_behind_are_said():
    bag = jde.TTEmbeddingBag(12, 4, [3], [3, 4], [2, 2], rngs=nnx.Rngs(0))
    table = config(optimizer=ADAGRAD)
    state = jde.tt.to_fbtt(table, random_state(table))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag.load_fbtt(state)  # sums of zeros say nothing
    state["optimizer_state.optimizer_state1"] = state["tt_cores.1"] ** 2
    with pytest.warns(RuntimeWarning, match="jde.tt.from_fbtt takes both"):
        bag.load_fbtt(state)


ADAGRAD = jde.optim.adagrad(0.1)


def config(**options) -> jde.TTConfig:
    options = {"rows_shape": (3, 4), "dim_shape": (2, 2)} | options
    return jde.TTConfig("item", 4, 12, (3,), **options)


def random_state(table: jde.TTConfig, seed: int = 0) -> jde.tt.TTState:
    draw = np.random.default_rng(seed)
    names = enumerate(table.core_shapes)
    sizes = {f"tt_cores.{t}": (1, p, r * q * s) for t, (p, r, q, s) in names}
    arrays = {name: draw.normal(size=size) for name, size in sizes.items()}
    sums = {
        name.replace("tt_cores.", "optimizer_state.optimizer_state"): 0 * array
        for name, array in arrays.items()
    }
    return jde.tt.from_fbtt(table, arrays | sums)


def test_sums_of_adagrad_travel_along():
    table = config(optimizer=ADAGRAD)
    state = random_state(table)
    rows, residual, state = jde.tt.lookup(table, state, jde.ids([1, 2, 11]))
    state = jde.tt.apply_gradients(table, state, residual, jnp.ones_like(rows))
    again = jde.tt.from_fbtt(table, jde.tt.to_fbtt(table, state))

    def trained(state):
        rows, residual, state = jde.tt.lookup(table, state, jde.ids([5, 2]))
        return jde.tt.apply_gradients(table, state, residual, rows).cores

    for mine, theirs in zip(trained(state), trained(again), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    sums = jde.tt.to_fbtt(table, state)["optimizer_state.optimizer_state0"]
    assert sums.shape == (1, 3, 6) and sums.any()


def test_one_table_of_several():
    table = config()
    first, second = (random_state(table, seed) for seed in (1, 2))
    both = {
        name: np.concatenate([array, other])
        for (name, array), other in zip(
            jde.tt.to_fbtt(table, first).items(),
            jde.tt.to_fbtt(table, second).values(),
            strict=True,
        )
    }
    for number, state in enumerate((first, second)):
        cores = jde.tt.from_fbtt(table, both, table=number).cores
        for core, expected in zip(cores, state.cores, strict=True):
            np.testing.assert_array_equal(core, expected)
    with pytest.raises(ValueError, match="with table 2"):
        jde.tt.from_fbtt(table, both, table=2)


def test_tensors_are_read_too():
    torch = pytest.importorskip("torch")
    table = config()
    state = random_state(table)
    arrays = jde.tt.to_fbtt(table, state)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    tensors["tt_cores.0"] = torch.nn.Parameter(tensors["tt_cores.0"])
    cores = jde.tt.from_fbtt(table, tensors).cores
    np.testing.assert_array_equal(cores[0], state.cores[0])


def test_state_dicts_that_do_not_fit():
    arrays = jde.tt.to_fbtt(config(), random_state(config()))
    with pytest.raises(ValueError, match="tt_ranks"):
        jde.tt.from_fbtt(config(rows_shape=(4, 3)), arrays)
    three = jde.TTConfig("item", 4, 12, (3, 3))
    with pytest.raises(ValueError, match="tt_ranks|without a prefix"):
        jde.tt.from_fbtt(three, arrays)
    with pytest.raises(ValueError, match="without a prefix"):
        prefixed = {f"emb.{name}": array for name, array in arrays.items()}
        jde.tt.from_fbtt(config(), prefixed)
    with pytest.raises(ValueError, match="more than 2 cores"):
        jde.tt.from_fbtt(config(), arrays | {"tt_cores.2": arrays["tt_cores.1"]})


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (jde.TTConfig("t", 4, 32, (2, 2, 2, 2)), "5 cores"),
        (jde.TTConfig("t", 6, 32, (2, 2)), "multiple of 4"),
        (jde.TTConfig("t", 4, 32, (2, 2), ids="hash"), "hash of an id"),
    ],
)
def test_tables_that_fbtt_can_not_hold(table, why):
    with pytest.raises(ValueError, match=why):
        jde.tt.to_fbtt(table, random_state(table))
