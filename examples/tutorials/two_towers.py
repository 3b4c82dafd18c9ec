# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains two towers for retrieval and measures recall over the whole catalogue.

python examples/tutorials/two_towers.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
USERS, ITEMS, TOPICS, BATCH = 1_000, 2_000, 50, 512
RNG = np.random.default_rng(0)
USER_IDS = RNG.integers(1 << 40, 1 << 62, USERS)
ITEM_IDS = RNG.integers(1 << 40, 1 << 62, ITEMS)
TOPIC_OF_USER = RNG.integers(0, TOPICS, USERS)  # the truth: each user has one topic
ITEMS_OF_TOPIC = RNG.permutation(ITEMS).reshape(TOPICS, -1)  # of 40 items each
_SHARES = 1 / np.arange(1, ITEMS // TOPICS + 1)
POPULARITY = _SHARES / _SHARES.sum()  # within a topic


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns places of users and of the items that they chose."""
    user = rng.integers(0, USERS, BATCH)
    topic = TOPIC_OF_USER[user]
    topic = np.where(rng.random(BATCH) < 0.1, rng.integers(0, TOPICS, BATCH), topic)
    place = rng.choice(len(POPULARITY), BATCH, p=POPULARITY)
    return user, ITEMS_OF_TOPIC[topic, place]


# --8<-- [end:data]
# --8<-- [start:model]
class TwoTowers(nnx.Module):
    """Turns a user into a query and scores items by their rows."""

    def __init__(self, rngs: nnx.Rngs):
        def table(name: str, capacity: int) -> jde.nnx.DynamicEmbed:
            return jde.nnx.DynamicEmbed(
                features=16,
                capacity=capacity,
                name=name,
                optimizer=jde.optim.adam(0.02),
                initializer=jde.initializers.normal(0.3),
                rngs=rngs,
            )

        self.user, self.item = table("user", 2 * USERS), table("item", 2 * ITEMS)
        self.tower = nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, user: jax.Array, items: jax.Array) -> jax.Array:
        """Returns the scores of all items for each user, float32[users, items]."""
        rows = self.user(user)
        return self.item.attend(rows + self.tower(rows), items)


# --8<-- [end:model]
# --8<-- [start:step]
def loss_fn(
    model: TwoTowers, user: jax.Array, item: jax.Array, frequency: jax.Array
) -> jax.Array:
    """Returns the softmax loss of each user's item among the items of the batch."""
    scores = model(user, item) - jnp.log(frequency)  # popular items are drawn more
    return optax.softmax_cross_entropy_with_integer_labels(
        scores, jnp.arange(scores.shape[0])
    ).mean()


@jde.nnx.jit
def train_step(
    model: TwoTowers,
    optimizer: jde.nnx.Optimizer,
    user: jax.Array,
    item: jax.Array,
    frequency: jax.Array,
) -> jax.Array:
    """Updates both tables and the tower; returns the loss."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, user, item, frequency)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def recall(
    model: TwoTowers, user: jax.Array, catalogue: jax.Array, chosen: jax.Array
) -> jde.metrics.RecallAtK:
    """Returns recall of the chosen items among the ten best of the catalogue."""
    return jde.metrics.RecallAtK.from_model_output(model(user, catalogue), chosen, k=10)


# --8<-- [end:step]
# --8<-- [start:run]
def main(steps: int = 800) -> dict[str, float]:
    """Trains, then finds items for users among the whole catalogue."""
    model = TwoTowers(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-3))
    rng, seen = np.random.default_rng(1), np.ones(ITEMS)
    for step in range(steps):
        user, item = draw(rng)
        np.add.at(seen, item, 1)
        frequency = jnp.asarray(seen[item] / seen.sum(), jnp.float32)
        batch = jde.ids(USER_IDS[user]), jde.ids(ITEM_IDS[item]), frequency
        loss = train_step(model, optimizer, *batch)
        if step % 200 == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    model.eval()
    catalogue, found = jde.ids(ITEM_IDS), jde.metrics.RecallAtK.empty(k=10)
    for _ in range(5):
        user, item = draw(rng)
        ids, chosen = jde.ids(USER_IDS[user]), jnp.asarray(item)
        found = found.merge(recall(model, ids, catalogue, chosen))
    possible = 0.9 * POPULARITY[:10].sum()  # the ten favourites of the right topic
    print(f"recall@10 {found.compute():.3f}; the truth has {possible:.3f}, ", end="")
    print(f"chance {10 / ITEMS:.3f}")
    return {"recall": float(found.compute()), "possible": float(possible)}


# --8<-- [end:run]
if __name__ == "__main__":
    main()
