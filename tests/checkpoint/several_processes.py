# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A run that moves between one process and two; run by test_several_processes.

    python several_processes.py alone|pair|again DIRECTORY

alone trains on 8 devices of one process and saves half way; pair goes on from there in
two processes of 4 devices and saves; again restores that on 1, 2 and 8 devices. What a
tree holds is compared as bytes, with the arrays that the others left as plain files.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces
from support import without_identity

BATCH = 32
SAVED, LAST = 3, 6  # steps
TABLES = ("adam", "optax", "copied")


class Model(nnx.Module):
    def __init__(self, mesh: Mesh, seed: int, capacity: int):
        rngs = nnx.Rngs(seed)
        tables = [
            jde.TableConfig(
                "adam", dim=4, capacity=capacity, optimizer=jde.optim.adam(0.05)
            ),
            jde.TableConfig("optax", dim=3, capacity=2048, optimizer=optax.adam(0.05)),
            jde.TableConfig("copied", dim=2, capacity=256, sharding="replicated"),
        ]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs, mesh=mesh)
        self.top = nnx.Linear(9, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)

    def __call__(self, ids):
        rows = self.sparse(ids)
        return self.top(self.dropout(jnp.concatenate([*rows.values()], axis=-1)))


def new_optimizer(model: Model) -> jde.nnx.Optimizer:
    return jde.nnx.Optimizer(model, optax.adam(0.01))


def new_run(mesh: Mesh, seed: int, capacity: int = 2048) -> dict:
    """A model and its optimizer, on the whole mesh."""
    model = Model(mesh, seed, capacity)
    run = {"model": model, "optimizer": new_optimizer(model)}
    for part in run.values():
        nnx.update(part, jde.distributed.replicate(nnx.state(part), mesh))
    return run


@jde.nnx.jit
def train(model, optimizer, ids, label):
    def loss_fn(model, ids, label):
        return ((model(ids)[:, 0] - label) ** 2).mean()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids, label)
    optimizer.update(model, grads)
    return loss


def steps(run: dict, mesh: Mesh, first: int, last: int) -> list[float]:
    """Trains on this process's parts of the batches of some steps."""
    split = NamedSharding(mesh, PartitionSpec("data"))
    size = BATCH // jax.process_count()
    mine = slice(size * jax.process_index(), size * (jax.process_index() + 1))
    losses = []
    for step in range(first, last):
        rng = np.random.default_rng(step)
        keys = rng.integers(2**40, 2**40 + 50, (len(TABLES), BATCH))
        label = rng.random(BATCH).astype(np.float32)[mine]
        ids = {
            table: jde.ids(each[mine], sharding=split)
            for table, each in zip(TABLES, keys, strict=True)
        }
        label = jde.distributed.split(label, mesh, "data")
        losses.append(float(train(run["model"], run["optimizer"], ids, label)))
    return losses


def leaves_of(run: dict) -> list[jax.Array]:
    leaves = jax.tree.leaves([nnx.state(part) for part in run.values()])
    is_key = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]
    return [
        jax.random.key_data(x) if key else x
        for x, key in zip(leaves, is_key, strict=True)
    ]


def dump(run: dict, directory: Path) -> None:
    """Writes the bytes that lie on this process's devices into plain files."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, leaf in enumerate(leaves_of(run)):
        file = directory / f"{number}.npy"
        if not file.exists() and jax.process_index() == 0:
            np.lib.format.open_memmap(file, "w+", leaf.dtype, leaf.shape)
    if jax.process_count() > 1:
        jax.experimental.multihost_utils.sync_global_devices("files are there")
    for number, leaf in enumerate(leaves_of(run)):
        whole = np.load(directory / f"{number}.npy", mmap_mode="r+")
        for shard in leaf.addressable_shards:
            whole[shard.index] = np.asarray(shard.data)


def assert_holds(run: dict, directory: Path) -> None:
    """Compares what lies on this process's devices, byte for byte."""
    leaves = leaves_of(run)
    assert len(leaves) == len(list(directory.iterdir()))
    for number, leaf in enumerate(leaves):
        whole = np.load(directory / f"{number}.npy", mmap_mode="r")
        assert whole.shape == leaf.shape and whole.dtype == leaf.dtype
        for shard in leaf.addressable_shards:
            got = without_identity(shard.data).tobytes()
            assert got == without_identity(whole[shard.index]).tobytes()


def rows_of(run: dict) -> dict[int, list[float]]:
    sparse = run["model"].sparse
    return rows_of_table(sparse.coll, sparse.get_state())


def rows_of_table(coll: jde.Tables, state: dict) -> dict[int, list[float]]:
    """The rows of table adam on this process's devices."""
    return {
        key: row
        for chunk in coll.export(state, "adam")
        for key, row in zip(chunk.keys.tolist(), chunk.rows.tolist(), strict=True)
    }


