# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Logs losses and the counters of tables to TensorBoard.

python examples/recipes/tensorboard_log.py FOLDER

``stats`` waits for the devices, so it is read every few steps only.
"""

import sys

import numpy as np
import tensorboardX

import clicks


def main(folder: str, every: int = 4) -> clicks.Training:
    """Trains one epoch, and writes its curves to a folder."""
    columns = clicks.click_log()
    model, optimizer = clicks.new()
    losses = []
    with tensorboardX.SummaryWriter(folder) as writer:
        for start in range(0, len(columns["label"]), clicks.BATCH):
            rows = slice(start, start + clicks.BATCH)
            batch = clicks.to_batch({k: column[rows] for k, column in columns.items()})
            losses.append(clicks.step(model, optimizer, batch))
            step = len(losses)
            if step % every == 0:
                writer.add_scalar("loss", float(losses[-1]), step)
                for name, value in model.sparse.stats().items():
                    writer.add_scalar(name, float(value), step)
    return clicks.Training([float(loss) for loss in losses], model)


if __name__ == "__main__":
    print(np.round(main(sys.argv[1]).losses, 3))
