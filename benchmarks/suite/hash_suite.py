# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hash table operations alone, beside HierarchicalKV."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

import jax_dynemb as jde
from suite import busy, filled, hash_ops, timing, workloads
from suite.figures import recorded
from suite.filled import FOREIGN
from suite.job import BATCHES, FULL
from suite.step_report import verdict
from suite.suite import Context, Suite
from suite.workloads import Case

SLOTS, BATCH, DIM = 1 << 26, 1 << 20, 64
LOADS = (0.5, 0.75, 1.0)
# Of a full table the looked-up part: ids that found room in their bucket, all of them.
PRESENT_OF_FULL = 0.7
FRESH_STEPS = 4  # of a repeat, which starts from tables filled anew
FRESH_REPEATS = 9  # so few steps are at the mercy of their host
EXPORT = "export_batch"

# Our operation, how its ids are drawn, and HierarchicalKV's column to compare with.
OPERATIONS = (
    ("find", "uniform", "find"),
    ("find", "zipf", "find zipf"),
    (hash_ops.SLOTS_ONLY, "zipf", "find address zipf"),
    ("find_or_insert", "uniform", "insert_or_assign"),
    ("find_or_insert", "fresh", "insert_or_assign fresh"),
    ("insert_or_assign", "uniform", "insert_or_assign"),
    ("insert_or_assign", "fresh", "insert_or_assign fresh"),
    (hash_ops.UNIQUE, "fresh", "insert_or_assign fresh"),
    (EXPORT, "", "export_batch"),
)
GAINS = {EXPORT: 4.0}  # how many times as fast it is to be, else once


@dataclasses.dataclass(frozen=True)
class HashFigure:
    """One operation at one load.

    Attributes:
      operation: its name.
      ids: how ids are drawn.
      load: rows for each slot.
      keys: of a call.
      ms: milliseconds of a call, dispatch from Python included.
      peer: HierarchicalKV's column.
      peer_gkeys: its 1e9 keys a second on an H200; None on other devices.
      busy_ms: milliseconds of a call in which the GPU was at work; None if unknown.
    """

    operation: str
    ids: str
    load: float
    keys: float
    ms: float
    peer: str
    peer_gkeys: float | None
    busy_ms: float | None = None

    @property
    def gkeys(self) -> float:
        """Keys a second, in 1e9, of back-to-back calls."""
        return self.keys / self.ms / 1e6

    @property
    def busy_gkeys(self) -> float | None:
        """Keys a second, in 1e9, while the GPU is at work."""
        return None if self.busy_ms is None else self.keys / self.busy_ms / 1e6

    @property
    def target_gkeys(self) -> float | None:
        """What is aimed at."""
        if self.peer_gkeys is None:
            return None
        return self.peer_gkeys * GAINS.get(self.operation, 1.0)

    @property
    def met(self) -> bool | None:
        """Whether it is ahead of HierarchicalKV by as much as it should.

        A call from Python takes 60 to 100 us of the host, as long as the shortest of
        these operations; HierarchicalKV is called from C++. So the GPU's time counts,
        where it is known.
        """
        target = self.target_gkeys
        return None if target is None else (self.busy_gkeys or self.gkeys) > target

    def record(self) -> dict[str, Any]:
        """Everything as one flat JSON object."""
        return {
            "suite": "hash",
            **dataclasses.asdict(self),
            "gkeys": self.gkeys,
            "busy_gkeys": self.busy_gkeys,
            "target_gkeys": self.target_gkeys,
            "met": self.met,
        }


