# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures removal by rule beside a plain read of the bytes that it must look at.

    python benchmarks/bench_rules.py [--slots 100000000] [--dim 8] [--load 0.6]

A slot has 17 bytes of index: digest, key and score. XLA's sum over the index is the
measure of a read. Rules that remove nothing are timed on one state; a rule that removes
rows once, on a table that is filled for it. A call takes the host about 0.4 ms. So on a
GPU the last lines give the kernels alone, from a trace.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule
from suite import busy

BATCH = 1 << 20


def filled(coll: jde.Tables, rows: int) -> Any:
    """Inserts consecutive ids, a batch a lookup."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, first):
        low = first + jnp.arange(BATCH, dtype=jnp.uint32)
        ids = jnp.stack([low, jnp.zeros_like(low)], axis=1)
        return coll.lookup(state, {"t": ids})[2]

    state = coll.init(0)
    for first in range(0, rows, BATCH):
        state = step(state, jnp.uint32(first))
    return jax.block_until_ready(state)


def milliseconds(function: Callable[[], Any], runs: int = 20) -> float:
    """Returns the median time of a call, after two that compile and warm up."""
    times = []
    for run in range(runs + 2):
        begin = time.perf_counter()
        jax.block_until_ready(function())
        if run >= 2:
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def print_kernels(calls: dict[str, Callable[[], Any]], runs: int = 10) -> None:
    """Prints the milliseconds of each call's kernels, and how often it reads."""
    floor = 0.0
    for name, call in calls.items():
        traced = busy.trace(
            lambda call=call: [jax.block_until_ready(call()) for _ in range(runs)], runs
        )
        if traced is None:
            return
        floor = floor or traced.ms
        parts = {kernel: round(us) for kernel, us in traced.by_name.items() if us > 20}
        print(
            f"kernels of {name}: {traced.ms:.3f} ms, {traced.ms / floor:.2f} x, {parts}"
        )


def main() -> None:
    """Prints a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=100_000_000)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--load", type=float, default=0.6)
    given = parser.parse_args()
    table = jde.TableConfig("t", given.dim, given.slots, param_dtype="bfloat16")
    coll = jde.Tables([table])
    state = filled(coll, int(given.slots * given.load))
    stats = coll.stats(state)
    slots, rows, clock = (stats[f"t/{n}"] for n in ("capacity", "rows", "lookups"))
    print(
        f"{jax.devices()[0].device_kind}: {slots} slots, {rows} rows, {clock} lookups"
    )

    read = jax.jit(lambda index: jnp.sum(index, dtype=jnp.uint32))
    floor = milliseconds(lambda: read(state["t"].index))
    print(f"read of 17 bytes a slot: {floor:.3f} ms")

    erase = jax.jit(coll.erase_where, donate_argnums=0)
    holder = [state]

    def run(rule: Rule) -> Any:
        removed, holder[0] = erase(holder[0], {"t": rule})
        return removed, holder[0]

    rules = {
        "unused_for, nothing leaves": Rule(unused_for=2**40),
        "norm_below, nothing leaves": Rule(norm_below=0.0),
        "keep_at_most, nothing leaves": Rule(keep_at_most=2**31),
    }
    for name, rule in rules.items():
        took = milliseconds(functools.partial(run, rule))
        print(f"{name}: {took:.3f} ms, {took / floor:.2f} x the read")

    # The state must not be a result: jit would copy what it does not donate.
    count = jax.jit(lambda state, r: coll.erase_where(state, r, dry_run=True)[0])
    half = Rule(keep_at_most=int(rows) // 2)
    took = milliseconds(lambda: count(holder[0], {"t": half}))
    print(f"keep_at_most half, counted: {took:.3f} ms, {took / floor:.2f} x the read")

    print_kernels(
        {"a read": lambda: read(holder[0]["t"].index)}
        | {name: functools.partial(run, rule) for name, rule in rules.items()}
    )
    begin = time.perf_counter()
    removed, _ = jax.block_until_ready(run(Rule(unused_for=int(clock) * 9 // 10)))
    took = 1e3 * (time.perf_counter() - begin)
    rows -= int(removed["t"])
    print(f"unused_for, {int(removed['t'])} rows leave: {took:.3f} ms")
    times = []
    for part in range(1, 8):  # so much of a lookup's rows that hashes decide
        begin = time.perf_counter()
        most = rows - part * int(rows) // 20 - 12_345
        jax.block_until_ready(run(Rule(keep_at_most=most)))
        times.append(1e3 * (time.perf_counter() - begin))
    took = statistics.median(times)
    print(
        f"keep_at_most, {int(rows) // 20} rows leave: {took:.3f} ms, "
        f"{took / floor:.2f} x the read"
    )


if __name__ == "__main__":
    main()
