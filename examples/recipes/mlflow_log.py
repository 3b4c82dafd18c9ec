# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Logs losses and the counters of tables to MLflow, in a file without a server.

python examples/recipes/mlflow_log.py FOLDER
mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db

MLflow's store in plain files gets no updates any more, so the file is of SQLite.
"""

import json
import sys
from pathlib import Path

import mlflow
import numpy as np

import clicks


def main(folder: str) -> clicks.Training:
    """Trains one epoch; its configs and curves lie in a folder then."""
    mlflow.set_tracking_uri(f"sqlite:///{Path(folder).resolve()}/mlflow.db")
    mlflow.set_experiment("clicks")
    tables = clicks.ClickModel().sparse.coll.tables
    with mlflow.start_run():
        for name, table in tables.items():
            mlflow.log_param(name, json.dumps(table.to_dict()))
        return clicks.train_logged(
            lambda step, numbers: mlflow.log_metrics(numbers, step=step)
        )


if __name__ == "__main__":
    print(np.round(main(sys.argv[1]).losses, 3))
