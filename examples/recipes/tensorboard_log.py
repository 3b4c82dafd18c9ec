# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Logs losses and the counters of tables to TensorBoard.

python examples/recipes/tensorboard_log.py FOLDER
"""

import sys

import numpy as np
import tensorboardX

import clicks


def main(folder: str) -> clicks.Training:
    """Trains one epoch, and writes its curves to a folder."""
    with tensorboardX.SummaryWriter(folder) as writer:

        def log(step: int, numbers: dict[str, float]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)

        return clicks.train_logged(log)


if __name__ == "__main__":
    print(np.round(main(sys.argv[1]).losses, 3))
