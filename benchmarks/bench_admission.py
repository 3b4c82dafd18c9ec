# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what an admission rule costs a training step.

    python benchmarks/bench_admission.py [--rows 10000000] [--ids 1048576] [--dim 128]
    python benchmarks/bench_admission.py --unseen 0.3

Ids follow the power law of the suites. Steps of the rules take turns, so that a change
of clocks hits all of them. Where all ids have rows, the target is at most 3 % over the
step without a rule. A share of ids without rows is counted in each step and never
admitted; without a rule it is found after the first step.
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


def rules(rows: int, unseen: float) -> dict[str, Any]:
    """Returns the rules; unseen ids occur less often than they require."""
    threshold = 60_000 if unseen else 2
    sketch = jde.admission.Sketch(1 << 26)
    exact = jde.admission.Exact(rows)
    return {
        "no rule": None,
        "Probability": jde.admission.Probability(0.0 if unseen else 0.5),
        "Frequency, Sketch": jde.admission.Frequency(threshold, sketch),
        "Frequency, Exact": jde.admission.Frequency(threshold, exact),
    }


def steps_of(rule: Any, dim: int, rows: int, ids: np.ndarray) -> Any:
    """Returns a function that runs some steps and returns milliseconds a step."""
    slots = int(rows / 0.6)
    optimizer = jde.optim.sgd(0.01)
    coll = jde.Tables(
        [jde.TableConfig("t", dim, slots, optimizer=optimizer, admission=rule)]
    )
    low = jnp.asarray(ids, jnp.uint32)
    batch = jnp.stack([low, jnp.zeros_like(low)], axis=1)
    # Rows enter through insert, which no rule keeps out.
    state = coll.init(0)
    chunk = jnp.arange(min(rows, 1 << 18), dtype=jnp.uint32)
    empty = jnp.zeros((chunk.size, dim))

    def insert(state: Any, first: Any) -> Any:
        keys = jnp.stack([first + chunk, jnp.zeros_like(chunk)], axis=1)
        return coll.insert(state, {"t": keys}, {"t": empty})

    insert = jax.jit(insert, donate_argnums=0)
    for first in range(0, rows, chunk.size):
        state = insert(state, jnp.uint32(first))

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


def main() -> None:
    """Prints a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ids", type=int, default=1 << 20)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--unseen", type=float, default=0.0, help="share of ids")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    ids = workloads.draw("zipf", given.ids, given.rows, rng)
    unseen = rng.random(given.ids) < given.unseen
    ids = np.where(unseen, given.rows + rng.integers(0, 1 << 30, given.ids), ids)
    runs = {
        name: steps_of(rule, given.dim, given.rows, ids)
        for name, rule in rules(given.rows, given.unseen).items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            times[name].append(run(given.steps))
    kind = jax.devices()[0].device_kind
    print(
        f"{kind}: {given.ids} ids of {given.rows} rows, dim {given.dim}, "
        f"{given.unseen:.0%} of them without a row"
    )
    base = statistics.median(times["no rule"])
    for name, each in times.items():
        took = statistics.median(each)
        print(f"{name:20} {took:8.3f} ms a step {100 * (took / base - 1):+6.1f} %")


if __name__ == "__main__":
    main()
