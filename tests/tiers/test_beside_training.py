# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A find that promotes, rules that compare norms, prefetch in Flax: untiered bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from support import assert_same_rows, export, gradients
from tiered import ADAM, TIER, Both, batch


def trained(**placement) -> Both:
    """Tables after some steps, of which the tiered one has rows at home."""
    both = Both(
        jde.TableConfig("a", 6, 512, optimizer=ADAM),
        jde.TableConfig("b", 3, 512, optimizer=jde.optim.sgd(0.1)),
        **placement,
    )
    for seed in range(4):
        ids = {"a": batch(120, seed), "b": batch(120, seed + 9)}
        shapes = {"a": (120, 6), "b": (120, 3)}
        both.train(ids, {n: jnp.asarray(gradients(s, seed)) for n, s in shapes.items()})
    return both


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])
def test_a_find_that_promotes(platform, devices):
    both = trained(**({} if devices == 1 else {"mesh": mesh_of(devices)}))
    ids = {"a": jde.ids(batch(100, 1)), "b": jde.ids(batch(100, 90))}
    before = both.colls[1].stats(both.states[1])
    results = []
    for i, coll in enumerate(both.colls):
        find = functools.partial(coll.find, promote=True)
        run = jax.jit(find, donate_argnums=0)
        rows, found, both.states[i] = run(both.states[i], ids)
        results.append((rows, found))
    jax.tree.map(np.testing.assert_array_equal, *results)
    after = both.colls[1].stats(both.states[1])
    assert after["a/prefetched"] > before["a/prefetched"]
    assert after["a/promoted"] == before["a/promoted"]
    both.check()


def test_a_find_that_promotes_works_in_place(platform):
    coll = jde.Tables([jde.TableConfig("a", 8, 4096, optimizer=ADAM, tier=TIER)])
    run = jax.jit(functools.partial(coll.find, promote=True), donate_argnums=0)
    jde.testing.assert_in_place(run, coll.init(0), {"a": jde.ids(np.arange(64))})


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize(
    "rule",
    [
        {"norm_below": 1.0},
        {"norm_below": 0.8, "keep_at_least": 50},
        {"norm_below": 1.2, "unused_for": 1, "combine": "any"},
    ],
)
def test_rules_that_compare_norms(platform, devices, rule):
    both = trained(**({} if devices == 1 else {"mesh": mesh_of(devices)}))
    rows = export(both.colls[0], both.states[0], "a").values()
    middle = float(np.median([np.linalg.norm(row.values) for row in rows]))
    rule = {**rule, "norm_below": rule["norm_below"] * middle}
    removed = []
    for i, coll in enumerate(both.colls):
        run = jax.jit(coll.erase_where, donate_argnums=0)
        count, both.states[i] = run(both.states[i], {"a": jde.lifecycle.Rule(**rule)})
        removed.append(int(count["a"]))
    assert removed[0] == removed[1] and 0 < removed[0] < len(rows)
    both.check()


class Model(nnx.Module):
    """Sums of rows, and one dense layer."""

    def __init__(self, tier):
        rngs = nnx.Rngs(0)
        table = jde.TableConfig(
            "t", 4, 512, ("x",), optimizer=ADAM, pooling="sum", tier=tier
        )
        self.sparse = jde.nnx.EmbeddingBagCollection([table], rngs=rngs)
        self.dense = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, ids):
        return self.dense(self.sparse({"x": ids})["x"])


def fitted(tier, prefetches):
    """A model after some steps, and its losses."""
    model = Model(tier)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))

    @jde.nnx.jit
    def step(model, optimizer, ids, following):
        loss, grads = jde.nnx.value_and_grad(lambda m, x: (m(x) ** 2).mean())(
            model, ids
        )
        if prefetches:
            model.sparse.prefetch({"x": following})
        optimizer.update(model, grads)
        return loss

    batches = [jde.ids(batch(120, seed).reshape(40, 3)) for seed in range(6)]
    pairs = zip(batches, batches[1:], strict=False)
    losses = [float(step(model, optimizer, ids, following)) for ids, following in pairs]
    return model, losses


def test_prefetch_of_a_flax_module_changes_no_bit(platform):
    plain, losses = fitted(None, prefetches=True)  # nothing to prefetch
    tiered, tiered_losses = fitted(TIER, prefetches=True)
    assert tiered_losses == losses
    states = [(m.sparse.coll, m.sparse.get_state()) for m in (tiered, plain)]
    assert_same_rows(*(export(coll, state, "t") for coll, state in states))
    assert tiered.sparse.stats()["t/prefetched"] > 0


def test_init_logs_large_homes(platform, caplog, monkeypatch):
    monkeypatch.setattr("jax_dynemb._src.ops.tier_state._SLOW_GIGABYTES", 1e-5)
    with caplog.at_level("INFO", logger="jax_dynemb.tiers"):
        jde.Tables(
            [
                jde.TableConfig("small", 2, 128, tier=TIER),
                jde.TableConfig("large", 8, 4096, tier=TIER),
            ]
        ).init(0)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2 and all("'large'" in text for text in messages)
    assert "pinning" in messages[0] and " s." in messages[1]
