# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a table that is twenty times as large as the memory that it may use.

    python examples/train_larger_than_memory.py --steps 200

Clicks on items are drawn from a power law. The same model is trained three times: with
all rows in device memory, with a tier that keeps one row in twenty there, and with a
tier that keeps one row in twenty in device and host memory, and the others on disk. All
must reach the same AUC, since a tier changes where a row lies and nothing else. It
takes half a minute on a CPU, and prints what each run needed and what it moved. Keys
and scores of a table stay in device memory, so memory shrinks less than rows do.
"""

import argparse
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

DIM = 16
PER_EXAMPLE = 4


class Task(NamedTuple):
    """Describes the stream of clicks.

    Attributes:
      items: how many there are.
      batch: examples of a step.
      capacity: rows of the table.
    """

    items: int = 150_000
    batch: int = 512
    capacity: int = 262_144


class Done(NamedTuple):
    """Holds the result of a run.

    Attributes:
      auc: of examples that were not trained on.
      losses: of all steps.
      stats: of the table, and of what was moved below it.
      memory: its bytes, by kind of memory.
    """

    auc: float
    losses: np.ndarray
    stats: dict[str, int | float]
    memory: dict[str, int]


def tier(task: Task) -> jde.tiers.HostTier:
    """Makes a tier that leaves a twentieth of the rows in device memory."""
    spill = min(2048, task.capacity // 128)
    rows = task.capacity // 20 - spill
    return jde.tiers.host(hbm_rows=rows, spill_rows=spill)


def disk(task: Task, path: Path) -> jde.tiers.HostTier:
    """Makes a tier that leaves a twentieth of the rows in memory of any kind."""
    return jde.tiers.ssd(path, host_rows=task.capacity // 20, hbm_fraction=0.125)


def draw(task: Task, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws items and clicks of one step; every item has an appeal of its own."""
    rng = np.random.default_rng((11, step))
    shape = (task.batch, PER_EXAMPLE)
    items = (rng.zipf(1.3, shape) - 1) % task.items
    appeal = np.sin(items * 12.9898) * 1.5
    chance = 1 / (1 + np.exp(-appeal.sum(axis=1)))
    return items.astype(np.int64), (rng.random(task.batch) < chance).astype(np.float32)


def loss_of(rows: jax.Array, clicks: jax.Array) -> jax.Array:
    """The log loss of a model that adds up all columns of all rows."""
    logits = rows.sum(axis=(1, 2))
    return jnp.mean(jnp.logaddexp(0.0, logits) - clicks * logits)


