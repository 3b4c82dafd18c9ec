# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Likely mistakes with jde.nnx: each is met by a sentence that says what to write."""

import gc
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

IDS = jde.ids([1, 2])


class Small(nnx.Module):
    def __init__(self, seed: int = 0):
        rngs = nnx.Rngs(seed)
        self.embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=rngs)
        self.top = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, ids, **options):
        return self.top(self.embed(ids, **options)).sum()


def loss_fn(model, ids):
    return model(ids)


def rows_of(model) -> int:
    return model.embed.stats()["embedding/rows"]


# ---- keywords ------------------------------------------------------------------------


def test_the_order_of_nnx_embed_is_refused():
    """nnx.Embed(1000, 8) has 1000 rows; that order made 1000 columns."""
    fix = (
        r"features=8, capacity=1000, rngs=rngs\) for 1000 rows of 8 columns"
        r".*\[1000, 8\]"
    )
    with pytest.raises(TypeError, match=fix):
        jde.nnx.DynamicEmbed(1000, 8, rngs=nnx.Rngs(0))
    for missing in (
        {"features": 8},
        {"capacity": 8},
        {"features": 8, "capacity": 1000},
    ):
        with pytest.raises(
            TypeError, match="takes keywords only: write jde.nnx.Dynamic"
        ):
            jde.nnx.DynamicEmbed(**missing)


@pytest.mark.parametrize(
    "name, fix",
    [
        ("num_embeddings", "num_embeddings is capacity="),
        ("embedding_dim", "embedding_dim is features="),
        ("embedding_init", r"embedding_init is initializer=jde\.initializers"),
    ],
)
def test_names_of_other_libraries(name, fix):
    with pytest.raises(TypeError, match=fix):
        jde.nnx.DynamicEmbed(features=8, capacity=1000, rngs=nnx.Rngs(0), **{name: 9})


def test_one_table_in_place_of_a_list():
    table = jde.TableConfig("t", 4, 256)
    for kind in (jde.nnx.EmbeddingBagCollection, jde.nnx.EmbeddingCollection):
        with pytest.raises(TypeError, match=r"jde\.Tables\(\[config\]\) for table 't'"):
            kind(table, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("rngs", [0, None, jax.random.key(0), nnx.Rngs(dropout=0)])
def test_what_has_no_seed_for_rows(rngs):
    table, fix = jde.TableConfig("t", 4, 256, pooling="sum"), r"rngs=nnx\.Rngs\(0\)"
    with pytest.raises(TypeError, match=rf"EmbeddingBagCollection needs rngs.*{fix}"):
        jde.nnx.EmbeddingBagCollection([table], rngs=rngs)
    with pytest.raises(TypeError, match=rf"TTEmbeddingBag needs rngs.*{fix}"):
        jde.TTEmbeddingBag(100, 4, [2, 2], rngs=rngs)


def test_an_array_in_place_of_a_dict_and_the_reverse():
    table = jde.TableConfig("t", 4, 256)
    sparse = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"dict by feature.*write \{'t': ids\}"):
        sparse(IDS)
    with pytest.raises(
        TypeError, match=r"ids alone, not a dict of \['t'\].*embed\(ids\)"
    ):
        Small().embed({"t": IDS})


def test_stats_inside_jit():
    with pytest.raises(
        TypeError, match=r"stats reads the tables on the host.*jax\.jit"
    ):
        jde.nnx.jit(lambda model: model.embed.stats())(Small())


# ---- optimizers ----------------------------------------------------------------------


def test_an_optimizer_of_tables_for_the_dense_part():
    fix = r"TableConfig\(\.\.\., optimizer=jde\.optim\.adam\(\.\.\.\)\)"
    with pytest.raises(TypeError, match=fix):
        jde.nnx.Optimizer(Small(), jde.optim.adam(0.1))
    for make in (
        lambda: nnx.Optimizer(Small(), jde.optim.adam(0.1), wrt=nnx.Param),
        lambda: optax.chain(optax.clip(1.0), jde.optim.adam(0.1)),
        lambda: iter(jde.optim.adam(0.1)),
    ):
        with pytest.raises((AttributeError, TypeError), match=fix):
            make()


@pytest.mark.parametrize(
    "tx, fix", [(optax.adam, "the function adam: call it"), ("adam", "'adam'")]
)
def test_what_is_no_transformation(tx, fix):
    with pytest.raises(TypeError, match=r"optax\.adam\(1e-3\), not " + fix):
        jde.nnx.Optimizer(Small(), tx)


