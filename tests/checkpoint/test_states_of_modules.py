# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""An nnx.State is saved and restored as the module that it is of."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from support import HostRow, assert_same_rows, export


class Model(nnx.Module):
    """Has a table, a parameter, and a key with a count."""

    def __init__(self, seed: int):
        rngs = nnx.Rngs(seed)
        config = jde.TableConfig(
            "cat", dim=4, capacity=256, optimizer=jde.optim.adam(0.1)
        )
        self.sparse = jde.nnx.EmbeddingCollection([config], rngs=rngs)
        self.top = nnx.Linear(4, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)


IDS = jde.ids(np.arange(40) * 2**40)


@jde.nnx.jit
def step(model, ids):
    def loss_fn(model, ids):
        return (model.dropout(model.top(model.sparse({"cat": ids})["cat"])) ** 2).sum()

    jde.nnx.value_and_grad(loss_fn)(model, ids)


def trained(seed: int) -> Model:
    model = Model(seed)
    step(model, IDS)
    return model


def tree_of(kind: str, model: Model) -> Any:
    """What a caller passes."""
    state = nnx.state(model)
    return {"module": model, "state": state, "dict": {"model": state}}[kind]


def tables_of(kind: str, model: Model) -> dict[str, jde.Tables]:
    """What a caller adds: states do not know their tables."""
    return {} if kind == "module" else {"tables": model.sparse.coll}


def rows_of(model: Model) -> dict[int, HostRow]:
    states = {name: t.get_value() for name, t in model.sparse.tables.items()}
    return export(model.sparse.coll, states, "cat")


def assert_same(other: Model, model: Model) -> None:
    """Compares all that two models have."""
    assert_same_rows(rows_of(other), rows_of(model))
    both = [jax.tree.leaves(nnx.state((m.top, m.dropout))) for m in (other, model)]
    for one, two in zip(*both, strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, two = map(jax.random.key_data, (one, two))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "before, after",
    [("module", "state"), ("state", "module"), ("state", "state"), ("dict", "dict")],
)
def test_each_restores_into_the_other(tmp_path, before, after):
    model, other = trained(0), Model(1)
    tree = tree_of(before, model)
    jde.checkpoint.save(tmp_path, 1, tree, **tables_of(before, model), wait=True)
    tree = tree_of(after, other)
    back = jde.checkpoint.restore(tmp_path, tree, **tables_of(after, other))
    assert (back.step, back.notes) == (1, ()) and type(back.tree) is type(tree)
    if after != "module":
        nnx.update(other, back.tree["model"] if after == "dict" else back.tree)
    assert_same(other, model)
    step(other, IDS)  # the arrays that were donated are in no Variable
    step(model, IDS)
    assert_same(other, model)


def test_an_abstract_state(tmp_path):
    model, other = trained(0), Model(1)
    jde.checkpoint.save(tmp_path, 1, model, wait=True)
    tree = nnx.state(nnx.eval_shape(lambda: Model(1)))
    back = jde.checkpoint.restore(tmp_path, tree, tables=other.sparse.coll)
    nnx.update(other, back.tree)
    assert_same(other, model)


def test_a_state_without_its_tables_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'sparse/tables/cat'.* Pass tables=coll"):
        jde.checkpoint.save(tmp_path, 1, nnx.state(Model(0)))
