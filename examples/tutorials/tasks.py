# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains two tasks on shared tables: clicks are many, purchases are few.

    python examples/tutorials/tasks.py

Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
Mixture-of-Experts", KDD 2018.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
USERS, ITEMS, BATCH, DIM = 1_000, 500, 1_024, 8
TASKS = ("click", "buy")
RNG = np.random.default_rng(0)
USER_IDS = RNG.integers(1 << 40, 1 << 62, USERS)
ITEM_IDS = RNG.integers(1 << 40, 1 << 62, ITEMS)
TASTE = RNG.normal(size=(USERS, 4))  # the truth, which both tasks share
STYLE = RNG.normal(size=(ITEMS, 4))
BUDGET, PRICE = RNG.normal(size=USERS), RNG.normal(size=ITEMS)  # of purchases alone


def draw(rng: np.random.Generator):
    """Returns ids by feature, and by task labels, weights and the true chances.

    Whether something was bought is known of one example in sixteen.
    """
    user, item, seen = (rng.integers(0, n, BATCH) for n in (USERS, ITEMS, ITEMS))
    likes = (TASTE[user] * STYLE[item]).sum(axis=1)
    again = (STYLE[seen] * STYLE[item]).sum(axis=1) / 2  # like what was seen before
    logits = {"click": likes + again, "buy": likes + BUDGET[user] - PRICE[item]}
    chances = {task: 1 / (1 + np.exp(-x)) for task, x in logits.items()}
    labels = {task: jnp.asarray(rng.random(BATCH) < x) for task, x in chances.items()}
    known = {"click": np.ones(BATCH), "buy": rng.random(BATCH) < 1 / 16}
    weights = {task: jnp.asarray(x, jnp.float32) for task, x in known.items()}
    ids = {"user": USER_IDS[user], "item": ITEM_IDS[item], "seen": ITEM_IDS[seen]}
    ids = {name: jde.ids(column) for name, column in ids.items()}
    return ids, labels, weights, chances


# --8<-- [end:data]
# --8<-- [start:model]
class Tasks(nnx.Module):
    """Mixes the same experts for each task by a gate of its own."""

    def __init__(self, rngs: nnx.Rngs, experts: int = 4, width: int = 32):
        def table(name: str, ids: int, *features: str) -> jde.TableConfig:
            return jde.TableConfig(
                name,
                DIM,
                capacity=2 * ids,
                feature_names=features,
                optimizer=jde.optim.adam(0.02),
                initializer=jde.initializers.normal(0.2),
            )

        tables = [table("user", USERS, "user"), table("item", ITEMS, "item", "seen")]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        size = 5 * DIM
        self.experts = nnx.Linear(size, experts * width, rngs=rngs)
        self.gates = nnx.Dict(
            {task: nnx.Linear(size, experts, rngs=rngs) for task in TASKS}
        )
        self.tops = nnx.Dict({task: nnx.Linear(width, 1, rngs=rngs) for task in TASKS})
        self.width = width

    def __call__(self, ids: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns logits by task, float32[batch]."""
        rows = self.sparse(ids)
        user, item, seen = rows["user"], rows["item"], rows["seen"]
        parts = [user, item, seen, user * item, seen * item]
        x = jnp.concatenate(parts, axis=-1)
        known = jax.nn.relu(self.experts(x)).reshape(len(x), -1, self.width)
        logits = {}
        for task in TASKS:
            gate = jax.nn.softmax(self.gates[task](x))
            logits[task] = self.tops[task](jnp.einsum("be,bew->bw", gate, known))[:, 0]
        return logits


# --8<-- [end:model]
# --8<-- [start:step]
def loss_fn(
    model: Tasks,
    ids: dict[str, jax.Array],
    labels: dict[str, jax.Array],
    weights: dict[str, jax.Array],
    importance: dict[str, jax.Array],
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the sum of the tasks' log losses, and each of them."""
    losses: dict[str, jax.Array] = {}
    for task, logits in model(ids).items():
        loss = optax.sigmoid_binary_cross_entropy(logits, labels[task])
        losses[task] = (loss * weights[task]).mean()  # each example counts alike
    total = sum((importance[t] * losses[t] for t in TASKS), start=jnp.zeros(()))
    return total, losses


@jde.nnx.jit
def train_step(
    model: Tasks,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jax.Array],
    labels: dict[str, jax.Array],
    weights: dict[str, jax.Array],
    importance: dict[str, jax.Array],
) -> dict[str, jax.Array]:
    """Takes one step for all tasks; each row gets the sum of their gradients."""
    grad = jde.nnx.value_and_grad(loss_fn, has_aux=True)
    (_, losses), grads = grad(model, ids, labels, weights, importance)
    optimizer.update(model, grads)
    return losses


@jde.nnx.jit
def predict(model: Tasks, ids: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns logits by task."""
    return model(ids)


# --8<-- [end:step]
# --8<-- [start:run]
def train(importance: dict[str, float], steps: int) -> dict[str, float]:
    """Trains a new model; returns AUC by task, on examples that it has not seen."""
    model = Tasks(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(3e-3))
    rng = np.random.default_rng(1)
    weighed = {task: jnp.float32(x) for task, x in importance.items()}
    for _ in range(steps):
        ids, labels, weights, _ = draw(rng)
        train_step(model, optimizer, ids, labels, weights, weighed)
    model.eval()
    found = {name: jde.metrics.AUC.empty() for name in (*TASKS, "possible")}
    for _ in range(20):
        ids, labels, _, chances = draw(rng)
        scores = predict(model, ids)
        scores["possible"] = jnp.asarray(chances["buy"])
        for name, area in found.items():
            truth = labels.get(name, labels["buy"]).astype(jnp.float32)
            new = jde.metrics.AUC.from_model_output(scores[name], truth)
            found[name] = area.merge(new)
    return {name: float(area.compute()) for name, area in found.items()}


def main(steps: int = 800) -> dict[str, float]:
    """Compares purchases alone with purchases beside clicks."""
    alone = train({"click": 0.0, "buy": 1.0}, steps)
    both = train({"click": 1.0, "buy": 1.0}, steps)
    print(f"AUC of purchases alone {alone['buy']:.3f}, beside clicks ", end="")
    print(f"{both['buy']:.3f}; the truth itself has {both['possible']:.3f}")
    print(f"AUC of clicks {both['click']:.3f}")
    return {"alone": alone["buy"], **both}


# --8<-- [end:run]
if __name__ == "__main__":
    main()
