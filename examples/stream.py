# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A day's stream in fixed memory: the table grows, admits, evicts and expires rows.

    python examples/stream.py                 # a line for each hour

Items are born all day, and most clicks go to the youngest: popularity drifts. 30 % of
the ids occur once and never again, so no hit rate is above 0.7. Each item has a hidden
chance of a click, which its row has to learn.

AUC and hit rate are of the hour. Rows and slots are those at its end, and the other
numbers count from the start. At the end, the rows and those that left must add up to
the rows that were inserted.
"""

import argparse
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from jax_dynemb.lifecycle import Grower, Rule

HOURS = 24
HALFLIFE = 80  # lookups: two hours
Strategy = Literal["step", "lfu"]


@dataclasses.dataclass(frozen=True)
class Stream:
    """Draws clicks.

    Attributes:
      batch: examples of a step.
      steps: of an hour.
      born: items of an hour.
      noise: the share of ids that occur once.
    """

    batch: int = 512
    steps: int = 40
    born: int = 800
    noise: float = 0.3

    def hour(self, hour: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields ids, int64[batch], and clicks, float32[batch]."""
        rng = np.random.default_rng(hour)
        for step in range(self.steps):
            newest = 20_000 + int((hour + step / self.steps) * self.born)
            age = np.floor(rng.pareto(0.6, self.batch) * 30).astype(np.int64)
            items = np.maximum(newest - age, 0)
            once = rng.integers(1 << 40, 1 << 62, self.batch)
            ids = np.where(rng.random(self.batch) < self.noise, once, items)
            clicks = rng.random(self.batch) < 1 / (1 + np.exp(-hidden_logits(ids)))
            yield ids, clicks.astype(np.float32)


def hidden_logits(ids: np.ndarray) -> np.ndarray:
    """Returns what the rows have to learn, float64[n]: from -3 to 3, by id."""
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return mixed.astype(np.float64) / (1 << 24) * 6 - 3


def make_step(coll: jde.Tables) -> Any:
    """Returns a jitted step: (state, ids, clicks) to (state, logits)."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, ids: jax.Array, clicks: jax.Array) -> Any:
        rows, residual, state = coll.lookup(state, {"item": ids})
        logits = rows["item"][:, 0]
        d_logits = jax.nn.sigmoid(logits) - clicks
        d_rows = jnp.zeros_like(rows["item"]).at[:, 0].set(d_logits)
        return coll.apply_gradients(state, residual, {"item": d_rows}), logits

    return step


def table(strategy: Strategy, admits: bool, slots: int, start: int) -> jde.TableConfig:
    """Returns a table that starts small and has at most ``slots``."""
    return jde.TableConfig(
        "item",
        dim=4,
        capacity=start,
        max_capacity=slots,
        grow_at=0.8,
        score_strategy=strategy,
        lfu_halflife=HALFLIFE if strategy == "lfu" else None,
        admission=Frequency(2, Sketch(1 << 18), halve_every=80) if admits else None,
        optimizer=jde.optim.adagrad(0.3),
        initializer=jde.initializers.zeros(),
    )


@dataclasses.dataclass
class Day:
    """Holds what one table did.

    Attributes:
      coll: the table at the end.
      state: its arrays.
      hours: AUC and hit rate of each hour.
      stats: counters at the end.
    """

    coll: jde.Tables
    state: Any
    hours: list[tuple[float, float]]
    stats: dict[str, Any]


def run(
    config: jde.TableConfig, stream: Stream, expires: int, *, verbose: bool = False
) -> Day:
    """Trains a day; each hour removes rows that ``expires`` hours have not used."""
    coll = jde.Tables([config])
    grower = Grower(make_step, coll, every=10, ahead=False)
    state, hours = coll.init(seed=0), []
    before = coll.stats(state)
    for hour in range(HOURS):
        auc = jde.metrics.AUC.empty(stream.batch * stream.steps)
        for ids, clicks in stream.hour(hour):
            state, logits = grower.step(state, jde.ids(ids), jnp.asarray(clicks))
            state = grower.maybe_grow(state)
            auc = auc.merge(jde.metrics.AUC.from_model_output(logits, clicks))
        rule = Rule(unused_for=expires * stream.steps)
        _, state = grower.coll.erase_where(state, {"item": rule})
        now = grower.coll.stats(state)
        hits, misses = (
            now[f"item/{n}"] - before[f"item/{n}"] for n in ("hits", "misses")
        )
        hours.append((float(auc.compute()), hits / (hits + misses)))
        before = now
        if verbose:
            print(line(hour, hours[-1], now))
    return Day(grower.coll, state, hours, before)


def line(hour: int, measured: tuple[float, float], stats: dict[str, Any]) -> str:
    """Returns one row of the printed table."""
    names = ("rows", "capacity", "not_admitted", "evicted", "removed_by_rule")
    numbers = "".join(f"{stats[f'item/{name}']:>16,}" for name in names)
    return f"{hour:4}  {measured[0]:.4f}  {measured[1]:8.3f}{numbers}"


def check_causes(stats: dict[str, Any]) -> None:
    """Raises unless every row that is gone was evicted, erased or removed by a rule."""
    left = ("rows", "evicted", "erased", "removed_by_rule")
    total = sum(stats[f"item/{name}"] for name in left)
    if stats["item/inserted"] != total:
        raise RuntimeError(f"inserted {stats['item/inserted']}, but {left} are {total}")


def main() -> None:
    """Runs the day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=4_096, help="of the full table")
    parser.add_argument("--steps", type=int, default=Stream.steps, help="of an hour")
    parser.add_argument("--expire", type=int, default=3, help="hours without a use")
    given = parser.parse_args()
    stream = Stream(steps=given.steps)
    print(
        "hour     AUC  hit rate            rows           slots"
        "    not admitted         evicted   removed by rule"
    )
    config = table("lfu", admits=True, slots=given.slots, start=given.slots // 4)
    day = run(config, stream, given.expire, verbose=True)
    check_causes(day.stats)
    print(
        f"{day.stats['item/inserted']:,} rows were inserted; the table grew from "
        f"{config.capacity:,} to {day.coll.tables['item'].capacity:,} slots and holds "
        f"{day.stats['item/rows']:,} rows. {day.stats['item/evicted']:,} were evicted, "
        f"and {day.stats['item/removed_by_rule']:,} had not been used for "
        f"{given.expire} hours."
    )


if __name__ == "__main__":
    main()
