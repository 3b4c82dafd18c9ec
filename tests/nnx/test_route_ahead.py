# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Modules that get their batches routed ahead train as in the plain loop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import collectives, mesh_of
from support import assert_same_rows, export

DEVICES = pytest.mark.parametrize("devices", [1, 8])
STEPS = 4
ADAGRAD: dict[str, Any] = {"optimizer": jde.optim.adagrad(0.1)}


def mesh(devices: int) -> Any:
    return None if devices == 1 else mesh_of(devices)


class Model(nnx.Module):
    """Bags, single rows and one feature of its own, through a dense layer."""

    def __init__(self, devices: int):
        rngs = nnx.Rngs(0)
        bags = [
            jde.TableConfig("a", 8, 1024, pooling="sum", **ADAGRAD),
            jde.TableConfig("b", 8, 1024, pooling="mean", **ADAGRAD),
        ]
        rows = [jde.TableConfig("c", 8, 1024, score_strategy="lfu", **ADAGRAD)]
        on: dict[str, Any] = {"mesh": mesh(devices), "rngs": rngs}
        self.bags = jde.nnx.EmbeddingBagCollection(bags, **on)
        self.rows = jde.nnx.EmbeddingCollection(rows, **on)
        self.one = jde.nnx.DynamicEmbed(features=8, capacity=1024, **on)
        self.top = nnx.Linear(32, 1, rngs=rngs)

    def route(self, batch: Any) -> Any:
        bags, weights, rows, one, label = batch
        sent = self.bags.route(bags, weights), self.rows.route(rows)
        return *sent, self.one.route(one), label

    def __call__(self, bags: Any, rows: Any, one: Any, weights: Any = None) -> Any:
        parts = [*self.bags(bags, weights).values(), *self.rows(rows).values()]
        return self.top(jnp.concatenate([*parts, self.one(one)], axis=-1))[:, 0]


def loss_of(logits: Any, label: Any) -> Any:
    return optax.sigmoid_binary_cross_entropy(logits, label).mean()


@jde.nnx.jit
def plain_step(model: Any, optimizer: Any, batch: Any) -> Any:
    bags, weights, rows, one, label = batch

    def loss_fn(model: Any) -> Any:
        return loss_of(model(bags, rows, one, weights), label)

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def routed_step(model: Any, optimizer: Any, routed: Any, batch: Any) -> Any:
    *given, label = routed

    def loss_fn(model: Any) -> Any:
        return loss_of(model(*given), label)

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss, model.route(batch)


def batches() -> list[Any]:
    made = []
    for step in range(STEPS):
        draw = np.random.default_rng(step)
        bags = {k: jde.ids(draw.integers(-1, 300, (16, 3))) for k in "ab"}
        weights = {"a": jnp.asarray(draw.random((16, 3), np.float32))}
        rows = {"c": jde.ids(draw.integers(0, 300, 16))}
        one = jde.ids(draw.integers(0, 300, 16))
        label = jnp.asarray(draw.integers(0, 2, 16), jnp.float32)
        made.append((bags, weights, rows, one, label))
    return made


def trained(devices: int, ahead: bool) -> tuple[Any, list[Any]]:
    model, given, losses = Model(devices), batches(), []
    optimizer = jde.nnx.Optimizer(model, optax.adam(0.01))
    if not ahead:
        return model, [plain_step(model, optimizer, batch) for batch in given]
    routed = jde.nnx.jit(lambda model, batch: model.route(batch))(model, given[0])
    for batch in [*given[1:], given[0]]:
        loss, routed = routed_step(model, optimizer, routed, batch)
        losses.append(loss)
    return model, losses


@pytest.mark.slow
@DEVICES
def test_training_equals_the_plain_loop_bit_for_bit(devices):
    model, losses = trained(devices, ahead=False)
    other, again = trained(devices, ahead=True)
    np.testing.assert_array_equal(losses, again)
    for name in ("bags", "rows", "one"):
        mine, its = getattr(model, name), getattr(other, name)
        for table in mine.coll.tables:
            state, routed = mine.get_state(), its.get_state()
            assert_same_rows(
                export(its.coll, routed, table), export(mine.coll, state, table)
            )
    np.testing.assert_array_equal(
        model.top.kernel.get_value(), other.top.kernel.get_value()
    )


def test_a_routed_lookup_sends_no_ids():
    table = jde.TableConfig("c", 8, 1024)
    module = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0), mesh=mesh_of(8))
    ids = {"c": jde.ids(np.arange(64))}

    @jde.nnx.jit
    def look_up(module, batch):
        return module(batch)["c"]

    def count(batch):
        text = look_up.lower(module, batch).compile().as_text()
        return collectives(text)[0]["all-to-all"]

    assert count(ids) == 2
    assert count(module.route(ids)) == 1


def test_reading_takes_a_routed_batch():
    model = Model(8)
    bags, weights, rows, one, _ = batches()[0]
    model(bags, rows, one, weights)
    model.eval()
    *routed, _ = model.route(batches()[0])
    np.testing.assert_array_equal(model(*routed), model(bags, rows, one, weights))


def test_weights_given_to_the_lookup_take_the_place_of_those_routed():
    model = Model(8)
    bags, weights, rows, one, _ = batches()[0]
    sent = model.bags.route(bags, weights)
    other = {"a": 2 * weights["a"]}
    once = model.bags(sent)["a"]
    np.testing.assert_array_equal(model.bags(sent, other)["a"], 2 * once)


def test_mistakes_are_named():
    model = Model(1)
    bags, weights, *_ = batches()[0]
    sent = model.bags.route(bags, weights)
    model.bags.grow({"a": 4096})
    with pytest.raises(ValueError, match="Route it again"):
        model.bags(sent)
    with pytest.raises(ValueError, match="weights for \\['c'\\], but no ids"):
        model.bags.route(bags, {"c": weights["a"]})
    with pytest.raises(ValueError, match="did you mean"):
        model.bags.route({"aa": bags["a"]})
    with pytest.raises(ValueError, match="lookup inserts|inserts would be lost|lost"):
        jax.jit(lambda batch: model.bags(batch))(model.bags.route(bags))
