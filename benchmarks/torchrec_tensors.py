# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Measures a KeyedJaggedTensor beside a dict of ids, and regrouping.

    python benchmarks/torchrec_tensors.py
    python benchmarks/torchrec_tensors.py --only regroup  # beside TorchRec's figures

Variants take turns, so that a busy machine slows all of them. Prints the smallest and
the median time of a step: build the input on the host, transfer it, look it up. Then
those of regrouping 160, 640 and 1,280 features, forward and backward. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

FEATURES, BATCH, DIM, ROUNDS = 26, 4096, 16, 60
STEPS = 10
KEYS = [f"f{k}" for k in range(FEATURES)]
ONE_ID, FOUR_IDS = "one id a bag", "0 to 4 ids a bag"
KJT = jde.torchrec.KeyedJaggedTensor
KT = jde.torchrec.KeyedTensor
# Milliseconds of KeyedTensor.regroup on a GPU: pytorch/torchrec#2007.
PUBLISHED = {160: 4.6, 640: 22.7}
found: dict[str, dict[str, float]] = {}


def inputs(most: int) -> dict[str, Callable[[], Any]]:
    """Makers of the same batch in each form."""
    draw = np.random.default_rng(0)
    lengths = np.ones((FEATURES, BATCH), np.int32)
    if most > 1:
        lengths = draw.integers(0, most + 1, lengths.shape).astype(np.int32)
    values = draw.zipf(1.2, lengths.sum()) % 1_000_000
    cuts = np.cumsum(lengths.sum(axis=1))[:-1]
    policy = jde.torchrec.Capacity()

    def dict_of_jagged() -> Any:
        parts = zip(KEYS, np.split(values, cuts), lengths, strict=True)
        return {key: jde.Jagged(jde.ids(ids), n) for key, ids, n in parts}

    def keyed(capacity: Any) -> Any:
        flat = lengths.reshape(-1)
        return KJT.from_lengths_sync(KEYS, values, flat, capacity=capacity)

    made = {
        "dict of Jagged": dict_of_jagged,
        "KeyedJaggedTensor, exact": lambda: keyed(None),
        "KeyedJaggedTensor, Capacity()": lambda: keyed(policy),
    }
    if most == 1:
        columns = values.reshape(FEATURES, BATCH)
        pairs = list(zip(KEYS, columns, strict=True))
        made = {"dict of ids [B]": lambda: {k: jde.ids(c) for k, c in pairs}} | made
    return made


def lookups(title: str, most: int) -> None:
    """Prints the time of each form of one batch."""
    tables = [
        jde.TableConfig(f"t{k}", DIM, 200_000, feature_names=(key,), pooling="sum")
        for k, key in enumerate(KEYS)
    ]
    coll = jde.Tables(tables, share_arrays=True)
    step = jax.jit(coll.lookup, donate_argnums=0)
    made = inputs(most)
    states = {name: coll.init(0) for name in made}
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(ROUNDS):
        for name, make in made.items():
            start = time.perf_counter()
            rows, _, states[name] = step(states[name], make())
            jax.block_until_ready((rows, states[name]))
            times[name].append(time.perf_counter() - start)
    for name, taken in times.items():
        _print(f"{title}, {name}", taken[5:])


def regroup(features: int) -> None:
    """Prints the time of regrouping, forward and backward; B 512, dim 128."""
    keys = [f"f{k}" for k in range(features)]
    groups = [keys[k::4] for k in range(4)]
    tensors = [jnp.ones((512, 128)) for _ in keys]

    def loss(tensors: Any) -> jax.Array:
        halves = [tensors[::2], tensors[1::2]]
        names = [keys[::2], keys[1::2]]
        keyed = [KT.from_tensor_list(*x) for x in zip(names, halves, strict=True)]
        squares = [(each * each).sum() for each in KT.regroup(keyed, groups)]
        return jnp.stack(squares).sum()

    step = jax.jit(jax.value_and_grad(loss))
    jax.block_until_ready(step(tensors))
    alone, in_a_row = [], []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(step(tensors))
        alone.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(STEPS):
            last = step(tensors)
        jax.block_until_ready(last)
        in_a_row.append((time.perf_counter() - start) / STEPS)
    name = f"regroup {features} features"
    _print(name, alone)
    _print(f"{name}, {STEPS} steps in a row", in_a_row)
    if features in PUBLISHED:
        print(f"{'':52} {PUBLISHED[features]:7.2f}         TorchRec, as published")


def _print(name: str, times: list[float]) -> None:
    least, middle = 1e3 * min(times), 1e3 * float(np.median(times))
    found[name] = {"least_ms": least, "median_ms": middle}
    print(f"{name:52} {least:7.2f} {middle:7.2f} ms", flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("lookup", "regroup"), default="")
    only = parser.parse_args().only
    if only != "regroup":
        lookups(ONE_ID, 1)
        lookups(FOUR_IDS, 4)
    if only != "lookup":
        for count in (160, 640, 1280):
            regroup(count)
    print(json.dumps({"device": jax.devices()[0].device_kind, "times": found}))


if __name__ == "__main__":
    main()
