# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of one table with each optimizer, beside the bytes that it must move.

    python benchmarks/bench_optimizers.py

A step looks up ids that follow a power law, and applies gradients to their rows. The
bytes are those of the distinct rows: values and states read and written, gradients
read once for each id.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from suite import workloads

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
}


def draw(rows: int, count: int) -> np.ndarray:
    """Draws int64[count] by the power law of the suites."""
    return workloads.draw("zipf", count, rows, np.random.default_rng(0))


def step_ms(optimizer: Any, dim: int, rows: int, ids: np.ndarray) -> tuple[float, int]:
    """Times a step, and counts the numbers of a row and its states."""
    config = jde.TableConfig("t", dim, rows, optimizer=optimizer)
    coll = jde.Tables([config])

    def step(state: Any, ids: Any, d_rows: Any) -> tuple[Any, Any]:
        rows, residual, state = coll.lookup(state, ids)
        return rows, coll.apply_gradients(state, residual, {"t": d_rows})

    words, d_rows = {"t": jde.ids(ids)}, jnp.full((len(ids), dim), 1e-3)
    options = jde.compiler_options()
    run = jax.jit(step, donate_argnums=0, compiler_options=options)
    state = coll.init(0)
    numbers = dim
    for array in jax.tree.leaves(state["t"].optimizer):
        numbers += 1 if array.ndim == 1 else array.shape[-1]
    for _ in range(2):
        _, state = run(state, words, d_rows)
    times = []
    for _ in range(5):
        jax.block_until_ready(state)
        start = time.perf_counter()
        for _ in range(4):
            _, state = run(state, words, d_rows)
        jax.block_until_ready(state)
        times.append((time.perf_counter() - start) / 4)
    return min(times) * 1e3, numbers


def main() -> None:
    """Prints a line for each optimizer."""
    parser = argparse.ArgumentParser(description="Steps of each optimizer.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--ids", type=int, default=1_048_576)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ids = draw(options.rows, options.ids)
    distinct = len(np.unique(ids))
    print(f"{jax.devices()[0].device_kind}, {distinct} distinct rows of {len(ids)} ids")
    lines = []
    for name, optimizer in OPTIMIZERS.items():
        ms, numbers = step_ms(optimizer, options.dim, options.rows, ids)
        moved = 4 * (2 * numbers * distinct + 2 * options.dim * len(ids))
        line = {"optimizer": name, "ms": round(ms, 3), "megabytes": moved // 10**6}
        line["gigabytes_per_second"] = round(moved / ms / 1e6)
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
