# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.nnx.jit: what it donates, and what the compiled step does not do."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde


def make_step(kit, jit):
    @jit
    def train_step(model, optimizer, batch):
        loss, grads = jde.nnx.value_and_grad(kit.loss)(model, batch)
        optimizer.update(model, grads)
        return loss

    return train_step


def deleted(tree):
    return {leaf.is_deleted() for leaf in jax.tree.leaves(tree)}


def test_donates_model_and_optimizer_but_not_batches(kit):
    model, batch = kit.model(), kit.batch(0)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9))
    old = jax.tree.leaves((nnx.state(model), nnx.state(optimizer)))
    make_step(kit, jde.nnx.jit)(model, optimizer, batch)
    assert deleted(old) == {True}
    assert deleted((batch, nnx.state(model), nnx.state(optimizer))) == {False}


def test_keeps_models_without_tables(kit):
    model, teacher = kit.model(), nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    @jde.nnx.jit
    def forward(teacher, *, model, ids):
        return teacher(model.sparse({"C1": ids})["C1"])

    old = jax.tree.leaves(model.sparse.get_state()["cat"])
    kept = jax.tree.leaves(nnx.state(teacher))
    forward(teacher, model=model, ids=jde.ids([1, 2]))
    assert deleted(old) == {True} and deleted(kept) == {False}
    assert model.sparse.stats()["cat/rows"] == 2


def test_as_decorator_with_options_and_on_methods(kit):
    @jde.nnx.jit(static_argnames="scale")
    def forward(model, ids, scale):
        assert isinstance(scale, int)
        return scale * model.sparse({"C1": ids})["C1"]

    model, ids = kit.model(), jde.ids([1, 2])
    once, twice = forward(model, ids, scale=1), forward(model, ids, scale=2)
    np.testing.assert_array_equal(2 * once, twice)
    assert forward.__name__ == "forward"

    class Stepper(nnx.Module):
        def __init__(self):
            self.sparse = model.sparse

        @jde.nnx.jit
        def rows(self, ids):
            return self.sparse({"C1": ids})["C1"]

    np.testing.assert_array_equal(Stepper().rows(ids), once)


def test_donations_of_the_user_are_added(kit):
    model = kit.model()
    buffer = jnp.zeros((2, 4))
    step = jde.nnx.jit(
        lambda model, x: x + model.sparse({"C1": jde.ids([1, 2])})["C1"],
        donate_argnums=1,
    )
    step(model, buffer)
    assert deleted(buffer) == {True}


def test_works_with_cached_partial(kit):
    model = kit.model()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    step = nnx.cached_partial(make_step(kit, jde.nnx.jit), model, optimizer)
    losses = [float(step(kit.batch(0))) for _ in range(10)]
    assert losses[-1] < losses[0]
    assert model.sparse.stats()["cat/step"] == 10


LARGE = 1 << 16  # rows: the tables must be the largest arrays of the step


@pytest.mark.parametrize("optimizer", [jde.optim.adam(1e-3), optax.adam(1e-3)])
def test_tables_stay_in_place(platform, kit, optimizer):
    tables = [
        jde.TableConfig("cat", 4, LARGE, ("C1", "C2"), optimizer=optimizer),
        jde.TableConfig("dog", 4, LARGE, optimizer=optimizer),
    ]
    model, batch = kit.Clicks(nnx.Rngs(0), tables), kit.batch(0)
    step = make_step(kit, jde.nnx.jit)
    arguments = model, jde.nnx.Optimizer(model, optax.adam(1e-3)), batch
    jde.testing.assert_in_place(step, *arguments)
    with pytest.raises(AssertionError, match="jde.nnx.jit"):
        jde.testing.assert_in_place(make_step(kit, nnx.jit), *arguments)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in tables_of(model)]
    for _ in range(2):
        step(*arguments)
    assert [leaf.unsafe_buffer_pointer() for leaf in tables_of(model)] == pointers


