# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains SASRec, a transformer over the items of a session, on jagged ids.

    python examples/tutorials/sequences.py

Source: Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
ITEMS, SESSIONS, LENGTH, DIM = 400, 128, 12, 32
RNG = np.random.default_rng(0)
ITEM_IDS = RNG.integers(1 << 40, 1 << 62, ITEMS)
# The truth: the item before the last decides which of two items comes next.
FOLLOWERS = RNG.integers(0, ITEMS, (ITEMS, 2))


def draw(rng: np.random.Generator) -> tuple[jde.Jagged, jde.Jagged]:
    """Returns sessions of 3 to 12 items, and the item that follows each of theirs."""
    chains = rng.integers(0, ITEMS, (SESSIONS, LENGTH + 1))
    for place in range(2, LENGTH + 1):
        follower = FOLLOWERS[chains[:, place - 2], rng.integers(0, 2, SESSIONS)]
        chains[:, place] = follower
    lengths = rng.integers(3, LENGTH + 1, SESSIONS)
    room = SESSIONS * LENGTH  # static, so that all batches run one program
    sessions, followers = np.full(room, -1), np.full(room, -1)
    is_there = np.arange(LENGTH) < lengths[:, None]
    sessions[: lengths.sum()] = ITEM_IDS[chains[:, :-1][is_there]]
    followers[: lengths.sum()] = ITEM_IDS[chains[:, 1:][is_there]]
    counts = jnp.asarray(lengths)
    return (
        jde.Jagged(jde.ids(sessions), counts),
        jde.Jagged(jde.ids(followers), counts),
    )


# --8<-- [end:data]
# --8<-- [start:model]
class SASRec(nnx.Module):
    """Predicts the next item at every place of a session."""

    def __init__(self, rngs: nnx.Rngs):
        self.item = jde.nnx.DynamicEmbed(
            features=DIM,
            capacity=2 * ITEMS,
            name="item",
            optimizer=jde.optim.adam(0.01),
            initializer=jde.initializers.normal(0.2),
            rngs=rngs,
        )
        self.place = nnx.Embed(LENGTH, DIM, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads=2, in_features=DIM, decode=False, rngs=rngs
        )
        self.norms = nnx.List([nnx.LayerNorm(DIM, rngs=rngs) for _ in range(3)])
        self.inner = nnx.Linear(DIM, 2 * DIM, rngs=rngs)
        self.outer = nnx.Linear(2 * DIM, DIM, rngs=rngs)

    def __call__(self, sessions: jde.Jagged) -> jax.Array:
        """Returns a query for each place, float32[sessions, LENGTH, DIM]."""
        x = sessions.to_padded(LENGTH, rows=self.item(sessions))
        x = x + self.place(jnp.arange(LENGTH))[None]
        is_there = sessions.mask(LENGTH)
        earlier = nnx.make_causal_mask(jnp.ones((1, LENGTH)))
        mask = nnx.combine_masks(nnx.make_attention_mask(is_there, is_there), earlier)
        x = x + self.attention(self.norms[0](x), mask=mask)
        x = x + self.outer(jax.nn.relu(self.inner(self.norms[1](x))))
        return self.norms[2](x)


# --8<-- [end:model]
# --8<-- [start:step]
def loss_fn(
    model: SASRec, sessions: jde.Jagged, followers: jde.Jagged, others: jax.Array
) -> jax.Array:
    """Returns the softmax loss of each follower among sampled items."""
    query, is_there = model(sessions), sessions.mask(LENGTH)
    rows = followers.to_padded(LENGTH, rows=model.item(followers))
    right = (query * rows).sum(axis=-1, keepdims=True)
    wrong = model.item.attend(query, others)
    # A sample that is the follower itself is not wrong.
    ids = followers.to_padded(LENGTH)
    is_right = (ids[:, :, None, :] == others).all(axis=-1)
    wrong = jnp.where(is_right, -jnp.inf, wrong)
    logits = jnp.concatenate([right, wrong], axis=-1)
    loss = optax.softmax_cross_entropy_with_integer_labels(
        logits, jnp.zeros(logits.shape[:-1], int)
    )
    return (loss * is_there).sum() / is_there.sum()


@jde.nnx.jit
def train_step(
    model: SASRec,
    optimizer: jde.nnx.Optimizer,
    sessions: jde.Jagged,
    followers: jde.Jagged,
    others: jax.Array,
) -> jax.Array:
    """Updates the table and the transformer; returns the loss."""
    grad = jde.nnx.value_and_grad(loss_fn)
    loss, grads = grad(model, sessions, followers, others)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def recall(
    model: SASRec, sessions: jde.Jagged, catalogue: jax.Array, following: jax.Array
) -> jde.metrics.RecallAtK:
    """Returns recall of the item that follows a session among the two best."""
    last = jnp.maximum(sessions.lengths - 1, 0)
    query = jnp.take_along_axis(model(sessions), last[:, None, None], axis=1)[:, 0]
    scores = model.item.attend(query, catalogue)
    return jde.metrics.RecallAtK.from_model_output(scores, following, k=2)


# --8<-- [end:step]
# --8<-- [start:run]
def main(steps: int = 600) -> float:
    """Trains, then predicts what follows sessions that were not trained on."""
    model = SASRec(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(3e-3))
    rng = np.random.default_rng(1)
    for step in range(steps):
        sessions, followers = draw(rng)
        others = jde.ids(rng.choice(ITEM_IDS, 100, replace=False))
        loss = train_step(model, optimizer, sessions, followers, others)
        if step % 200 == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    model.eval()
    place, found = {int(i): n for n, i in enumerate(ITEM_IDS)}, jde.metrics.RecallAtK
    seen = found.empty(k=2)
    for _ in range(5):
        sessions, followers = draw(rng)
        ends = np.cumsum(sessions.lengths) - 1
        words = np.ascontiguousarray(np.asarray(followers.values)[ends])
        following = [place[int(i)] for i in words.view(np.int64)[:, 0]]
        catalogue = jde.ids(ITEM_IDS)
        seen = seen.merge(recall(model, sessions, catalogue, jnp.asarray(following)))
    print(f"recall@2 {seen.compute():.3f}; the truth has 1, chance {2 / ITEMS:.3f}")
    return float(seen.compute())


# --8<-- [end:run]
if __name__ == "__main__":
    main()
