# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The fast path of jde.nnx.jit gives what nnx.jit gives, whatever a model becomes."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.nnx.fast_path.fingerprint import Fingerprint
from support import without_identity


class Model(nnx.Module):
    def __init__(self, seed=0):
        table = jde.TableConfig("cat", 4, 256, optimizer=jde.optim.adam(0.1))
        self.sparse = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(seed))
        self.dense = nnx.Linear(4, 3, rngs=nnx.Rngs(seed))
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(seed + 1))
        self.scale = 1.0
        self.parts = nnx.List([nnx.Linear(3, 3, rngs=nnx.Rngs(seed + 2))])


IDS = jde.ids([1, 2, 2, 9])


def loss_fn(model, ids):
    hidden = model.dropout(model.dense(model.sparse({"cat": ids})["cat"]))
    for part in model.parts:
        hidden = part(hidden)
    return model.scale * (hidden**2).sum()


def train_step(model, optimizer, ids):
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids)
    optimizer.update(model, grads)
    return loss


def evaluate(model, ids):
    return loss_fn(model, ids)


def values_of(*nodes):
    return [_numpy(x) for x in jax.tree.leaves([nnx.state(n) for n in nodes])]


def _numpy(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return without_identity(jax.random.key_data(x) if is_key else x)


def changes(step):
    """Yields the values after each of many calls between which a model changes."""
    model = Model()
    optimizer = jde.nnx.Optimizer(model, optax.adam(0.1))

    def go(*args, **kwargs):
        loss = step["train"](*args, **kwargs)
        return [np.asarray(loss), *values_of(model, optimizer)]

    for _ in range(3):
        yield go(model, optimizer, IDS)
    yield go(model, optimizer, jde.ids([3, 4]))
    yield go(model, ids=IDS, optimizer=optimizer)
    model.scale = 0.5
    yield go(model, optimizer, IDS)
    model.eval()
    yield [np.asarray(step["evaluate"](model, IDS))]
    model.train()
    yield go(model, optimizer, IDS)
    model.parts.append(nnx.Linear(3, 3, rngs=nnx.Rngs(5)))
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    yield go(model, optimizer, IDS)
    model.dense.bias.set_value(jnp.full(3, 7.0))
    yield go(model, optimizer, IDS)
    model.parts[0].kernel = model.parts[1].kernel  # one Variable in two places
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    yield go(model, optimizer, IDS)
    model.parts[0].bias = nnx.Param(jnp.ones(3), note="new metadata")
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    yield go(model, optimizer, IDS)


@pytest.mark.slow
def test_equals_nnx_jit_through_every_change():
    ours = {"train": jde.nnx.jit(train_step), "evaluate": jde.nnx.jit(evaluate)}
    theirs = {"train": nnx.jit(train_step), "evaluate": nnx.jit(evaluate)}
    count = 0
    for own, other in zip(changes(ours), changes(theirs), strict=True):
        assert len(own) == len(other)
        for x, y in zip(own, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        count += 1
    assert count == 12
    assert all(step._fast_path.is_supported for step in ours.values())


def test_two_models_of_one_make_share_a_program():
    traced = []

    @jde.nnx.jit
    def forward(model, ids):
        traced.append(1)
        return model.sparse({"cat": ids})["cat"]

    first, second = Model(0), Model(1)
    one, two = forward(first, IDS), forward(second, IDS)
    assert not np.array_equal(one, two)  # each its own rows
    np.testing.assert_array_equal(forward(first, IDS), one)
    np.testing.assert_array_equal(forward(second, IDS), two)
    calls = len(traced)
    forward(Model(2), IDS)
    assert len(traced) == calls


def test_what_returns_a_module_takes_nnx_jit():
    @jde.nnx.jit
    def grow(model):
        model.extra = nnx.Param(jnp.ones(2))
        return nnx.Linear(2, 2, rngs=nnx.Rngs(0))

    model = Model()
    made = grow(model)
    assert isinstance(made, nnx.Linear)
    np.testing.assert_array_equal(model.extra.get_value(), np.ones(2))


def test_a_module_inside_another_argument_is_updated():
    @jde.nnx.jit
    def count(holder, model):
        holder["counter"].set_value(holder["counter"].get_value() + 1)
        return model.sparse({"cat": IDS})["cat"]

    holder, model = {"counter": nnx.Variable(jnp.zeros(()))}, Model()
    for _ in range(2):
        count(holder, model)
    assert holder["counter"].get_value() == 2


def test_an_array_that_no_variable_wraps():
    class Loose(nnx.Module):
        def __init__(self):
            self.sparse = Model().sparse
            self.offset = nnx.data(jnp.ones(4))

    @jde.nnx.jit
    def forward(model):
        return model.sparse({"cat": IDS})["cat"] + model.offset

    model = Loose()
    before = forward(model)
    model.offset = model.offset + 1
    np.testing.assert_allclose(forward(model), before + 1, rtol=1e-6)


def test_an_error_leaves_the_model_as_it_was():
    @jde.nnx.jit
    def fails(model):
        model.sparse({"cat": IDS})
        raise KeyError("mine")

    model = Model()
    before = values_of(model)
    with pytest.raises(KeyError, match="mine"):
        fails(model)
    for x, y in zip(before, values_of(model), strict=True):
        np.testing.assert_array_equal(x, y)


def test_inside_a_foreign_trace():
    model = Model()
    forward = jde.nnx.jit(lambda model, ids: model.sparse({"cat": ids})["cat"])
    rows = forward(model, IDS)
    with pytest.raises(ValueError, match="Pass the model as an argument"):
        jax.jit(lambda ids: forward(model, ids))(IDS)
    np.testing.assert_array_equal(forward(model, IDS), rows)


def test_keeps_no_model_alive():
    forward = jde.nnx.jit(evaluate)
    model = Model()
    forward(model, IDS)
    gone = weakref.ref(model)
    table = weakref.ref(model.sparse.get_state()["cat"].values)
    del model
    gc.collect()
    assert gone() is None and table() is None


def test_fingerprints_tell_models_apart():
    model = Model()
    same = Fingerprint([model])
    assert same.matches(Fingerprint([model]))
    assert [type(v).__name__ for v in same.variables].count("Table") == 1
    model.scale = 2.0
    assert not same.matches(Fingerprint([model]))
    model.scale = 1.0
    assert same.matches(Fingerprint([model]))
    model.parts[0].kernel = nnx.Variable(model.parts[0].kernel.get_value())
    assert not same.matches(Fingerprint([model]))
