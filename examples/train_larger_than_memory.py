# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a table that is twenty times as large as the device memory it may use.

    python examples/train_larger_than_memory.py --steps 200

Clicks on items are drawn from a power law. The same model is trained twice: with all
rows in device memory, and with a tier that keeps one row in twenty there. Both must
reach the same AUC, since a tier changes where a row lies and nothing else. The summary
says where rows were when they were looked up.
"""

import argparse
import functools
from typing import NamedTuple

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
      stats: of the table.
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
    def train(state, items, clicks, coming):
        rows, residual, state = coll.lookup(state, {"item": items})
        state = coll.prefetch(state, {"item": coming})
        loss, d_rows = jax.value_and_grad(loss_of)(rows["item"], clicks)
        return loss, coll.apply_gradients(state, residual, {"item": d_rows})

    @jax.jit
    def rate(state, items):
        rows, _, _ = coll.find(state, {"item": items})
        return rows["item"].sum(axis=(1, 2))

    state, losses = coll.init(0), []
    for step in range(steps):
        items, clicks = draw(task, step)
        coming = jde.ids(draw(task, step + 1)[0])
        loss, state = train(state, jde.ids(items), clicks, coming)
        losses.append(loss)
    later = [draw(task, 1_000_000 + step) for step in range(8)]
    scores = [rate(state, jde.ids(items)) for items, _ in later]
    auc = auc_of(np.concatenate(scores), np.concatenate([c for _, c in later]))
    return Done(auc, np.array(losses), coll.stats(state), coll.memory()["item"])


def report(plain: Done, tiered: Done) -> None:
    """Prints both runs, and where the rows of the second one were."""
    for name, done in (("all in device memory", plain), ("with a tier", tiered)):
        sizes = ", ".join(f"{n / 1e6:.1f} MB {kind}" for kind, n in done.memory.items())
        print(f"{name:<22} AUC {done.auc:.6f}   {sizes}")
    print("of the tiered table:")
    names = ("rows", "hbm_hit_rate", "promoted", "prefetched", "written_back")
    for name in (*names, "bypassed", "updated_home"):
        print(f"  {name:<14} {tiered.stats[f'item/{name}']:,.4g}")


def main() -> None:
    """Runs both, and compares them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps, task = parser.parse_args().steps, Task()
    plain, tiered = run(task, steps, None), run(task, steps, tier(task))
    report(plain, tiered)
    if plain.auc != tiered.auc:
        raise SystemExit("The runs differ, which a tier must not cause.")


if __name__ == "__main__":
    main()
