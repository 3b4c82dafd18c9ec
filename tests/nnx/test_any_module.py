# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.nnx.jit takes each Module that nnx.jit takes, and notices what has changed."""

import collections
import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jax_dynemb as jde

IDS = {"a": jde.ids([1, 2**40, 1])}


@dataclasses.dataclass
class Settings:
    """Has an equality and no hash."""

    width: int = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    names: Any = ("a", "b")


class Unhashable:
    __hash__ = None  # pyright: ignore[reportAssignmentType]


ATTRIBUTES = {
    "list of str": ["a", "b"],
    "list of int": [64, 32],
    "tuple": ("a", "b"),
    "tuple of lists": (["a"], ["b"]),
    "dict": {"a": 1, "b": 2},
    "nested": {"a": ["b", {"c": {1, 2}}]},
    "default dict": collections.defaultdict(list, a=[1]),
    "set": {1, 2},
    "frozen set": frozenset({"x"}),
    "dataclass": Settings(),
    "frozen dataclass": Frozen(),
    "frozen dataclass with a list": Frozen(["a"]),
    "list of dataclasses": [Settings(1), Settings(2)],
    "unhashable": Unhashable(),
    "array": np.arange(3),
    "function": jnp.tanh,
    "list of functions": [jnp.tanh, len],
    "range": range(3),
    "bytearray": bytearray(b"x"),
}


class Model(nnx.Module):
    def __init__(self, extra: Any):
        rngs = nnx.Rngs(0)
        table = jde.TableConfig("a", 2, 256, optimizer=jde.optim.sgd(0.1))
        self.extra = extra
        self.sparse = jde.nnx.EmbeddingCollection([table], rngs=rngs)
        self.dense = nnx.Linear(2, 1, rngs=rngs)

    def __call__(self, ids: Any) -> Any:
        return self.dense(self.sparse(ids)["a"])


def loss_of(model: Model, ids: Any) -> Any:
    return ((model(ids) - 1) ** 2).mean()


def trained(jit: Any, model: Model) -> tuple[list[float], int]:
    """Losses of three steps, and how often the step was traced."""
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    traces = []

    @jit
    def step(model: Model, optimizer: Any, ids: Any) -> Any:
        traces.append(1)
        loss, grads = jde.nnx.value_and_grad(loss_of)(model, ids)
        optimizer.update(model, grads)
        return loss

    return [float(step(model, optimizer, IDS)) for _ in range(3)], len(traces)


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_each_attribute_that_nnx_jit_takes(kind):
    model = Model(ATTRIBUTES[kind])
    wanted, _ = trained(nnx.jit, Model(ATTRIBUTES[kind]))
    losses, traces = trained(jde.nnx.jit, model)
    assert losses == wanted and wanted[0] > wanted[2]
    assert traces == 1
    assert model.sparse.stats()["a/step"] == 3


class Scaled(nnx.Module):
    """Its attribute decides what the program computes."""

    def __init__(self, names: Any):
        table = jde.TableConfig("a", 2, 256)
        self.names = names
        self.sparse = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0))

    def __call__(self, ids: Any) -> Any:
        return self.sparse(ids)["a"] * len(self.names)


@pytest.mark.parametrize("kind", [list, set])
def test_a_list_that_has_changed_is_traced_again(kind):
    traces = []

    @jde.nnx.jit
    def call(model: Scaled, ids: Any) -> Any:
        traces.append(1)
        return model(ids)

    model, other = Scaled(kind("ab")), Scaled(kind("ab"))
    once = np.asarray(call(model, IDS)) / 2
    np.testing.assert_array_equal(call(other, IDS), 2 * once)
    assert len(traces) == 1  # equal contents, one program
    model.names.append("c") if kind is list else model.names.add("c")
    np.testing.assert_array_equal(call(model, IDS), 3 * once)
    assert len(traces) == 2
    # A new shape for the first program, whose list has changed since.
    longer = {"a": jde.ids([1, 2**40, 1, 1])}
    np.testing.assert_array_equal(call(other, longer)[:3], 2 * once)
    np.testing.assert_array_equal(call(model, longer)[:3], 3 * once)
    np.testing.assert_array_equal(call(other, IDS), 2 * once)


@dataclasses.dataclass
class DataModel(nnx.Module):
    """A Module with an equality and no hash."""

    sparse: jde.nnx.EmbeddingCollection
    names: list[str]

    def __call__(self, ids: Any) -> Any:
        return self.sparse(ids)["a"]


def test_a_module_without_a_hash():
    rngs, table = nnx.Rngs(0), jde.TableConfig("a", 2, 256)
    model = DataModel(jde.nnx.EmbeddingCollection([table], rngs=rngs), ["x"])
    call = jde.nnx.jit(lambda model, ids: model(ids))
    first = call(model, IDS)
    np.testing.assert_array_equal(call(model, IDS), first)
    assert model.sparse.stats()["a/lookups"] == 2
