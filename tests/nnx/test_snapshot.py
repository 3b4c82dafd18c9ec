# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A snapshot knows the Modules that it was taken of until any part is replaced."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.nnx.fast_path import fast_path, iter_variables
from jax_dynemb._src.nnx.fast_path.snapshot import snapshot


class Pair:
    """A node of pytrees that is no Module."""

    def __init__(self, left, right, name):
        self.left, self.right, self.name = left, right, name


jax.tree_util.register_pytree_node(
    Pair, lambda p: ((p.left, p.right), p.name), lambda name, two: Pair(*two, name)
)


class Leaf:
    """Is compared by identity."""


class Model(nnx.Module):
    def __init__(self):
        self.one, self.two = (nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(2))
        self.again = self.one
        self.numbers = nnx.static([1, 2.5, "three", None])
        self.options = nnx.static({"a": 1, "b": {2, 3}})
        self.leaf = nnx.static(Leaf())
        self.pair = nnx.data(Pair(nnx.Param(jnp.ones(2)), nnx.Param(jnp.ones(2)), "p"))


def taken(model):
    variables = [*iter_variables([model])]
    return snapshot([model], variables), variables


def move_to_the_end(options):
    options["a"] = options.pop("a")


CHANGES = {
    "number": lambda m: m.numbers.__setitem__(1, 3.5),
    "another type of number": lambda m: m.numbers.__setitem__(0, 1.0),
    "longer list": lambda m: m.numbers.append(None),
    "shorter list": lambda m: m.numbers.pop(),
    "key": lambda m: m.options.update(c=1),
    "renamed key": lambda m: m.options.update(c=m.options.pop("a")),
    "order of keys": lambda m: move_to_the_end(m.options),
    "set": lambda m: m.options["b"].add(4),
    "leaf": lambda m: setattr(m, "leaf", nnx.static(Leaf())),
    "new attribute": lambda m: setattr(m, "scale", 2.0),
    "no attribute": lambda m: delattr(m, "leaf"),
    "another Module": lambda m: setattr(m, "two", nnx.Linear(2, 2, rngs=nnx.Rngs(3))),
    "another class": lambda m: setattr(m, "two", nnx.Dropout(0.5)),
    "one Module twice": lambda m: setattr(m, "two", m.one),
    "two Modules": lambda m: setattr(m, "again", nnx.clone(m.one)),
    "Variable": lambda m: setattr(m.one, "bias", nnx.Param(jnp.ones(2))),
    "Variable of another": lambda m: setattr(m.one, "bias", m.two.bias),
    "metadata": lambda m: m.one.bias.set_metadata(note="new"),
    "part of a node": lambda m: setattr(m.pair, "left", nnx.Param(jnp.ones(2))),
    "parts of a node are one": lambda m: setattr(m.pair, "left", m.pair.right),
    "name of a node": lambda m: setattr(m.pair, "name", "q"),
    "eval": lambda m: m.eval(some_flag=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(change):
    model = Model()
    model.some_flag = False
    same, variables = taken(model)
    for _ in range(2):
        assert all(a is b for a, b in zip(same([model]), variables, strict=True))
    CHANGES[change](model)
    assert same([model]) is None
    after, variables = taken(model)
    assert all(a is b for a, b in zip(after([model]), variables, strict=True))


def test_values_of_variables_are_not_compared():
    model = Model()
    same, _ = taken(model)
    model.one.bias.set_value(jnp.full(2, 7.0))
    assert same([model]) is not None


def test_variables_come_in_the_order_that_is_asked_for():
    model = Model()
    order = [*iter_variables([model])][::-1]
    found = snapshot([model], order)([model])
    assert [id(v) for v in found] == [id(v) for v in order]


def test_another_model_of_the_same_make_is_not_known():
    same, _ = taken(Model())
    assert same([Model()]) is None


def test_nothing_is_kept_alive():
    model = Model()
    same, variables = taken(model)
    gone = [weakref.ref(x) for x in (model, model.one, model.one.bias.get_value())]
    del model, variables
    gc.collect()
    assert all(each() is None for each in gone) and same is not None


def test_very_large_models_have_none():
    model = Model()
    model.numbers.extend(range(5000))
    assert taken(model)[0] is None


def test_modules_made_anew_for_each_call_share_snapshots(monkeypatch):
    taken = []
    monkeypatch.setattr(fast_path, "snapshot", lambda *_: taken.append(1))
    table = jde.TableConfig("cat", 4, 256)
    sparse = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0))
    parts = nnx.split(sparse)
    find = jde.nnx.jit(lambda sparse, ids: sparse({"cat": ids}, train=False)["cat"])
    for _ in range(300):
        find(nnx.merge(*parts), jde.ids([1, 2]))
    assert len(taken) == 9  # 1, 2, 4, ..., 64 calls apart, then 64 each


def test_a_second_call_takes_no_fingerprint(monkeypatch):
    table = jde.TableConfig("cat", 4, 256)
    sparse = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0))

    @jde.nnx.jit
    def find(sparse, ids):
        return sparse({"cat": ids}, train=False)["cat"]

    first = find(sparse, jde.ids([1, 2]))

    def taking(nodes):
        raise AssertionError("a fingerprint is taken")

    monkeypatch.setattr(fast_path, "Fingerprint", taking)
    np.testing.assert_array_equal(find(sparse, jde.ids([1, 2])), first)
    sparse.some_number = 3
    with pytest.raises(AssertionError, match="a fingerprint"):
        find(sparse, jde.ids([1, 2]))
