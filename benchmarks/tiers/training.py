# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps on a stream of fresh batches, with and without a tier."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from suite.workloads import Case
from tiers.stream import Stream

LEARNING_RATE = 1e-3
Batch = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Figures:
    """Holds what one kind of step did.

    Attributes:
      ms: of a step, the median of the rounds.
      rounds: milliseconds of a step in each round.
      events: of a step, all tables together: every counter of a tier, and the share
        of the ids whose rows had a frame, `hit_rate`.
    """

    ms: float
    rounds: list[float]
    events: dict[str, float]


class Training:
    """Tables of a case that hold every id, and a compiled step.

    Attributes:
      coll: the tables.
      state: of the tables; the next step donates it.
      gradients: of the rows of each feature, the same in each step.
    """

    def __init__(
        self,
        case: Case,
        optimizer: str,
        tier: Any,
        prefetches: bool = False,
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Makes empty tables.

        Args:
          case: tables, rows and ids of a batch.
          optimizer: name in `jde.optim`.
          tier: of every table, or None: all rows in HBM.
          prefetches: each step prefetches the batch behind its own.
          options: of the compiler, besides those of `jde.compiler_options()`.
          clock: seconds; `time.process_time` counts those of processors.
        """
        self._clock = clock
        more = {} if tier is None else {"tier": tier}
        configs = [
            jde.TableConfig(
                f"t{number}",
                dim=case.dim,
                capacity=int(case.rows / 0.75),
                initializer=jde.initializers.uniform(-0.01, 0.01),
                optimizer=getattr(jde.optim, optimizer)(LEARNING_RATE),
                **more,
            )
            for number in range(case.tables)
        ]
        self.coll = coll = jde.Tables(configs)
        self.state = coll.init(seed=0)
        self._prefetches = prefetches
        rng = np.random.default_rng(0)
        one = rng.normal(0, 1e-3, (case.ids_per_table, case.dim)).astype(np.float32)
        self.gradients = {name: jnp.asarray(one) for name in coll.features}

        def train(state: Any, batch: Batch, following: Batch, gradients: Any) -> Any:
            rows, residual, state = coll.lookup(state, batch)
            if prefetches:
                state = coll.prefetch(state, following)
            # Rows are read, as a model does; no dense part.
            gradients = {
                name: gradients[name] + 1e-6 * row for name, row in rows.items()
            }
            return coll.apply_gradients(state, residual, gradients)

        options = {**jde.compiler_options(loops=True), **(options or {})}
        self._step = jax.jit(train, donate_argnums=0, compiler_options=options)
        self._find = jax.jit(lambda state, batch: coll.find(state, batch)[0])

    def batches(self, ids: Sequence[np.ndarray]) -> list[Batch]:
        """Moves ids, `int64[tables, n]` each, to the device."""
        return [
            {
                name: jde.ids(column)
                for name, column in zip(self.coll.features, batch, strict=True)
            }
            for batch in ids
        ]

    def run(self, batches: Sequence[Batch]) -> float:
        """Takes a step with each batch; returns milliseconds of a step."""
        jax.block_until_ready((self.state, batches))
        begin = self._clock()
        for number, batch in enumerate(batches):
            following = batches[(number + 1) % len(batches)]
            self.state = self._step(self.state, batch, following, self.gradients)
        jax.block_until_ready(self.state)
        return 1e3 * (self._clock() - begin) / len(batches)

    def enqueue(self, batches: Sequence[Batch]) -> float:
        """Takes a step with each batch; milliseconds that the host needs for one."""
        jax.block_until_ready((self.state, batches))
        begin = time.perf_counter()
        for batch in batches:
            self.state = self._step(self.state, batch, batch, self.gradients)
        seconds = time.perf_counter() - begin
        jax.block_until_ready(self.state)
        return 1e3 * seconds / len(batches)

    def find(self, batches: Sequence[Batch]) -> float:
        """Looks every batch up; returns milliseconds of one."""
        jax.block_until_ready(self._find(self.state, batches[0]))
        begin = self._clock()
        rows = None
        for batch in batches:
            rows = self._find(self.state, batch)
        jax.block_until_ready(rows)
        return 1e3 * (self._clock() - begin) / len(batches)

    def fill(self, stream: Stream) -> None:
        """Puts every id into the tables."""
        for ids in stream.everything():
            self.run(self.batches([ids]))

    def measure(self, batches: Sequence[Batch], rounds: int) -> Figures:
        """Takes a step with each batch, in rounds that are timed apart."""
        before = events_of(self.state)
        parts = [batches[n::rounds] for n in range(rounds)]
        times = [self.run(part) for part in parts]
        after = events_of(self.state)
        grown = {name: after[name] - before[name] for name in after}
        looked_up = max(1, grown.get("hits", 0) + grown.get("misses", 0))
        events = {name: count / len(batches) for name, count in grown.items()}
        events["hit_rate"] = grown.get("hits", 0) / looked_up
        return Figures(statistics.median(times), times, events)


def events_of(state: Any) -> dict[str, int]:
    """Adds up the counters of all tiers, by name."""
    tiers = [getattr(table, "tier", None) for table in state.values()]
    tiers = [tier for tier in tiers if tier is not None]
    if not tiers:
        return {}
    names = _ffi.constants()["tier_counters"]
    total = np.zeros(len(names), np.int64)
    for tier in tiers:
        words = np.asarray(tier.counters).astype(np.int64)
        total += (words[..., 0] + (words[..., 1] << 32)).sum(axis=0)
    return dict(zip(names, total.tolist(), strict=True))