def alone(directory: Path) -> dict:
    """Trains the whole run in one process."""
    mesh = mesh_of(8)
    run = new_run(mesh, seed=0)
    losses = steps(run, mesh, 0, SAVED)
    jde.checkpoint.save(directory / "alone", SAVED, run, wait=True)
    dump(run, directory / "dump-alone")
    sparse = run["model"].sparse
    no_optax = sparse.coll.with_tables([sparse.coll.tables["adam"]])
    state = {"adam": sparse.get_state()["adam"]}
    jde.export.dynamicemb(directory / "dynamicemb", no_optax, state, quiet=True)
    rows = rows_of(run)
    losses += steps(run, mesh, SAVED, LAST)
    return {"losses": losses, "rows": rows}


def pair(directory: Path) -> dict:
    """Goes on in two processes; then again from a checkpoint of its own."""
    mesh = mesh_of(8)
    assert jax.process_count() == 2 and jax.local_device_count() == 4
    run = new_run(mesh, seed=1)
    restored = jde.checkpoint.restore(directory / "alone", run)
    assert (restored.step, restored.notes) == (SAVED, ())
    assert_holds(run, directory / "dump-alone")
    losses = steps(run, mesh, SAVED, SAVED + 1)
    for step in range(SAVED + 1, LAST):  # while the one before is still written
        jde.checkpoint.save(directory / "pair", step, run, keep=2)
        losses += steps(run, mesh, step, step + 1)
    jde.checkpoint.save(directory / "pair", LAST, run, keep=2)
    jde.checkpoint.wait(directory / "pair")
    assert jde.checkpoint.steps(directory / "pair") == [LAST - 1, LAST]
    dump(run, directory / "dump-pair")
    into_other_runs(directory, mesh, run["model"].sparse.stats())
    sentences(directory, mesh, run)
    return {"losses": losses, "rows": rows_of(run), "imported": imported(directory)}


def into_other_runs(directory: Path, mesh: Mesh, expected: dict) -> None:
    """Restores the pair's checkpoint without a table before, and into a larger one."""
    new = nnx.eval_shape(lambda: Model(mesh, 2, 2048))
    run = {"model": new, "optimizer": nnx.eval_shape(lambda: new_optimizer(new))}
    assert jde.checkpoint.restore(directory / "pair", run).step == LAST
    assert_holds(run, directory / "dump-pair")

    larger = new_run(mesh, seed=3, capacity=8192)
    (note,) = jde.checkpoint.restore(directory / "pair", larger).notes
    assert "its rows were inserted again" in note
    stats = larger["model"].sparse.stats()
    for name in ("rows", "step", "inserted", "lookups"):
        assert stats[f"adam/{name}"] == expected[f"adam/{name}"]


def imported(directory: Path) -> dict[int, list[float]]:
    """The rows of a dump, read by both processes onto one mesh."""
    table = jde.TableConfig(
        "adam", dim=4, capacity=1024, optimizer=jde.optim.adam(0.05)
    )
    coll = jde.Tables([table], mesh=mesh_of(8))
    done = jde.import_.dynamicemb(directory / "dynamicemb", coll, quiet=True)
    assert done.notes == ()
    return rows_of_table(coll, done.state)


def sentences(directory: Path, mesh: Mesh, run: dict) -> None:
    """Checks that what can not be done says so, in every process."""
    own = {"w": jnp.ones(3)}
    with pytest.raises(ValueError, match="'w' lies on devices of this process only"):
        jde.checkpoint.save(directory / "own", 0, own)
    sparse = run["model"].sparse
    for write in (jde.export.safetensors, jde.export.dynamicemb):
        with pytest.raises(ValueError, match="devices of several processes.*convert"):
            write(directory / "export", sparse.coll, sparse.get_state())
    mine = directory / "pair" if jax.process_index() == 0 else directory / "elsewhere"
    with pytest.raises((ValueError, FileNotFoundError), match="no complete checkpoint"):
        jde.checkpoint.restore(mine, run)


def again(directory: Path) -> dict:
    """Restores what the pair saved on any number of devices of one process."""
    for devices in (1, 2, 8):
        run = new_run(mesh_of(devices), seed=devices)
        restored = jde.checkpoint.restore(directory / "pair", run)
        assert (restored.step, restored.notes) == (LAST, ())
        values = run["model"].sparse.get_state()["adam"].values
        assert len(values.sharding.device_set) == devices
        assert_holds(run, directory / "dump-pair")
    return {"rows": rows_of(run)}


def mesh_of(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("data",))


def main(what: str, directory: Path) -> None:
    _pieces.PIECE_BYTES = 1 << 13  # some arrays of the tables are written in pieces
    jax.config.update("jax_num_cpu_devices", 4 if what == "pair" else 8)
    jde.distributed.ensure_initialized()
    said = {"alone": alone, "pair": pair, "again": again}[what](directory)
    print("RESULT " + json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
