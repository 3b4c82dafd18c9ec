# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Flax modules train tiered tables as they train others, bit for bit."""

import dataclasses

import jax
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde
from support import assert_same_rows, export
from tiered import ADAM, TIER, batch

TABLE = jde.TableConfig("t", 4, 512, ("x",), optimizer=ADAM, pooling="sum")


class Model(nnx.Module):
    """Sums of rows, and one dense layer."""

    def __init__(self, table: jde.TableConfig):
        rngs = nnx.Rngs(0)
        self.sparse = jde.nnx.EmbeddingBagCollection([table], rngs=rngs)
        self.dense = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, ids):
        return self.dense(self.sparse({"x": ids})["x"])


def trained(table: jde.TableConfig):
    model = Model(table)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))

    @jde.nnx.jit
    def step(model, optimizer, ids):
        loss, grads = jde.nnx.value_and_grad(lambda m, x: (m(x) ** 2).mean())(
            model, ids
        )
        optimizer.update(model, grads)
        return loss

    losses = []
    for seed in range(4):
        ids = batch(120, seed).reshape(40, 3)
        losses.append(float(step(model, optimizer, jde.ids(ids))))
    return model, losses


def test_a_model_with_a_tier_is_the_same_model(platform, tmp_path):
    plain, losses = trained(TABLE)
    tiered, tiered_losses = trained(dataclasses.replace(TABLE, tier=TIER))
    assert tiered_losses == losses
    states = [(m.sparse.coll, m.sparse.get_state()) for m in (tiered, plain)]
    assert_same_rows(*(export(coll, state, "t") for coll, state in states))
    assert tiered.sparse.stats()["t/written_back"] > 0
    homes = [
        x
        for x in jax.tree.leaves(nnx.state(tiered))
        if getattr(x.sharding, "memory_kind", None) == "pinned_host"
    ]
    assert len(homes) == 1

    jde.checkpoint.save(tmp_path, 1, {"model": tiered}, wait=True)
    other = Model(TABLE)
    jde.checkpoint.restore(tmp_path, {"model": other})
    ids = jde.ids(batch(120, 9).reshape(40, 3))
    np.testing.assert_array_equal(other(ids), tiered(ids))
