# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Each private attribute of Flax that fast_path/flax.py uses, in the installed Flax.

Every test compares the private way with the public one. A failure names the attribute
that Flax has moved; ``flax.py`` is the one file to change.
"""

import weakref

import flax
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.nnx.fast_path import flax as _flax


def moved(name: str) -> str:
    return (
        f"Flax {flax.__version__} has no {name} as _src/nnx/fast_path/flax.py expects "
        "it: calls still work, but slower or without a check. Adapt that file."
    )


def variable() -> nnx.Variable:
    return nnx.Param(jnp.arange(3.0), note="kept")


def test_raw_value_is_a_slot():
    assert hasattr(_flax._raw_value, "__set__"), moved("nnx.Variable._raw_value")
    one = variable()
    new = jnp.ones(2)
    _flax.assign([one], [new])
    assert one.get_raw_value() is new
    assert one.get_metadata()["note"] == "kept"


def test_metadata_is_a_slot():
    assert hasattr(_flax._metadata, "__get__"), moved("nnx.Variable._var_metadata")
    one = variable()
    metadata = _flax.metadata_of(one)
    assert metadata == one.get_metadata() and metadata["note"] == "kept"
    assert metadata is _flax.metadata_of(one), moved("nnx.Variable._var_metadata")
    one.set_metadata(note="changed")
    assert _flax.metadata_of(one)["note"] == "changed"


def test_raw_values_are_read():
    one, two = variable(), variable()
    read = _flax.raw_values([one, two])
    assert read[0] is one.get_raw_value() and read[1] is two.get_raw_value()


def test_a_module_keeps_how_far_it_is_made():
    kept = vars(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))["_pytree__state"]
    assert _flax.progress_of(kept) == jax.tree.structure(kept).node_data()[1], moved(
        "_pytree__state"
    )
    assert _flax.progress_of(variable()) is None and _flax.progress_of({}) is None


@pytest.mark.parametrize("has_attribute", [True, False])
def test_can_update_is_a_bool(monkeypatch, has_attribute):
    if has_attribute:
        known = getattr(variable(), "_can_update", None)
        assert isinstance(known, bool), moved("nnx.Variable._can_update")
    else:
        monkeypatch.setattr(nnx.Variable, "_can_update", None)
    outer, seen = variable(), []

    @jax.jit
    def traced(x):
        seen.append((_flax.writable(outer), _flax.writable(variable())))
        return x

    assert _flax.writable(outer)
    traced(jnp.zeros(()))
    assert seen == [(False, True)]


def test_cached_partial_sets_a_static_cache():
    context = getattr(_flax._graphlib, "GRAPH_CONTEXT", None)
    assert hasattr(context, "tmp_static_cache"), moved("GRAPH_CONTEXT.tmp_static_cache")
    seen = []

    class Watching:
        """Stands for the function that ``nnx.cached_partial`` calls."""

        def __init__(self, fun):
            self.inner = nnx.jit(fun)

        def __call__(self, *args):
            seen.append(_flax.in_cached_partial())
            return self.inner(*args)

    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    step = Watching(lambda layer, x: layer(x))
    step(layer, jnp.ones((1, 2)))
    nnx.cached_partial(step, layer)(jnp.ones((1, 2)))
    assert seen == [False, True], moved("GRAPH_CONTEXT.tmp_static_cache")
    assert not _flax.in_cached_partial()


def test_a_table_takes_weak_references():
    table = jde.nnx.DynamicEmbed(features=2, capacity=128, rngs=nnx.Rngs(0)).tables
    one = table["embedding"]
    assert weakref.ref(one)() is one, moved("nnx.Variable.__slots__")


class Observed(_flax.ObservedModule):
    def __init__(self):
        self.weight = variable()
        self.flattened = nnx.static(Calls())

    def _on_flattened(self) -> None:
        self.flattened.count += 1

    def _on_built(self) -> None:
        built.append(self)


class Calls:
    count = 0


built: list[Observed] = []


@pytest.mark.parametrize(
    "name, flatten",
    [
        ("_pytree__flatten", jax.tree.leaves),
        ("_pytree__flatten_with_paths", jax.tree.leaves_with_path),
        ("_graph_node_flatten", nnx.split),
    ],
)
def test_a_module_observes_that_it_is_flattened(name, flatten):
    module = Observed()
    before = module.flattened.count
    flatten(module)
    assert module.flattened.count > before, moved(f"nnx.Module.{name}")


def test_a_module_observes_that_it_is_built():
    module = Observed()
    built.clear()
    copy = jax.tree.map(lambda x: x + 1, module)
    assert copy in built and module not in built, moved("nnx.Module._pytree__unflatten")
    assert copy.weight.get_value().tolist() == [1.0, 2.0, 3.0]
