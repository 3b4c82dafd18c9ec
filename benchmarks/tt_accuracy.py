# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What compressed tables of MovieLens-100K predict: AUC against bytes of the tables.

    python benchmarks/tt_accuracy.py PATH/ml-100k.inter --picture docs/images/tt_auc.svg

A user rates an item with 4 or more, or does not. Two tables of 16 columns and a small
MLP learn it from 80,000 ratings; the other 20,000 are the test. Each table trains with
Adagrad at three learning rates, and the better mean of the seeds counts. The data is
GroupLens' and is not part of this repository.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jax_dynemb as jde

DIM, BATCH, EPOCHS = 16, 1000, 6
RATES = (0.02, 0.05, 0.2)
EPOCHS_SHOWN = (1, 2, 4, 6, 12)  # of initial values
DENSE = optax.adam(2e-3)
Batch = tuple[jax.Array, jax.Array, jax.Array]
Configs = list[Any]


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to hold both tables.

    Attributes:
      family: what is drawn as one line.
      label: of the point.
      tables: the configs of a table, by its name and number of rows.
      ids: the ids of each of these tables, from the ids and rows of the whole one.
      bytes_of: of the table, by its number of rows.
      join: of the rows.
    """

    family: str
    label: str
    tables: Callable[[str, int], Configs]
    ids: Callable[[jax.Array, int], list[jax.Array]]
    bytes_of: Callable[[int], int]
    join: Callable[..., jax.Array] = lambda row: row


def row_bytes(rows: float) -> int:
    """Returns the bytes of rows of float32."""
    return 4 * DIM * math.ceil(rows)


def dense(name: str, rows: int) -> Configs:
    """Makes a table with a row an id."""
    start = jde.initializers.normal(0.1)
    return [
        jde.TableConfig(name, DIM, 2 * rows, initializer=start, optimizer=_adagrad())
    ]


def _adagrad() -> Any:
    return jde.optim.adagrad(RATES[0], initial_accumulator_value=1e-3)


def full() -> Method:
    """One row an id."""
    return Method("full", "full", dense, lambda ids, rows: [ids], row_bytes)


def hashing(factor: int) -> Method:
    """Ids share rows by their remainder."""

    def tables(name: str, rows: int) -> Configs:
        return dense(name, math.ceil(rows / factor))

    def remainder(ids: jax.Array, rows: int) -> list[jax.Array]:
        return [ids % math.ceil(rows / factor)]

    return Method(
        "hashing",
        f"1/{factor}",
        tables,
        remainder,
        lambda rows: row_bytes(rows / factor),
    )


def quotient_remainder(parts: int) -> Method:
    """A row is the product of a row of the remainder and one of the quotient."""

    def sizes(rows: int) -> tuple[int, int]:
        return parts, math.ceil(rows / parts)

    def tables(name: str, rows: int) -> Configs:
        both = zip((f"{name}_r", f"{name}_q"), sizes(rows), strict=True)
        return [c for each, size in both for c in dense(each, size)]

    return Method(
        "quotient-remainder",
        str(parts),
        tables,
        lambda ids, rows: [ids % parts, ids // parts],
        lambda rows: sum(map(row_bytes, sizes(rows))),
        lambda a, b: a * b / 0.1,
    )


def tensor_train(
    rank: int, residual: float = 0.0, scale: float = 1.0, optimizer: Any = None
) -> Method:
    """Rows are products of three cores; ``residual`` is a share of the rows.

    ``scale`` is that of the initial rows: 1 is the default of ``jde.TTConfig``. The
    optimizer is that of the cores, Adagrad if None.
    """

    def config(name: str, rows: int) -> jde.TTConfig:
        return jde.TTConfig(
            name,
            DIM,
            rows,
            rank,
            initializer=jde.tt.tail_normal(scale / math.sqrt(3 * rows)),
            optimizer=_adagrad() if optimizer is None else optimizer,
            compute_dtype="float32",
            residual=max(1, round(residual * rows)) if residual else None,
        )

    family = "tensor train"
    if residual:
        family = f"tensor train, {residual:.0%} residual"
    if scale != 1.0:
        family = "tensor train, FBTT's scale"
    return Method(
        family,
        f"R={rank}",
        lambda name, rows: [config(name, rows)],
        lambda ids, rows: [ids],
        lambda rows: 4 * config("t", rows).num_parameters + row_bytes(residual * rows),
    )


METHODS = [
    full(),
    *[hashing(factor) for factor in (2, 4, 8, 16)],
    *[quotient_remainder(parts) for parts in (8, 24, 64)],
    *[tensor_train(rank) for rank in (2, 4, 8, 16)],
    *[tensor_train(rank, residual=0.05) for rank in (2, 4, 8, 16)],
    tensor_train(8, scale=110.0),  # FBTT's default at this rank
]
# By its name: pairs of methods, and learning rates, that show what initial values are
# worth. FBTT's scale is sqrt(prod(R) * 5.746**3) times that of the default here.
INITIAL_VALUES = {
    "adagrad": (
        [tensor_train(rank, scale=s) for rank in (8, 16) for s in (1.0, 13.8 * rank)],
        (0.02, 0.05, 0.1, 0.2, 0.5),
    ),
    "sgd": (
        [tensor_train(8, scale=s, optimizer=jde.optim.sgd(0.1)) for s in (1.0, 110.0)],
        (0.001, 0.003, 0.01, 0.03, 0.1),
    ),
}


def ratings(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads users, items and labels; ids begin at 0."""
    columns = np.loadtxt(path, skiprows=1, delimiter="\t", usecols=(0, 1, 2))
    users, items = (columns[:, i].astype(np.int32) - 1 for i in (0, 1))
    return users, items, (columns[:, 2] >= 4).astype(np.float32)


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Computes the chance that a positive example scores above a negative one."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = labels > 0
    n, m = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def initial_dense(key: jax.Array) -> list[jax.Array]:
    """Makes the weights of the MLP."""
    first, second = jax.random.split(key)
    he = jax.nn.initializers.he_normal()
    hidden = he(first, (3 * DIM, 32)), jnp.zeros(32)
    return [*hidden, he(second, (32, 1)), jnp.zeros(1)]


