# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's calls beside the lookup: state dicts, steps, bounds, frozen weights."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde

T = jde.torchrec
OPS = Path(__file__).parents[1] / "golden/ops.json"
COUNTER = jde.optim.Counter(3.0, "l2")
# Optimizers, and what FBGEMM calls the states of a row.
STATES = {
    "sgd": (jde.optim.sgd(0.1), {}),
    "adagrad": (jde.optim.adagrad(0.1), {"momentum_1": "sum_of_squares"}),
    "adam": (jde.optim.adam(0.1), {"momentum_1": "mu", "momentum_2": "nu"}),
    "partial": (
        jde.optim.partial_rowwise_adam(0.1),
        {"momentum_1": "mu", "momentum_2": "nu"},
    ),
    "lars": (jde.optim.lars(0.1), {"momentum_1": "trace"}),
    "rmsprop": (
        jde.optim.rowwise_rmsprop(0.1, ar_alpha=0.2),
        {"momentum_1": "nu", "prev_iter": "last"},
    ),
    "counter": (
        jde.optim.rowwise_adagrad(0.1, weight_decay=0.1, counter=COUNTER),
        {"momentum_1": "sum_of_squares", "row_counter": "count", "prev_iter": "last"},
    ),
}


def collection(optimizer, seed=0, bags=True):
    config = T.EmbeddingBagConfig if bags else T.EmbeddingConfig
    kind = T.EmbeddingBagCollection if bags else T.EmbeddingCollection
    tables = [config(7, 4, "a", feature_names=["f"]), config(5, 4, "b")]
    return kind(T.with_optimizer(tables, {"*": optimizer}), rngs=nnx.Rngs(seed))


def trained(module, steps=3):
    coll, state = module.coll, module.get_state()
    features = list(coll.features)
    for step in range(steps):
        ids = {f: jde.ids(np.array([[0, 2 + step], [2, 2**40]])) for f in features}
        rows, residual, state = coll.lookup(state, ids)
        ones = {f: 0 * x + jnp.cos(jnp.arange(4.0) + step) for f, x in rows.items()}
        state = coll.apply_gradients(state, residual, ones)
    module.set_state(state)
    return module


@pytest.mark.parametrize("bags", [True, False])
@pytest.mark.parametrize("kind", STATES)
def test_a_state_dict_goes_out_and_comes_back(kind, bags):
    optimizer, names = STATES[kind]
    one = trained(collection(optimizer, bags=bags))
    other = collection(optimizer, 9, bags)
    weights, states = T.to_torch_state_dict(one)
    where = "embedding_bags" if bags else "embeddings"
    assert list(weights) == [f"{where}.a.weight", f"{where}.b.weight"]
    assert set(states) == {f"{t}.weight.{n}" for t in "ab" for n in (*names, "iter")}
    (chunk,) = one.coll.export(one.get_state(), "a")
    ids = chunk.keys[chunk.keys < 7]
    assert len(ids) == len(chunk.keys) - 1  # 2**40 is no row number
    small = chunk.keys < 7
    np.testing.assert_array_equal(weights[f"{where}.a.weight"][ids], chunk.rows[small])
    for theirs, ours in names.items():
        got = states[f"a.weight.{theirs}"][ids]
        np.testing.assert_array_equal(got, chunk.optimizer_state[ours][small])
    assert states["b.weight.iter"] == 3
    T.load_torch_state_dict(other, weights, states)
    again = T.to_torch_state_dict(other)
    for before, after in zip((weights, states), again, strict=True):
        assert before.keys() == after.keys()
        for name, array in before.items():
            np.testing.assert_array_equal(array, after[name], name)
    # The next step is the same, so nothing that counts is missing.
    for module in (one, other):
        trained(module, 1)
    for x, y in zip(
        one.split_embedding_weights(), other.split_embedding_weights(), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-6)


