# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Logs losses and the counters of tables to Weights & Biases, without an account.

python examples/recipes/wandb_log.py FOLDER

Offline mode writes the run into the folder; "wandb sync" sends it later. Leave mode out
to send it at once.
"""

import sys

import numpy as np
import wandb

import clicks


def main(folder: str) -> clicks.Training:
    """Trains one epoch; its configs and curves lie in a folder then."""
    tables = clicks.ClickModel().sparse.coll.tables
    config = {name: table.to_dict() for name, table in tables.items()}
    with wandb.init(project="clicks", dir=folder, mode="offline", config=config) as run:
        return clicks.train_logged(lambda step, numbers: run.log(numbers, step=step))


if __name__ == "__main__":
    print(np.round(main(sys.argv[1]).losses, 3))
