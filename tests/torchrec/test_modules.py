# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's modules with numbers measured on TorchRec."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from golden.load_golden import ModuleCase, misc, module_cases
from meshes import mesh_of
from support import TOLERANCE

T = jde.torchrec
CASES = {case.name: case for case in module_cases()}
BAGS = [name for name in CASES if name.startswith("ebc/")]
ROWS = [name for name in CASES if name.startswith("ec/")]
FUSED = [name for name in CASES if name.startswith("fused_ebc/")]
EXACT_OR_PADDED = pytest.mark.parametrize("capacity", [None, 16])


def kjt_of(case: ModuleCase, capacity: Any) -> Any:
    spec = case.spec["kjt"]
    inverse = spec["inverse_indices"]
    return T.KeyedJaggedTensor.from_lengths_sync(
        spec["keys"],
        case.arrays["kjt/values"],
        case.arrays["kjt/lengths"],
        case.arrays.get("kjt/weights"),
        stride_per_key_per_rank=spec["stride_per_key_per_rank"],
        inverse_indices=inverse and (inverse[0], np.array(inverse[1])),
        capacity=capacity,
    )


def tables_of(case: ModuleCase, kind: Any, optimizer: Any) -> list[Any]:
    return T.with_optimizer(
        [kind(**table) for table in case.spec["tables"]], {"*": optimizer}
    )


def weights_of(case: ModuleCase, folder: str = "weights") -> dict[str, np.ndarray]:
    return {
        key.removeprefix(f"{folder}/"): value
        for key, value in case.arrays.items()
        if key.startswith(f"{folder}/")
    }


def load(module: Any, weights: dict[str, np.ndarray]) -> None:
    named = {f"embedding_bags.{name}.weight": rows for name, rows in weights.items()}
    T.load_torch_state_dict(module, named)


def stored(module: Any, table: str, rows: int) -> np.ndarray:
    """Reads the rows with ids 0 to ``rows`` - 1."""
    found = {}
    for chunk in module.coll.export(module.get_state(), table):
        found |= dict(zip(chunk.keys.tolist(), chunk.rows, strict=True))
    return np.stack([found[i] for i in range(rows)])


@jde.nnx.jit
def step(model: Any, kjt: Any, upstream: Any) -> Any:
    """The output and the gradients of its product with ``upstream``."""

    def loss_fn(model, weights):
        given = kjt if weights is None else kjt.with_weights(weights)
        out = model(given)
        if isinstance(out, dict):
            arrays = {key: jt.values() for key, jt in out.items()}
            pairs = [(arrays[key], upstream[key]) for key in upstream]
            return sum((a * u).sum() for a, u in pairs), out
        return (out.values() * upstream).sum(), out

    weights = None if kjt.weights_or_none() is None else jnp.asarray(kjt.weights())
    given = (0,) if weights is None else (0, 1)
    (_, out), grads = jde.nnx.value_and_grad(loss_fn, argnums=given, has_aux=True)(
        model, weights
    )
    jde.nnx.update_tables(model, grads[0])
    return out, grads


@EXACT_OR_PADDED
@pytest.mark.parametrize("name", BAGS)
def test_embedding_bag_collection(name, capacity):
    check_bags(name, capacity, None)


@pytest.mark.parametrize("name", ["ebc/vbe_inverse_indices", "ebc/weighted"])
def test_embedding_bag_collection_on_a_mesh(name):
    check_bags(name, 16, mesh_of(2))


def check_bags(name: str, capacity: Any, mesh: Any) -> None:
    case = CASES[name]
    tables = tables_of(case, T.EmbeddingBagConfig, jde.optim.sgd(1.0))
    weighted = case.spec["is_weighted"]
    model = T.EmbeddingBagCollection(tables, weighted, rngs=nnx.Rngs(0), mesh=mesh)
    before = weights_of(case)
    load(model, before)
    kjt = kjt_of(case, capacity)
    out, grads = step(model, kjt, jnp.asarray(case.arrays["upstream"]))
    assert out.keys() == case.spec["out_keys"]
    assert out.length_per_key() == case.spec["out_length_per_key"]
    np.testing.assert_allclose(out.values(), case.arrays["out"], **TOLERANCE)
    for table, rows in before.items():
        gradient = rows - stored(model, table, len(rows))
        np.testing.assert_allclose(gradient, case.arrays[f"grad/{table}"], **TOLERANCE)
    if weighted:
        got = kjt.with_weights(np.asarray(jax.tree.leaves(grads[1].dense)[0]))
        expected = case.arrays["kjt_weights_grad"]
        np.testing.assert_allclose(got.packed().weights(), expected, **TOLERANCE)