@pytest.mark.parametrize(
    "wrt", [jde.nnx.Table, nnx.Variable, (nnx.Param, jde.nnx.Table)]
)
def test_tables_among_the_dense_parameters(wrt):
    with pytest.raises(
        ValueError, match=r"optimizer of their TableConfig.*wrt=nnx\.Param"
    ):
        jde.nnx.Optimizer(Small(), optax.sgd(0.1), wrt=wrt)
    wrong = nnx.DiffState(0, wrt)
    with pytest.raises(ValueError, match=r"row gradients come by themselves"):
        jde.nnx.value_and_grad(loss_fn, argnums=wrong)(Small(), IDS)


# ---- gradients without rows ----------------------------------------------------------


CONSTANT_ROWS = (
    r"DynamicEmbed: plain nnx\.grad .*jde\.nnx\.value_and_grad\(loss_fn\)"
    r".*jde\.nnx\.Optimizer.*train=False"
)
JITS = [lambda f: f, nnx.jit, jde.nnx.jit]


def plain_step(model, optimizer, ids):
    _, grads = nnx.value_and_grad(loss_fn)(model, ids)
    optimizer.update(model, grads)


@pytest.mark.parametrize("jit", JITS)
def test_plain_nnx_warns_that_it_trains_no_table(jit):
    model = Small()
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    before = np.asarray(model.embed(IDS))
    kernel = np.asarray(model.top.kernel[...])
    with pytest.warns(UserWarning, match=CONSTANT_ROWS) as noted:
        jit(plain_step)(model, optimizer, IDS)
    assert {each.filename for each in noted} == {__file__}  # the line of the lookup
    np.testing.assert_array_equal(model.embed(IDS), before)
    assert np.any(kernel != model.top.kernel[...])


def test_every_way_to_differentiate_warns():
    model = Small()
    params, rest = nnx.state(model, nnx.Param), nnx.state(model, jde.nnx.Table)
    graph = nnx.graphdef(model)

    def of_params(params):
        return nnx.merge(graph, params, rest, copy=True)(IDS)

    for differentiate in (
        jax.grad(of_params),
        jax.jit(jax.grad(of_params)),
        lambda params: jax.jvp(of_params, (params,), (params,)),
        lambda params: jax.linearize(of_params, params),
    ):
        with pytest.warns(UserWarning, match=CONSTANT_ROWS):
            differentiate(params)


def test_lookups_that_no_gradient_needs_do_not_warn():
    model = Small()  # pytest turns a warning into an error
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    for jit in JITS:
        jit(loss_fn)(model, IDS)
        jit(update)(model, optimizer, IDS)
        jit(nnx.grad(lambda model, ids: model(ids, train=False)))(model, IDS)


@pytest.mark.filterwarnings("ignore:DynamicEmbed. plain nnx")
@pytest.mark.parametrize("jit", JITS)
def test_plain_gradients_never_train_the_tables(jit):
    step = jit(plain_step)
    model = Small()
    fix = r"never be trained.*jde\.nnx\.value_and_grad\(loss_fn\).*train=False"
    with pytest.raises(ValueError, match=fix):
        step(model, jde.nnx.Optimizer(model, optax.sgd(0.1)), IDS)


@pytest.mark.filterwarnings("ignore:DynamicEmbed. plain nnx")
def test_plain_gradients_after_gradients_that_no_update_took():
    model = Small()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    jde.nnx.value_and_grad(loss_fn)(model, IDS)
    with pytest.raises(ValueError, match=r"never be trained"):
        plain_step(model, optimizer, IDS)


@pytest.mark.filterwarnings("ignore:DynamicEmbed. plain nnx")
def test_plain_gradients_made_in_another_program():
    model = Small()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    grads = nnx.jit(nnx.grad(loss_fn))(model, IDS)
    with pytest.raises(ValueError, match=r"never be trained"):
        nnx.jit(lambda m, o, g: o.update(m, g))(model, optimizer, grads)


def test_the_dense_part_alone_when_it_is_meant():
    model = Small()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    _, grads = jde.nnx.value_and_grad(loss_fn)(model, IDS)
    optimizer.update(model, grads.dense)  # taken out of gradients with rows
    model.eval()
    before = np.asarray(model.embed(IDS))
    kernel = np.asarray(model.top.kernel[...])
    optimizer.update(model, nnx.grad(loss_fn)(model, IDS))  # read without inserting
    assert np.any(kernel != model.top.kernel[...])
    np.testing.assert_array_equal(model.embed(IDS), before)


