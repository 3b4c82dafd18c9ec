# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables and batches of the ``bench`` command."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import initializers, optim
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ids import ids as to_pairs
from jax_dynemb._src.table import Tables

_ROWS_PER_SLOT = 2 / 3
_FILL_IDS = 1 << 18


@dataclasses.dataclass(frozen=True)
class Workload:
    """Describes tables of one shape, and a batch of lookups for each.

    Attributes:
      dim: float32 columns of a row.
      ids: of a bag, which are summed; 0 for one row per id, without sums.
    """

    tables: int
    rows: int
    dim: int
    bags: int
    ids: int

    def __str__(self) -> str:
        batch = f"{self.bags:,} " + (f"bags of {self.ids}" if self.ids else "ids")
        return f"{self.tables} x {self.rows:,} rows, dim {self.dim}; {batch}"


WORKLOADS = {
    "gpu": (
        Workload(1, 10_000_000, 128, 65_536, 1),
        Workload(26, 1_000_000, 128, 16_384, 10),
        Workload(1, 10_000_000, 128, 1_048_576, 0),
    ),
    "cpu": (
        Workload(1, 1_000_000, 64, 8_192, 10),
        Workload(26, 100_000, 32, 2_048, 1),
        Workload(1, 1_000_000, 128, 65_536, 0),
    ),
}


def scaled(work: Workload, factor: float) -> Workload:
    """Returns the workload with a factor on its rows and bags."""
    rows, bags = max(512, int(work.rows * factor)), max(16, int(work.bags * factor))
    return dataclasses.replace(work, rows=rows, bags=bags)


def least_bytes(work: Workload, distinct: float, trained: Tables | None) -> float:
    """Counts the fewest bytes that a step can move through memory.

    A lookup reads each distinct row and the ids, and writes the outputs. Training also
    reads gradients and ids, and reads and writes each distinct row and its state.
    """
    numbers = work.tables * work.bags * max(1, work.ids) * 8
    outputs = work.tables * work.bags * work.dim * 4
    rows = distinct * work.dim * 4
    if trained is None:
        return numbers + outputs + rows
    states = next(iter(trained.tables.values())).states.values()
    state = distinct * 4 * sum(math.prod(spec.shape) for spec in states)
    return 2 * (numbers + outputs) + 3 * rows + 2 * state


def collection(work: Workload, optimizer: str) -> Tables:
    """Makes the tables, each for half as many rows again as there are ids."""
    return Tables(
        [
            TableConfig(
                f"t{number}",
                work.dim,
                int(work.rows / _ROWS_PER_SLOT),
                initializer=initializers.uniform(-0.01, 0.01),
                optimizer=getattr(optim, optimizer)(1e-3),
                pooling="sum" if work.ids else None,
            )
            for number in range(work.tables)
        ]
    )


def draw(work: Workload, seed: int) -> np.ndarray:
    """Draws int64[tables, bags * ids] by a power law: rank r is 1 / r as frequent."""
    shape = (work.tables, work.bags * max(1, work.ids))
    uniform = np.random.default_rng(seed).random(shape)
    return (work.rows**uniform).astype(np.int64) - 1


def on_device(coll: Tables, drawn: np.ndarray, work: Workload) -> tuple[Any, Any]:
    """Returns the ids and gradients of a batch, by feature."""
    shape = (work.bags, work.ids) if work.ids else (work.bags,)
    gradient = jnp.full((work.bags, work.dim), 1e-3, jnp.float32)
    columns = zip(coll.features, drawn, strict=True)
    ids = {name: to_pairs(column.reshape(shape)) for name, column in columns}
    return ids, dict.fromkeys(ids, gradient)


def filled(coll: Tables, work: Workload) -> Any:
    """Returns the state of tables that hold every id."""
    insert = jax.jit(lambda state, ids: coll.lookup(state, ids)[2], donate_argnums=0)
    state = coll.init(0)
    chunk = min(max(64, work.rows // 16), _FILL_IDS // work.tables)
    for first in range(0, work.rows, chunk):
        ids = to_pairs(np.arange(first, first + chunk, dtype=np.int64) % work.rows)
        ids = ids[:, None] if work.ids else ids
        state = insert(state, dict.fromkeys(coll.features, ids))
    return state
