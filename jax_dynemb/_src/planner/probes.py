# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Small steps of every kind, whose times say what a device and its calls cost."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
import time
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash.exchange import capacity_of
from jax_dynemb._src.ids import ids as make_ids
from jax_dynemb._src.initializers import zeros
from jax_dynemb._src.optim import adagrad
from jax_dynemb._src.planner import work as _work
from jax_dynemb._src.planner.rates import KINDS
from jax_dynemb._src.planner.rounds import chances_of_rounds, expected_rounds
from jax_dynemb._src.table import Tables

STEPS = 4
BATCHES, TURNS = 3, 2
TABLES = 4
BAG = 4
EXCHANGE_FACTOR = 0.5  # the default of Tables
# Ids of a device: few, so that calls are what takes time, and many. On a GPU 256 ids
# take less than the line through larger batches says.
FEW_ON_CPU, MANY_ON_CPU = 256, 4096
FEW, MANY = 8192, 262_144
clock = time.perf_counter
_SHARDINGS = {"rows": "row_wise", "sums": "row_wise"}


@dataclasses.dataclass
class Probe:
    """One step of some tables, compiled."""

    kind: str  # one of ``KINDS``
    counted: tuple[float, ...]  # as ``rates.fitted`` takes it
    sent: float  # bytes that leave a device in exchanges
    _coll: Tables
    _batches: list[Any]
    _several: Any

    def fastest(self, repeats: int) -> float:
        """Returns the seconds of a step, the least of some rounds."""
        times = timed_rounds(self._several, self._coll.init(0), self._batches, repeats)
        return min(times) / STEPS


def timed_rounds(
    several: Any, state: Any, batches: list[Any], repeats: int
) -> list[float]:
    """Returns the mean seconds of a call in each of some rounds; donates the state.

    Calls follow each other as in training: batches, with arrays of their own, take
    turns, and nothing waits before the end of a round. Time between a result and the
    next call is no part of a step, and differs from table to table.
    """
    for batch in batches:  # all rows are there before a clock runs
        state = several(state, batch)
    jax.block_until_ready(state)
    times = []
    for _ in range(repeats):
        begin = clock()
        for batch in batches * TURNS:
            state = several(state, batch)
        jax.block_until_ready(state)
        times.append((clock() - begin) / (TURNS * len(batches)))
    return times


def probes_of(mesh: Mesh, axes: tuple[str, ...]) -> list[Probe]:
    """Compiles all probes, several at a time."""
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    shards = math.prod(mesh.shape[a] for a in axes)
    few, many = (FEW_ON_CPU, MANY_ON_CPU) if on_cpu else (FEW, MANY)
    narrow = max(32, 4 * shards)
    sizes = [
        _Size(few, narrow),
        _Size(few, narrow, tables=TABLES),
        _Size(many, narrow),
        _Size(many, 4 * narrow),
        _Size(many, narrow, bag=4 * BAG),
        _Size(many, 2 * narrow, bag=2 * BAG, repeats=8),
    ]
    made = [_made(mesh, axes, kind, size) for kind in KINDS for size in sizes]
    several_rounds = _Size(many, narrow, bag=1, factor=0.2)
    made.append(_made(mesh, axes, "rows", several_rounds))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda probe: probe._several.compile(), made))
    for probe, program in zip(made, compiled, strict=True):
        probe._several = program
    return made


@dataclasses.dataclass(frozen=True)
class _Size:
    """Describes the tables of a probe."""

    ids: int  # of a table on a device
    dim: int  # columns
    bag: int = BAG  # ids of a bag; rows travel without bags if it is ``BAG``
    repeats: int = 2  # how often an id occurs on average
    tables: int = 1  # how many
    factor: float = 1.0  # ``exchange_factor``


def _made(mesh: Mesh, axes: tuple[str, ...], kind: str, size: _Size) -> Probe:
    """Lowers one probe."""
    shards = math.prod(mesh.shape[a] for a in axes)
    ids, dim, factor, repeats = size.ids, size.dim, size.factor, size.repeats
    if shards == 1 and kind == "rows" and factor == 1:
        # Room for all ids needs no loop over rounds, and the default has one.
        factor, repeats = EXCHANGE_FACTOR, 2 * repeats
    distinct = shards * ids // repeats
    bag = 1 if kind == "rows" and size.bag == BAG else size.bag
    tables = [
        TableConfig(
            f"t{n}",
            dim,
            max(2 * distinct, 128 * shards),
            sharding=_SHARDINGS.get(kind, kind),  # pyright: ignore[reportArgumentType]
            pooling=None if bag == 1 else "sum",
            pooling_factors=(float(bag),),
            initializer=zeros(),
            optimizer=adagrad(0.1),
        )
        for n in range(size.tables)
    ]
    pooled = kind if kind in ("rows", "sums") else "auto"
    coll = Tables(
        tables, mesh=mesh, axis=axes, exchange_pooled=pooled, exchange_factor=factor
    )
    split = NamedSharding(mesh, PartitionSpec(axes))
    draw = np.random.default_rng(0)
    keys = draw.integers(0, distinct, (BATCHES, size.tables, shards, ids))
    shape = (shards * ids,) if bag == 1 else (shards * ids // bag, bag)

    def batch_of(some: np.ndarray) -> dict[str, jax.Array]:
        given = [make_ids(each.reshape(shape)) for each in some]
        names = [t.name for t in tables]
        return jax.device_put(dict(zip(names, given, strict=True)), split)

    batches = [batch_of(some) for some in keys]

    def several(state: Any, batch: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            rows, residual, state = coll.lookup(state, batch)
            return coll.apply_gradients(state, residual, rows)

        return jax.lax.fori_loop(0, STEPS, step, state)

    # Ids are an argument: XLA would compute in advance with constants.
    lowered = jax.jit(several, donate_argnums=0).lower(
        jax.eval_shape(lambda: coll.init(0)), batches[0]
    )
    work, rounds = _work_of(kind, dim, keys[0, 0], bag, factor)
    planned = coll.plan(dict.fromkeys(batches[0], ids)).tables
    sent = sum(t.id_bytes + t.row_bytes + t.gradient_bytes for t in planned)
    touched = (size.tables * number for number in work)
    counted = (1.0, rounds - 1, size.tables * rounds, *touched)
    sent *= rounds * (shards - 1) / shards
    return Probe(kind, counted, sent, coll, batches, lowered)


def _work_of(
    kind: str, dim: int, keys: np.ndarray, bag: int, factor: float
) -> tuple[_work.Bytes, float]:
    """Counts what a probe touches on each device by the planner's model; its rounds."""
    shards, ids = keys.shape
    distinct = sum(len(np.unique(some)) for some in keys) / shards
    batch = _work.Batch(ids, ids / bag, distinct, len(np.unique(keys)), shards)
    row = _work.Row(dim, 4, 4, 4, 4 * dim)
    room, rounds = capacity_of(ids, shards, factor), 1.0
    if kind == "rows":
        rounds = expected_rounds([chances_of_rounds(batch, shards, room)])
    step, again = _work.work_of(kind, batch, row, shards, shards * room, ids)
    touched = step.total() + (rounds - 1) * np.sum(again, axis=0)
    return _work.Bytes(*touched.tolist()), rounds