@EXACT_OR_PADDED
@pytest.mark.parametrize("name", ROWS)
def test_embedding_collection(name, capacity):
    case = CASES[name]
    tables = tables_of(case, T.EmbeddingConfig, jde.optim.sgd(1.0))
    need = case.spec["need_indices"]
    model = T.EmbeddingCollection(tables, need_indices=need, rngs=nnx.Rngs(0))
    before = weights_of(case)
    load(model, before)
    kjt = kjt_of(case, capacity)
    upstream = {}
    for key in case.spec["out_keys"]:
        rows = case.arrays[f"upstream/{key}"]
        room = kjt[key.split("@")[0]].values().shape[0]
        padded = np.zeros((room, rows.shape[1]), np.float32)
        padded[: len(rows)] = rows
        upstream[key] = jnp.asarray(padded)
    out, _ = step(model, kjt, upstream)
    assert list(out) == case.spec["out_keys"]
    for key, jt in out.items():
        expected = case.arrays[f"out/{key}/values"]
        got = np.concatenate(jt.to_dense())
        np.testing.assert_allclose(got, expected, **TOLERANCE)
        np.testing.assert_array_equal(jt.lengths(), case.arrays[f"out/{key}/lengths"])
        if need:
            ids = np.asarray(jt.weights()).view(np.int64)[: len(expected), 0]
            expected = case.arrays[f"out/{key}/indices_in_weights"]
            np.testing.assert_array_equal(ids, expected)
    for table, rows in before.items():
        gradient = rows - stored(model, table, len(rows))
        np.testing.assert_allclose(gradient, case.arrays[f"grad/{table}"], **TOLERANCE)


@pytest.mark.parametrize("name", FUSED)
def test_fused_embedding_bag_collection(name):
    case = CASES[name]
    numbers = dict(case.spec["kwargs"])
    params = {
        "optimizer": f"exact_{case.spec['optimizer']}",
        "learning_rate": numbers.pop("lr"),
        **numbers,
    }
    optimizer, fields = T.from_fused_params(params)
    assert fields == {}
    tables = tables_of(case, T.EmbeddingBagConfig, optimizer)
    model = T.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
    T.load_torch_state_dict(model, weights_of(case, "weights_before"))
    out, _ = step(model, kjt_of(case, None), jnp.asarray(case.arrays["upstream"]))
    np.testing.assert_allclose(out.values(), case.arrays["out"], **TOLERANCE)
    for key, rows in weights_of(case, "weights_after").items():
        table = key.split(".")[1]
        got = stored(model, table, len(rows))
        np.testing.assert_allclose(got, rows, **TOLERANCE)


ROWWISE = {"optimizer": "exact_row_wise_adagrad", "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("params", "optimizer"),
    [
        ({"optimizer": "lars_sgd", "eta": 0.1}, jde.optim.lars(0.01, eta=0.1)),
        ({"optimizer": "none"}, jde.optim.none()),
        ({"optimizer": "lamb"}, jde.optim.lamb(0.01, eps=1e-8)),  # optax has 1e-6
        (
            {"optimizer": "partial_row_wise_lamb", "eps": 1e-5},
            jde.optim.partial_rowwise_lamb(0.01, eps=1e-5),
        ),
        (
            {"optimizer": "rowwise_rmsprop_ar", "ar_alpha": 0.1, "ema_beta": 0.9},
            jde.optim.rowwise_rmsprop(0.01, 0.9, ar_alpha=0.1),
        ),
        (
            {"optimizer": "adam", "use_rowwise_bias_correction": True},
            jde.optim.adam(0.01, bias_correction="row"),
        ),
        (
            ROWWISE | {"weight_decay_mode": 1},
            jde.optim.rowwise_adagrad(0.01, weight_decay=0.1, weight_decay_mode="l2"),
        ),
        (
            ROWWISE | {"weight_decay_mode": "DECOUPLE"},
            jde.optim.rowwise_adagrad(0.01, weight_decay=0.1),
        ),
        (
            ROWWISE | {"weight_decay_mode": 5},
            jde.optim.rowwise_adagrad(
                0.01, weight_decay=0.1, catch_up="decay", catch_up_forward=True
            ),
        ),
        (ROWWISE | {"weight_decay_mode": 0}, jde.optim.rowwise_adagrad(0.01)),
        (ROWWISE, jde.optim.rowwise_adagrad(0.01)),
        (ROWWISE | {"weight_decay_mode": "cowclip"}, None),
    ],
)
def test_optimizers_of_fbgemm_in_fused_params(params, optimizer):
    """A decay that FBGEMM ignores is ignored; one without its numbers is refused."""
    if optimizer is None:
        with pytest.raises(ValueError, match="weight_decay_mode"):
            T.from_fused_params(params)
    else:
        assert T.from_fused_params(params) == (optimizer, {})


