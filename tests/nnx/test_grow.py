# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A model whose tables grow while it is trained."""

import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from support import export


def train(kit, model, grow_at: int | None) -> list[float]:
    optimizer, losses = jde.nnx.Optimizer(model, optax.adam(0.1)), []
    for n in range(6):
        if n == grow_at:
            model.sparse.grow({"cat": 1024})
        losses.append(float(kit.step(model, optimizer, kit.batch(n))))
    return losses


def test_training_goes_on(kit):
    steady, growing = kit.model(), kit.model()
    assert train(kit, steady, None) == train(kit, growing, 3)
    assert growing.sparse.stats()["cat/capacity"] == 1024
    before, after = (
        export(m.sparse.coll, m.sparse.get_state(), "cat") for m in (steady, growing)
    )
    assert before.keys() == after.keys() and before
    for key, row in before.items():
        np.testing.assert_array_equal(row.values, after[key].values)


def test_a_single_table_says_how_large_it_is():
    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0))
    rows = embed(jde.ids([1, 2]))
    embed.grow({"embedding": 512})
    assert embed.capacity == embed.stats()["embedding/capacity"] == 512
    np.testing.assert_array_equal(embed(jde.ids([1, 2])), rows)


def test_tables_grow_by_their_counters(kit):
    options = {"score_strategy": "no_eviction", "grow_at": 0.05}
    steady, growing = kit.model(**options), kit.model(**options)
    grown, losses = {}, []
    for model in (steady, growing):
        optimizer = jde.nnx.Optimizer(model, optax.adam(0.1))
        for n in range(8):
            losses.append(float(kit.step(model, optimizer, kit.batch(n))))
            if model is growing:
                grown |= model.sparse.maybe_grow(every=2)
    assert losses[:8] == losses[8:]
    # 13 of 256 slots are the bound; "dog" has 7 ids.
    stats = growing.sparse.stats()
    assert grown == {"cat": stats["cat/capacity"]} and grown["cat"] > 256
    assert stats["cat/rows"] <= 0.05 * stats["cat/capacity"]
    before, after = (
        export(m.sparse.coll, m.sparse.get_state(), "cat") for m in (steady, growing)
    )
    assert before.keys() == after.keys()
    for key, row in before.items():
        np.testing.assert_array_equal(row.values, after[key].values)


def test_not_inside_jit(kit):
    """There it would count one step, when it is traced, and never grow a table."""
    model = kit.model()
    with pytest.raises(TypeError, match="maybe_grow reads the tables on the host"):
        jde.nnx.jit(lambda model: model.sparse.maybe_grow())(model)
    assert model.sparse.maybe_grow() == {}


def test_every_counts_steps_where_a_call_follows_several():
    """1,000 steps between two reads are 20 calls, if each follows 50 steps."""
    config = jde.TableConfig("t", 4, 128, max_capacity=1024, grow_at=0.1)
    model = jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    loss = jde.nnx.value_and_grad(lambda m, ids: (m({"t": ids})["t"] ** 2).sum())

    @jde.nnx.jit
    def fifty_steps(model, optimizer, ids):
        for _ in range(50):
            optimizer.update(model, loss(model, ids)[1])

    ids, calls = jde.ids(np.arange(100)), []
    for call in range(50):
        fifty_steps(model, optimizer, ids)
        if model.maybe_grow(every=1000):
            calls.append(call)
    # The first read is 20 calls after the third, and the next one decides.
    assert calls == [3 + 2 * 20 - 1]
