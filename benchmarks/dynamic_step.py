# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The step that is timed, and the filled tables it runs on.

A step is written as a user writes it: one jitted function that takes the donated
tables, looks ids up, and applies the gradients of the rows. In place of a model and its
loss there is one fixed array of gradients for each table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from workloads import Case

SPARE = 1.5  # slots for each row
FILL_CHUNK = 65_536
LEARNING_RATE = 1e-3

State = Any
Ids = dict[str, jax.Array]
# The tables, and the number of steps taken: "fresh" ids are made from it on the device.
Carry = tuple[State, jax.Array]
Step = Callable[[Carry, Ids, Ids], tuple[Carry, Ids]]


def collection(case: Case, optimizer: str) -> jde.Tables:
    """Declares the tables of a case; table `i` and its feature are named `t<i>`."""
    make = functools.partial(
        jde.TableConfig,
        dim=case.dim,
        capacity=int(case.rows * SPARE),
        initializer=jde.initializers.uniform(-0.01, 0.01),
        optimizer=getattr(jde.optim, optimizer)(LEARNING_RATE),
        pooling="sum" if case.pooled else None,
    )
    return jde.Tables([make(f"t{table}") for table in range(case.tables)])


def fill(coll: jde.Tables, case: Case) -> State:
    """Makes tables that hold the ids [0, rows), inserted chunk by chunk."""

    @functools.partial(jax.jit, donate_argnums=0)
    def insert_all(state: State) -> State:
        def insert_chunk(chunk: jax.Array, state: State) -> State:
            first = chunk.astype(jnp.uint32) * FILL_CHUNK
            low = first + jnp.arange(FILL_CHUNK, dtype=jnp.uint32)
            pairs = jnp.stack([low, jnp.zeros_like(low)], axis=-1)
            beyond = (low >= case.rows)[:, None]  # padding: both words all ones
            ids = jnp.where(beyond, jnp.uint32(0xFFFFFFFF), pairs)
            return coll.lookup(state, dict.fromkeys(coll.features, ids))[2]

        chunks = -(-case.rows // FILL_CHUNK)
        return jax.lax.fori_loop(0, chunks, insert_chunk, state)

    return insert_all(coll.init(seed=0))


def clear(coll: jde.Tables) -> Callable[[State], State]:
    """Returns a jitted function that empties donated tables."""
    return jax.jit(coll.clear, donate_argnums=0)


def to_device(coll: jde.Tables, case: Case, ids: np.ndarray) -> Ids:
    """Moves `int64[tables, n]` to the device, in the shape the lookup takes."""
    shape = (case.batch, case.bag) if case.pooled else (case.ids_per_table,)
    columns = zip(coll.features, ids, strict=True)
    return {name: jde.ids(column.reshape(shape)) for name, column in columns}


def gradients(coll: jde.Tables, case: Case) -> Ids:
    """Makes the fixed gradients of the rows, one array for each table."""
    shape = (case.num_outputs // case.tables, case.dim)
    keys = jax.random.split(jax.random.key(0), case.tables)
    pairs = zip(coll.features, keys, strict=True)
    return {name: _small_normal(key, shape) for name, key in pairs}


def evaluation_step(coll: jde.Tables) -> Step:
    """Looks rows up and changes nothing."""

    def step(carry: Carry, ids: Ids, d_rows: Ids) -> tuple[Carry, Ids]:
        del d_rows
        state, number = carry
        rows, _, state = coll.find(state, ids)
        return (state, number + 1), rows

    return jax.jit(step, donate_argnums=0)


def training_step(coll: jde.Tables, *, fresh: bool = False) -> Step:
    """Looks rows up, inserts the unseen ones, and applies the gradients.

    With `fresh`, the number of the step is added to the high word of every id, so that
    no id of a step was ever seen before.
    """

    def step(carry: Carry, ids: Ids, d_rows: Ids) -> tuple[Carry, Ids]:
        state, number = carry
        if fresh:
            ids = {name: pair.at[..., 1].add(number) for name, pair in ids.items()}
        rows, residual, state = coll.lookup(state, ids)
        state = coll.apply_gradients(state, residual, d_rows)
        return (state, number + 1), rows

    return jax.jit(step, donate_argnums=0)


@functools.partial(jax.jit, static_argnames="shape")
def _small_normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.normal(key, shape) * 1e-3