def test_fused_params_that_are_of_the_table():
    params = {"stochastic_rounding": True, "gradient_clipping": True}
    _, fields = T.from_fused_params(params | {"max_gradient": 0.5})
    config = T.EmbeddingBagConfig(
        name="t", embedding_dim=4, num_embeddings=256, feature_names=["f"]
    )
    table = config.to_table(**fields, param_dtype="bfloat16")
    assert (table.rounding, table.max_gradient) == ("stochastic", 0.5)
    _, fields = T.from_fused_params({"max_gradient": 0.5})
    assert fields == {}  # FBGEMM clips by it only on request


def test_optimizer_states_of_a_checkpoint():
    case = CASES["fused_ebc/rowwise_adagrad"]
    tables = tables_of(case, T.EmbeddingBagConfig, jde.optim.rowwise_adagrad(0.1, 1e-3))
    model = T.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
    states = weights_of(case, "opt")
    flat = {key.split("/")[-1]: value for key, value in states.items()}
    T.load_torch_state_dict(model, weights_of(case, "weights_after"), {"state": flat})
    for chunk in model.coll.export(model.get_state(), "t1"):
        expected = flat["t1.weight.momentum_1"][chunk.keys]
        got = chunk.optimizer_state["sum_of_squares"]
        np.testing.assert_array_equal(got, expected)


def counter_table():
    counter = jde.optim.Counter(3.0, "l2")
    config = T.EmbeddingConfig(
        num_embeddings=4, embedding_dim=4, name="t", feature_names=["f"]
    )
    optimizer = jde.optim.rowwise_adagrad(0.1, counter=counter, weight_decay=0.1)
    tables = T.with_optimizer([config], {"t": optimizer})
    return T.EmbeddingCollection(tables, rngs=nnx.Rngs(0))


def test_counts_of_a_checkpoint():
    model = counter_table()
    weights = {"embeddings.t.weight": np.ones((4, 4), np.float32)}
    given = {
        "momentum_1": np.full(4, 2.0, np.float32),
        "prev_iter": np.array([2**24 + 1, 0, 7, 9], np.int64),
        "row_counter": np.arange(4, dtype=np.float32),
        "iter": np.array([2**24 + 3]),
        "learning_rate": np.float32(0.5),
    }
    states = {f"t.weight.{name}": value for name, value in given.items()}
    T.load_torch_state_dict(model, weights, states)
    assert model.stats()["t/step"] == 2**24 + 3
    (chunk,) = model.coll.export(model.get_state(), "t")
    got, keys = chunk.optimizer_state, chunk.keys
    np.testing.assert_array_equal(got["sum_of_squares"], given["momentum_1"][keys])
    np.testing.assert_array_equal(got["last"], given["prev_iter"][keys])
    np.testing.assert_array_equal(got["count"], given["row_counter"][keys])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("nonsense", np.ones(4), "'t.weight.nonsense' has no counterpart"),
        ("exp_avg", np.ones(4), "keeps .*'count', 'last'"),
        ("iter", np.ones(4), "must be one number"),
    ],
)
def test_states_that_a_table_does_not_keep(name, value, sentence):
    model = counter_table()
    weights = {"embeddings.t.weight": np.ones((4, 4), np.float32)}
    with pytest.raises(ValueError, match=sentence):
        T.load_torch_state_dict(model, weights, {f"t.weight.{name}": value})
    assert model.stats()["t/rows"] == 0


