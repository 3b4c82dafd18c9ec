# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies, pickles and summaries of modules with tables of every kind."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from support import without_identity
from tiered import TIER

KEYS = np.array([[5, 2**40, -1], [6, 6, 5]])


def table(**options: Any) -> jde.TableConfig:
    return jde.TableConfig("t", 4, 512, optimizer=jde.optim.adagrad(0.1), **options)


def cores() -> jde.TTConfig:
    sgd = jde.optim.sgd(0.1)
    return jde.TTConfig("c", 4, 100, (3, 3), optimizer=sgd, pooling="sum")


def bags(*tables: Any, devices: int = 1) -> Any:
    mesh = mesh_of(devices) if devices > 1 else None
    return jde.nnx.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0), mesh=mesh)


def of_torchrec(devices: int = 1) -> Any:
    mesh = mesh_of(devices) if devices > 1 else None
    tables = [table(pooling="sum")]
    return jde.torchrec.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0), mesh=mesh)


def embed() -> Any:
    options = {"pooling": "sum", "optimizer": jde.optim.adagrad(0.1)}
    return jde.nnx.DynamicEmbed(
        features=4, capacity=512, name="t", rngs=nnx.Rngs(0), **options
    )


KINDS: dict[str, Callable[[], Any]] = {
    "bags": lambda: bags(table()),
    "bags, mesh": lambda: bags(table(), devices=2),
    "table-wise, mesh": lambda: bags(table(sharding="table_wise"), devices=2),
    "rows": lambda: jde.nnx.EmbeddingCollection([table()], rngs=nnx.Rngs(0)),
    "embed": embed,
    "tier": lambda: bags(table(tier=TIER)),
    "cores": lambda: bags(cores()),
    "mixed": lambda: bags(table(), cores()),
    "mixed, mesh": lambda: bags(table(), cores(), devices=2),
    "tt": lambda: jde.TTEmbeddingBag(100, 4, (3, 3), name="c", rngs=nnx.Rngs(0)),
    "torchrec": of_torchrec,
    "torchrec, mesh": lambda: of_torchrec(2),
}


class Model(nnx.Module):
    def __init__(self, kind: str):
        self.sparse = KINDS[kind]()
        self.dense = nnx.Linear(4, 1, rngs=nnx.Rngs(1))

    def __call__(self, ids: Any) -> Any:
        if isinstance(self.sparse, jde.nnx.DynamicEmbed | jde.TTEmbeddingBag):
            rows = [self.sparse(ids)]
        else:
            found = self.sparse(dict.fromkeys(self.sparse.coll.features, ids))
            rows = list(getattr(found, "to_dict", lambda: found)().values())
        return self.dense(sum(rows))


def loss_of(model: Model, ids: Any) -> Any:
    return ((model(ids) - 1) ** 2).mean()


@jde.nnx.jit
def step(model: Model, optimizer: Any, ids: Any) -> Any:
    loss, grads = jde.nnx.value_and_grad(loss_of)(model, ids)
    optimizer.update(model, grads)
    return loss


def optimizer_of(model: Model) -> Any:
    has_tables = not isinstance(model.sparse, jde.TTEmbeddingBag)
    kind = jde.nnx.Optimizer if has_tables else nnx.Optimizer
    return kind(model, optax.sgd(0.1), wrt=nnx.Param)


def trained(model: Any, optimizer: Any, steps: int = 2) -> list[float]:
    ids = jde.ids(KEYS)
    return [float(step(model, optimizer, ids)) for _ in range(steps)]


def numbers(model: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(nnx.state(model))]


def places(model: Any) -> list[Any]:
    leaves = jax.tree.leaves(nnx.state(model.sparse))
    return [(x.sharding, x.sharding.memory_kind) for x in leaves]


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


def both_copied(model: Any, optimizer: Any) -> Any:
    return copy.deepcopy((model, optimizer))


def model_pickled(model: Any, optimizer: Any) -> Any:
    """No optax transformation can be pickled, whatever the model."""
    del optimizer
    again = pickled(model)
    return again, optimizer_of(again)


