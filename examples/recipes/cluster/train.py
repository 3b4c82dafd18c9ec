# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains on many machines, and goes on where it was when they were taken away.

    python train.py FOLDER [--steps 1000]

Started by ``train.sbatch``, ``jobset.yaml`` or ``train_ray.py``, once a machine, with a
folder that all share. A launcher sends SIGTERM before it takes a machine away. JAX then
agrees on one step, at which all processes save and exit with status 75; the launcher
starts them again. A machine that dies without a signal costs the steps since the latest
checkpoint.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

import jax_dynemb as jde

BATCH = 512  # examples of all processes
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h
SAVE_EVERY = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains this process's part; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of checkpoints, for all processes")
    parser.add_argument("--steps", type=int, default=1_000)
    options = parser.parse_args(arguments)

    jde.distributed.ensure_initialized()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    adam = jde.optim.adam(0.01)
    coll = jde.Tables([jde.TableConfig("item", 16, 65_536, optimizer=adam)], mesh=mesh)
    weights = jde.distributed.replicate(np.ones(16, np.float32), mesh)
    run = {"tables": coll.init(seed=0), "weights": weights}
    start = 0
    if jde.checkpoint.latest(options.folder) is not None:
        restored = jde.checkpoint.restore(options.folder, run, tables=coll)
        run, start = restored.tree, restored.step
        print(f"goes on from step {start}", flush=True)

    save = functools.partial(jde.checkpoint.save, options.folder, tables=coll, keep=2)
    for number in range(start, options.steps):
        run, loss = step(coll, run, *batch(number, mesh))
        done = number + 1
        if multihost_utils.reached_preemption_sync_point(number):
            save(done, run, wait=True)
            print(f"preempted after step {done}", flush=True)
            return TRY_AGAIN
        if done % SAVE_EVERY == 0 or done == options.steps:
            save(done, run)  # returns when training may go on
            print(f"step {done} loss {float(loss):.6f}", flush=True)
    jde.checkpoint.wait(options.folder)
    return 0


def batch(number: int, mesh: Mesh):
    """Returns this process's part of a batch, which depends on its number alone."""
    random = np.random.default_rng(number)
    ids = random.zipf(1.3, BATCH).astype(np.int64)
    mine = np.array_split(ids, jax.process_count())[jax.process_index()]
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    label = jde.distributed.split((mine % 2).astype(np.float32), mesh, "data")
    return {"item": jde.ids(mine, sharding=sharding)}, label


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def step(
    coll: jde.Tables, run: dict[str, Any], ids: dict[str, jax.Array], label: jax.Array
) -> tuple[dict[str, Any], jax.Array]:
    """Looks up, takes the gradients and applies them, all on the mesh."""
    rows, residual, tables = coll.lookup(run["tables"], ids)

    def loss_fn(weights: jax.Array, rows: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((jnp.tanh(rows["item"] @ weights) - label) ** 2)

    loss, (d_weights, d_rows) = jax.value_and_grad(loss_fn, (0, 1))(
        run["weights"], rows
    )
    tables = coll.apply_gradients(tables, residual, d_rows)
    return {"tables": tables, "weights": run["weights"] - 0.1 * d_weights}, loss


if __name__ == "__main__":
    sys.exit(main())