def run(context: Context) -> list[HashFigure]:
    """Measures every operation at every load."""
    suite = _Operations(context)
    figures = {}
    for figure in itertools.chain.from_iterable(map(suite.at, LOADS)):
        context.say(
            f"{figure.operation:28} {figure.ids:7} load {figure.load:.2f} "
            f"{figure.ms:8.3f} ms {figure.gkeys:8.3f} Gkeys/s"
        )
        figures[figure.operation, figure.ids, figure.load] = figure
    if context.choice.busy and context.platform == "gpu":
        # After all of them: see busy.trace_chain.
        for key, ms in itertools.chain.from_iterable(map(suite.busy_at, LOADS)):
            figures[key] = dataclasses.replace(figures[key], busy_ms=ms)
    order = [operation[:2] for operation in OPERATIONS]
    return sorted(figures.values(), key=lambda f: order.index((f.operation, f.ids)))


@dataclasses.dataclass(frozen=True)
class _Calls:
    """Calls of one operation, ready to run.

    Attributes:
      chain: of calls.
      keys: of each.
      before: fills the table anew; None where calls leave as many rows as they found.
    """

    chain: timing.Chain
    keys: float
    before: Callable[[], None] | None


class _Operations:
    """The table, and the compiled operations, which serve every load."""

    def __init__(self, context: Context):
        scale = context.choice.scale
        self.effort = dataclasses.replace(context.runner.effort, repeats=3)
        self.comparable = context.comparable
        slots, batch = max(1024, int(SLOTS * scale)), max(64, int(BATCH * scale))
        self.case = Case(1, slots, DIM, batch, 1, False)
        (self.config,) = filled.collection(
            self.case, "sgd", "fp32", FULL
        ).tables.values()
        self.coll = jde.Tables([self.config])
        self.state = self.coll.init(0)
        self.rows = jax.random.normal(jax.random.key(0), (batch, DIM))
        self._insert = filled.insert_range(self.coll, filled.chunk_of(self.case))
        self._steps = {
            name: hash_ops.step(self.coll, name)
            for name, _, _ in OPERATIONS
            if name != EXPORT
        }
        self._export = hash_ops.ExportStep(self.config, batch)

    def at(self, load: float) -> Iterator[HashFigure]:
        """Measures every operation at one load."""
        for operation, ids, peer, calls in self._calls(load):
            effort, steps = self.effort, None
            if calls.before is not None:
                effort = dataclasses.replace(effort, repeats=FRESH_REPEATS)
                steps = FRESH_STEPS
            times = timing.time_chain(
                calls.chain, effort, steps=steps, before=calls.before
            )
            yield HashFigure(
                operation=operation,
                ids=ids,
                load=load,
                keys=calls.keys,
                ms=timing.milliseconds(times),
                peer=peer,
                peer_gkeys=_hkv(peer, load) if self.comparable else None,
            )

    def busy_at(self, load: float) -> Iterator[tuple[tuple[str, str, float], float]]:
        """Traces every operation at one load: which it is, and its milliseconds."""
        for operation, ids, _, calls in self._calls(load):
            traced = busy.trace_chain(calls.chain, FRESH_STEPS, calls.before)
            if traced is not None:
                yield (operation, ids, load), traced.ms

    def _calls(self, load: float) -> Iterator[tuple[str, str, str, _Calls]]:
        """Every operation on a table of one load, its ids, its peer, its calls."""
        present = self._fill(load)
        for operation, ids, peer in OPERATIONS:
            if operation == EXPORT:
                yield operation, ids, peer, self._export_calls()
                continue
            calls = self._calls_of(operation, ids, load, present)
            yield operation, ids, peer, calls
            self.state = calls.chain.carry
            if calls.before is not None:
                self._fill(load)

    def _fill(self, load: float) -> int:
        """Fills the table anew; returns how many ids it surely holds, from 0 on."""
        state = filled.clear(self.coll)(self.state)
        count = int(self.config.num_slots * load)
        if load >= FULL:
            state = self._insert(state, FOREIGN, 2 * count)
            count = int(count * PRESENT_OF_FULL)
        self.state = self._insert(state, 0, count)
        return count

    def _calls_of(self, operation: str, ids: str, load: float, present: int) -> _Calls:
        batches = self._batches(ids, present)
        chain = timing.Chain(self._steps[operation], self.state, batches)

        def refill() -> None:
            self.state = chain.carry
            self._fill(load)
            chain.carry = self.state

        return _Calls(chain, self.case.batch, refill if ids == "fresh" else None)

    def _batches(self, ids: str, present: int) -> list[tuple[jax.Array, ...]]:
        case = dataclasses.replace(self.case, rows=present)
        seeds = range(FRESH_STEPS if ids == "fresh" else BATCHES)
        drawn = [workloads.batch_ids(case, ids, seed)[0] for seed in seeds]
        return [(jde.ids(each), self.rows) for each in drawn]

    def _export_calls(self) -> _Calls:
        (name,) = self.coll.tables
        rows = self.coll.stats(self.state)[f"{name}/rows"]
        chain = timing.Chain(self._export, (self.state[name], np.int64(0)), [()])
        found = rows * self._export.slots / self.config.num_slots  # on average
        return _Calls(chain, found, None)