@pytest.mark.parametrize("copied", [both_copied, model_pickled])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_trains_by_itself(kind, copied):
    model = Model(kind)
    optimizer = optimizer_of(model)
    trained(model, optimizer)
    before, where = numbers(model), places(model)
    other, of_other = copied(model, optimizer)
    assert places(other) == where
    assert getattr(other.sparse, "coll", 0) == getattr(model.sparse, "coll", 0)
    jax.tree.map(np.testing.assert_array_equal, numbers(other), before)
    losses = trained(other, of_other)
    # Its steps donate its own arrays only, and are those of the first model.
    jax.tree.map(np.testing.assert_array_equal, numbers(model), before)
    assert trained(model, optimizer) == losses
    ours, theirs = (map(without_identity, numbers(m)) for m in (model, other))
    jax.tree.map(np.testing.assert_array_equal, list(theirs), list(ours))
    assert losses[1] < losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_lists_the_calls_and_changes_nothing(kind):
    model = Model(kind)
    before, kinds = numbers(model), [type(model), type(model.sparse), nnx.Linear]
    calls = [each.__call__ for each in kinds]
    text = nnx.tabulate(model, jde.ids(KEYS), console_kwargs={"force_terminal": False})
    assert "sparse" in text and "dense" in text
    assert "get_state" not in text and "_state" not in text
    assert [each.__call__ for each in kinds] == calls
    jax.tree.map(np.testing.assert_array_equal, numbers(model), before)
    assert repr(model) and str(model)
    nnx.display(model)
    trained(model, optimizer_of(model), 1)


def test_plain_flax_lists_the_same_of_a_dense_twin():
    """Paths and types of the rows; a table stands for nnx.Embed."""

    class Twin(nnx.Module):
        def __init__(self, sparse: Any):
            self.sparse = sparse
            self.dense = nnx.Linear(4, 1, rngs=nnx.Rngs(1))

        def __call__(self, ids: Any) -> Any:
            return self.dense(self.sparse(ids))

    def rows(sparse: Any, ids: Any) -> list[str]:
        options = {"force_terminal": False, "width": 400}
        text = nnx.tabulate(Twin(sparse), ids, console_kwargs=options)
        cells = [line.split("│")[1:3] for line in text.splitlines() if "│" in line]
        return [path.strip() for path, kind in cells if kind.strip()]

    embed = jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0))
    plain = nnx.Embed(10, 4, rngs=nnx.Rngs(0))
    assert rows(embed, jde.ids([1, 2])) == rows(plain, jnp.array([1, 2]))


def test_tables_are_one_object_in_copies_and_equal_in_pickles():
    coll = jde.Tables([table(), cores()], mesh_of(2))
    assert copy.copy(coll) is copy.deepcopy(coll) is coll
    again = pickled(coll)
    assert again == coll and hash(again) == hash(coll)
    config = jde.TTConfig(
        "d",
        4,
        8,
        (2, 2),
        rows_shape=(2, 2, 2),
        initializer=jde.tt.from_dense(np.eye(8, 4)),
    )
    assert copy.deepcopy(config) == config


def test_a_pickle_from_more_devices_is_refused_with_the_way_out(monkeypatch):
    data = pickle.dumps(bags(table(), devices=2))
    few = jax.devices("cpu")[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: few)
    with pytest.raises(ValueError, match=r"jde\.checkpoint\.save"):
        pickle.loads(data)


def test_a_clone_shares_arrays_and_says_so():
    model = bags(table())
    clone = nnx.clone(model)
    call, never_called = (
        jde.nnx.jit(lambda model, ids: model({"t": ids})) for _ in range(2)
    )
    call(clone, jde.ids(KEYS))
    for each in (call, never_called):
        with pytest.raises(RuntimeError, match=r"copy\.deepcopy\(model\)"):
            each(model, jde.ids(KEYS))
    other = copy.deepcopy(clone)  # what it advises
    for each in (clone, other):
        call(each, jde.ids(KEYS))
