# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what options of a table cost a training step.

    python benchmarks/bench_table_options.py [--rows 10000000] [--ids 1048576] [--dim 128]
    python benchmarks/bench_table_options.py --options admission --unseen 0.3
    python benchmarks/bench_table_options.py --options scores,removals

Ids follow the power law of the suites. Steps of the options take turns, so that a change
of clocks hits all of them; the last column is the median over the rounds of a step beside
one of the group's first line. Where all ids have rows, an admission rule may take 3 %
more than no rule, and a half-life 3 % more than LFU. With ``--unseen``, a share of ids
without rows is counted in each step and never admitted; without a rule it is found after
the first step.
"""

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from suite import workloads


def options(rows: int, unseen: float) -> dict[str, dict[str, Any]]:
    """Returns fields of ``TableConfig`` by group and name.

    Args:
      rows: of the table.
      unseen: the share of ids without a row; they occur less often than rules require.
    """
    threshold = 60_000 if unseen else 2
    sketch = jde.admission.Sketch(1 << 26)
    exact = jde.admission.Exact(rows)
    lfu = {"score_strategy": "lfu"}
    return {
        "admission": {
            "no rule": {},
            "Probability": {
                "admission": jde.admission.Probability(0.0 if unseen else 0.5)
            },
            "Frequency, Sketch": {
                "admission": jde.admission.Frequency(threshold, sketch)
            },
            "Frequency, Exact": {
                "admission": jde.admission.Frequency(threshold, exact)
            },
        },
        "scores": {"lfu": lfu, "lfu, half-life": lfu | {"lfu_halflife": 1000}},
        "removals": {
            "no log": {},
            "log_removed": {"log_removed": 1 << 20},
            "keep_for": {"keep_for": 1000},
        },
    }


def steps_of(fields: dict[str, Any], dim: int, rows: int, ids: np.ndarray) -> Any:
    """Returns a function that runs some steps and returns milliseconds a step."""
    slots = int(rows / 0.6)
    optimizer = jde.optim.sgd(0.01)
    coll = jde.Tables([jde.TableConfig("t", dim, slots, optimizer=optimizer, **fields)])
    low = jnp.asarray(ids, jnp.uint32)
    batch = jnp.stack([low, jnp.zeros_like(low)], axis=1)
    # Rows enter through insert, which no rule keeps out.
    state = coll.init(0)
    chunk = jnp.arange(min(rows, 1 << 18), dtype=jnp.uint32)
    zeros = jnp.zeros((chunk.size, dim))

    def insert(state: Any, first: Any, values: Any) -> Any:
        keys = jnp.stack([first + chunk, jnp.zeros_like(chunk)], axis=1)
        return coll.insert(state, {"t": keys}, {"t": values})

    insert = jax.jit(insert, donate_argnums=0)
    for first in range(0, rows, chunk.size):
        state = insert(state, jnp.uint32(first), zeros)

    def step(state: Any) -> Any:
        out, residual, state = coll.lookup(state, {"t": batch})
        return coll.apply_gradients(state, residual, out)

    step = jax.jit(step, donate_argnums=0, compiler_options=jde.compiler_options())
    holder = [step(step(state))]
    jax.block_until_ready(holder[0])

    def run(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            holder[0] = step(holder[0])
        jax.block_until_ready(holder[0])
        return 1e3 * (time.perf_counter() - begin) / count

    return run


def compare(
    fields: dict[str, dict[str, Any]], given: argparse.Namespace, ids: np.ndarray
) -> None:
    """Prints a line for each option of a group; the first one is the measure."""
    runs = {
        name: steps_of(each, given.dim, given.rows, ids)
        for name, each in fields.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            times[name].append(run(given.steps))
    base = times[next(iter(runs))]
    for name, each in times.items():
        over = statistics.median(a / b for a, b in zip(each, base, strict=True)) - 1
        took = statistics.median(each)
        print(f"{name:20} {took:8.3f} ms a step {100 * over:+6.1f} %")


def main() -> None:
    """Prints a line for each option."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ids", type=int, default=1 << 20)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--unseen", type=float, default=0.0, help="share of ids")
    parser.add_argument(
        "--options", default="admission,scores,removals", help="groups, with commas"
    )
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    ids = workloads.draw("zipf", given.ids, given.rows, rng)
    unseen = rng.random(given.ids) < given.unseen
    ids = np.where(unseen, given.rows + rng.integers(0, 1 << 30, given.ids), ids)
    kind = jax.devices()[0].device_kind
    print(
        f"{kind}: {given.ids} ids of {given.rows} rows, dim {given.dim}, "
        f"{given.unseen:.0%} of them without a row"
    )
    groups = options(given.rows, given.unseen)
    for group in given.options.split(","):
        compare(groups[group], given, ids)


if __name__ == "__main__":
    main()
