# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains one model on one device and on four, and compares the losses.

    python examples/tutorials/many_devices.py

On a machine without accelerators the CPU acts as four devices.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

IDS, BATCH = 20_000, 512


# --8<-- [start:model]
class Model(nnx.Module):
    """Predicts a number from two ids; all that knows of devices is ``mesh``."""

    def __init__(self, mesh: jax.sharding.Mesh | None, rngs: nnx.Rngs):
        rate = jde.optim.rowwise_adagrad(0.1)
        tables = [
            jde.TableConfig("user", 16, 2 * IDS, optimizer=rate),
            # A few rows: each device has a copy, so nothing travels for them.
            jde.TableConfig("country", 16, 256, optimizer=rate, sharding="replicated"),
        ]
        self.sparse = jde.nnx.EmbeddingCollection(tables, mesh=mesh, rngs=rngs)
        self.top = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, ids: dict[str, jax.Array]) -> jax.Array:
        """Returns float32[batch]."""
        rows = self.sparse(ids)
        both = jnp.concatenate([rows["user"], rows["country"]], axis=-1)
        return self.top(both)[:, 0]


# --8<-- [end:model]
# --8<-- [start:step]
@jde.nnx.jit
def train_step(
    model: Model,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jax.Array],
    labels: jax.Array,
) -> jax.Array:
    """Updates the model; returns the loss."""

    def loss_fn(model: Model) -> jax.Array:
        return ((model(ids) - labels) ** 2).mean()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def train(mesh: jax.sharding.Mesh | None, steps: int) -> tuple[Model, list[float]]:
    """Trains on a mesh, or on one device; the loop is the same."""
    model = Model(mesh, nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-3))
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        user = rng.zipf(1.2, BATCH) % IDS
        ids = {"user": jde.ids(user + 2**40), "country": jde.ids(user % 30)}
        labels = jnp.asarray(np.sin(user), jnp.float32)
        losses.append(float(train_step(model, optimizer, ids, labels)))
    return model, losses


# --8<-- [end:step]
# --8<-- [start:run]
def main(devices: int = 4, steps: int = 300) -> float:
    """Trains twice; returns the largest difference between two losses of a step."""
    with contextlib.suppress(RuntimeError):  # the devices are known already
        jax.config.update("jax_num_cpu_devices", devices)
    mesh = jax.make_mesh(
        (devices,),
        ("data",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.devices()[:devices],
    )
    alone, one = train(None, steps)
    shared, many = train(mesh, steps)
    print(shared.sparse.coll.plan({"user": BATCH // devices}))
    difference = float(np.abs(np.array(one) - np.array(many)).max())
    print(f"first loss {one[0]:.3f}, last {one[-1]:.3f} on one device and ", end="")
    print(f"{many[-1]:.3f} on {devices}; largest difference {difference:.1e}")
    assert alone.sparse.stats()["user/rows"] == shared.sparse.stats()["user/rows"]
    return difference


# --8<-- [end:run]
if __name__ == "__main__":
    main()