def _hkv(column: str, load: float) -> float | None:
    found = [r for r in recorded("hkv_h200.json") if r["load"] == load]
    return next((r["gkeys"] for r in found if r["operation"] == column), None)


def table(figures: Sequence[HashFigure]) -> Table:
    """One row an operation and load, beside HierarchicalKV and the target."""
    with_peer = any(figure.peer_gkeys is not None for figure in figures)
    traced = any(figure.busy_ms is not None for figure in figures)
    result = Table(title="1e9 keys a second")
    for name in ("operation", "ids"):
        result.add_column(name)
    names = ["load", "ms", "Gkeys/s"]
    names += ["GPU busy ms", "Gkeys/s"] if traced else []
    names += ["HierarchicalKV", "", "ahead by", "target", " "] if with_peer else []
    for name in names:
        result.add_column(name, justify="left" if name == "" else "right")
    for f in figures:
        cells = [f.operation, f.ids, f"{f.load:.2f}", f"{f.ms:.3f}", f"{f.gkeys:.2f}"]
        if f.busy_ms and f.busy_gkeys:
            cells += [f"{f.busy_ms:.3f}", f"{f.busy_gkeys:.2f}"]
        if f.peer_gkeys and f.target_gkeys:
            ahead = (f.busy_gkeys or f.gkeys) / f.peer_gkeys
            cells += [f"{f.peer_gkeys:.2f}", f.peer, f"{ahead:.1f}x"]
            cells += [f"{f.target_gkeys:.2f}", verdict(f.met)]
        result.add_row(*cells)
    return result


def plot(figures: Sequence[HashFigure], path: Path) -> None:
    """Draws one panel a load: bars of this library and of HierarchicalKV."""
    from matplotlib import pyplot

    loads = sorted({figure.load for figure in figures})
    canvas, panels = pyplot.subplots(len(loads), figsize=(11, 3.2 * len(loads)))
    for panel, load in zip(np.atleast_1d(panels), loads, strict=True):
        shown = [figure for figure in figures if figure.load == load]
        places = np.arange(len(shown))
        panel.bar(
            places, [f.busy_gkeys or f.gkeys for f in shown], 0.4, label="jax_dynemb"
        )
        others = [f.peer_gkeys or float("nan") for f in shown]
        panel.bar(places + 0.4, others, 0.4, label="HierarchicalKV")
        names = [f"{f.operation.replace(', ', chr(10))}\n{f.ids}" for f in shown]
        panel.set_xticks(places + 0.2, names, fontsize=7)
        panel.set_ylabel("1e9 keys a second")
        panel.set_title(f"load {load:.2f}", loc="left")
    np.atleast_1d(panels)[0].legend()
    canvas.tight_layout()
    canvas.savefig(path, dpi=120)
    pyplot.close(canvas)


SUITE = Suite("operations of the hash table alone", run, table, plot)
