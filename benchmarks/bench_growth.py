# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long steps take while a table grows.

    python benchmarks/bench_growth.py [--rows 65536] [--doublings 3] [--ahead 0]

Prints the median step of each size, the swap, and the first step after it. A plain copy
of the larger arrays is the measure of a swap.
"""

import argparse
import functools
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde


def make_step(coll: jde.Tables) -> Any:
    """Jits a step that looks up and updates."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    return step


def timed(function: Any, *args: Any) -> tuple[float, Any]:
    """Returns milliseconds and the result, once the device has it."""
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    return 1e3 * (time.perf_counter() - begin), result


def main() -> None:
    """Trains until the table has doubled often enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 16)
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--ahead", type=int, default=1)
    given = parser.parse_args()
    most = given.rows << given.doublings
    table = jde.TableConfig("t", 32, given.rows, max_capacity=most, on_full="refuse")
    coll = jde.Tables([table])
    grower = jde.lifecycle.Grower(make_step, coll, every=5, ahead=bool(given.ahead))
    state, steps, swap, next_id = coll.init(0), [], 0.0, 0
    batch = given.rows // 256
    while next_id < most:
        # Half of the ids are new.
        new = np.arange(next_id, next_id + batch)
        ids = {"t": jde.ids(np.append(new, new // 2))}
        next_id += batch
        took, state = timed(grower.step, state, ids)
        if swap:
            copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
            jax.block_until_ready(copy(state))
            plain, _ = timed(copy, state)
            slots = grower.coll.tables["t"].num_slots
            print(f"{slots} slots: swap {swap:.1f} ms, first step {took:.1f} ms,")
            print(f"  steps before {statistics.median(steps):.2f} ms, copy {plain:.1f}")
            steps, swap = [], 0.0
        steps.append(took)
        before = grower.coll
        took, state = timed(grower.maybe_grow, state)
        swap = took if grower.coll is not before else 0.0
    print(f"{grower.coll.stats(state)['t/refused']} ids refused")


if __name__ == "__main__":
    main()
