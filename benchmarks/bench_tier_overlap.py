# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the bus works beside a dense part: every way that XLA offers, measured.

    python benchmarks/bench_tier_overlap.py
    python benchmarks/bench_tier_overlap.py --rows 20000 --ids 2048 --width 256  # a CPU

A step looks a batch up, prefetches the next one, multiplies dense matrices, and applies
gradients. XLA sees that the prefetch and the matrices need nothing of each other. The
ways differ in which calls get a stream of their own, and in options of the compiler.
`hidden` is a share of the bus time, which is what a tier adds to a step. It is the part
that a step with the dense part saves: (tiered step + dense part - both) / bus time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import compute_on as compute_on_module

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from suite.workloads import Case
from tiers.stream import Stream
from tiers.training import Training

MOVES = ("promote", "swap_rows")


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to mark a program for overlap.

    Attributes:
      calls: operations of the tier that get a stream of their own.
      dense: whether the matrices get one.
      options: of the compiler.
    """

    calls: tuple[str, ...] = ()
    dense: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


NO_GRAPHS = {"xla_gpu_enable_command_buffer": ""}
LATENCY = {"xla_gpu_enable_latency_hiding_scheduler": True}
CONCURRENT = {
    "xla_gpu_graph_min_graph_size": 1,
    "xla_gpu_graph_enable_concurrent_region": True,
}
SCHEDULED = {
    "xla_gpu_graph_min_graph_size": 1,
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
WAYS = {
    "plain": Way(),
    "plain, no graphs": Way(options=NO_GRAPHS),
    "concurrent graph": Way(options=CONCURRENT),
    "concurrently scheduled graph": Way(options=SCHEDULED),
    "both, concurrently scheduled": Way(MOVES, options=SCHEDULED),
    "promote on a stream": Way(("promote",)),
    "swap on a stream": Way(("swap_rows",)),
    "both on a stream": Way(MOVES),
    "both, no graphs": Way(MOVES, options=NO_GRAPHS),
    "both, latency hiding": Way(MOVES, options=LATENCY),
    "both, latency hiding, no graphs": Way(MOVES, options=LATENCY | NO_GRAPHS),
    "dense on a stream": Way(dense=True),
    "dense, no graphs": Way(dense=True, options=NO_GRAPHS),
    "dense, latency hiding": Way(dense=True, options=LATENCY),
}


def on_stream(function: Any, spaces: Any) -> Any:
    """Marks a function for another stream; the name of the decorator has changed."""
    mark: Any = getattr(compute_on_module, "compute_on2", compute_on_module.compute_on)
    return mark(function, compute_type="gpu_stream:1", out_memory_spaces=spaces)


@contextlib.contextmanager
def calls_on_stream(names: Sequence[str]) -> Iterator[None]:
    """While a program is traced, makes some operations on another stream."""
    plain = _ffi.call
    space = jax.memory.Space

    def call(
        op: str, results: Any, operands: Any, aliases: Any, **attributes: Any
    ) -> Any:
        if op not in names:
            return plain(op, results, operands, aliases, **attributes)
        on_host = op in ("swap_rows", "write_back")
        where = space.Host if on_host else space.Device

        def run(*arrays: Any) -> list[Any]:
            return list(plain(op, results, list(arrays), aliases, **attributes))

        return on_stream(run, [where] * len(results))(*operands)

    _ffi.call = call
    try:
        yield
    finally:
        _ffi.call = plain


class Steps:
    """Tables in some state, and the steps that go on from it."""

    def __init__(self, given: argparse.Namespace, tiered: bool):
        """Fills the tables with every id.

        Args:
          given: sizes.
          tiered: whether rows lie in host memory.
        """
        case = Case(given.tables, given.rows, 128, given.ids, 1, False)
        tier = None
        if tiered:
            tier = jde.tiers.host(hbm_fraction=given.share, spill_rows=given.ids)
        self._training = Training(case, "adam", tier)
        self._stream = Stream(case, "zipf")
        self._training.fill(self._stream)
        self._tiered, self._rounds, self._next = tiered, given.rounds, 0
        self._gradients = self._training.gradients

    def compiled(self, way: Way, dense: bool, x: jax.Array, layers: int) -> Any:
        """Compiles a step; returns a function that times it and says what it found."""
        coll = self._training.coll

        def matrices(x: jax.Array) -> jax.Array:
            y = x
            for _ in range(layers):
                y = (y @ x) * jnp.bfloat16(0.01)
            return y

        run_dense = on_stream(matrices, jax.memory.Space.Device)
        run_dense = run_dense if way.dense else matrices

        def step(state: Any, y: Any, batch: Any, following: Any, gradients: Any) -> Any:
            rows, residual, state = coll.lookup(state, batch)
            if self._tiered:
                state = coll.prefetch(state, following)
            if dense:  # which waits for the rows, as a model does
                y = run_dense(x + 0 * next(iter(rows.values()))[0, 0].astype(x.dtype))
                gradients = jax.tree.map(
                    lambda g: g + 0 * y[0, 0].astype(g.dtype), gradients
                )
            return coll.apply_gradients(state, residual, gradients), y

        options = way.options or jde.compiler_options()
        jitted = jax.jit(step, donate_argnums=(0, 1), compiler_options=options)
        batches = self._batches(2 + 3 * self._rounds)
        arguments = (self._training.state, jnp.copy(x), *batches[:2], self._gradients)
        with calls_on_stream(way.calls):
            program = jitted.lower(*arguments).compile()
        return program, batches, arguments[1]

    def milliseconds(self, way: Way, dense: bool, x: jax.Array, layers: int) -> Any:
        """Times a step: the best of three runs, and facts about its program."""
        program, batches, y = self.compiled(way, dense, x, layers)
        state, best = self._training.state, float("inf")
        pointers = _homes(state)
        for turn in range(3):
            first = 1 + turn * self._rounds
            jax.block_until_ready((state, y))
            begin = time.perf_counter()
            for n in range(first, first + self._rounds):
                state, y = program(
                    state, y, batches[n - 1], batches[n], self._gradients
                )
            jax.block_until_ready((state, y))
            best = min(best, (time.perf_counter() - begin) / self._rounds)
        self._training.state = state
        text = program.as_text()
        facts = {
            "in_place": pointers == _homes(state),
            "async": text.count("async-start"),
            "copies": text.count(" copy(") + text.count(" copy-start("),
        }
        return 1e3 * best, facts

    def _batches(self, count: int) -> list[Any]:
        first, self._next = self._next, self._next + count
        return self._training.batches(self._stream.batches(first, first + count))


def _homes(state: Any) -> list[int]:
    tiers = [getattr(table, "tier", None) for table in state.values()]
    return [t.homes.unsafe_buffer_pointer() for t in tiers if t is not None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every way and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--ids", type=int, default=524_288)
    parser.add_argument("--share", type=float, default=0.0625)
    parser.add_argument("--width", type=int, default=8192, help="of the matrices")
    parser.add_argument("--rounds", type=int, default=8, help="steps of a run")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    given = parser.parse_args(arguments)
    x = jax.random.normal(jax.random.key(0), (given.width, given.width), jnp.bfloat16)
    plain = Way()
    untiered = Steps(given, tiered=False)
    without, _ = untiered.milliseconds(plain, False, x, 1)
    one, _ = untiered.milliseconds(plain, True, x, 4)
    layer = max(1e-3, (one - without) / 4)
    del untiered
    tiered = Steps(given, tiered=True)
    tiered.milliseconds(plain, False, x, 1)  # frames fill
    alone, _ = tiered.milliseconds(plain, False, x, 1)
    bus = alone - without
    layers = max(1, round(bus / layer))
    dense = layers * layer
    found = {
        "device": jax.devices()[0].device_kind,
        "untiered_ms": without,
        "tiered_ms": alone,
        "bus_ms": bus,
        "dense_ms": dense,
    }
    print(json.dumps(found), flush=True)
    for name in given.ways:
        try:
            both, facts = tiered.milliseconds(WAYS[name], True, x, layers)
            hidden = (alone + dense - both) / bus
            line = {"way": name, "ms": both, "hidden": hidden, **facts}
        except Exception as error:  # noqa: BLE001 (what XLA refuses is a result)
            line = {"way": name, "refused": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
