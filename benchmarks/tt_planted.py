# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What tables of equal bytes learn of 10 M rows, with a planted low rank and without.

    python benchmarks/tt_planted.py --picture docs/images/tt_planted.svg

Each id has a hidden row of 16 columns. A step draws ids by a power law and shows their
rows with noise; the tables learn them by Adagrad. The share of the variance that a
table explains on fresh draws is printed, for the best learning rate. Bytes are those of
cores or of rows; the keys and scores of a dynamic table come on top. One with admission
has as much memory as the tensor train, everything counted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jax_dynemb as jde
from suite.workloads import POWER, power_law_ranks

DIM, NOISE, RANK = 16, 0.5, 4
RATES = (0.02, 0.1, 0.5)
CHUNK = 50  # steps of a compiled call, and between two points of the picture
Hidden = Callable[[jax.Array], jax.Array]


def words(ids: jax.Array) -> jax.Array:
    """Ids in the form of ``jde.ids``."""
    return jnp.stack([ids, jnp.zeros_like(ids)], -1)


def of_cores(rows: int) -> Hidden:
    """Hidden rows that are products of cores, with variance 1."""
    config = jde.TTConfig(
        "hidden",
        DIM,
        rows,
        RANK,
        initializer=jde.tt.normal(1.0),
        compute_dtype="float32",
    )
    cores = jde.tt.init(config, 7).cores
    return lambda ids: jde.tt.find(config, cores, words(ids))


def _normal(ids: jax.Array, columns: int) -> jax.Array:
    """Numbers of each id's own, with variance 1."""

    def one(id: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(jax.random.key(7), id), (columns,))

    return jax.vmap(one)(ids)


def of_matrix(ids: jax.Array) -> jax.Array:
    """Hidden rows that are mixtures of the same few rows: a matrix of low rank."""
    shared = jax.random.normal(jax.random.key(8), (RANK, DIM))
    return _normal(ids, RANK) @ shared / RANK**0.5


def unrelated(ids: jax.Array) -> jax.Array:
    """Hidden rows that have nothing in common."""
    return _normal(ids, DIM)


@dataclasses.dataclass(frozen=True)
class Stream:
    """What the tables see.

    Attributes:
      title: of the picture.
      hidden: the rows of ids.
      rows: how many ids there are.
      power: of the power law of the ids.
      batch: ids of a step.
    """

    title: str
    hidden: Hidden
    rows: int
    batch: int
    power: float = POWER

    def ids(self, key: jax.Array, count: int) -> jax.Array:
        """Draws uint32[count], spread over all rows."""
        unit = jax.random.uniform(key, (count,))
        rank = power_law_ranks(unit, self.rows, self.power).astype(jnp.uint32)
        return (rank * jnp.uint32(2_654_435_761)) % jnp.uint32(self.rows)


def streams(rows: int, batch: int) -> list[Stream]:
    """What is hidden in the rows, and how steep the law of the ids is."""
    cores = of_cores(rows)
    return [
        Stream(f"products of cores of rank {RANK}", cores, rows, batch),
        Stream(f"a matrix of rank {RANK}", of_matrix, rows, batch),
        Stream("unrelated rows", unrelated, rows, batch),
        Stream("unrelated rows, few hot ids", unrelated, rows, batch, power=1.5),
    ]


def methods(rows: int, rank: int) -> dict[str, tuple[Any, int, Any]]:
    """By name: a config, its bytes, and what becomes of an id."""
    optimizer = jde.optim.adagrad(RATES[0], initial_accumulator_value=1e-3)
    train = jde.TTConfig(
        "t", DIM, rows, rank, optimizer=optimizer, compute_dtype="float32"
    )
    nbytes = 4 * train.num_parameters
    fits = nbytes // (4 * DIM)
    zeros = jde.initializers.zeros()
    dynamic = jde.TableConfig(
        "t", DIM, fits, initializer=zeros, optimizer=optimizer, score_strategy="lfu"
    )
    shared = jde.TableConfig("t", DIM, 2 * fits, initializer=zeros, optimizer=optimizer)
    return {
        "tensor train": (train, nbytes, lambda ids: ids),
        "dynamic table, LFU": (dynamic, nbytes, lambda ids: ids),
        "dynamic table, admission": (_admitting(dynamic, train), nbytes, lambda i: i),
        "hashing": (shared, nbytes, lambda ids: ids % jnp.uint32(fits)),
    }