def test_rows_that_no_id_has_read_are_initial_ones():
    module = collection(jde.optim.sgd(0.1))
    rows = module.split_embedding_weights()
    assert [x.shape for x in rows] == [(7, 4), (5, 4)]
    assert module.stats()["a/rows"] == 0
    first = module({"f": jde.ids(np.arange(7)[:, None]), "b": jde.ids([[0]])})
    np.testing.assert_array_equal(first["f"], rows[0])


def test_states_by_table_and_the_step():
    module = trained(collection(jde.optim.adam(0.1)))
    shapes = [[x.shape for x in table] for table in module.split_optimizer_states()]
    assert shapes == [[(7, 4), (7, 4)], [(5, 4), (5, 4)]]
    module.set_optimizer_step(200)
    assert (module.stats()["a/step"], module.stats()["b/step"]) == (200, 200)
    with pytest.raises(AttributeError, match="table_learning_rate=lr"):
        module.set_learning_rate(0.1)
    with pytest.raises(TypeError, match="takes a collection"):
        T.to_torch_state_dict(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize("frozen", [(), ("f",), ("f", "b")])
def test_weights_of_a_feature_may_have_no_gradient(frozen):
    """d(sum of w * row) / dw is the sum of the row, or 0."""
    configs = [T.EmbeddingBagConfig(7, 4, t, feature_names=[t]) for t in ("f", "b")]
    module = T.EmbeddingBagCollection(configs, is_weighted=True, rngs=nnx.Rngs(0))
    ids = {name: jde.ids(np.array([[1, 2]])) for name in ("f", "b")}
    requires = dict.fromkeys(frozen, False)

    def total(weights):
        out = module(ids, weights=weights, train=False, feature_requires_grad=requires)
        return out.values().sum()

    ones = {name: jnp.ones((1, 2)) for name in ids}
    module(ids, weights=ones)
    rows = dict(zip("fb", module.split_embedding_weights(), strict=True))
    for name, grad in jax.grad(total)(ones).items():
        expected = 0 if name in frozen else rows[name][[1, 2]].sum(axis=1)[None]
        np.testing.assert_allclose(grad, np.broadcast_to(expected, (1, 2)), rtol=1e-5)
    with pytest.raises(ValueError, match=r"names \['g'\]"):
        module(ids, weights=ones, feature_requires_grad={"g": False})


def test_bounds_are_checked_as_in_the_fatal_mode():
    module = collection(jde.optim.sgd(0.1))
    lengths = np.array([2, 1, 1, 2])

    def check(values):
        T.check_bounds(
            module, T.KeyedJaggedTensor(["f", "b"], np.array(values), lengths=lengths)
        )

    check([0, 6, -1, 4, 0, 1])
    for values, feature in (
        ([0, 7, 1, 0, 0, 0], "feature 'f' has 1 ids outside of table 'a' of 7 rows"),
        ([0, 1, -7, 0, 0, 0], "such as -7"),
        ([0, 1, 1, 0, 5, 6], "feature 'b' has 2 ids"),
    ):
        with pytest.raises(IndexError, match=feature):
            check(values)
    kjt = T.KeyedJaggedTensor(["f", "b"], np.zeros(6, int), lengths=lengths)
    with pytest.raises(TypeError, match="before the step"):
        jax.jit(lambda kjt: T.check_bounds(module, kjt))(kjt)


def test_bounds_of_fbgemm_itself():
    cases = json.loads(OPS.read_text())["cases"]
    (case,) = [c for c in cases if c["name"] == "bounds_check/mode0/bad_idx"]
    given, rows = case["input"], case["input"]["rows_per_table"]["data"]
    assert case["expect"] == {"raises": True}
    tables = [T.EmbeddingBagConfig(n, 4, f"t{t}") for t, n in enumerate(rows)]
    module = T.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
    values, lengths = np.array(given["indices"]), np.diff(given["offsets"])
    kjt = T.KeyedJaggedTensor(["t0", "t1"], values, lengths=lengths)
    with pytest.raises(IndexError, match="feature 't0' has 1 ids"):
        T.check_bounds(module, kjt)
