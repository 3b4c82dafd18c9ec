# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A model in TorchRec's names above stores is the model with room for all rows."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from walks import rows_in, rows_of

T = jde.torchrec
PLAIN = [
    jde.TableConfig(
        "t", 4, 8192, feature_names=("f", "g"), optimizer=jde.optim.adam(0.05)
    ),
    jde.TableConfig("u", 4, 8192, feature_names=("g",), optimizer=jde.optim.sgd(0.1)),
]


def unopened(table):
    raise AssertionError(f"{table.name}: the tests pass stores=")


TIER = jde.tiers.external(unopened, host_rows=512, ring_rows=256)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    """Has its ids in the middle, as TorchRec's has."""

    dense: np.ndarray
    sparse: T.KeyedJaggedTensor
    labels: np.ndarray


class Model(nnx.Module):
    """Bags and one dense layer; returns the loss and the predictions."""

    def __init__(self, tables):
        rngs = nnx.Rngs(0)
        pooled = [dataclasses.replace(table, pooling="sum") for table in tables]
        self.sparse = T.EmbeddingBagCollection(pooled, rngs=rngs)
        self.over = nnx.Linear(13, 1, rngs=rngs)

    def __call__(self, batch):
        rows = self.sparse(batch.sparse).values()
        out = self.over(jax.numpy.concatenate([rows, batch.dense], axis=1))[:, 0]
        return ((out - batch.labels) ** 2).mean(), out


def batches(count=40):
    draw, capacity = np.random.default_rng(0), T.Capacity()
    for _ in range(count):
        lengths = draw.integers(0, 3, 2 * 32)
        values = draw.integers(0, 3000, lengths.sum()) * 2**33
        kjt = T.KeyedJaggedTensor.from_lengths_sync(
            ["f", "g"], values, lengths, capacity=capacity
        )
        yield Batch(np.ones((32, 1), np.float32), kjt, np.float32(lengths[:32]))


@jde.nnx.jit
def step(model, optimizer, batch):
    loss_of = jde.nnx.value_and_grad(lambda m, b: m(b)[0])
    loss, grads = loss_of(model, batch)
    optimizer.update(model, grads)
    return loss


def made(tables):
    model = Model(tables)
    return model, jde.nnx.Optimizer(model, optax.sgd(0.1))


@pytest.mark.parametrize("loop", ["prefetch_rows", "overlap", "pipeline"])
def test_the_rows_are_those_of_large_tables(loop):
    plain, optimizer = made(PLAIN)
    for batch in batches():
        step(plain, optimizer, batch)
    above = [dataclasses.replace(table, tier=TIER) for table in PLAIN]
    model, optimizer = made(above)
    stores = {table.name: jde.stores.Memory(table) for table in PLAIN}
    if loop == "prefetch_rows":
        prefetcher = jde.nnx.prefetch_rows(model.sparse, batches(), stores=stores)
        for batch in prefetcher:
            step(model, optimizer, batch)
    elif loop == "overlap":
        pairs = jde.pipeline.overlap(model, batches(), stores=stores)
        prefetcher = pairs.prefetcher
        for batch in pairs:
            step(model, optimizer, batch)
    else:
        pipeline = T.TrainPipelineSparseDist(model, optimizer, stores=stores)
        iterator, steps = batches(), 0
        with pytest.raises(StopIteration):
            while True:
                pipeline.progress(iterator)
                steps += 1
        assert steps == 40
        prefetcher = pipeline.prefetcher
    prefetcher.drain()
    for name in ("t", "u"):
        found = rows_of(model.sparse.coll, model.sparse.get_state(), name)
        below = rows_in(stores[name])
        assert len(below) > 100 and not found.keys() & below.keys()
        whole = rows_of(plain.sparse.coll, plain.sparse.get_state(), name)
        assert found | below == whole
    prefetcher.close()
