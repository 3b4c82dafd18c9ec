# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``jde.pipeline.overlap`` finds the KeyedJaggedTensors of a ported model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb import torchrec
from support import assert_same_rows, export
from tiered import ADAM, TIER


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    sparse: torchrec.KeyedJaggedTensor
    label: jax.Array


class Model(nnx.Module):
    """Sums of two features of one table, and rows of another."""

    def __init__(self, tier):
        options = {"optimizer": ADAM, "tier": tier}
        bags = jde.TableConfig(
            "bags", 4, 256, ("x", "y"), pooling="sum", on_full="evict", **options
        )
        rows = jde.TableConfig("rows", 4, 256, ("x",), **options)
        rngs = nnx.Rngs(0)
        self.bags = torchrec.EmbeddingBagCollection(tables=[bags], rngs=rngs)
        self.rows = torchrec.EmbeddingCollection(tables=[rows], rngs=rngs)

    def __call__(self, kjt):
        pooled = self.bags(kjt)
        return pooled["x"] + pooled["y"], self.rows(kjt)["x"].values()


def loss_fn(model, batch):
    pooled, rows = model(batch.sparse)
    return 0.5 * (pooled**2).sum() + 0.5 * (rows**2).sum()


@jde.nnx.jit
def step(model, optimizer, batch):
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


def batches(count=7):
    rng = np.random.default_rng(0)
    for _ in range(count):
        lengths = rng.permutation(np.arange(80) % 4)
        kjt = torchrec.KeyedJaggedTensor(
            ["x", "y"],
            jde.ids(rng.integers(0, 500, 120)),
            lengths=jnp.asarray(lengths, jnp.int32),
        )
        yield Batch(kjt, jnp.ones(40))


def trained(tier, wrap):
    model = Model(tier)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.0))
    losses = [float(step(model, optimizer, b)) for b in wrap(model, batches())]
    return model, losses


@pytest.mark.parametrize("said", [False, True])
def test_a_ported_model_is_the_same_model(said):
    def ids(batch):
        return {"kjt": batch.sparse}

    plain, losses = trained(None, lambda _, some: some)
    far, tiered = trained(
        TIER,
        lambda model, some: jde.pipeline.overlap(
            model, some, ids=ids if said else None
        ),
    )
    np.testing.assert_allclose(tiered, losses, rtol=1e-5)
    for name in ("bags", "rows"):
        pairs = [getattr(model, name) for model in (far, plain)]
        assert pairs[0].stats()[f"{name}/prefetched"] > 0
        tables = [export(m.coll, m.get_state(), name) for m in pairs]
        assert_same_rows(*tables)


def test_a_batch_without_the_features_says_what_to_write():
    model = Model(TIER)
    kjt = next(iter(batches())).sparse
    with pytest.raises(TypeError, match="ids=lambda batch"):
        next(
            jde.pipeline.overlap(
                model,
                [
                    torchrec.KeyedJaggedTensor(
                        ["z"], kjt.values(), lengths=jnp.full(1, 120, jnp.int32)
                    )
                ],
            )
        )


def test_the_pipeline_moves_rows_of_tables_with_a_tier():
    class WithLoss(Model):
        def __call__(self, batch):
            pooled, rows = super().__call__(batch.sparse)
            return 0.5 * (pooled**2).sum() + 0.5 * (rows**2).sum(), pooled

    models = []
    for tier in (None, TIER):
        model = WithLoss(tier)
        optimizer = jde.nnx.Optimizer(model, optax.sgd(0.0))
        pipeline = torchrec.TrainPipelineSparseDist(model, optimizer)
        some = iter(batches())
        with pytest.raises(StopIteration):
            while True:
                pipeline.progress(some)
        models.append(model)
    assert models[1].bags.stats()["bags/prefetched"] > 0
    for name in ("bags", "rows"):
        pairs = [getattr(model, name) for model in models]
        assert_same_rows(*(export(m.coll, m.get_state(), name) for m in pairs))
