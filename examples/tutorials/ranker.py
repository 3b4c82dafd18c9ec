# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a generative ranker, HSTU, on long histories of what people saw and liked.

    python examples/tutorials/ranker.py

Source: Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential
Transducers for Generative Recommendations", ICML 2024.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
PEOPLE, LENGTH = 16, 128  # of a batch; a history has at most so many items
ITEMS, CREATORS, TAGS, TOPICS = 1_000, 100, 40, 10
SURE = 0.9  # how often people like an item of a topic that they like
RNG = np.random.default_rng(0)
ITEM_IDS = RNG.integers(1 << 40, 1 << 62, ITEMS)
CREATOR_OF = RNG.integers(0, CREATORS, ITEMS)
TOPIC_OF = RNG.integers(0, TOPICS, CREATORS)[CREATOR_OF]  # the truth: a creator has one
TAG_OF = np.where(RNG.random(ITEMS) < 0.7, TOPIC_OF, RNG.integers(0, TAGS, ITEMS))


def draw(rng: np.random.Generator):
    """Returns ids by feature, likes, and the best guess of each like.

    All people are new, so what they like can be known from their history alone.
    """
    lengths = rng.integers(LENGTH // 4, LENGTH + 1, PEOPLE)
    likes_topic = rng.random((PEOPLE, TOPICS)) < 0.5
    items = rng.integers(0, ITEMS, (PEOPLE, LENGTH))
    topics = TOPIC_OF[items]
    chance = np.where(np.take_along_axis(likes_topic, topics, 1), SURE, 1 - SURE)
    liked = rng.random((PEOPLE, LENGTH)) < chance
    columns = {"item": ITEM_IDS[items], "creator": CREATOR_OF[items]}
    columns["tag"] = TAG_OF[items]
    is_there = np.arange(LENGTH) < lengths[:, None]
    ids = {name: jagged(column[is_there], lengths) for name, column in columns.items()}
    return ids, jnp.asarray(liked), jnp.asarray(best_guess(topics, liked))


def jagged(values: np.ndarray, lengths: np.ndarray) -> jde.Jagged:
    """Puts ids into an array of static size; places behind the last one hold -1."""
    room = np.full(PEOPLE * LENGTH, -1)
    room[: len(values)] = values
    return jde.Jagged(jde.ids(room), jnp.asarray(lengths))


def best_guess(topics: np.ndarray, liked: np.ndarray) -> np.ndarray:
    """Computes by Bayes' rule how likely the next like is, given those before."""
    is_topic = topics[:, :, None] == np.arange(TOPICS)
    votes = np.where(is_topic, np.where(liked, 1, -1)[:, :, None], 0).cumsum(axis=1)
    before = np.where(is_topic, votes, 0).sum(axis=2) - np.where(liked, 1, -1)
    believed = 1 / (1 + ((1 - SURE) / SURE) ** before)  # that the topic is liked
    return believed * SURE + (1 - believed) * (1 - SURE)


# --8<-- [end:data]
# --8<-- [start:layer]
class HSTU(nnx.Module):
    """Attends without a softmax: gates decide, and sums keep how often things were."""

    def __init__(self, dim: int, heads: int, rngs: nnx.Rngs):
        self.heads = heads
        self.norms = nnx.List([nnx.LayerNorm(dim, rngs=rngs) for _ in range(3)])
        self.ask = nnx.Linear(dim, 2 * dim, rngs=rngs)  # gates and queries
        self.tell = nnx.Linear(dim, 2 * dim, rngs=rngs)  # keys and values
        self.out = nnx.Linear(dim, dim, rngs=rngs)
        self.distance = nnx.Param(jnp.zeros((heads, LENGTH.bit_length() + 1)))

    def __call__(self, x: jax.Array, history: jax.Array, mask: jax.Array) -> jax.Array:
        """Returns x and what it found in the history, float32[people, LENGTH, dim]."""
        gate, query = jnp.split(jax.nn.silu(self.ask(self.norms[0](x))), 2, axis=-1)
        told = jax.nn.silu(self.tell(self.norms[1](history)))
        key, value = jnp.split(told, 2, axis=-1)
        query, key, value = (
            each.reshape(*each.shape[:2], self.heads, -1)
            for each in (query, key, value)
        )
        scores = jnp.einsum("pqhd,pkhd->phqk", query, key) + self.bias()
        weights = jax.nn.silu(scores) * mask[:, None] / LENGTH**0.5
        found = jnp.einsum("phqk,pkhd->pqhd", weights, value).reshape(x.shape)
        return x + self.out(self.norms[2](found) * gate)

    def bias(self) -> jax.Array:
        """Returns a number for the distance of two places, by its logarithm."""
        places = jnp.arange(LENGTH)
        distance = jnp.maximum(places[:, None] - places, 0)
        bucket = jnp.ceil(jnp.log2(distance + 1)).astype(int)
        return self.distance[...][:, bucket]


# --8<-- [end:layer]
# --8<-- [start:model]
class Ranker(nnx.Module):
    """Predicts for each item of a history whether it was liked."""

    def __init__(self, rngs: nnx.Rngs, dim: int = 64):
        def table(name: str, columns: int, ids: int) -> jde.TableConfig:
            return jde.TableConfig(
                name,
                columns,
                capacity=2 * ids,
                optimizer=jde.optim.rowwise_adagrad(0.1),
                initializer=jde.initializers.normal(0.1),
                param_dtype="bfloat16",  # wide rows take half the bytes
                rounding="stochastic",  # so that small steps are not lost
                dtype="bfloat16",
            )

        tables = [
            table("item", 256, ITEMS),
            table("creator", 128, CREATORS),
            table("tag", 64, TAGS),
        ]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        self.join = nnx.Linear(256 + 128 + 64, dim, rngs=rngs)
        self.liked = nnx.Embed(2, dim, rngs=rngs)
        self.layers = nnx.List([HSTU(dim, 2, rngs) for _ in range(2)])
        self.top = nnx.Linear(dim, 1, rngs=rngs)

    def __call__(self, ids: dict[str, jde.Jagged], liked: jax.Array) -> jax.Array:
        """Returns logits, float32[people, LENGTH]."""
        rows = self.sparse(ids)
        item = self.join(jnp.concatenate([rows[name] for name in ids], axis=-1))
        item = ids["item"].to_padded(LENGTH, rows=item)
        is_there = ids["item"].mask(LENGTH)
        seen = item + self.liked(liked.astype(int))  # an item and what became of it
        earlier = jnp.tri(LENGTH, k=-1, dtype=bool)  # the like itself is not shown
        mask = earlier & is_there[:, None, :]
        for layer in self.layers:
            item = layer(item, seen, mask)
        return self.top(item)[..., 0]


# --8<-- [end:model]
# --8<-- [start:step]
def loss_fn(model: Ranker, ids: dict[str, jde.Jagged], liked: jax.Array):
    """Returns the mean log loss of all items of all histories."""
    loss = optax.sigmoid_binary_cross_entropy(model(ids, liked), liked)
    is_there = ids["item"].mask(LENGTH)
    return (loss * is_there).sum() / is_there.sum()


@jde.nnx.jit
def train_step(
    model: Ranker,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jde.Jagged],
    liked: jax.Array,
) -> jax.Array:
    """Updates three tables and the layers; returns the loss."""
    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids, liked)
    optimizer.update(model, grads)
    return loss


