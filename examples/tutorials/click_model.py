# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a click model on raw ids and compares it with the truth behind the data.

python examples/tutorials/click_model.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
USERS, ITEMS, BATCH = 2_000, 500, 1_024
RNG = np.random.default_rng(0)
USER_IDS = RNG.integers(1 << 40, 1 << 62, USERS)  # hashes: neither small nor dense
ITEM_IDS = RNG.integers(1 << 40, 1 << 62, ITEMS)
TASTE = RNG.normal(size=(USERS, 4))  # the truth, which the model never sees
STYLE = RNG.normal(size=(ITEMS, 4))


def draw(rng: np.random.Generator) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
    """Returns ids by feature, clicks, and the true chances of a click."""
    user, item = rng.integers(0, USERS, BATCH), rng.integers(0, ITEMS, BATCH)
    chance = 1 / (1 + np.exp(-(TASTE[user] * STYLE[item]).sum(axis=1)))
    clicks = rng.random(BATCH) < chance
    ids = {"user": jde.ids(USER_IDS[user]), "item": jde.ids(ITEM_IDS[item])}
    return ids, jnp.asarray(clicks, jnp.float32), jnp.asarray(chance, jnp.float32)


# --8<-- [end:data]
# --8<-- [start:model]
class ClickModel(nnx.Module):
    """Scores a user and an item by the product of their rows and a small network."""

    def __init__(self, rngs: nnx.Rngs):
        def table(name: str, capacity: int) -> jde.TableConfig:
            return jde.TableConfig(
                name,
                dim=8,
                capacity=capacity,
                optimizer=jde.optim.adam(0.02),
                initializer=jde.initializers.normal(0.1),
            )

        tables = [table("user", 2 * USERS), table("item", 2 * ITEMS)]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        self.top = nnx.Linear(24, 1, rngs=rngs)

    def __call__(self, ids: dict[str, jax.Array]) -> jax.Array:
        """Returns logits, float32[batch]."""
        rows = self.sparse(ids)
        user, item = rows["user"], rows["item"]
        deep = self.top(jnp.concatenate([user, item, user * item], axis=-1))[:, 0]
        return deep + (user * item).sum(axis=-1)


# --8<-- [end:model]
# --8<-- [start:step]
def loss_fn(model: ClickModel, ids: dict[str, jax.Array], clicks: jax.Array):
    """Returns the mean log loss of a batch."""
    return optax.sigmoid_binary_cross_entropy(model(ids), clicks).mean()


@jde.nnx.jit
def train_step(
    model: ClickModel,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jax.Array],
    clicks: jax.Array,
) -> jax.Array:
    """Updates dense parameters and the rows of the batch; returns the loss."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids, clicks)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def predict(model: ClickModel, ids: dict[str, jax.Array]) -> jax.Array:
    """Returns logits, and inserts no row."""
    return model(ids)


# --8<-- [end:step]
# --8<-- [start:run]
def main(steps: int = 1_500) -> dict[str, float]:
    """Trains, then measures on clicks that were not trained on."""
    model = ClickModel(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    rng = np.random.default_rng(1)
    for step in range(steps):
        ids, clicks, _ = draw(rng)
        loss = train_step(model, optimizer, ids, clicks)
        if step % 500 == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    model.eval()
    AUC = jde.metrics.AUC
    learned, possible = AUC.empty(), AUC.empty()
    for _ in range(20):
        ids, clicks, chance = draw(rng)
        learned = learned.merge(AUC.from_model_output(predict(model, ids), clicks))
        possible = possible.merge(AUC.from_model_output(chance, clicks))
    stats = model.sparse.stats()
    print(f"AUC {learned.compute():.3f}; the truth itself has {possible.compute():.3f}")
    print(f"rows: {stats['user/rows']} users, {stats['item/rows']} items")
    return {
        "learned": float(learned.compute()),
        "possible": float(possible.compute()),
        "users": stats["user/rows"],
    }


# --8<-- [end:run]
if __name__ == "__main__":
    main()
