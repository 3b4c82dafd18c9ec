# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of one table with each optimizer, beside the bytes that it must move.

    python benchmarks/bench_optimizers.py
    python benchmarks/bench_optimizers.py --param-dtype bfloat16 --rounding stochastic
    python benchmarks/bench_optimizers.py --rows 400000 --ids 131072  # a CPU
    python benchmarks/bench_optimizers.py --rows 400000 --ids 131072 --clock cpu

A step looks up ids that follow a power law, and applies gradients to their rows. The
bytes are those of the distinct rows: values and states read and written, and one row
and one gradient for each id. "times adam" is the time of a byte beside Adam's. The
processor time of all threads, ``--clock cpu``, is steadier where other programs run.

First comes a lookup alone, which all steps have. "beyond lookup" is the time of a step
without it. On a CPU glibc returns arrays of 32 MiB and more to the operating system, so
that each step pays for new pages, unless MALLOC_MMAP_THRESHOLD_ and
MALLOC_TRIM_THRESHOLD_ are above.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from suite import workloads

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
OPTIMIZERS: dict[str, Any] = {
    "sgd": jde.optim.sgd(0.01),
    "adagrad": jde.optim.adagrad(0.01),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.01),
    "adam": jde.optim.adam(0.01),
    "momentum": jde.optim.momentum(0.01),
    "ftrl": jde.optim.ftrl(0.01),
    "lion": jde.optim.lion(0.01),
    "rmsprop": jde.optim.rmsprop(0.01),
    "rowwise_rmsprop": jde.optim.rowwise_rmsprop(0.01),
    "partial_rowwise_adam": jde.optim.partial_rowwise_adam(0.01),
    "lamb": jde.optim.lamb(0.01),
    "partial_rowwise_lamb": jde.optim.partial_rowwise_lamb(0.01),
    "lars": jde.optim.lars(0.01),
    "adam, correction by row": jde.optim.adam(0.01, bias_correction="row"),
    "adam, catch_up=decay": jde.optim.adam(0.01, catch_up="decay"),
    "adam, catch_up=smart": jde.optim.adam(
        0.01, bias_correction="none", catch_up="smart"
    ),
    "momentum, catch_up=smart": jde.optim.momentum(0.01, catch_up="smart"),
    "rowwise_adagrad, decay": jde.optim.rowwise_adagrad(0.01, weight_decay=0.01),
    "rowwise_adagrad, cow_clip": jde.optim.rowwise_adagrad(
        0.01, cow_clip=jde.optim.CowClip(1.0, 1e-3)
    ),
    "rowwise_rmsprop, ar_alpha": jde.optim.rowwise_rmsprop(0.01, ar_alpha=0.1),
}


def draw(rows: int, count: int) -> np.ndarray:
    """Draws int64[count] by the power law of the suites."""
    return workloads.draw("zipf", count, rows, np.random.default_rng(0))


def look_up(coll: jde.Tables, state: Any, ids: Any, d_rows: Any) -> tuple[Any, Any]:
    """Does a lookup alone."""
    rows, _, state = coll.lookup(state, ids)
    return (rows, d_rows[0, 0]), state


def train(coll: jde.Tables, state: Any, ids: Any, d_rows: Any) -> tuple[Any, Any]:
    """Looks up, and updates."""
    rows, residual, state = coll.lookup(state, ids)
    return rows, coll.apply_gradients(state, residual, {"t": d_rows})


def step_ms(
    config: jde.TableConfig,
    ids: np.ndarray,
    now: Callable[[], float],
    repeats: int,
    step: Callable[..., tuple[Any, Any]] = train,
) -> tuple[float, int]:
    """Times a step, and counts the bytes of a row and its states."""
    coll, dim = jde.Tables([config]), config.dim
    words, d_rows = {"t": jde.ids(ids)}, jnp.full((len(ids), dim), 1e-3, config.dtype)
    options = jde.compiler_options()
    run = jax.jit(
        functools.partial(step, coll), donate_argnums=0, compiler_options=options
    )
    state = coll.init(0)
    arrays = [state["t"].values, *jax.tree.leaves(state["t"].optimizer)]
    row_bytes = sum(x.dtype.itemsize * x[0].size for x in arrays)
    for _ in range(2):
        _, state = run(state, words, d_rows)
    times = []
    for _ in range(repeats):
        jax.block_until_ready(state)
        start = now()
        for _ in range(4):
            _, state = run(state, words, d_rows)
        jax.block_until_ready(state)
        times.append((now() - start) / 4)
    return min(times) * 1e3, row_bytes


def main() -> None:
    """Prints a line for each optimizer."""
    parser = argparse.ArgumentParser(description="Steps of each optimizer.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--ids", type=int, default=1_048_576)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--param-dtype", default="float32")
    parser.add_argument("--dtype", default="float32", help="of rows and gradients")
    parser.add_argument("--rounding", default="nearest")
    parser.add_argument("--only", nargs="*", choices=OPTIMIZERS, help="adam is added")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = ["adam", *(n for n in options.only or OPTIMIZERS if n != "adam")]
    ids = draw(options.rows, options.ids)
    distinct = len(np.unique(ids))
    print(f"{jax.devices()[0].device_kind}, {distinct} distinct rows of {len(ids)} ids")
    lines = []
    adam = 0.0

    def timed(optimizer: Any, step: Callable[..., tuple[Any, Any]]) -> Any:
        config = jde.TableConfig(
            "t",
            options.dim,
            options.rows,
            optimizer=optimizer,
            param_dtype=options.param_dtype,
            dtype=options.dtype,
            rounding=options.rounding,
        )
        return step_ms(config, ids, CLOCKS[options.clock], options.repeats, step)

    lookup_ms, _ = timed(jde.optim.none(), look_up)
    lines.append({"optimizer": None, "ms": round(lookup_ms, 3)})
    print(json.dumps(lines[-1]), flush=True)
    for name in chosen:
        ms, row_bytes = timed(OPTIMIZERS[name], train)
        item = jnp.dtype(options.dtype).itemsize
        moved = 2 * row_bytes * distinct + 2 * item * options.dim * len(ids)
        adam = adam or ms / moved
        line = {"optimizer": name, "ms": round(ms, 3), "megabytes": moved // 10**6}
        line["gigabytes_per_second"] = round(moved / ms / 1e6)
        line["times_adam"] = round(ms / moved / adam, 2)
        line["beyond_lookup_ms"] = round(ms - lookup_ms, 3)
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
