# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains tables on GPUs of several processes that read each other's memory.

Started by test_peer_processes.py. NCCL refuses two processes on one GPU, so there the
processes talk through JAX's coordinator where they otherwise use collectives.
"""

import functools
import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde

BATCH, STEPS = 512, 6


def without_nccl() -> None:
    """Lets processes tell each other arrays without collectives."""
    from jax._src import distributed

    told = iter(range(10**6))

    def every(array: np.ndarray) -> np.ndarray:
        client = distributed.global_state.client
        assert client is not None
        name = f"test/{next(told)}"
        client.key_value_set_bytes(f"{name}/{jax.process_index()}", array.tobytes())
        raw = [
            client.blocking_key_value_get_bytes(f"{name}/{n}", 60_000)
            for n in range(jax.process_count())
        ]
        parts = [np.frombuffer(x, array.dtype).reshape(array.shape) for x in raw]
        return np.stack(parts)

    multihost_utils.process_allgather = every
    multihost_utils.broadcast_one_to_all = lambda array: every(array)[0]


def tables() -> list[jde.TableConfig]:
    adam, sgd = jde.optim.adam(0.01), jde.optim.sgd(0.1)
    adagrad = jde.optim.rowwise_adagrad(0.1)
    return [
        jde.TableConfig("ids", dim=16, capacity=4096, optimizer=adam),
        jde.TableConfig("bags", dim=8, capacity=4096, optimizer=sgd, pooling="sum"),
        jde.TableConfig("wide", dim=200, capacity=2048, optimizer=adagrad),
        jde.TableConfig("few", dim=16, capacity=3, optimizer=adam),
    ]


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "ids": rng.integers(0, 900, BATCH),
            "bags": rng.integers(0, 900 // (1 + t), (BATCH // 4, 4)),
            "wide": rng.integers(0, 400, BATCH),
            "few": rng.integers(0, 3, BATCH),
        }
        for t in range(STEPS)
    ]


def mine_of(array: np.ndarray) -> np.ndarray:
    """This process's part of a batch."""
    size = len(array) // jax.process_count()
    return array[size * jax.process_index() :][:size]


def own_part(array: jax.Array) -> list:
    shards = sorted(array.addressable_shards, key=lambda s: s.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards]).tolist()


def main(mode: str) -> None:
    """Runs one process of the job.

    Args:
      mode: "one gpu", which all share; "own gpus"; "refused", where all print why;
        "dead", where process 1 does not take part in the second step. Before, XLA
        compiles in both together.
    """
    if mode != "own gpus":
        without_nccl()
    jde.distributed.ensure_initialized()
    me, several = jax.process_index(), jax.process_count() > 1
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    transport = "peers" if several else "auto"
    if mode == "refused":
        try:
            jde.Tables(tables(), mesh=mesh, exchange_transport="peers")
        except ValueError as error:
            coll = jde.Tables(tables(), mesh=mesh)
            plan = coll.plan({name: BATCH for name in coll.features})
            print("RESULT " + json.dumps([str(error), plan.transport]))
        return
    coll = jde.Tables(
        tables(), mesh=mesh, exchange_factor=0.5, exchange_transport=transport
    )
    state = coll.init(seed=1)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids, shift):
        rows, residual, state = coll.lookup(state, ids)
        grads = {name: row * 0.25 + shift for name, row in rows.items()}
        return coll.apply_gradients(state, residual, grads), rows

    outputs = []
    for t, batch in enumerate(batches()):
        ids = {k: jde.ids(mine_of(v), sharding=split) for k, v in batch.items()}
        if mode == "dead" and (me, t) == (1, 1):
            time.sleep(600)
        if several and me == t % 3:
            time.sleep(0.3)  # it is late
        try:
            state, rows = step(state, ids, jnp.float32(0.125 * t))
            outputs.append({name: own_part(row) for name, row in rows.items()})
        except RuntimeError:
            if mode == "dead":
                time.sleep(1)  # the reason is printed by another thread
                os._exit(3)  # JAX would wait minutes for the other process
            raise
    batch = batches()[0]
    ids = {k: jde.ids(mine_of(v + 17), sharding=split) for k, v in batch.items()}
    found = coll.find(state, ids)[0]
    outputs.append({name: own_part(row) for name, row in found.items()})
    exported = {}
    for name in ("ids", "bags", "wide"):
        for chunk in coll.export(state, name):
            pairs = zip(chunk.keys.tolist(), chunk.rows.tolist(), strict=True)
            exported |= {f"{name}{key}": row for key, row in pairs}
    sizes = {name: ids.size for name, ids in batches()[0].items()}
    said = {"rows": outputs, "exported": exported}
    print("RESULT " + json.dumps(said | {"transport": coll.plan(sizes).transport}))


if __name__ == "__main__":
    main(sys.argv[1])
