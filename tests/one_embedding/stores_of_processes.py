# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains OneEmbedding's module above an SSD; run by test_several_processes.

    python stores_of_processes.py PATH [PATH ...]
    python stores_of_processes.py none RANK [RANK ...]
    python stores_of_processes.py shared PATH

Each process of the job trains a table of its own devices, with ids of its own; with
"shared" all train one table, each with its part of a batch. Says the rows in the table
and those below. With "none" a table has room for all ids of some ranks.
"""

import json
import sys

import jax
import numpy as np
import optax

import jax_dynemb as jde

BATCH, STEPS, CAPACITY = 64, 12, 256


def batches(rank: int) -> list[dict[str, np.ndarray]]:
    """Ids of a process, of more rows than its table has."""
    draw = np.random.default_rng(rank)
    return [{"emb": draw.integers(0, 1500, BATCH)} for _ in range(STEPS)]


def embedding(store, **placement):
    """The same rows of the same ids, whatever store is below."""
    return jde.one_embedding.MultiTableEmbedding(
        "emb", 4, store_options=store, optimizer=jde.optim.sgd(0.1), **placement
    )


@jde.nnx.jit
def train(model, optimizer, ids):
    """One step whose gradient is the row itself, and one."""

    def loss(model, ids):
        rows = model(ids)
        return (rows**2).sum() / 2 + rows.sum()

    _, grads = jde.nnx.value_and_grad(loss)(model, ids)
    optimizer.update(model, grads)


def rows_of(model) -> dict[int, str]:
    """The rows in the table, as text of their bits."""
    rows = {}
    for chunk in model.coll.export(model.get_state(), "emb"):
        pairs = zip(chunk.keys, chunk.rows, strict=True)
        rows |= {int(key): row.tobytes().hex() for key, row in pairs}
    return rows


def rows_below(store) -> dict[int, str]:
    """The rows in the store."""
    keys = store.keys()
    found, packed = store.get(keys)
    assert found.all()
    rows = store.layout.unpack(keys, packed).rows
    return {int(key): row.tobytes().hex() for key, row in zip(keys, rows, strict=True)}


def without_a_store(ranks: list[int]) -> dict[str, dict[int, str]]:
    """What the ids of some ranks make of a table without a tier."""
    store = jde.one_embedding.make_device_mem_store_options("none", capacity=8192)
    model = embedding(store)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    for parts in zip(*map(batches, ranks), strict=True):
        ids = np.concatenate([part["emb"] for part in parts])
        train(model, optimizer, jde.ids(ids))
    return {"here": rows_of(model), "below": {}}


def above_a_store(paths: list[str]) -> dict[str, dict[int, str]]:
    """Trains this process's table, and commits what is below."""
    store = jde.one_embedding.make_cached_ssd_store_options(
        cache_budget_mb=1,
        persistent_path=paths[0] if len(paths) == 1 else paths,
        capacity=CAPACITY,
    )
    mesh = jax.make_mesh((2,), ("data",), devices=jax.local_devices())
    model = embedding(store, mesh=mesh)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    with jde.nnx.prefetch_rows(model, batches(jax.process_index())) as prefetcher:
        for ids in prefetcher:
            train(model, optimizer, ids["emb"])
        prefetcher.drain()
        prefetcher.commit(model.get_state(), "end")
        return {"here": rows_of(model), "below": rows_below(prefetcher.stores["emb"])}


def one_table(path: str) -> dict[str, dict[int, str]]:
    """Trains a table that all processes share, and lets its prefetcher place ids."""
    store = jde.one_embedding.make_cached_ssd_store_options(
        cache_budget_mb=1, persistent_path=path, capacity=2 * CAPACITY
    )
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    model = embedding(store, mesh=mesh)
    optimizer = jde.nnx.Optimizer(model, optax.sgd(0.1))
    mine = (batch["emb"] for batch in batches(jax.process_index()))
    with jde.nnx.prefetch_rows(model, mine) as prefetcher:
        for ids in prefetcher:
            train(model, optimizer, ids)
        prefetcher.drain()
        return {"here": rows_of(model), "below": rows_below(prefetcher.stores["emb"])}


def main(arguments: list[str]) -> None:
    """Trains and says what there is."""
    jax.config.update("jax_num_cpu_devices", 2)
    jde.distributed.ensure_initialized()
    first, *others = arguments
    if first == "none":
        said = without_a_store(list(map(int, others)))
    else:
        said = one_table(*others) if first == "shared" else above_a_store(arguments)
    print("RESULT " + json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
