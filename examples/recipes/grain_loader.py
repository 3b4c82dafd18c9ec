# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Trains from a grain pipeline that goes on where a checkpoint was taken.

python examples/recipes/grain_loader.py

The iterator's state is a dict of numbers, so it lies in the same checkpoint as the
model: after a kill no example is trained twice and none is left out.
"""

import json
import tempfile

import grain.python as grain
import numpy as np

import clicks
import jax_dynemb as jde


def batches() -> grain.DatasetIterator:
    """Returns the shuffled examples of one epoch, in batches."""
    columns = clicks.click_log()
    dataset = (
        grain.MapDataset.range(len(columns["label"]))
        .shuffle(seed=0)
        .to_iter_dataset()
        .batch(clicks.BATCH, drop_remainder=False)
        .map(lambda rows: {name: column[rows] for name, column in columns.items()})
        .map(clicks.to_batch)
    )
    return iter(dataset)


def main(stop_after: int = 5) -> clicks.Training:
    """Trains a few steps, saves, and goes on in new objects as a new process would."""
    directory = tempfile.mkdtemp()
    model, optimizer, iterator = *clicks.new(), batches()
    losses = [clicks.step(model, optimizer, next(iterator)) for _ in range(stop_after)]
    run = {"model": model, "optimizer": optimizer, "data": state_of(iterator)}
    jde.checkpoint.save(directory, stop_after, run, wait=True)

    model, optimizer, iterator = *clicks.new(), batches()
    run = {"model": model, "optimizer": optimizer, "data": state_of(iterator)}
    restored = jde.checkpoint.restore(directory, run)
    iterator.set_state(json.loads(restored.tree["data"]))
    losses += [clicks.step(model, optimizer, batch) for batch in iterator]
    return clicks.Training([float(loss) for loss in losses], model)


def state_of(iterator: grain.DatasetIterator) -> str:
    """Returns where an iterator is, as a text that a checkpoint may hold."""
    return json.dumps(iterator.get_state())


if __name__ == "__main__":
    print(np.round(main().losses, 3))