def test_steps_of_adam_go_on():
    config = T.EmbeddingConfig(
        num_embeddings=20, embedding_dim=8, name="t", feature_names=["f"]
    )
    tables = T.with_optimizer([config], {"t": jde.optim.adam(0.01)})
    model = T.EmbeddingCollection(tables, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    w, mu, nu, g = (rng.random((20, 8)).astype(np.float32) for _ in range(4))
    states = {"exp_avg": mu, "exp_avg_sq": nu, "step": np.array(200.0)}
    T.load_torch_state_dict(
        model,
        {"embeddings.t.weight": w},
        {"state": {"t.weight": {f"t.{name}": value for name, value in states.items()}}},
    )
    coll, state = model.coll, model.get_state()
    _, residual, state = coll.lookup(state, {"f": jde.ids(np.arange(20))})
    state = coll.apply_gradients(state, residual, {"f": jnp.asarray(g)})
    mu, nu = 0.9 * mu + 0.1 * g, 0.999 * nu + 0.001 * g * g
    root = np.sqrt(nu / (1 - 0.999**201)) + 1e-8
    want = w - 0.01 * mu / (1 - 0.9**201) / root
    (chunk,) = coll.export(state, "t")
    np.testing.assert_allclose(chunk.rows, want[chunk.keys], **TOLERANCE)


def test_scores_and_counts_of_a_collection():
    config = T.EmbeddingBagConfig(64, 4, name="t", feature_names=["f"])
    table = config.to_table(score_strategy="customized")
    model = T.EmbeddingBagCollection([table], rngs=nnx.Rngs(0))
    kjt = T.KeyedJaggedTensor(["f"], np.array([1, 2]), lengths=np.array([1, 1]))
    for scores, expected in (
        ({"t": 2**40}, [2**40, 2**40]),
        ({"f": np.array([5, 2**50])}, [5, 2**50]),
        (None, [5, 2**50]),
    ):
        model(kjt, scores=scores)
        (chunk,) = model.coll.export(model.get_state(), "t")
        assert sorted(chunk.scores.tolist()) == expected
    rare = config.to_table(score_strategy="lfu")
    model = T.EmbeddingBagCollection([rare], rngs=nnx.Rngs(0))
    model(kjt, counts={"f": np.array([3, 4])})
    (chunk,) = model.coll.export(model.get_state(), "t")
    assert sorted((chunk.scores >> np.uint64(32)).tolist()) == [3, 4]


@EXACT_OR_PADDED
def test_position_weights(capacity):
    case = CASES["fp_ebc/position_weighted"]
    tables = tables_of(case, T.EmbeddingBagConfig, jde.optim.sgd(1.0))
    positions = weights_of(case, "position_weights")
    bags = T.EmbeddingBagCollection(tables, True, rngs=nnx.Rngs(0))
    load(bags, weights_of(case))
    processor = T.PositionWeightedModuleCollection(
        {key: len(weights) for key, weights in positions.items()}
    )
    for key, weights in positions.items():
        module = processor.position_weights[key]
        np.testing.assert_array_equal(module.position_weight[...], 1.0)
        module.position_weight.set_value(jnp.asarray(weights))
    model = T.FeatureProcessedEmbeddingBagCollection(bags, processor)
    kjt = kjt_of(case, capacity)
    out, grads = step(model, kjt, jnp.asarray(case.arrays["upstream"]))
    np.testing.assert_allclose(out.values(), case.arrays["out"], **TOLERANCE)
    dense = grads[0].dense["feature_processors"]["position_weights"]
    for key in positions:
        got = dense[key]["position_weight"][...]
        expected = case.arrays[f"grad_position_weights/{key}"]
        np.testing.assert_allclose(got, expected, **TOLERANCE)


def test_places_behind_the_last_weight_use_it_and_are_counted():
    module = T.PositionWeightedModule(2)
    module.position_weight.set_value(jnp.array([2.0, 3.0]))
    jt = T.JaggedTensor(
        np.arange(8), lengths=np.array([4, 0, 1])
    )  # three places are no bag's
    run = jde.nnx.jit(lambda module, jt: module(jt).weights())
    np.testing.assert_array_equal(run(module, jt)[:5], [2, 3, 3, 3, 2])
    assert module.clamped[...] == 2


@pytest.mark.parametrize("case", misc()["warmup"], ids=lambda case: case["policy"])
def test_warm_up_multipliers(case):
    named = {k: v for k, v in case.items() if k not in ("iters", "multiplier")}
    policy = T.WarmupPolicy[named.pop("policy")]
    stage = T.WarmupStage(policy, **named)
    iterations = np.asarray(case["iters"])
    got = [stage.multiplier(i) for i in iterations]
    np.testing.assert_allclose(got, case["multiplier"], rtol=1e-5, atol=1e-6)
    schedule = T.warmup_schedule([stage], learning_rate=2.0)
    inside = iterations <= case["max_iters"]
    expected = np.where(inside, case["multiplier"], 1.0)
    got = jax.vmap(schedule)(jnp.asarray(iterations))
    np.testing.assert_allclose(got, 2.0 * expected, rtol=1e-5, atol=1e-6)


def test_stages_switch_at_their_last_iteration():
    stages = [T.WarmupStage("constant", 3, 0.25), T.WarmupStage("step", 9, 0.5)]
    schedule = T.warmup_schedule(stages)
    got = [float(schedule(i)) for i in (1, 3, 4, 9, 10)]
    np.testing.assert_allclose(got, [0.25, 0.25, 0.5**4, 0.5**9, 1.0])
    with pytest.raises(ValueError, match="must rise"):
        T.warmup_schedule(stages[::-1])