def logits(weights: list[jax.Array], user: jax.Array, item: jax.Array) -> jax.Array:
    """Predicts from both rows and their product."""
    x = jnp.concatenate([user, item, user * item], axis=1)
    x = jax.nn.relu(x @ weights[0] + weights[1])
    return (x @ weights[2] + weights[3])[:, 0]


class Trial:
    """One method on both tables, compiled once for all seeds and rates."""

    def __init__(self, method: Method, users: int, items: int):
        self.method, self.sizes = method, {"user": users, "item": items}
        parts = {n: method.tables(n, size) for n, size in self.sizes.items()}
        self.names = {n: [c.name for c in configs] for n, configs in parts.items()}
        self.coll = jde.Tables([c for configs in parts.values() for c in configs])
        self.epoch = jax.jit(self._epoch)
        self.predict = jax.jit(self._predict)

    @property
    def bytes(self) -> int:
        """Returns the bytes of both tables."""
        return sum(map(self.method.bytes_of, self.sizes.values()))

    def _ids(self, name: str, ids: jax.Array) -> dict[str, jax.Array]:
        parts = self.method.ids(ids, self.sizes[name])
        words = (
            jnp.stack([x, jnp.zeros_like(x)], -1).astype(jnp.uint32) for x in parts
        )
        return dict(zip(self.names[name], words, strict=True))

    def _join(self, rows: Any, name: str) -> jax.Array:
        return self.method.join(*[rows[part] for part in self.names[name]])

    def _step(self, rate: jax.Array, carry: Any, batch: Batch) -> tuple[Any, None]:
        state, weights, optimizer = carry
        user, item, label = batch
        ids = self._ids("user", user) | self._ids("item", item)
        rows, residual, state = self.coll.lookup(state, ids)

        def loss_fn(rows: Any, weights: Any) -> jax.Array:
            both = self._join(rows, "user"), self._join(rows, "item")
            z = logits(weights, *both)
            return optax.sigmoid_binary_cross_entropy(z, label).mean()

        d_rows, d_weights = jax.grad(loss_fn, (0, 1))(rows, weights)
        d_rows = jax.tree.map(lambda d: d * BATCH, d_rows)  # a sum, not a mean
        state = self.coll.apply_gradients(state, residual, d_rows, learning_rate=rate)
        updates, optimizer = DENSE.update(d_weights, optimizer, weights)
        return (state, optax.apply_updates(weights, updates), optimizer), None

    def _epoch(self, carry: Any, batches: Batch, rate: jax.Array) -> Any:
        return jax.lax.scan(functools.partial(self._step, rate), carry, batches)[0]

    def _predict(self, carry: Any, user: jax.Array, item: jax.Array) -> jax.Array:
        state, weights, _ = carry
        ids = self._ids("user", user) | self._ids("item", item)
        rows, _, _ = self.coll.find(state, ids)
        return logits(weights, self._join(rows, "user"), self._join(rows, "item"))

    def run(self, data: Any, seed: int, rate: float, epochs: int) -> list[float]:
        """Trains once; returns the AUC of the test after each epoch."""
        order = np.random.default_rng(seed).permutation(len(data[0]))
        train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
        weights = initial_dense(jax.random.key(seed))
        carry = self.coll.init(seed), weights, DENSE.init(weights)
        users, items = (jnp.asarray(column[test]) for column in data[:2])
        aucs = []
        for epoch in range(epochs):
            shuffled = np.random.default_rng((seed, epoch)).permutation(train)
            whole = shuffled[: len(shuffled) // BATCH * BATCH].reshape(-1, BATCH)
            batches = tuple(jnp.asarray(column[whole]) for column in data)
            carry = self.epoch(carry, batches, jnp.float32(rate))
            scores = self.predict(carry, users, items)
            aucs.append(auc(np.asarray(scores), data[2][test]))
        return aucs


def aucs_of(
    data: Any, seeds: int, method: Method, rates: Sequence[float], epochs: int
) -> tuple[int, np.ndarray]:
    """Returns the bytes of a method, and its AUC [rate, seed, epoch]."""
    users, items = (int(column.max()) + 1 for column in data[:2])
    trial = Trial(method, users, items)
    runs = [[trial.run(data, s, r, epochs) for s in range(seeds)] for r in rates]
    return trial.bytes, np.array(runs)


def measure(data: Any, seeds: int) -> list[dict[str, Any]]:
    """Runs all methods; prints and returns a line for each."""
    lines, whole = [], 0
    for method in METHODS:
        nbytes, aucs = aucs_of(data, seeds, method, RATES, EPOCHS)
        whole = whole or nbytes
        last = aucs[:, :, -1]
        best = int(last.mean(1).argmax())
        line = {
            "family": method.family,
            "label": method.label,
            "bytes": nbytes,
            "smaller": round(whole / nbytes, 1),
            "auc": round(float(last[best].mean()), 4),
            "std": round(float(last[best].std()), 4),
            "rate": RATES[best],
        }
        print(json.dumps(line), flush=True)
        lines.append(line)
    return lines


def compare_initial_values(data: Any, seeds: int, kind: str) -> list[dict[str, Any]]:
    """Runs pairs of initial values; prints what the right scale gains, by epoch.

    The runs of a pair have the same ratings, order and MLP for each seed, so their
    differences are taken seed by seed. Each has its best rate of each epoch.
    """
    methods, rates = INITIAL_VALUES[kind]
    lines = []
    for right, wrong in zip(methods[::2], methods[1::2], strict=True):
        both = []
        for method in (right, wrong):
            _, aucs = aucs_of(data, seeds, method, rates, max(EPOCHS_SHOWN))
            both.append(aucs[:, :, [epoch - 1 for epoch in EPOCHS_SHOWN]])
        for e, epoch in enumerate(EPOCHS_SHOWN):
            best = [int(aucs[:, :, e].mean(1).argmax()) for aucs in both]
            mine, theirs = (a[b, :, e] for a, b in zip(both, best, strict=True))
            gain = mine - theirs
            line = {
                "optimizer": kind,
                "label": right.label,
                "epochs": epoch,
                "auc": round(float(mine.mean()), 4),
                "rate": rates[best[0]],
                "fbtt_auc": round(float(theirs.mean()), 4),
                "fbtt_rate": rates[best[1]],
                "gain": round(float(gain.mean()), 4),
                "gain_std": round(float(gain.std(ddof=1)), 4),
                "gain_range": [round(float(x), 4) for x in (gain.min(), gain.max())],
            }
            print(json.dumps(line), flush=True)
            lines.append(line)
    return lines


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draws AUC against bytes, a line for each family."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for family in dict.fromkeys(line["family"] for line in lines):
        points = sorted(
            (x["bytes"] / 1024, x["auc"], x["std"], x["label"])
            for x in lines
            if x["family"] == family
        )
        kilobytes, values, errors, labels = zip(*points, strict=True)
        axes.errorbar(
            kilobytes, values, yerr=errors, marker="o", capsize=2, label=family
        )
        for x, y, label in zip(kilobytes, values, labels, strict=True):
            axes.annotate(
                label, (x, y), textcoords="offset points", xytext=(4, 4), size=7
            )
    axes.set(xscale="log", xlabel="KiB of both tables", ylabel="AUC of the test")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", type=Path, help="ml-100k.inter")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--initial-values", choices=INITIAL_VALUES)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = ratings(options.ratings)
    if options.initial_values:
        lines = compare_initial_values(data, options.seeds, options.initial_values)
    else:
        lines = measure(data, options.seeds)
    if options.picture:
        draw(lines, options.picture)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