@pytest.mark.parametrize("jit", [jde.nnx.jit, nnx.jit, lambda function: function])
@pytest.mark.parametrize("tx", [optax.sgd(0.1), optax.adam(0.1)])
def test_gradients_with_rows_in_a_plain_optimizer(jit, tx):
    """Follows both ways that the error of Flax says; they train the same bits."""

    def step(model, optimizer, ids, apply):
        grads = jde.nnx.value_and_grad(loss_fn)(model, ids)[1]
        apply(model, optimizer, grads)

    def in_one(model, optimizer, grads):
        optimizer.update(model, grads)

    def apart(model, optimizer, grads):
        optimizer.update(model, grads.dense)
        jde.nnx.update_tables(model, grads)

    trained = []
    for kind, apply in ((jde.nnx.Optimizer, in_one), (nnx.Optimizer, apart)):
        model = Small()
        optimizer = kind(model, tx, wrt=nnx.Param)
        run = jit(lambda *arguments, apply=apply: step(*arguments, apply))
        run(model, optimizer, IDS)
        trained.append((model.top.kernel[...], model.embed(IDS, train=False)))
        assert model.embed.stats()["embedding/step"] == 1
    for one, two in zip(*trained, strict=True):
        np.testing.assert_array_equal(one, two)
    model = Small()
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    with pytest.raises(ValueError) as raised:
        jit(lambda *arguments: step(*arguments, in_one))(model, optimizer, IDS)
    for fix in (
        "jde.nnx.Optimizer(model, tx) in place of nnx.Optimizer",
        "optimizer.update(model, grads.dense)",
        "jde.nnx.update_tables(model, grads)",
    ):
        assert fix in str(raised.value)


def test_gradients_of_a_model_whose_parts_are_called_dense():
    class Named(Small):
        def __init__(self):
            super().__init__()
            self.dense, self.top = self.top, None

        def __call__(self, ids):
            return self.dense(self.embed(ids)).sum()

    model = Named()
    _, grads = jde.nnx.value_and_grad(loss_fn)(model, IDS)
    with pytest.raises(ValueError, match=r"jde\.nnx\.Optimizer\(model, tx\) in place"):
        nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param).update(model, grads)


def test_gradients_in_the_wrong_place():
    model = Small()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    loss_and_grads = jde.nnx.value_and_grad(loss_fn)(model, IDS)
    with pytest.raises(
        TypeError, match=r"tuple of 2.*optimizer\.update\(model, grads\)"
    ):
        optimizer.update(model, loss_and_grads)
    grads = loss_and_grads[1]
    with pytest.raises(TypeError, match=r"the model first"):
        optimizer.update(grads, model)
    with pytest.raises(TypeError, match=r"update_tables takes the row gradients"):
        jde.nnx.update_tables(model, grads.dense)
    with pytest.raises(TypeError, match=r"clip_by_global_norm takes the row gradients"):
        jde.nnx.clip_by_global_norm(1.0, model, grads.dense)
    with pytest.raises(TypeError, match=r"table_learning_rate takes the row gradients"):
        optimizer.update(model, grads.dense, table_learning_rate=0.1)


# ---- plain jax.jit -------------------------------------------------------------------


def said(function, *args) -> list[str]:
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        function(*args)
        gc.collect()
    return [str(each.message) for each in noted]


def update(model, optimizer, ids):
    _, grads = jde.nnx.value_and_grad(loss_fn)(model, ids)
    optimizer.update(model, grads)


def test_jax_jit_of_a_model():
    with pytest.raises(ValueError, match=r"through jde\.nnx\.jit"):
        jax.jit(Small())(IDS)


def test_a_model_as_an_argument_of_jax_jit_loses_its_inserts():
    model = Small()
    (message,) = said(jax.jit(loss_fn), model, IDS)
    assert "DynamicEmbed: tables changed in a copy" in message
    assert "Use jde.nnx.jit in place of jax.jit, or return the module" in message
    assert rows_of(model) == 0  # lost, as it says


def test_a_train_step_under_jax_jit():
    model = Small()
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    assert any("are lost" in m for m in said(jax.jit(update), model, optimizer, IDS))


@pytest.mark.slow
def test_what_loses_nothing_says_nothing():
    model = Small()
    assert not said(jax.jit(lambda m, ids: (m(ids), m)), model, IDS)
    assert not said(jax.jit(lambda m, ids: (m(ids), nnx.state(m))), model, IDS)
    assert not said(jax.jit(lambda m, ids: m(ids, train=False)), model, IDS)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    for jit in (nnx.jit, jde.nnx.jit):
        assert not said(jit(update), model, optimizer, IDS)
    if "graph" in inspect.signature(nnx.jit).parameters:  # Modules as plain pytrees
        assert not said(nnx.jit(loss_fn, graph=False), model, IDS)
    new, _ = jax.lax.scan(lambda m, ids: (m, m(ids)), model, jnp.stack([IDS, IDS]))
    assert not said(gc.collect) and rows_of(new) == 2
