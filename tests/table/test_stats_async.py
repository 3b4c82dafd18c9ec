# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counters that reach the host behind the steps, on one device and on eight."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of

DEVICES = pytest.mark.parametrize("devices", [1, 8])


def make(devices: int, **options: Any) -> jde.Tables:
    tables = [
        jde.TableConfig("a", dim=2, capacity=4096, **options),
        jde.TableConfig("b", dim=2, capacity=4096, sharding="table_wise"),
        jde.TableConfig("c", dim=4, capacity=4096, sharding="replicated"),
    ]
    return jde.Tables(tables, mesh=mesh_of(devices) if devices > 1 else None)


def ids_of(step: int) -> dict[str, jax.Array]:
    draw = np.random.default_rng(step)
    return {name: jde.ids(draw.integers(0, 900, 64)) for name in "abc"}


def step_of(coll: jde.Tables) -> Any:
    @jax.jit(donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    return step


@DEVICES
def test_numbers_are_those_of_their_step(devices):
    coll = make(devices)
    step, state = step_of(coll), coll.init(0)
    futures, expected = [], []
    distinct: dict[str, set[int]] = {name: set() for name in "abc"}
    for n in range(4):
        state = step(state, ids_of(n))
        futures.append(coll.stats_async(state))
        for name, ids in ids_of(n).items():
            distinct[name] |= set(np.asarray(ids).view(np.int64).ravel().tolist())
        expected.append({name: len(keys) for name, keys in distinct.items()})
    assert futures[-1].result() == coll.stats(state)
    for n, (future, rows) in enumerate(zip(futures, expected, strict=True)):
        numbers = future.result()
        assert future.done() and future.result() == numbers
        for name, count in rows.items():
            assert numbers[f"{name}/rows"] == numbers[f"{name}/inserted"] == count
            assert numbers[f"{name}/step"] == numbers[f"{name}/lookups"] == n + 1


@DEVICES
def test_a_step_that_runs_is_not_waited_for(devices):
    coll = make(devices)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, y: y @ x, x))
    wide = jnp.full((1024, 1024), 1 / 1024)
    program = slow.lower(wide).compile()
    add = jax.jit(lambda ids, x: jax.tree.map(lambda y: y + x.astype(y.dtype), ids))
    # A first step compiles everything.
    step, zero = step_of(coll), wide[0, 0] * 0
    state = step(step(coll.init(0), add(ids_of(0), zero)), ids_of(0))
    coll.stats_async(state).result()

    busy = program(wide)
    # Ids that are there only once the slow program has run.
    state = step(state, add(ids_of(1), busy[0, 0] * 0))
    future = coll.stats_async(state)
    state = step(state, ids_of(2))  # deletes what the numbers were read from
    was_done = busy.is_ready() or future.done()
    assert not was_done
    assert future.result()["a/lookups"] == 3
    assert coll.stats(state)["a/lookups"] == 4


def test_a_table_that_must_not_refuse():
    coll = make(1, on_full="error")
    ids = {"a": jde.ids(np.arange(6000))}
    state = step_of(coll)(coll.init(0), ids)
    future = coll.stats_async(state)
    with pytest.raises(RuntimeError, match="Table 'a' refused"):
        future.result()


def test_inside_jit():
    coll = make(1)
    with pytest.raises(TypeError, match="stats_async on it afterwards"):
        jax.jit(coll.stats_async)(coll.init(0))


def test_a_tensor_train():
    tables = [
        jde.TableConfig("a", dim=8, capacity=256),
        jde.TTConfig("t", dim=8, num_embeddings=64, ranks=4),
    ]
    coll = jde.Tables(tables)
    state = coll.init(0)
    numbers = coll.stats_async(state).result()
    assert numbers == coll.stats(state)
    assert numbers["a/capacity"] == 256 and numbers["t/num_embeddings"] == 64
