# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups and SGD steps of tensor-train tables, beside other programs.

    python benchmarks/bench_tt.py                                  # on a GPU
    python benchmarks/bench_tt.py --batch 4096 --cases 0 --beside  # on a CPU

Beside each case stands what FBTT-Embedding b95947c, EL-Rec 571f540 and plain JAX (with
distinct ids and distinct prefixes) took on one H200, batch 65,536 (2026-11-23).
``--beside`` also runs ``tt_peers.py`` here: one product an id in plain JAX, and FBTT's
arithmetic in PyTorch. ``--xla`` also runs our table with ``tt_xla_pairs.py`` in place
of its kernels.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
import tt_peers
import tt_xla_pairs
from suite import workloads

P_SHAPES = (200, 220, 250)
NUM_ROWS = 10_000_000
RATE = 0.01
CALLS_ON_GPU = 20  # between two waits


@dataclasses.dataclass(frozen=True)
class Case:
    """One table and batch, and what others took for (forward, step), in milliseconds.

    Attributes:
      dim: columns.
      rank: between all cores.
      bag: ids of a bag.
      ids: "zipf" or "uniform".
      batch: bags; None: of the command line.
      fbtt: FBTT-Embedding, fused SGD; None where nothing was measured.
      el_rec: EL-Rec.
      jax: plain JAX.
    """

    dim: int
    rank: int
    bag: int
    ids: str
    fbtt: tuple[float | None, float | None]
    el_rec: tuple[float | None, float | None]
    jax: tuple[float | None, float | None] = (None, None)
    batch: int | None = None

    @property
    def q_shapes(self) -> tuple[int, int, int]:
        """Factors of the columns, as FBTT's benchmark has them."""
        return (4, 4, self.dim // 16)


CASES = (
    Case(64, 32, 20, "zipf", (46.8, 154), (11.4, 46.4), (1.15, 3.4)),
    Case(64, 32, 20, "uniform", (44.1, 158), (14.3, 77.9), (3.3, 8.5)),
    Case(64, 32, 1, "zipf", (1.96, 7.4), (0.58, 2.3)),
    Case(64, 32, 1, "uniform", (2.0, 7.2), (0.76, 3.9)),
    Case(64, 64, 20, "zipf", (None, 319), (None, 121)),
    Case(64, 64, 20, "uniform", (None, 318), (None, 240)),
    Case(128, 32, 20, "zipf", (None, 151), (None, 50)),
    Case(128, 32, 20, "uniform", (None, 162), (None, 78)),
    Case(128, 64, 20, "zipf", (None, 315), (None, 121)),
    Case(128, 64, 20, "uniform", (None, 314), (None, 233)),
    Case(64, 32, 20, "zipf", (0.54, 1.95), (1.9, 5.4), batch=512),
)


def draw(case: Case, batch: int, seed: int = 0) -> np.ndarray:
    """Draws int64[batch, bag]: uniform, or by the power law of the suites."""
    rng = np.random.default_rng(seed)
    ids = workloads.draw(case.ids, batch * case.bag, NUM_ROWS, rng)
    return ids.reshape(batch, case.bag)


def milliseconds(
    runs: dict[str, Callable[[], Any]], seconds: float, calls: int = 1
) -> dict[str, tuple[float, float]]:
    """Medians of a call of each, by turns: (elapsed, processor) milliseconds.

    Turns share the load that other programs put on the machine. Where it is high, only
    the time of the processor says what a program takes; it counts all threads.

    Args:
      runs: the programs.
      seconds: of each.
      calls: of a turn. A call starts before the one ahead of it has ended, as steps of
        training do, so a GPU does not wait for the host.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())
    end, turns = time.perf_counter() + seconds * len(runs), 0
    while turns < 3 or (time.perf_counter() < end and turns < 200):
        for name, run in runs.items():
            elapsed, processor = time.perf_counter(), time.process_time()
            for _ in range(calls - 1):
                run()
            jax.block_until_ready(run())
            now = time.perf_counter(), time.process_time()
            pair = now[0] - elapsed, now[1] - processor
            times[name].append((pair[0] / calls, pair[1] / calls))
        turns += 1
    medians = {name: np.median(pairs, axis=0) * 1e3 for name, pairs in times.items()}
    return {name: (float(pair[0]), float(pair[1])) for name, pair in medians.items()}


def config_of(case: Case, compute_dtype: str) -> jde.TTConfig:
    """The table of a case, with FBTT's shapes."""
    return jde.TTConfig(
        "item",
        case.dim,
        NUM_ROWS,
        (case.rank, case.rank),
        rows_shape=P_SHAPES,
        dim_shape=case.q_shapes,
        optimizer=jde.optim.sgd(RATE),
        pooling="sum",
        compute_dtype=compute_dtype,  # pyright: ignore[reportArgumentType]
    )


@dataclasses.dataclass(frozen=True)
class Program:
    """What is timed: a forward pass, an SGD step, and the bytes that the step holds."""

    forward: Callable[[], Any]
    step: Callable[[], Any]
    transient_bytes: int | None = None


def ours(config: jde.TTConfig, ids: np.ndarray) -> Program:
    """Compiles the programs of our table, with the kernels of this moment."""
    words, d_rows = jde.ids(ids), jnp.ones((len(ids), config.dim), jnp.float32)

    def update(state: Any, ids: Any, d_rows: Any) -> Any:
        rows, residual, state = jde.tt.lookup(config, state, ids)
        return rows, jde.tt.apply_gradients(config, state, residual, d_rows)

    def find(cores: Any, ids: Any) -> Any:
        return jde.tt.find(config, cores, ids)

    state, cores = jde.tt.init(config), jde.tt.init(config).cores
    forward = jax.jit(find).lower(cores, words).compile()
    compiled = jax.jit(update, donate_argnums=0).lower(state, words, d_rows).compile()

    def step() -> Any:
        nonlocal state
        rows, state = compiled(state, words, d_rows)
        return rows

    memory = compiled.memory_analysis()
    transient = getattr(memory, "temp_size_in_bytes", None)
    return Program(lambda: forward(cores, words), step, transient)


def programs(config: jde.TTConfig, ids: np.ndarray, options: Any) -> dict[str, Program]:
    """Our table, and what the options put beside it, on the same ids and cores."""
    found = {"own": ours(config, ids)}
    if options.xla:
        with tt_xla_pairs.in_place_of_kernels():
            found["own_xla"] = ours(config, ids)
    cores = jde.tt.init(config).cores
    for name, make in tt_peers.PEERS.items() if options.beside else ():
        try:
            found[name] = Program(*make(cores, ids, RATE))
        except ImportError as error:
            print(f"  {name}: left out, {error}", flush=True)
    return found


def measure(case: Case, batch: int, dtype: str, options: Any) -> dict[str, Any]:
    """Times forward and step of one case, and counts bytes."""
    config, ids = config_of(case, dtype), draw(case, batch)
    every = programs(config, ids, options)
    record: dict[str, Any] = {
        "case": dataclasses.asdict(case) | {"batch": batch},
        "compute_dtype": dtype,
        "distinct_ids": len(np.unique(ids)),
        "core_bytes": 4 * config.num_parameters,
        "optimizer_bytes": _bytes(jde.tt.init(config).optimizer),
        "dense_bytes": 4 * NUM_ROWS * case.dim,
        "transient_bytes": every["own"].transient_bytes,
    }
    for kind in ("forward", "step"):
        runs = {name: getattr(program, kind) for name, program in every.items()}
        calls = CALLS_ON_GPU if jax.default_backend() == "gpu" else 1
        for name, pair in milliseconds(runs, options.seconds, calls).items():
            prefix = "" if name == "own" else f"{name}_"
            record[f"{prefix}{kind}_ms"], record[f"{prefix}{kind}_cpu_ms"] = pair
    return record


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def show(record: dict[str, Any]) -> None:
    """Prints one case: ours, the others' published figures, bytes."""
    case = record["case"]
    print(
        f"D {case['dim']}, R {case['rank']}, {case['batch']} bags of {case['bag']}, "
        f"{case['ids']}, {record['compute_dtype']}: forward "
        f"{record['forward_ms']:.2f} ms, step {record['step_ms']:.2f} ms"
    )
    for peer in ("fbtt", "el_rec", "jax"):
        forward, step = (math.nan if x is None else x for x in case[peer])
        print(f"  {peer + ' on an H200':20} {forward:8.2f} {step:8.2f}")
    for name in [key for key in record if key.endswith("_step_ms")]:
        peer = name.removesuffix("_step_ms")
        forward, step = record[f"{peer}_forward_ms"], record[name]
        times = step / record["step_ms"]
        print(f"  {peer + ' here':20} {forward:8.2f} {step:8.2f}, {times:.1f} times")
    print(
        "  processor: "
        + ", ".join(
            f"{key.removesuffix('_cpu_ms')} {record[key]:.1f} ms"
            for key in record
            if key.endswith("_cpu_ms")
        )
    )
    transient = record["transient_bytes"]
    print(
        f"  {record['distinct_ids']} distinct ids; cores {record['core_bytes']} bytes, "
        f"{record['dense_bytes'] // record['core_bytes']} times fewer than dense; "
        f"optimizer {record['optimizer_bytes']} bytes; "
        f"transient {transient} bytes",
        flush=True,
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Steps of tensor-train tables.")
    parser.add_argument("--batch", type=int, default=65_536, help="bags of a batch")
    parser.add_argument("--cases", help="numbers of cases, e.g. 0,3; all if left out")
    parser.add_argument("--dtype", default="tensorfloat32,bfloat16")
    parser.add_argument("--beside", action="store_true", help="run peers here too")
    parser.add_argument("--xla", action="store_true", help="run without our kernels")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each program")
    parser.add_argument("--json", type=Path, help="write the figures")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"{device.device_kind}, jax {jax.__version__}")
    numbers = range(len(CASES)) if options.cases is None else options.cases.split(",")
    records = []
    for case in (CASES[int(number)] for number in numbers):
        batch = min(case.batch or options.batch, options.batch)
        for compute_dtype in options.dtype.split(","):
            record = measure(case, batch, compute_dtype, options)
            show(record)
            records.append(record)
    if options.json:
        document = {"device": device.device_kind, "jax": jax.__version__}
        text = json.dumps(document | {"steps": records}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
