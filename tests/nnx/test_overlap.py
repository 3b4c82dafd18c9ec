# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One line around an iterator moves rows ahead and changes no bit of the plain loop."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from support import assert_same_rows, export
from tiered import ADAM
from walks import PLAIN, cold_batches, rows_of
from walks import TIER as STORE_TIER

# Every row of a lookup gets a frame. Without one a new row is still fresh in the second
# lookup of a step, and a GPU adds fresh rows up behind the others of a bag.
TIER = jde.tiers.host(hbm_fraction=32 / 128, spill_rows=48)
TABLE = jde.TableConfig("t", 4, 256, ("x", "y"), optimizer=ADAM, pooling="sum")


class Model(nnx.Module):
    """Sums of rows, and a dense layer beside them.

    Gradients of rows round in one way only: XLA fuses the loss of each program as it
    likes.
    """

    def __init__(self, table, reads=(), **placement):
        rngs = nnx.Rngs(0)
        kind = jde.nnx.EmbeddingBagCollection
        self.sparse = kind([table], rngs=rngs, **placement)
        self.dense = nnx.Linear(4, 1, rngs=rngs)
        self.reads = reads

    def __call__(self, batch):
        """Looks each feature up on its own: two lookups of one collection."""
        rows = [self.sparse({name: batch[name]})[name] for name in ("x", "y")]
        for name in self.reads:  # a read behind the last training lookup
            rows.append(self.sparse({name: batch[name]}, train=False)[name])
        total = sum(rows[:2])
        everything = jnp.stack(rows).sum(axis=0)
        return total, self.dense(jax.lax.stop_gradient(everything))


def loss_fn(model, batch):
    total, dense = model(batch)
    return 0.5 * (total**2).sum() + dense.mean()


def made(table, **options):
    model = Model(table, **options)
    return model, jde.nnx.Optimizer(model, optax.sgd(0.0))


def new_step(traces=None) -> Any:
    @jde.nnx.jit
    def step(model, optimizer, batch):
        if traces is not None:
            traces.append(1)
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
        optimizer.update(model, grads)
        return loss

    return step


def batches(count=12, seed=0, bags=10):
    rng = np.random.default_rng(seed)
    return [
        {name: jde.ids(rng.integers(0, 500, (bags, 3))) for name in ("x", "y")}
        | {"label": jnp.ones(bags)}
        for _ in range(count)
    ]


def train(pair, some, step=None):
    step = step or new_step()
    return [float(step(*pair, batch)) for batch in some]


def assert_same(tiered, plain):
    pairs = [(m.sparse.coll, m.sparse.get_state()) for m in (tiered, plain)]
    assert_same_rows(*(export(coll, state, "t") for coll, state in pairs))


@pytest.mark.parametrize("reads", [(), ("x",)])
def test_a_loop_is_the_plain_loop(platform, reads):
    plain = made(TABLE, reads=reads)
    far = made(dataclasses.replace(TABLE, tier=TIER), reads=reads)
    losses = train(plain, batches())
    with jde.pipeline.overlap(far[0], batches()) as ahead:
        np.testing.assert_allclose(train(far, ahead), losses, rtol=1e-5)
    stats = far[0].sparse.stats()
    assert stats["t/prefetched"] > 0 and stats["t/evicted"] > 0
    assert_same(far[0], plain[0])


def test_the_step_is_traced_once():
    far, traces = made(dataclasses.replace(TABLE, tier=TIER)), []
    step = new_step(traces)
    for seed in range(2):  # a loop a day
        with jde.pipeline.overlap(far[0], batches(4, seed)) as ahead:
            train(far, ahead, step)
        traces_of_first = len(traces) if seed == 0 else traces_of_first  # noqa: F821
    assert len(traces) == traces_of_first
    assert far[0].sparse.stats()["t/lookups"] == 16


@pytest.mark.parametrize("jagged", [False, True])
def test_batches_in_any_form(jagged):
    def given(batch):
        x = batch["x"]
        if jagged:
            x = jde.Jagged(x.reshape(-1, 2), jnp.full(10, 3, jnp.int32))
        return ({"x": x, "y": batch["y"]}, batch["label"])

    far = made(dataclasses.replace(TABLE, tier=TIER))

    @jde.nnx.jit
    def step(model, optimizer, batch):
        loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch[0])
        optimizer.update(model, grads)
        return loss

    with jde.pipeline.overlap(far[0], map(given, batches())) as ahead:
        train(far, ahead, step)
    assert far[0].sparse.stats()["t/prefetched"] > 0
    plain = made(TABLE)
    train(plain, batches())
    assert_same(far[0], plain[0])


