# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Feature processors where a batch has other keys, or bags for several examples."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from support import TOLERANCE

T = jde.torchrec
PLACES = {"f1": [2.0, 3.0, 5.0], "f2": [7.0, 11.0, 13.0]}
# The bags of each key; f2 has two for three examples, and no table reads f3.
BAGS = {"f1": [[1, 2], [], [3, 1, 1]], "f2": [[4], [5, 6]], "f3": [[8], [], [9]]}
INVERSE = {"f1": [0, 1, 2], "f2": [1, 1, 0], "f3": [0, 1, 2]}


def tables() -> list[Any]:
    return [T.EmbeddingBagConfig(64, 4, f"t_{f}", feature_names=[f]) for f in PLACES]


def positions(*features: str) -> dict[str, Any]:
    result = {}
    for feature in features:
        result[feature] = T.PositionWeightedModule(len(PLACES[feature]))
        result[feature].position_weight.set_value(jnp.asarray(PLACES[feature]))
    return result


def processors(kind: str, *features: str) -> Any:
    modules = positions(*features)
    if kind == "modules":
        return modules
    collection = T.PositionWeightedModuleCollection(dict.fromkeys(features, 3))
    for feature, module in modules.items():
        collection.position_weights[feature] = module
    return collection


def model_of(kind: str, *features: str) -> Any:
    bags = T.EmbeddingBagCollection(tables(), True, rngs=nnx.Rngs(0))
    return T.FeatureProcessedEmbeddingBagCollection(bags, processors(kind, *features))


def batch(capacity: int | None, weights: bool = False) -> Any:
    lengths = [len(bag) for key in BAGS for bag in BAGS[key]]
    values = [i for key in BAGS for bag in BAGS[key] for i in bag]
    return T.KeyedJaggedTensor.from_lengths_sync(
        list(BAGS),
        np.array(values),
        np.array(lengths),
        np.full(len(values), 99.0, np.float32) if weights else None,
        stride_per_key_per_rank=[[len(bags)] for bags in BAGS.values()],
        inverse_indices=(list(BAGS), np.array(list(INVERSE.values()))),
        capacity=capacity,
    )


def pooled(model: Any, feature: str, weights: list[float]) -> np.ndarray:
    """Sums the rows that are stored now, by hand."""
    coll = model.embedding_bag_collection.coll
    state = model.embedding_bag_collection.get_state()
    (chunk,) = coll.export(state, f"t_{feature}")
    rows = dict(zip(chunk.keys.tolist(), chunk.rows, strict=True))
    sums = [
        sum((w * rows[i] for w, i in zip(weights, bag, strict=False)), np.zeros(4))
        for bag in BAGS[feature]
    ]
    return np.array(sums)[INVERSE[feature]]


@pytest.mark.parametrize("capacity", [None, 40])
@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize("kind", ["modules", "collection"])
def test_keys_that_no_table_reads_are_left_out(kind, jitted, capacity):
    model = model_of(kind, "f1", "f2")
    run = jde.nnx.jit(lambda model, kjt: model(kjt)) if jitted else type(model).__call__
    out = run(model, batch(capacity))
    assert out.keys() == ["f1", "f2"]
    for feature, weights in PLACES.items():
        expected = pooled(model, feature, weights)
        np.testing.assert_allclose(out[feature], expected, **TOLERANCE)


def test_keys_without_position_weights_weigh_one():
    model = model_of("collection", "f1")
    out = model(batch(None, weights=True))  # those of the input give way
    expected = pooled(model, "f1", PLACES["f1"]), pooled(model, "f2", [1.0] * 3)
    np.testing.assert_allclose(out["f1"], expected[0], **TOLERANCE)
    np.testing.assert_allclose(out["f2"], expected[1], **TOLERANCE)


def test_weights_learn_beside_other_keys():
    model, kjt = model_of("modules", "f1", "f2"), batch(None)

    def loss_fn(model):
        return model(kjt).values().sum()

    _, grads = jde.nnx.value_and_grad(loss_fn)(model)
    got = grads.dense["feature_processors"]
    for feature in PLACES:
        places = np.eye(3)
        sums = [pooled(model, feature, place).sum() for place in places]
        found = got[feature]["position_weight"][...]
        np.testing.assert_allclose(found, sums, **TOLERANCE)


def test_a_batch_without_keys_stays_as_it_is():
    empty = T.KeyedJaggedTensor.empty()
    assert T.PositionWeightedModuleCollection({"f1": 3})(empty).keys() == []


@pytest.mark.parametrize("features", [("f1",), ("f1", "f2", "f3")])
def test_modules_by_key_are_those_of_the_features(features):
    modules = {feature: T.PositionWeightedModule(3) for feature in features}
    bags = T.EmbeddingBagCollection(tables(), True, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"\['f1', 'f2'\]: give one for each"):
        T.FeatureProcessedEmbeddingBagCollection(bags, modules)


def test_position_weights_have_the_names_of_torchrec():
    module = T.PositionWeightedModuleCollection({"f1": 3, "f2": 2})
    assert module.position_weights_dict["f1"] is module.position_weights["f1"]
    state_dict = {"position_weights.f1": np.array([2.0, 3.0, 5.0])}
    with pytest.raises(KeyError, match="strict=False"):
        module.load_state_dict(state_dict)
    module.load_state_dict(state_dict, strict=False, assign=True)
    kjt = T.KeyedJaggedTensor(["f1", "f2"], np.arange(5), lengths=np.array([3, 2]))
    assert module(kjt).weights().tolist() == [2, 3, 5, 1, 1]
    saved = {name: np.asarray(x) for name, x in module.state_dict().items()}
    assert saved["position_weights.f1"].tolist() == [2, 3, 5]
    other = T.PositionWeightedModuleCollection({"f1": 3, "f2": 2})
    other.load_state_dict(saved)
    assert other(kjt).weights().tolist() == [2, 3, 5, 1, 1]
    one = T.PositionWeightedModule(2)
    one.load_state_dict({"position_weight": np.array([4.0, 6.0])})
    assert one.state_dict()["position_weight"].tolist() == [4, 6]
    with pytest.raises(ValueError, match="max_feature_length=3"):
        one.load_state_dict({"position_weight": np.ones(3)})
