# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a click model of 26 tables and publishes it while it trains.

    PYTHONPATH=examples python -m serve.publish FOLDER --seconds 60

Writes the exported program and the configs of its tables first. With --count each row
is the number of steps, so that a reader sees whether its rows are of one moment.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jax_dynemb as jde
from serve.answer import MAX_BATCH

FEATURES, DIM, HIDDEN, BATCH = 26, 16, 64, 512
IDS = 1_000  # of each feature


def make_tables(ids: int, count: bool) -> jde.Tables:
    """Makes 26 tables; those that count begin with zeros and step by one."""
    rule = jde.optim.sgd(1.0) if count else jde.optim.rowwise_adagrad(0.05)
    zeros = jde.initializers.zeros()
    return jde.Tables(
        [
            jde.TableConfig(
                f"f{number}",
                DIM,
                2 * ids,
                optimizer=rule,
                initializer=zeros if count else jde.initializers.normal(0.05),
                log_removed=1024,
            )
            for number in range(FEATURES)
        ]
    )


def dense_layers(seed: int = 0) -> dict[str, jax.Array]:
    """Makes the layers above the rows."""
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "hidden": jax.random.normal(first, (FEATURES * DIM, HIDDEN)) / 20,
        "bias": jnp.zeros(HIDDEN),
        "top": jax.random.normal(second, (HIDDEN,)) / 8,
    }


def logits_of(dense: Any, rows: jax.Array) -> jax.Array:
    """Returns float32[batch] for float32[features, batch, dim]."""
    x = jnp.moveaxis(rows, 0, 1).reshape(rows.shape[1], -1)
    return jax.nn.relu(x @ dense["hidden"] + dense["bias"]) @ dense["top"]


def write_program(folder: Path, coll: jde.Tables, state: Any, dense: Any) -> None:
    """Writes what a server reads once: the program, and the configs of its tables."""
    served, tables = jde.export.frozen(coll, state)

    def predict(tables: Any, dense: Any, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        named = {name: ids[n] for n, name in enumerate(coll.features)}
        found = served.find(tables, named)[0]
        rows = jnp.stack([found[name] for name in coll.features])
        return logits_of(dense, rows), rows

    words = jnp.zeros((FEATURES, 1, 2), jnp.uint32)
    folder.mkdir(parents=True, exist_ok=True)
    data = jde.export.program(
        predict,
        tables,
        dense,
        words,
        shapes=(None, None, f"{FEATURES}, b, 2"),
        constraints=[f"b <= {MAX_BATCH}"],
    )
    (folder / "program.bin").write_bytes(data)
    configs = [table.to_dict() for table in coll.tables.values()]
    (folder / "tables.json").write_text(json.dumps(configs))


def draw(rng: np.random.Generator, ids: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws int64[features, batch] and labels; each id has an effect of its own."""
    drawn = rng.zipf(1.2, (FEATURES, BATCH)) % ids
    effects = np.sin(drawn * 12.9898 + np.arange(FEATURES)[:, None])  # of no order
    clicked = rng.random(BATCH) < 1 / (1 + np.exp(-effects.sum(axis=0)))
    return drawn.astype(np.int64), clicked.astype(np.float32)


def training_step(coll: jde.Tables, optimizer: Any) -> Any:
    """Makes the step of the click model."""

    def step(
        state: Any, dense: Any, moments: Any, ids: Any, labels: jax.Array
    ) -> tuple[Any, Any, Any, jax.Array]:
        rows, residual, state = coll.lookup(state, ids)

        def loss_of(dense: Any, rows: dict[str, jax.Array]) -> jax.Array:
            logits = logits_of(dense, jnp.stack([rows[name] for name in coll.features]))
            return optax.sigmoid_binary_cross_entropy(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_of, (0, 1))(dense, rows)
        state = coll.apply_gradients(state, residual, grads[1])
        updates, moments = optimizer.update(grads[0], moments)
        return state, optax.apply_updates(dense, updates), moments, loss

    return jax.jit(step, donate_argnums=0)


def counting_step(coll: jde.Tables) -> Any:
    """Makes the step that adds one to all rows that it looks up."""

    def step(
        state: Any, dense: Any, moments: Any, ids: Any, labels: jax.Array
    ) -> tuple[Any, Any, Any, jax.Array]:
        rows, residual, state = coll.lookup(state, ids)
        grads = {name: jnp.full_like(each, -1.0) for name, each in rows.items()}
        state = coll.apply_gradients(state, residual, grads)
        return state, dense, moments, jnp.zeros(())

    return jax.jit(step, donate_argnums=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and publishes for a time; returns the number of steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--ids", type=int, default=IDS, help="of each feature")
    parser.add_argument("--pause", type=float, default=0.05, help="between steps")
    parser.add_argument("--count", action="store_true", help="rows count the steps")
    options = parser.parse_args(arguments)
    coll, dense = make_tables(options.ids, options.count), dense_layers()
    state, optimizer = coll.init(0), optax.adam(1e-3)
    write_program(options.folder, coll, state, dense)
    moments = optimizer.init(dense)
    step = counting_step(coll) if options.count else training_step(coll, optimizer)
    rng, steps, losses = np.random.default_rng(0), 0, []
    every_id = np.tile(np.arange(options.ids), (FEATURES, 1))
    until = time.monotonic() + options.seconds
    with jde.serving.Publisher(coll, options.folder / "published") as publisher:
        while steps == 0 or time.monotonic() < until:
            drawn, labels = draw(rng, options.ids)
            drawn = every_id if options.count else drawn
            ids = {n: jde.ids(x) for n, x in zip(coll.features, drawn, strict=True)}
            state, dense, moments, loss = step(state, dense, moments, ids, labels)
            steps += 1
            publisher.step(state, dense, step=steps)
            losses.append(loss)
            time.sleep(options.pause)  # a stream has its own speed
    first, last = (float(np.mean(part)) for part in (losses[:10], losses[-10:]))
    print(f"{steps} steps, {publisher.stats()}; loss {first:.3f}, then {last:.3f}")
    return steps


if __name__ == "__main__":
    main()