def test_one_feature_needs_no_name_and_other_places_a_function():
    class One(nnx.Module):
        def __init__(self):
            self.embed = jde.nnx.DynamicEmbed(
                features=4, capacity=256, optimizer=ADAM, tier=TIER, rngs=nnx.Rngs(0)
            )

        def __call__(self, ids):
            return self.embed(ids)

    rng = np.random.default_rng(0)
    some = [jde.ids(rng.integers(0, 400, 90)) for _ in range(5)]
    for wrap, find in (
        (lambda ids: ids, None),
        (lambda ids: (ids, 1.0), None),
        (lambda ids: {"deep": {"ids": ids}}, lambda b: {"embedding": b["deep"]["ids"]}),
    ):
        model = One()

        @jde.nnx.jit
        def step(model, batch):
            ids = jax.tree.leaves(batch)[0]
            _, grads = jde.nnx.value_and_grad(lambda m, x: (m(x) ** 2).sum())(
                model, ids
            )
            jde.nnx.update_tables(model, grads)

        with jde.pipeline.overlap(model, map(wrap, some), ids=find) as ahead:
            for batch in ahead:
                step(model, batch)
        assert model.embed.stats()["embedding/prefetched"] > 0


def test_tables_that_two_collections_share():
    table = dataclasses.replace(TABLE, tier=TIER)

    class Towers(nnx.Module):
        def __init__(self, table):
            kind = jde.nnx.EmbeddingBagCollection
            self.sparse = kind([table], rngs=nnx.Rngs(0))
            again = dataclasses.replace(table, feature_names=("y",))
            self.other = kind([again], rows_of=self.sparse)

        def __call__(self, batch):
            one = self.sparse({"x": batch["x"]})["x"]
            return one + self.other({"y": batch["y"]})["y"], one

    models = []
    for config in (TABLE, table):
        model = Towers(config)
        pair = model, jde.nnx.Optimizer(model, optax.sgd(0.0))
        some = batches()
        if config is table:
            some = jde.pipeline.overlap(model, some)
        train(pair, some)
        models.append(model)
    assert_same(models[1], models[0])


@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="see tests/tiers/test_mesh.py"
)
def test_on_a_mesh():
    table = dataclasses.replace(TABLE, capacity=1024)
    placed = {"mesh": mesh_of(4), "axis": "data"}
    plain = made(table, **placed)
    few = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=48)
    far = made(dataclasses.replace(table, tier=few), **placed)
    train(plain, batches(5))
    with jde.pipeline.overlap(far[0], batches(5)) as ahead:
        train(far, ahead)
    assert far[0].sparse.stats()["t/prefetched"] > 0
    assert_same(far[0], plain[0])


def test_above_a_store(tmp_path):
    table = dataclasses.replace(PLAIN, pooling="sum")

    class Stored(nnx.Module):
        def __init__(self, table):
            self.sparse = jde.nnx.EmbeddingBagCollection([table], rngs=nnx.Rngs(0))

        def __call__(self, ids):
            rows = self.sparse(ids)["cat"]
            return rows, jnp.zeros(1)

    def pair(table):
        model = Stored(table)
        return model, jde.nnx.Optimizer(model, optax.sgd(0.0))

    far, plain = pair(dataclasses.replace(table, tier=STORE_TIER)), pair(table)
    some = [{"cat": ids.reshape(10, 4)} for ids in cold_batches(1, 60)]
    train(plain, [{"cat": jde.ids(each["cat"])} for each in some])
    stores = {"cat": jde.stores.Memory(table)}
    with jde.pipeline.overlap(far[0], iter(some), stores=stores) as ahead:
        train(far, ahead)
        assert ahead.prefetcher is not None
        ahead.prefetcher.insert(
            {"cat": np.arange(1)}, {"cat": np.ones((1, 3), np.float32)}
        )
    stats = far[0].sparse.stats()
    assert stats["cat/prefetched"] > 0 and stats["cat/departed"] > 0
    rows = rows_of(far[0].sparse.coll, far[0].sparse.get_state())
    expected = rows_of(plain[0].sparse.coll, plain[0].sparse.get_state())
    assert rows and all(expected[key] == row for key, row in rows.items() if key)


def test_a_step_that_takes_no_ids_is_said():
    far = made(dataclasses.replace(TABLE, tier=TIER))
    step = nnx.jit(lambda model, batch: model(batch)[0].sum())
    with pytest.warns(UserWarning, match=r"jde\.nnx\.jit"):
        for batch in jde.pipeline.overlap(far[0], batches(2)):
            step(far[0], batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in jde.pipeline.overlap(far[0], []):
            pass


def test_what_is_refused():
    far = made(dataclasses.replace(TABLE, tier=TIER))
    with pytest.raises(TypeError, match="ids=lambda batch"):
        next(jde.pipeline.overlap(far[0], [{"z": jnp.ones(3)}]))
    with pytest.raises(TypeError, match="generator function"):
        jde.pipeline.overlap(far[0], batches)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="with tables"):
        jde.pipeline.overlap(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), batches())


def test_an_error_of_the_step_and_a_loop_that_ends_early():
    far = made(dataclasses.replace(TABLE, tier=TIER))
    ahead = jde.pipeline.overlap(far[0], batches())
    step = new_step()
    train(far, [next(ahead)], step)
    with pytest.raises(KeyError):
        step(far[0], far[1], {"x": next(ahead)["x"]})
    train(far, [next(ahead)], step)
    ahead.close()
    assert list(ahead) == []
    train(far, batches(1), step)  # without announced ids