def _admitting(table: jde.TableConfig, train: jde.TTConfig) -> jde.TableConfig:
    """The largest table that takes frequent ids only and the memory of a tensor train.

    This counts all arrays: cores and optimizer there; rows, keys, scores, optimizer
    and the sketch of the counts here.
    """
    counts = jde.admission.Sketch(bytes=1 << 15)
    rule = jde.admission.Frequency(8, counts, halve_every=8)
    most = jde.Tables([train]).memory()["t"]["hbm"]
    capacity = table.capacity // 128 * 128
    while True:
        config = dataclasses.replace(table, capacity=capacity, admission=rule)
        if jde.Tables([config]).memory()["t"]["hbm"] <= most:
            return config
        capacity -= 128


class Trial:
    """One table and stream, compiled once for all rates."""

    def __init__(self, name: str, rank: int, stream: Stream):
        self.name, self.rank, self.stream = name, rank, stream
        config, self.bytes, self.of_id = methods(stream.rows, rank)[name]
        self.coll = jde.Tables([config])
        state, key = self.coll.init(0), jax.random.key(0)
        keys = jax.random.split(key, CHUNK)
        train = jax.jit(self._train, donate_argnums=0)
        self.train = train.lower(state, keys, jnp.float32(0)).compile()
        self.share = jax.jit(self._share).lower(state, key).compile()

    def explained(self, steps: int, rate: float) -> list[float]:
        """Trains once; returns the share of variance explained after each chunk."""
        state: Any = self.coll.init(0)
        shares = []
        for chunk in range(steps // CHUNK):
            keys = jax.random.split(jax.random.key(chunk), CHUNK)
            state = self.train(state, keys, jnp.float32(rate))
            shares.append(self.share(state, jax.random.key(2**31)))
        return [round(float(share), 4) for share in shares]

    def _train(self, state: Any, keys: jax.Array, rate: jax.Array) -> Any:
        return jax.lax.scan(functools.partial(self._step, rate), state, keys)[0]

    def _step(self, rate: jax.Array, state: Any, key: jax.Array) -> tuple[Any, None]:
        first, second = jax.random.split(key)
        ids = self.stream.ids(first, self.stream.batch)
        noise = jax.random.normal(second, (len(ids), DIM))
        truth = self.stream.hidden(ids) + NOISE * noise
        got, residual, state = self.coll.lookup(state, {"t": words(self.of_id(ids))})
        d_rows = {"t": got["t"] - truth}
        state = self.coll.apply_gradients(state, residual, d_rows, learning_rate=rate)
        return state, None

    def _share(self, state: Any, key: jax.Array) -> jax.Array:
        ids = self.stream.ids(key, 1 << 17)
        truth = self.stream.hidden(ids)
        got, _, _ = self.coll.find(state, {"t": words(self.of_id(ids))})
        return 1 - jnp.mean((got["t"] - truth) ** 2) / jnp.mean(truth**2)

    def measure(self, steps: int) -> dict[str, Any]:
        """Prints and returns what the table explains with its best rate."""
        shares = {rate: self.explained(steps, rate) for rate in RATES}
        rate = max(shares, key=lambda r: shares[r][-1])
        line = {"hidden": self.stream.title, "table": self.name, "rank": self.rank}
        line |= {"bytes": self.bytes, "batch": self.stream.batch, "rate": rate}
        line |= {"best_explained": shares[rate][-1], "explained": shares[rate]}
        print(json.dumps(line), flush=True)
        return line


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draws the share that is explained against ids seen, a part for each stream."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    titles = list(dict.fromkeys(line["hidden"] for line in lines))
    figure, parts = plt.subplots(
        1, len(titles), figsize=(2.6 * len(titles), 3), sharey=True, squeeze=False
    )
    for axes, title in zip(parts[0], titles, strict=True):
        for line in lines:
            if line["hidden"] == title:
                shares = line["explained"]
                million = CHUNK * line["batch"] / 1e6
                seen = [million * (n + 1) for n in range(len(shares))]
                axes.plot(seen, shares, label=line["table"])
        axes.set(xlabel="million ids seen", ylim=(0, 1.03))
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
    parts[0][0].set_ylabel("share of the variance")
    parts[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Prints a line for each stream and table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=8, help="of the tensor train")
    parser.add_argument("--streams", default="0,1,2,3")
    parser.add_argument("--tables", help="by name, with semicolons; all if left out")
    parser.add_argument("--threads", type=int, default=4, help="that compile")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    every = streams(options.rows, options.batch)
    chosen = [every[int(number)] for number in options.streams.split(",")]
    names = list(methods(options.rows, options.rank))
    if options.tables:
        names = [name.strip() for name in options.tables.split(";")]
    pairs = [(name, stream) for stream in chosen for name in names]
    with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
        trials = pool.map(lambda pair: Trial(pair[0], options.rank, pair[1]), pairs)
        lines = [trial.measure(options.steps) for trial in trials]
    if options.picture:
        draw(lines, options.picture)
    if options.json:
        options.json.write_text(json.dumps(lines) + "\n")


if __name__ == "__main__":
    main()