def tables_of(model):
    states = model.sparse.get_state().values()
    return [array for state in states for array in (state.index, state.values)]


def test_evaluation_stays_in_place(platform):
    embed = jde.nnx.DynamicEmbed(features=4, capacity=LARGE, rngs=nnx.Rngs(0))
    evaluate = jde.nnx.jit(lambda embed, ids: embed(ids, train=False).sum())
    jde.testing.assert_in_place(evaluate, embed, jde.ids([1, 2]))
    before = jax.tree.leaves(nnx.state(embed))
    evaluate(embed, jde.ids([1, 2]))
    assert all(map(operator.is_, jax.tree.leaves(nnx.state(embed)), before))
    assert deleted(before) == {False}
    lowered = evaluate.lower(embed, jde.ids([1, 2]))
    assert len(jax.tree.leaves(lowered.out_info)) == 1


def test_stands_inside_another_jit(platform):
    embed, ids = (
        jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0)),
        jde.ids([1, 2]),
    )
    rows = embed(ids)  # stored
    inner = jde.nnx.jit(lambda embed, ids: embed(ids, train=False))
    for jit in (nnx.jit, jde.nnx.jit):
        outer = jit(lambda embed, ids: 2.0 * inner(embed, ids))
        np.testing.assert_array_equal(outer(embed, ids), 2.0 * rows)


def test_a_change_after_a_read_and_a_read_after_a_change(platform):
    def both(embed, ids):
        before = embed(ids, train=False)
        rows = embed(ids)
        return before, rows, embed(ids, train=False)

    for jit in (jde.nnx.jit, nnx.jit):
        embed, step = (
            jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0)),
            jit(both),
        )
        before, rows, after = step(embed, jde.ids([1, 2]))
        np.testing.assert_array_equal(before, np.zeros((2, 4)))
        np.testing.assert_array_equal(rows, after)
        again, _, _ = step(embed, jde.ids([1, 2]))
        np.testing.assert_array_equal(again, rows)


def test_what_only_some_shapes_change(platform):
    """The first trace shows no change, a later one does, and then both go on."""
    traces = []

    @jde.nnx.jit
    def step(embed, ids):
        traces.append(ids.shape)
        return embed(ids, train=ids.shape[0] > 2)

    embed, few, many = (
        jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0)),
        [1, 2],
        [1, 2, 3],
    )
    np.testing.assert_array_equal(step(embed, jde.ids(few)), np.zeros((2, 4)))
    for _ in range(3):
        rows = step(embed, jde.ids(many))
        np.testing.assert_array_equal(step(embed, jde.ids(few)), rows[:2])
        assert np.any(rows)
    assert embed.stats()["embedding/lookups"] == 3
    assert len(traces) == 5  # two to learn what is read, two again to change it


def test_clipping_and_weights_stay_in_place(platform):
    tables = [jde.TableConfig("cat", 4, LARGE, optimizer=jde.optim.sgd(0.1))]
    sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))

    @jde.nnx.jit
    def step(sparse, ids, weights):
        def loss_fn(sparse, weights):
            return sparse({"cat": ids}, {"cat": weights})["cat"].sum()

        _, grads = jde.nnx.value_and_grad(loss_fn)(sparse, weights)
        grads, norm = jde.nnx.clip_by_global_norm(1.0, sparse, grads)
        jde.nnx.update_tables(sparse, grads)
        return norm

    ids = jde.ids([[1, 2], [3, -1]])
    jde.testing.assert_in_place(step, sparse, ids, jnp.ones((2, 2)))


def test_nothing_recompiles(platform, kit):
    model = kit.model()
    rate = optax.cosine_decay_schedule(0.1, 100)
    optimizer = jde.nnx.Optimizer(model, optax.adam(rate))
    step = make_step(kit, jde.nnx.jit)
    # The second call is the first with arrays that a compiled program made.
    step(model, optimizer, kit.batch(0))
    calls = ((model, optimizer, kit.batch(i)) for i in range(20))
    jde.testing.assert_no_recompilation(step, calls)
