# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A Flax model trains with a store below its table, without the functional calls."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from walks import PLAIN, TIER, cold_batches, rows_in, rows_of

TABLE = dataclasses.replace(PLAIN, pooling="sum")


class Model(nnx.Module):
    """Sums of rows, and one dense layer."""

    def __init__(self, table: jde.TableConfig):
        rngs = nnx.Rngs(0)
        self.sparse = jde.nnx.EmbeddingBagCollection([table], rngs=rngs)
        self.dense = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, ids):
        return self.dense(self.sparse(ids)["cat"])


@jde.nnx.jit
def step(model, optimizer, ids):
    loss, grads = jde.nnx.value_and_grad(lambda m, x: ((m(x) - 1) ** 2).mean())(
        model, ids
    )
    optimizer.update(model, grads)
    return loss


def made(table: jde.TableConfig):
    model = Model(table)
    return model, jde.nnx.Optimizer(model, optax.sgd(0.1))


def bags(seed: int, count: int) -> list[np.ndarray]:
    return [ids.reshape(10, 4) for ids in cold_batches(seed, count)]


def rows(model: Model) -> dict[int, bytes]:
    return rows_of(model.sparse.coll, model.sparse.get_state())


def test_a_model_with_a_store_is_the_same_model(tmp_path):
    small, plain = made(dataclasses.replace(TABLE, tier=TIER)), made(TABLE)
    stores = {"cat": jde.stores.Memory(TABLE)}
    batches = bags(1, 120)

    def train(prefetcher, some) -> None:
        for batch in some:
            loss = step(*small, next(prefetcher))
            assert float(loss) == float(step(*plain, {"cat": jde.ids(batch)}))

    with jde.nnx.prefetch_rows(
        small[0].sparse, ({"cat": ids} for ids in batches), stores=stores
    ) as prefetcher:
        train(prefetcher, batches[:50])
        tree = {"model": small[0]}
        jde.checkpoint.save(tmp_path, 50, tree, prefetcher=prefetcher, wait=True)
        small[0].sparse.grow({"cat": 1024})  # the prefetcher goes on with it
        train(prefetcher, batches[50:])
        with pytest.raises(StopIteration):
            next(prefetcher)
        gone = {"cat": np.arange(40)}
        prefetcher.erase(gone)
        plain[0].sparse.set_state(
            plain[0].sparse.coll.erase(
                plain[0].sparse.get_state(), {"cat": jde.ids(gone["cat"])}
            )
        )
        prefetcher.insert(gone, {"cat": np.ones((40, 3), np.float32)})
        plain[0].sparse.set_state(
            plain[0].sparse.coll.insert(
                plain[0].sparse.get_state(),
                {"cat": jde.ids(gone["cat"])},
                {"cat": jax.numpy.ones((40, 3))},
            )
        )
        prefetcher.drain()
        assert prefetcher.stats()["cat/returned"] > 0
    above, below = rows(small[0]), rows_in(stores["cat"])
    assert not above.keys() & below.keys() and len(below) > 100
    assert above | below == rows(plain[0])


def test_a_restored_model_goes_on(tmp_path):
    tier = dataclasses.replace(TIER, host_rows=256)
    table, stores = dataclasses.replace(TABLE, tier=tier), {}
    stores["cat"] = jde.stores.Memory(TABLE)
    first, batches = made(table), bags(2, 60)
    given = [{"cat": ids} for ids in batches]
    with jde.nnx.prefetch_rows(
        first[0].sparse, given[:40], stores=stores
    ) as prefetcher:
        for ids in prefetcher:
            step(*first, ids)
        jde.checkpoint.save(
            tmp_path, 40, {"model": first[0]}, prefetcher=prefetcher, wait=True
        )
    expected = rows(first[0]) | rows_in(stores["cat"])
    again = made(table)
    jde.checkpoint.restore(tmp_path, {"model": again[0]}, stores=stores)
    assert rows(again[0]) | rows_in(stores["cat"]) == expected
    with jde.nnx.prefetch_rows(
        again[0].sparse, given[40:], stores=stores
    ) as prefetcher:
        losses = [float(step(*again, ids)) for ids in prefetcher]
    assert len(losses) == 20 and np.isfinite(losses).all()


def test_tables_without_a_store_need_no_prefetcher():
    with pytest.raises(ValueError, match="iterate over the batches themselves"):
        jde.nnx.prefetch_rows(Model(TABLE).sparse, [])
