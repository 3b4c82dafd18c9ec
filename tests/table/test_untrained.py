# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table that is looked up for training and never updated gets one warning."""

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of

SAYS = "training lookups and no update.*apply_gradients"
numbers = itertools.count()
IDS = np.arange(8)


def table(**options: Any) -> jde.TableConfig:
    """A table of a new name: a process warns once of each."""
    return jde.TableConfig(f"never{next(numbers)}", 4, 256, **options)


def name_of(coll: jde.Tables) -> str:
    return next(iter(coll.tables))


def looked_up(coll: jde.Tables, times: int = 150, **flags: Any) -> Any:
    ids = {name_of(coll): jde.ids(IDS)}

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return coll.lookup(state, ids, **flags)[2], None

        return jax.lax.scan(step, state, None, times)[0]

    return run(coll.init(0))


def saved(coll: jde.Tables, state: Any, folder: Any) -> None:
    jde.checkpoint.save(folder, 1, state, tables=coll, wait=True)


READERS: dict[str, Callable[[jde.Tables, Any, Any], Any]] = {
    "stats": lambda coll, state, _: coll.stats(state),
    "stats_async": lambda coll, state, _: coll.stats_async(state).result(),
    "export": lambda coll, state, _: list(coll.export(state, name_of(coll))),
    "save": saved,
}


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_counters_says_it_once(reader, devices, tmp_path):
    mesh = mesh_of(2) if devices == 2 else None
    coll = jde.Tables([table()], mesh)
    state = looked_up(coll)
    with pytest.warns(RuntimeWarning, match=SAYS) as said:
        READERS[reader](coll, state, tmp_path / "one")
    assert len(said) == 1 and f"'{name_of(coll)}'" in str(said[0].message)
    say_nothing(coll, state, tmp_path)


def say_nothing(coll: jde.Tables, state: Any, folder: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, read in enumerate(READERS.values()):
            read(coll, state, folder / str(number))


def test_what_it_advises_trains():
    coll = jde.Tables([table(optimizer=jde.optim.sgd(0.5))])
    name, state = name_of(coll), looked_up(coll)
    with pytest.warns(RuntimeWarning, match=SAYS):
        coll.stats(state)

    def loss(rows: Any) -> Any:
        return ((rows[name] - 1) ** 2).sum()

    before = coll.find(state, {name: jde.ids(IDS)})[0]
    rows, residual, state = coll.lookup(state, {name: jde.ids(IDS)})
    d_rows = jax.grad(loss)(rows)
    state = coll.apply_gradients(state, residual, d_rows)
    assert loss(coll.find(state, {name: jde.ids(IDS)})[0]) < loss(before)
    assert coll.stats(state)[f"{name}/step"] == 1


def test_a_lookup_inside_the_loss_is_told_of():
    """Any other embedding is looked up there: the mistake itself."""
    coll = jde.Tables([table(optimizer=jde.optim.adam(0.1))])
    name = name_of(coll)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, weights: Any) -> Any:
        def loss(weights: Any, state: Any) -> Any:
            rows, _, state = coll.lookup(state, {name: jde.ids(IDS)})
            return jnp.mean(rows[name] @ weights), state

        (_, state), grad = jax.value_and_grad(loss, has_aux=True)(weights, state)
        return state, weights - 0.1 * grad

    state, weights = coll.init(0), jnp.ones(4)
    for _ in range(120):
        state, weights = step(state, weights)
    with pytest.warns(RuntimeWarning, match=SAYS):
        coll.stats(state)


def test_a_module_whose_rows_never_get_an_update_is_told_of():
    model = jde.nnx.EmbeddingCollection([table()], rngs=nnx.Rngs(0))
    ids = {name_of(model.coll): jde.ids(IDS)}
    call = jde.nnx.jit(lambda model: model(ids) and None)
    for _ in range(120):
        call(model)
        model.maybe_grow(every=60)
    with pytest.warns(RuntimeWarning, match=SAYS):
        for _ in range(2):
            model.maybe_grow(every=1)


def updated(coll: jde.Tables, state: Any) -> Any:
    rows, residual, state = coll.lookup(state, {name_of(coll): jde.ids(IDS)})
    return coll.apply_gradients(state, residual, rows)


def scattered(coll: jde.Tables) -> Any:
    """Rows that the caller updates by slot."""
    slots, name = jnp.arange(2, dtype=jnp.int32), name_of(coll)
    state = coll.init(0)
    rows, state = coll.gather(state, {name: slots})
    coll.scatter(state, {name: slots}, {name: {"values": rows[name]["values"]}})
    return looked_up(coll)


def inserted(coll: jde.Tables) -> Any:
    name, state = name_of(coll), coll.init(0)
    insert = jax.jit(coll.insert, donate_argnums=0)
    for step in range(120):
        ids, rows = jde.ids(IDS + 8 * (step % 10)), jnp.ones((8, 4))
        state = insert(state, {name: ids}, {name: rows})
    return state


def found(coll: jde.Tables) -> Any:
    state, find = coll.init(0), jax.jit(coll.find)
    for _ in range(120):
        state = find(state, {name_of(coll): jde.ids(IDS)})[2]
    return state


QUIET: dict[str, tuple[dict[str, Any], Callable[[jde.Tables], Any]]] = {
    "few lookups": ({}, lambda coll: looked_up(coll, 99)),
    "trained": ({}, lambda coll: updated(coll, looked_up(coll))),
    "no optimizer": ({"optimizer": jde.optim.none()}, looked_up),
    "evaluation": ({}, lambda coll: looked_up(coll, touch=False, insert=False)),
    "find": ({}, found),
    "insert": ({}, inserted),
    "rows of the caller": ({}, scattered),
}


@pytest.mark.parametrize("case", QUIET)
def test_nothing_else_is_told_of(case, tmp_path):
    options, run = QUIET[case]
    coll = jde.Tables([table(**options)])
    say_nothing(coll, run(coll), tmp_path)
