# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that hold every id of a case, filled once for all measurements of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.ops.state import repeated
from suite.job import FULL, WIDTHS, Job
from suite.workloads import Case, Mixed, lengths_of

LEARNING_RATE = 1e-3
FILL_IDS = 1 << 18  # ids inserted in one call, all tables together
FOREIGN = 1 << 30  # high word of ids that only take room

States = dict[str, TableState]
_DTYPES = {2: "bfloat16", 4: "float32"}


def dtypes(name: str) -> tuple[str, str]:
    """Types of stored rows and of outputs, from a name in `WIDTHS`."""
    stored, output = WIDTHS[name]
    return _DTYPES[stored], _DTYPES[output]


@functools.lru_cache(maxsize=64)
def collection(
    case: Case | Mixed, optimizer: str, dtype: str, load: float, shared: bool = False
) -> jde.Tables:
    """Declares the tables of a case; table `i` and its feature are named `t<i>`."""
    param_dtype, output_dtype = dtypes(dtype)
    make = functools.partial(
        jde.TableConfig,
        initializer=jde.initializers.uniform(-0.01, 0.01),
        optimizer=getattr(jde.optim, optimizer)(LEARNING_RATE),
        param_dtype=param_dtype,
        dtype=output_dtype,
    )
    configs = [
        make(
            f"t{table}",
            dim=part.dim,
            capacity=max(1, int(part.rows / load)),
            pooling="sum" if part.pooled else None,
        )
        for table, part in enumerate(case.parts)
    ]
    return jde.Tables(configs, share_arrays=shared)


class Filled:
    """The tables of a case; one measurement after another borrows and returns them.

    Rows depend on the id, not on the optimizer, so the tables are filled once and get
    other optimizer states when another optimizer asks for them.
    """

    def __init__(self, job: Job, *, rows: bool = True):
        """Makes the tables of a job, and fills them if `rows`.

        With a load of `FULL` every bucket is full: ids that nobody looks up take all
        the room first, then the case's ids evict some of them.
        """
        self._key = job.tables
        self._optimizer = "sgd"
        coll = self._collection("sgd")
        state = coll.init(seed=0)
        if rows:
            insert = insert_range(coll, chunk_of(job.case))
            if job.load >= FULL:
                slots = sum(config.num_slots for config in coll.tables.values())
                state = insert(state, FOREIGN, [2 * slots // job.case.tables])
            state = insert(state, 0, [part.rows for part in job.case.parts])
        self._state: States | None = state

    def borrow(self, optimizer: str) -> tuple[jde.Tables, States]:
        """The tables with the states of an optimizer."""
        state, self._state = self._state, None
        assert state is not None, "the tables have not been returned"
        coll = self._collection(optimizer)
        if optimizer != self._optimizer:
            self._optimizer, state = optimizer, _with_states(coll, state)
        return coll, state

    def give_back(self, state: Mapping[str, TableState]) -> None:
        """Returns what `borrow` lent, or what has become of it."""
        self._state = dict(state)

    def _collection(self, optimizer: str) -> jde.Tables:
        case, *others = self._key
        return collection(case, optimizer, *others)


def clear(coll: jde.Tables) -> Callable[[States], States]:
    """Returns a jitted function that empties donated tables."""
    return _clear(coll)


def to_device(coll: jde.Tables, case: Case | Mixed, ids: Any) -> dict[str, Any]:
    """Moves `int64[n]` of each table to the device, in the shape the lookup takes."""
    columns = zip(coll.features, case.parts, ids, strict=True)
    return {name: _to_device(part, column) for name, part, column in columns}


def ids_type(case: Case) -> Any:
    """The types of what `to_device` makes for one table."""
    pads = case.pooled and not case.jagged
    shape = (case.batch, case.bag) if pads else (case.ids_per_table,)
    ids = jax.ShapeDtypeStruct((*shape, 2), jnp.uint32)
    if not case.jagged:
        return ids
    return jde.Jagged(ids, jax.ShapeDtypeStruct((case.batch,), jnp.int32))


def _to_device(case: Case, ids: np.ndarray) -> Any:
    if case.jagged:
        return jde.Jagged(jde.ids(ids), jax.device_put(lengths_of(case)))
    return jde.ids(ids.reshape(ids_type(case).shape[:-1]))


@jax.jit
def later(ids: dict[str, jax.Array], number: jax.Array) -> dict[str, jax.Array]:
    """Other ids, none of which any other number gives: it is added to high words."""
    return jax.tree.map(lambda pairs: pairs.at[..., 1].add(number), ids)


def chunk_of(case: Case | Mixed) -> int:
    """Ids to insert into each table in one call.

    Too few to fill a bucket alone: rows of one call do not evict each other.
    """
    most = max(part.rows for part in case.parts)
    return min(FILL_IDS // case.tables, max(64, most // 8))


@functools.lru_cache(maxsize=16)
def _clear(coll: jde.Tables) -> Any:
    left = _ffi.code("counters", "left")

    def clear(state: States) -> States:
        # As good as new: nobody holds slots of the rows that were there.
        return {
            name: dataclasses.replace(t, counters=t.counters.at[:, left].set(0))
            for name, t in coll.clear(state).items()
        }

    return jax.jit(clear, donate_argnums=0)


@functools.lru_cache(maxsize=16)
def insert_range(coll: jde.Tables, chunk: int) -> Callable[..., States]:
    """Returns `state, high word, counts -> state`: inserts the ids [0, count).

    A count of each table, or one for all of them.
    """

    @functools.partial(jax.jit, donate_argnums=0)
    def insert_all(state: States, high: jax.Array, counts: jax.Array) -> States:
        def insert_chunk(number: jax.Array, state: States) -> States:
            first = number.astype(jnp.uint32) * jnp.uint32(chunk)
            low = first + jnp.arange(chunk, dtype=jnp.uint32)
            pairs = jnp.stack([low, jnp.broadcast_to(high, low.shape)], axis=-1)
            beyond = low >= counts[:, None]  # padding: both words all ones
            ids = jnp.where(beyond[..., None], jnp.uint32(0xFFFFFFFF), pairs)
            each = zip(coll.features, ids, strict=True)
            return coll.lookup(state, dict(each))[2]

        counts = jnp.broadcast_to(counts, len(coll.features))
        chunks = (counts.max() + jnp.uint32(chunk - 1)) // jnp.uint32(chunk)
        return jax.lax.fori_loop(jnp.uint32(0), chunks, insert_chunk, state)

    return lambda state, high, counts: insert_all(
        state, np.uint32(high), np.array(counts, np.uint32)
    )


def _with_states(coll: jde.Tables, state: States) -> States:
    """The same rows beside the first states of a collection's optimizer."""
    specs = {coll.state_name(name): t.states for name, t in coll.tables.items()}
    new = {}
    for name, table in state.items():
        slots = table.values.shape[0]
        states = {
            key: repeated(jnp.full(spec.shape, spec.initial), slots)
            for key, spec in specs[name].items()
        }
        new[name] = dataclasses.replace(table, optimizer=states)
    return new