def auc_of(scores: np.ndarray, clicks: np.ndarray) -> float:
    """The chance that a click has a higher score than an example without one."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    ones = clicks.sum()
    excess = ranks[clicks > 0].sum() - ones * (ones + 1) / 2
    return float(excess / (ones * (len(clicks) - ones)))


Example = tuple[dict[str, np.ndarray], np.ndarray, jax.Array]


def examples(task: Task, first: int, steps: int) -> Iterator[Example]:
    """Yields items, clicks, and the items of the step after."""
    for step in range(first, first + steps):
        items, clicks = draw(task, step)
        yield {"item": items}, clicks, jde.ids(draw(task, step + 1)[0])


def each(
    coll: jde.Tables,
    state: Any,
    stores: Mapping[str, jde.stores.Store],
    batches: Iterator[Example],
    step: Callable[..., tuple[Any, Any]],
) -> tuple[list[Any], Any, dict[str, int | float]]:
    """Runs a step for each batch; its rows are in the table in time.

    Returns:
      What the steps returned, the new state, and what was moved.
    """
    results: list[Any] = []
    if not stores:
        for ids, *rest in batches:
            result, state = step(state, jde.ids(ids["item"]), *rest)
            results.append(result)
        return results, state, {}
    with jde.tiers.prefetch_rows(coll, batches, stores=stores) as prefetcher:
        while True:
            try:
                (ids, *rest), state = prefetcher.next(state)
            except StopIteration:
                return results, prefetcher.drain(state), prefetcher.stats()
            result, state = step(state, ids["item"], *rest)
            results.append(result)


def run(task: Task, steps: int, where: jde.tiers.HostTier | None) -> Done:
    """Trains, and rates examples of later steps.

    Args:
      task: the stream.
      steps: of training.
      where: the tier of the table; None: all rows in device memory.
    """
    table = jde.TableConfig(
        "item", DIM, task.capacity, optimizer=jde.optim.adam(0.02), tier=where
    )
    coll = jde.Tables([table])

    @functools.partial(jax.jit, donate_argnums=0)
    def train(
        state: Any, items: jax.Array, clicks: jax.Array, coming: jax.Array
    ) -> tuple[jax.Array, Any]:
        def dense(rows: Any) -> tuple[Any, jax.Array]:
            loss, d_rows = jax.value_and_grad(loss_of)(rows["item"], clicks)
            return {"item": d_rows}, loss

        rows, residual, state = coll.lookup(state, {"item": items})
        d_rows, loss, state = coll.prefetch_during(state, {"item": coming}, dense, rows)
        return loss, coll.apply_gradients(state, residual, d_rows)

    @functools.partial(jax.jit, donate_argnums=0)
    def rate(state: Any, items: jax.Array, *_: jax.Array) -> tuple[jax.Array, Any]:
        rows, _, state = coll.lookup(state, {"item": items}, touch=False, insert=False)
        return rows["item"].sum(axis=(1, 2)), state

    with jde.tiers.open_stores(coll) as stores:
        training = examples(task, 0, steps)
        losses, state, moved = each(coll, coll.init(0), stores, training, train)
        later = list(examples(task, 1_000_000, 8))
        scores, state, _ = each(coll, state, stores, iter(later), rate)
        below = sum(len(store.keys()) for store in stores.values())
    auc = auc_of(np.concatenate(scores), np.concatenate([c for _, c, _ in later]))
    stats = coll.stats(state) | moved | {"item/rows_below": below}
    return Done(auc, np.array(losses), stats, coll.memory()["item"])


# What the summary has of `stats`, and how it says so.
COUNTS = {
    "rows": "rows in the table",
    "rows_below": "rows on disk",
    "promoted": "rows brought to device memory by lookups",
    "prefetched": "rows brought there by prefetch",
    "written_back": "rows written to host memory",
    "departed": "rows that went to disk",
    "returned": "rows that came back",
    "refused": "ids without room",
}


def report(plain: Done, tiered: Done, on_disk: Done) -> None:
    """Prints a column for each run: its result, its memory, and where rows were."""
    runs = (plain, tiered, on_disk)

    def line(name: str, *values: str) -> None:
        print(f"{name:<42}" + "".join(f"{value:>14}" for value in values))

    line("", "no tier", "host memory", "and a disk")
    line("AUC", *(f"{done.auc:.6f}" for done in runs))
    for kind, name in (("hbm", "device"), ("pinned_host", "host")):
        sizes = (f"{done.memory[kind] / 1e6:.1f}" for done in runs)
        line(f"MB in {name} memory", *sizes)
    rates = (f"{done.stats['item/hbm_hit_rate']:.1%}" for done in runs[1:])
    line("ids whose row was in device memory", "100.0%", *rates)
    for name, meaning in COUNTS.items():
        line(meaning, *(f"{done.stats.get(f'item/{name}', 0):,}" for done in runs))
    waited = (f"{done.stats.get('seconds_waited', 0):.2f}" for done in runs)
    line("seconds that steps waited for the disk", *waited)


def main() -> None:
    """Runs all, and compares them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps, task = parser.parse_args().steps, Task()
    with tempfile.TemporaryDirectory() as folder:
        tiers = (None, tier(task), disk(task, Path(folder)))
        runs = [run(task, steps, where) for where in tiers]
    report(*runs)
    if len({done.auc for done in runs}) > 1:
        raise SystemExit("The runs differ, which a tier must not cause.")


if __name__ == "__main__":
    main()
