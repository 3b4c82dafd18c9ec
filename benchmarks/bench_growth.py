# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how long steps take while a table grows.

    python benchmarks/bench_growth.py --rows 65536 --doublings 3
    python benchmarks/bench_growth.py --rows 1048576 --doublings 7 --curve growth.csv
    python benchmarks/bench_growth.py --curve growth.csv --picture growth.svg

A line for each growth: the median step before and after, the stall, and a plain copy of
the larger arrays. The stall is what the swap and the first step after it take beyond a
median step. The last column is the longest step since the growth before: the thread
that compiles the next size slows some down. ``--curve`` writes the time of each step,
one line each.
"""

import argparse
import functools
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde


class Step(NamedTuple):
    """Times of one step with its check, in milliseconds, and of a swap (0: none)."""

    slots: int
    step: float
    swap: float


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


def copy_time(state: Any) -> float:
    """Returns the milliseconds of a plain copy of all arrays."""
    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    jax.block_until_ready(copy(state))
    return timed(copy, state)[0]


def train(given: argparse.Namespace) -> tuple[list[Step], dict[int, float]]:
    """Trains until the table has its last size; steps, and copies by slots."""
    most = given.rows << given.doublings
    table = jde.TableConfig(
        "t", given.dim, given.rows, max_capacity=most, on_full="refuse"
    )
    coll = jde.Tables([table])
    grower = jde.lifecycle.Grower(
        make_step,
        coll,
        every=5,
        ahead=not given.no_ahead,
    )
    state, steps, copies, next_id = coll.init(0), [], {}, 0
    last = None  # steps of the last size go on for a while
    while last is None or len(steps) < last + 20:
        # Half of the ids are new.
        new = np.arange(next_id, next_id + given.batch)
        ids = {"t": jde.ids(np.append(new, new // 2))}
        next_id += given.batch
        slots = grower.coll.tables["t"].num_slots
        took, state = timed(grower.step, state, ids)
        before = grower.coll
        swap, state = timed(grower.maybe_grow, state)
        grown = grower.coll is not before
        took, swap = (took, swap) if grown else (took + swap, 0.0)
        steps.append(Step(slots, took, swap))
        if grown:
            slots = grower.coll.tables["t"].num_slots
            copies[slots] = copy_time(state)
            if slots >= most:
                last = len(steps)
    return steps, copies


def report(steps: list[Step], copies: dict[int, float]) -> None:
    """Prints a line for each growth."""
    medians = {
        slots: statistics.median(s.step for s in steps if s.slots == slots)
        for slots in {s.slots for s in steps}
    }
    print(
        "     slots  before ms  after ms  swap ms  stall ms  copy ms  stall / copy"
        "  worst step before"
    )
    worst, is_first = 0.0, True
    for step, first in zip(steps, steps[1:], strict=False):
        worst = worst if is_first else max(worst, step.step)
        is_first = False
        if step.swap == 0:
            continue
        after, copy = medians[first.slots], copies[first.slots]
        stall = step.swap + first.step - after
        print(
            f"{first.slots:10d} {medians[step.slots]:10.3f} {after:9.3f} "
            f"{step.swap:8.2f} {stall:9.2f} {copy:8.2f} {stall / copy:13.2f} "
            f"{worst:18.2f}"
        )
        worst, is_first = 0.0, True


def draw(curve: Path, path: Path) -> None:
    """Draws the steps of a file that ``--curve`` wrote: one dot each, and the swaps."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    slots, took, swaps = np.loadtxt(curve, delimiter=",", skiprows=1).T
    numbers = np.arange(took.size)
    figure, axes = plt.subplots(figsize=(8, 3.6))
    axes.semilogy(numbers, took, linewidth=0.8, label="step")
    grown = swaps > 0
    axes.semilogy(numbers[grown], swaps[grown], "^", color="C3", label="swap after it")
    for n in np.flatnonzero(grown):
        larger = int(slots[n + 1]) if n + 1 < slots.size else 2 * int(slots[n])
        text = f"{larger >> 20} M"
        axes.annotate(
            text,
            (n, swaps[n]),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set(xlabel="step", ylabel="milliseconds")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1 << 16, help="to begin with")
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--batch", type=int, help="new ids a step; rows / 256")
    parser.add_argument("--no-ahead", action="store_true", help="compile where called")
    parser.add_argument("--curve", type=Path, help="a CSV file with all steps")
    parser.add_argument("--picture", type=Path, help="of the curve, which may exist")
    given = parser.parse_args()
    if given.picture and given.curve and given.curve.exists():
        draw(given.curve, given.picture)
        return
    given.batch = given.batch or given.rows // 256
    print(f"{jax.devices()[0].device_kind}, dim {given.dim}, {2 * given.batch} ids")
    steps, copies = train(given)
    report(steps, copies)
    if given.curve:
        lines = [f"{s.slots},{s.step:.4f},{s.swap:.4f}" for s in steps]
        text = "\n".join(["slots,step_ms,swap_ms", *lines])
        given.curve.write_text(f"{text}\n", encoding="utf-8")
        if given.picture:
            draw(given.curve, given.picture)


if __name__ == "__main__":
    main()
