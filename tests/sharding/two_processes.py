# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps on 8 devices of one or two processes; prints what it learnt.

Started by test_processes.py, with JAX_NUM_PROCESSES and the like set.
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde

BATCH = 32


def main(devices: int, devices_per_host: int = 1) -> None:
    """Runs this process's part."""
    jax.config.update("jax_num_cpu_devices", devices)
    jde.distributed.ensure_initialized()
    jde.distributed.ensure_initialized()  # again: nothing happens
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    coll = jde.Tables(
        [
            jde.TableConfig("t", dim=4, capacity=2048, optimizer=jde.optim.adam(0.05)),
            jde.TableConfig("s", dim=2, capacity=256, sharding="replicated"),
            jde.TableConfig("u", dim=2, capacity=1024, sharding="table_wise"),
            jde.TableConfig("v", dim=2, capacity=1024, sharding="table_wise"),
            jde.TableConfig("c", dim=32, capacity=256, sharding="column_wise"),
        ],
        mesh=mesh,
        devices_per_host=devices_per_host,
    )
    state = coll.init(seed=1)
    weights = jde.distributed.replicate({"w": np.ones((42,), np.float32)}, mesh)
    part = slice(
        BATCH * jax.process_index() // jax.process_count(),
        BATCH * (jax.process_index() + 1) // jax.process_count(),
    )

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(state, weights, ids, label):
        rows, residual, state = coll.lookup(state, ids)

        def loss_of(weights, rows):
            x = jnp.concatenate([rows[name] for name in "tsuvc"], axis=-1)
            return jnp.mean((jnp.tanh(x @ weights["w"]) - label) ** 2)

        loss, (dw, d_rows) = jax.value_and_grad(loss_of, (0, 1))(weights, rows)
        state = coll.apply_gradients(state, residual, d_rows)
        return state, {"w": weights["w"] - 0.1 * dw["w"]}, loss

    losses = []
    for number in range(6):
        rng = np.random.default_rng(number)
        ids = rng.integers(2**40, 2**40 + 50, (5, BATCH))
        label = rng.random(BATCH).astype(np.float32)
        batch = {
            name: jde.ids(ids[n, part], sharding=split)
            for n, name in enumerate("tsuvc")
        }
        local = jde.distributed.split(label[part], mesh, "data")
        state, weights, loss = step(state, weights, batch, local)
        losses.append(float(loss))
    rows = {}
    for name in "tuv":
        for chunk in coll.export(state, name):
            pairs = zip(chunk.keys.tolist(), chunk.rows.tolist(), strict=True)
            rows |= {f"{name}{key}": row for key, row in pairs}
    try:
        rows |= {f"c{key}": [] for each in coll.export(state, "c") for key in each.keys}
    except ValueError as error:  # this process has some of the columns
        assert devices < 8 and "column-wise over several" in str(error)
    stats = coll.stats(state)
    print("RESULT " + json.dumps({"losses": losses, "rows": rows, "stats": stats}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
