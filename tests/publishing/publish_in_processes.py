# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains on devices of one or two processes and publishes; run by test_processes.

    python publish_in_processes.py DIRECTORY DEVICES LAST SAVE_EVERY

A row is the number of steps that have used it since it was last removed, so a reader
knows what each version must hold. A job that follows another one restores its newest
checkpoint. Publishers keep few rows in their buffers, so some moments are skipped.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb._src.serving import compaction as publishing_compaction
from jax_dynemb._src.serving import room as publishing_room

IDS, BATCH, REMOVED = 400, 64, 16
SHARDINGS = {"a": "row_wise", "b": "table_wise", "c": "table_wise", "d": "replicated"}


def tables(mesh=None) -> jde.Tables:
    """The tables, on a mesh or for one device."""
    return jde.Tables(
        [
            jde.TableConfig(
                name,
                dim=4,
                capacity=4096,
                initializer=jde.initializers.zeros(),
                optimizer=jde.optim.sgd(1.0),
                log_removed=4096,
                sharding=sharding if mesh is not None else "row_wise",
            )
            for name, sharding in SHARDINGS.items()
        ],
        mesh=mesh,
    )


def drawn(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids that a step uses, and those that it removes before."""
    draw = np.random.default_rng(step)
    return draw.permutation(IDS)[:BATCH], draw.permutation(IDS)[:REMOVED]


def counts_at(step: int) -> np.ndarray:
    """How often each id was used since it was removed last, after a step."""
    counts = np.zeros(IDS, np.int64)
    for each in range(1, step + 1):
        used, removed = drawn(each)
        counts[removed] = 0
        counts[used] += 1
    return counts


def main(folder: Path, devices: int, last: int, save_every: int) -> None:
    """Runs this process's part."""
    jax.config.update("jax_num_cpu_devices", devices)
    jde.distributed.ensure_initialized()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    coll = tables(mesh)
    state, process, done = coll.init(seed=1), jax.process_index(), 0
    saved = folder / "saved"
    if jde.checkpoint.latest(saved) is not None:
        restored = jde.checkpoint.restore(saved, {"tables": state}, tables=coll)
        state, done = restored.tree["tables"], restored.step

    def here(ids):
        size = len(ids) // jax.process_count()
        own = ids[size * process : size * (process + 1)]
        return {name: jde.ids(own, sharding=split) for name in SHARDINGS}

    @jax.jit
    def train(state, used, removed):
        state = coll.erase(state, removed)
        rows, residual, state = coll.lookup(state, used)
        grads = {name: -jnp.ones_like(each) for name, each in rows.items()}
        return coll.apply_gradients(state, residual, grads)

    publishing_room._FIRST = publishing_compaction._LEAST_BEHIND = 16 << process
    to = folder / f"process-{process}"
    with jde.serving.Publisher(coll, to, snapshot_every=5 + process) as publisher:
        for step in range(done + 1, last + 1):
            used, removed = drawn(step)
            state = train(state, here(used), here(removed))
            publisher.step(state, {"w": np.full(2, step)}, step=step)
            if step % 7 == 0:
                time.sleep(0.1 * process)
            if step % save_every == 0:
                jde.checkpoint.save(saved, step, {"tables": state}, tables=coll)
                jde.checkpoint.wait(saved)
        publisher.flush(state, {"w": np.full(2, last)}, step=last)
        counts = publisher.stats()
    print("RESULT " + json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
