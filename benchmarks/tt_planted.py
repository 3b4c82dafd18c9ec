# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What tables of equal bytes learn of 10 M rows: with a planted low rank, and without.

    python benchmarks/tt_planted.py

Each id has a hidden row of 16 columns. A step draws ids by a power law and shows their
rows with noise; the tables learn them by Adagrad. The share of the variance that a
table explains on fresh draws is printed, for hidden rows that are products of cores of
rank 4, and for random ones.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

import jax_dynemb as jde
from suite.workloads import power_law_ranks

DIM, NOISE = 16, 0.5
RATES = (0.02, 0.1, 0.5)


def draw(key: jax.Array, rows: int, batch: int) -> jax.Array:
    """uint32[batch] by a power law, spread over all rows."""
    unit = jax.random.uniform(key, (batch,))
    rank = power_law_ranks(unit, rows).astype(jnp.uint32)
    return (rank * jnp.uint32(2_654_435_761)) % jnp.uint32(rows)


def words(ids: jax.Array) -> jax.Array:
    """Ids in the form of ``jde.ids``."""
    return jnp.stack([ids, jnp.zeros_like(ids)], -1)


def planted(rows: int) -> Any:
    """Hidden rows of rank 4, with variance 1."""
    config = jde.TTConfig(
        "hidden",
        DIM,
        rows,
        4,
        initializer=jde.tt.normal(1.0),
        compute_dtype="float32",
    )
    cores = jde.tt.init(config, 7).cores
    return lambda ids: jde.tt.find(config, cores, words(ids))


def unplanted(ids: jax.Array) -> jax.Array:
    """Hidden rows that have nothing in common, with variance 1."""

    def one(id: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(jax.random.key(7), id), (DIM,))

    return jax.vmap(one)(ids)


def methods(rows: int, ranks: Sequence[int]) -> dict[str, tuple[Any, int, Any]]:
    """By name: a config, its bytes, and what becomes of an id."""
    optimizer = jde.optim.adagrad(RATES[0], initial_accumulator_value=1e-3)
    same = jnp.asarray
    found: dict[str, tuple[Any, int, Any]] = {}
    for rank in ranks:
        train = jde.TTConfig(
            "t", DIM, rows, rank, optimizer=optimizer, compute_dtype="float32"
        )
        nbytes = 4 * train.num_parameters
        found[f"tensor train, rank {rank}"] = (train, nbytes, same)
        fits = nbytes // (4 * DIM)
        zeros = jde.initializers.zeros()
        dynamic = jde.TableConfig(
            "t", DIM, fits, initializer=zeros, optimizer=optimizer, score_strategy="lfu"
        )
        found[f"dynamic, bytes of rank {rank}"] = (dynamic, nbytes, same)
        hashed = jde.TableConfig(
            "t", DIM, 2 * fits, initializer=zeros, optimizer=optimizer
        )

        def remainder(ids: jax.Array, fits: int = fits) -> jax.Array:
            return ids % jnp.uint32(fits)

        found[f"hashing, bytes of rank {rank}"] = (hashed, nbytes, remainder)
    return found


class Trial:
    """One table, compiled once for all rates."""

    def __init__(self, config: Any, of_id: Any, hidden: Any, rows: int, batch: int):
        self.coll, self.of_id, self.hidden = jde.Tables([config]), of_id, hidden
        self.rows, self.batch = rows, batch
        self.train = jax.jit(self._train, donate_argnums=0)
        self.share = jax.jit(self._share)

    def explained(self, steps: int, rate: float) -> float:
        """Trains once; returns the share of variance that the table explains."""
        keys = jax.random.split(jax.random.key(1), steps)
        state = self.train(self.coll.init(0), keys, jnp.float32(rate))
        return float(self.share(state, jax.random.key(2)))

    def _train(self, state: Any, keys: jax.Array, rate: jax.Array) -> Any:
        return jax.lax.scan(functools.partial(self._step, rate), state, keys)[0]

    def _step(self, rate: jax.Array, state: Any, key: jax.Array) -> tuple[Any, None]:
        first, second = jax.random.split(key)
        ids = draw(first, self.rows, self.batch)
        noise = jax.random.normal(second, (self.batch, DIM))
        truth = self.hidden(ids) + NOISE * noise
        got, residual, state = self.coll.lookup(state, {"t": words(self.of_id(ids))})
        d_rows = {"t": got["t"] - truth}
        state = self.coll.apply_gradients(state, residual, d_rows, learning_rate=rate)
        return state, None

    def _share(self, state: Any, key: jax.Array) -> jax.Array:
        ids = draw(key, self.rows, 1 << 17)
        truth = self.hidden(ids)
        got, _, _ = self.coll.find(state, {"t": words(self.of_id(ids))})
        return 1 - jnp.mean((got["t"] - truth) ** 2) / jnp.mean(truth**2)


def main() -> None:
    """Prints a line for each hidden table, method and its best rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--ranks", default="4,8,16")
    options = parser.parse_args()
    ranks = [int(rank) for rank in options.ranks.split(",")]
    kinds = {"rank 4": planted(options.rows), "random": unplanted}
    for kind, hidden in kinds.items():
        for name, (config, nbytes, of_id) in methods(options.rows, ranks).items():
            trial = Trial(config, of_id, hidden, options.rows, options.batch)
            shares = {rate: trial.explained(options.steps, rate) for rate in RATES}
            rate = max(shares, key=lambda r: shares[r])
            line = {"hidden": kind, "table": name, "bytes": nbytes, "rate": rate}
            print(json.dumps(line | {"explained": round(shares[rate], 4)}), flush=True)


if __name__ == "__main__":
    main()
