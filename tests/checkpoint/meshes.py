# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""8 -> 2 -> 1 -> 4 devices through checkpoints; run by test_meshes.

python meshes.py DIRECTORY
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces
from support import without_identity

CHAIN = (8, 2, 1, 4)


class Model(nnx.Module):
    def __init__(self, seed: int):
        tables = [
            jde.TableConfig(
                "adam", dim=6, capacity=2048, optimizer=jde.optim.adam(0.1)
            ),
            jde.TableConfig("optax", dim=3, capacity=2048, optimizer=optax.adam(0.1)),
            jde.TableConfig(
                "half",
                dim=4,
                capacity=1024,
                param_dtype="bfloat16",
                optimizer=jde.optim.rowwise_adagrad(0.1),
            ),
        ]
        rngs = nnx.Rngs(seed)
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        self.top = nnx.Linear(13, 1, rngs=rngs)


def trained() -> Model:
    model = Model(0)
    coll, state = model.sparse.coll, model.sparse.get_state()
    rng = np.random.default_rng(0)
    for _ in range(3):
        ids = {n: jde.ids(rng.integers(-(2**62), 2**62, 300)) for n in coll.tables}
        rows, residual, state = coll.lookup(state, ids)
        state = coll.apply_gradients(state, residual, rows)
    model.sparse.set_state(state)
    return model


def spread(tree, devices: int, abstract: bool = False):
    """The same arrays on some devices: tables by rows, everything else on each."""
    mesh = jax.make_mesh(
        (devices,),
        ("data",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.devices()[:devices],
    )

    def place(path, leaf):
        rows = any(
            getattr(key, "name", "") in ("index", "values", "optimizer") for key in path
        )
        spec = PartitionSpec("data") if rows else PartitionSpec()
        sharding = NamedSharding(mesh, spec)
        if abstract:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        return jax.device_put(leaf, sharding)

    return jax.tree_util.tree_map_with_path(place, tree)


def data(leaf) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.ascontiguousarray(without_identity(leaf)).reshape(-1).view(np.uint8)


def assert_same_bytes(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(data(x), data(y))


def through_orbax(directory: Path, original) -> None:
    """With nothing but orbax, asynchronously."""
    current = spread(original, CHAIN[0])
    for number, devices in enumerate(CHAIN[1:]):
        path = directory / f"orbax-{number}"
        with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as checkpointer:
            checkpointer.save(path, args=ocp.args.StandardSave(current))
            checkpointer.wait_until_finished()
            like = spread(original, devices, abstract=True)
            current = checkpointer.restore(path, args=ocp.args.StandardRestore(like))
        check(current, original, devices)


def through_jde(directory: Path, model: Model) -> None:
    """With jde.checkpoint, into models of other seeds."""
    original = nnx.state(model)
    nnx.update(model, spread(original, CHAIN[0]))
    for step, devices in enumerate(CHAIN[1:]):
        jde.checkpoint.save(directory / "jde", step, model)
        model = Model(step + 1)
        nnx.update(model, spread(nnx.state(model), devices))
        assert jde.checkpoint.restore(directory / "jde", model).notes == ()
        check(nnx.state(model), original, devices)


def check(current, original, devices: int) -> None:
    values = current["sparse"]["tables"]["adam"].get_value().values
    assert len(values.sharding.device_set) == devices
    shard = values.addressable_shards[0].data.shape
    assert shard == (values.shape[0] // devices, values.shape[1])
    assert_same_bytes(current, original)


def main(directory: Path) -> None:
    assert jax.device_count() == 8
    _pieces.PIECE_BYTES = 1 << 14  # some arrays are written in pieces, as large ones
    model = trained()
    original = jax.tree.map(lambda x: x + 0 if x.dtype != bool else x, nnx.state(model))
    through_orbax(directory, original)
    through_jde(directory, model)
    print("same bytes:", " -> ".join(map(str, CHAIN)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