@jde.nnx.jit
def predict(
    model: Ranker, ids: dict[str, jde.Jagged], liked: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns logits, and which places have an item."""
    return model(ids, liked), ids["item"].mask(LENGTH)


# --8<-- [end:step]
# --8<-- [start:run]
def main(steps: int = 200) -> dict[str, float]:
    """Trains, then ranks for people of whom nothing but their history is known."""
    model = Ranker(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(3e-3))
    rng = np.random.default_rng(1)
    for step in range(steps):
        ids, liked, _ = draw(rng)
        loss = train_step(model, optimizer, ids, liked)
        if step % 50 == 0:
            print(f"step {step}: loss {float(loss):.3f}")
    model.eval()
    AUC, is_late = jde.metrics.AUC, np.arange(LENGTH) >= LENGTH // 8
    found = {name: AUC.empty() for name in ("begin", "learned", "possible")}
    for _ in range(10):
        ids, liked, best = draw(rng)
        logits, is_there = predict(model, ids, liked)
        for name, scores, places in (
            ("begin", logits, ~is_late),
            ("learned", logits, is_late),
            ("possible", best, is_late),
        ):
            chosen = np.asarray(is_there) & places
            labels = liked[chosen].astype(jnp.float32)
            found[name] = found[name].merge(
                AUC.from_model_output(scores[chosen], labels)
            )
    areas = {name: float(each.compute()) for name, each in found.items()}
    print(f"AUC {areas['learned']:.3f} after {LENGTH // 8} items, ", end="")
    print(f"{areas['begin']:.3f} before; Bayes' rule has {areas['possible']:.3f}")
    return areas


# --8<-- [end:run]
if __name__ == "__main__":
    main()
