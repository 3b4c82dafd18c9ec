# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor trains as tables of TorchRec's collections, beside hash tables."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from oracle import tt_lookup, tt_row_numbers

T = jde.torchrec
ROWS, BATCH = 60, 8
TRAIN = T.EmbeddingBagConfig(
    ROWS, 32, "tt", feature_names=["f", "g"], tt_ranks=[3, 2], pooling="MEAN"
)
HASHED = T.EmbeddingBagConfig(1024, 32, "hash", feature_names=["f"])


def kjt(seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 4, 2 * BATCH)
    values = draw.integers(0, ROWS, lengths.sum())
    return T.KeyedJaggedTensor.from_lengths_sync(["f", "g"], values, lengths)


def collection(devices: int, *tables: Any, **options: Any) -> Any:
    mesh = None if devices == 1 else mesh_of(devices)
    given = tables or (TRAIN, HASHED)
    return T.EmbeddingBagCollection(given, rngs=nnx.Rngs(0), mesh=mesh, **options)


def test_a_config_becomes_a_tensor_train():
    config = dataclasses.replace(TRAIN, optimizer=optax.adam(0.1)).to_table(ids="hash")
    assert isinstance(config, jde.TTConfig)
    assert (config.num_embeddings, config.dim, config.ranks) == (ROWS, 32, (3, 2))
    assert (config.pooling, config.feature_names) == ("mean", ("f", "g"))
    assert config.ids == "hash"
    # The default law has the variance of TorchRec's uniform ±1/sqrt(num_embeddings).
    assert config.initializer.of_table(config) == pytest.approx((3 * ROWS) ** -0.5)
    wide = dataclasses.replace(TRAIN, weight_init_max=0.3, weight_init_min=-0.3)
    law = wide.to_table().initializer
    assert law.of_table(config) == pytest.approx(0.3 / 3**0.5)


def rows_of(cores: Any, ids: np.ndarray) -> np.ndarray:
    total = TRAIN.to_table().num_rows
    numbers = tt_row_numbers(ids, ROWS, total, False)
    return tt_lookup([np.asarray(c) for c in cores], numbers, ids, None, None)


@pytest.mark.parametrize("devices", [1, 8])
def test_outputs_are_means_of_products_of_cores(devices):
    train = TRAIN.to_table(compute_dtype="float32")
    ebc, given = collection(devices, train, HASHED), kjt()
    out = ebc(given)
    assert out.keys() == ["f@tt", "g", "f@hash"]
    cores = ebc.get_state()["tt"].cores
    for key, name in (("f", "f@tt"), ("g", "g")):
        for bag, row in zip(given[key].to_dense(), out[name], strict=True):
            wanted = rows_of(cores, bag).mean(axis=0) if len(bag) else np.zeros(32)
            np.testing.assert_allclose(row, wanted, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("devices", [1, 8])
def test_both_kinds_train_alike_on_any_devices(devices, ahead):
    """A loss that falls, as fast as on one device; routed ahead, the same bits."""

    def loss_fn(model, batch):
        return (model(batch).values() - 0.1).__pow__(2).mean()

    @jde.nnx.jit
    def step(model, batch):
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
        jde.nnx.update_tables(model, grads)
        return loss

    tables = T.with_optimizer([TRAIN, HASHED], {"*": jde.optim.sgd(5.0)})
    alone, model = collection(1, *tables), collection(devices, *tables)
    given = [kjt(seed) for seed in (0, 0, 0)]
    wanted = [step(alone, batch) for batch in given]
    seen = [step(model, model.route(b) if ahead else b) for b in given]
    np.testing.assert_allclose(seen, wanted, rtol=1e-4)
    assert wanted[-1] < wanted[0]


def test_rows_of_one_id_each():
    config = T.EmbeddingConfig(ROWS, 32, "tt", feature_names=["f"], tt_ranks=4)
    rows = T.EmbeddingCollection([config], rngs=nnx.Rngs(0))(kjt())
    assert rows["f"].values().shape[1] == 32


def test_weighted_bags():
    ebc = collection(1, TRAIN, is_weighted=True)
    given = kjt()
    ones = given.with_weights(jnp.ones(len(given.values())))
    twice = given.with_weights(2 * jnp.ones(len(given.values())))
    np.testing.assert_allclose(ebc(twice).values(), 2 * ebc(ones).values(), rtol=1e-5)


@pytest.mark.slow
def test_a_core_config_stands_beside_torchrecs():
    own = jde.TTConfig("own", 32, ROWS, 2, feature_names=("g",), pooling="sum")
    ebc = collection(1, own, HASHED)
    assert ebc(kjt()).keys() == ["g", "f"]
    with pytest.raises(TypeError, match="list of configs"):
        T.EmbeddingBagCollection(own, rngs=nnx.Rngs(0))
