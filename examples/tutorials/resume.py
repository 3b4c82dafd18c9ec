# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains, saves, is killed, resumes, and serves what it learned in a new process.

python examples/tutorials/resume.py
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jax_dynemb as jde

# --8<-- [start:data]
IDS, BATCH, EVERY = 5_000, 256, 20
HIDDEN = np.random.default_rng(0).normal(size=IDS)


def batch(step: int) -> tuple[dict[str, jax.Array], jax.Array]:
    """Returns the ids and clicks of a step: the same whenever it is drawn."""
    rng = np.random.default_rng(step)
    item = rng.integers(0, IDS, BATCH)
    clicks = rng.random(BATCH) < 1 / (1 + np.exp(-HIDDEN[item]))
    return {"item": jde.ids(item + 2**40)}, jnp.asarray(clicks, jnp.float32)


# --8<-- [end:data]
# --8<-- [start:model]
class Model(nnx.Module):
    """Scores an item by its row."""

    def __init__(self, rngs: nnx.Rngs):
        table = jde.TableConfig(
            "item", dim=8, capacity=2 * IDS, optimizer=jde.optim.adagrad(0.5)
        )
        self.sparse = jde.nnx.EmbeddingCollection([table], rngs=rngs)
        self.top = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, ids: dict[str, jax.Array]) -> jax.Array:
        """Returns logits, float32[batch]."""
        return self.top(self.sparse(ids)["item"])[:, 0]


@jde.nnx.jit
def train_step(
    model: Model,
    optimizer: jde.nnx.Optimizer,
    ids: dict[str, jax.Array],
    clicks: jax.Array,
) -> jax.Array:
    """Updates the model in place; returns the loss."""

    def loss_fn(model: Model) -> jax.Array:
        return optax.sigmoid_binary_cross_entropy(model(ids), clicks).mean()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


# --8<-- [end:model]
# --8<-- [start:train]
def train(folder: Path | None, steps: int) -> tuple[Model, float]:
    """Trains to a step, from the latest checkpoint in the folder if there is one."""
    model = Model(nnx.Rngs(0))
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    run, first, loss = {"model": model, "optimizer": optimizer}, 0, jnp.nan
    if folder is not None and jde.checkpoint.latest(folder) is not None:
        first = jde.checkpoint.restore(folder, run).step  # changes them in place
        print(f"resumed from step {first}", flush=True)
    for step in range(first, steps):
        loss = train_step(model, optimizer, *batch(step))
        if folder is not None and (step + 1) % EVERY == 0:
            jde.checkpoint.save(
                folder, step + 1, run, keep=3
            )  # writes behind the steps
    if folder is not None:
        jde.checkpoint.wait(folder)
    return model, float(loss)


# --8<-- [end:train]
# --8<-- [start:kill]
def killed_run(folder: Path, steps: int) -> int:
    """Trains in another process and kills it; returns the newest whole checkpoint."""
    command = [sys.executable, __file__, "--train", str(folder), "--steps", str(steps)]
    with subprocess.Popen(command) as process:
        while (jde.checkpoint.latest(folder) or 0) < 2 * EVERY:
            if process.poll() is not None:
                raise RuntimeError("the run ended before it could be killed")
            time.sleep(0.01)
        process.kill()
    return jde.checkpoint.latest(folder) or 0


# --8<-- [end:kill]
# --8<-- [start:export]
def export(model: Model, folder: Path) -> None:
    """Writes a program and its weights; no code of the model is needed to run it."""
    sparse = model.sparse
    coll, tables = jde.export.frozen(sparse)  # keys and rows, no optimizer states
    dense = nnx.to_pure_dict(nnx.state(model.top))

    def predict(tables: Any, dense: Any, ids: Any) -> jax.Array:
        rows, _, _ = coll.find(tables, ids)
        return (rows["item"] @ dense["kernel"] + dense["bias"])[:, 0]

    ids, _ = batch(0)
    sizes: Any = {"shapes": (None, None, "b, ..."), "constraints": ["b <= 4096"]}
    data = jde.export.program(predict, tables, dense, ids, **sizes)
    folder.mkdir(exist_ok=True)
    (folder / "program.bin").write_bytes(data)
    leaves = jax.tree.leaves((tables, dense))
    named: dict[str, Any] = {str(n): np.asarray(x) for n, x in enumerate(leaves)}
    np.savez(folder / "weights.npz", **named)


def serve(folder: Path) -> np.ndarray:
    """Reads what ``export`` wrote, and answers for the clicks of step 10**6."""
    program = jde.export.load_program(folder / "program.bin")
    with np.load(folder / "weights.npz") as file:
        weights = [file[str(n)] for n in range(len(file.files))]
    ids, _ = batch(10**6)
    arguments, _ = jax.tree.unflatten(program.in_tree, [*weights, ids["item"]])
    return np.asarray(jax.jit(program.call)(*arguments))


# --8<-- [end:export]
# --8<-- [start:run]
def main(arguments: Sequence[str] | None = None) -> float:
    """Runs all of it; returns the largest difference to an undisturbed run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, help="only train, with checkpoints here")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args(arguments)
    if options.train is not None:
        train(options.train, options.steps)
        return 0.0
    with tempfile.TemporaryDirectory() as place:
        saved = Path(place, "checkpoints")
        print(f"killed; the newest checkpoint is {killed_run(saved, 10**6)}")
        steps = max(options.steps, jde.checkpoint.latest(saved) or 0)
        resumed, loss = train(saved, steps)
        undisturbed, other = train(None, steps)
        print(f"loss of step {steps}: {loss:.6f} resumed, {other:.6f} undisturbed")
        export(resumed, Path(place, "served"))
        served = serve(Path(place, "served"))
        undisturbed.eval()
        expected = undisturbed(batch(10**6)[0])
        difference = float(np.abs(served - np.asarray(expected)).max())
    print(f"largest difference of a served logit: {difference:.1e}")
    return difference


# --8<-- [end:run]
if __name__ == "__main__":
    main()
