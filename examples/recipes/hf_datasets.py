# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Trains from a dataset of Hugging Face's library.

python examples/recipes/hf_datasets.py

The dataset is made here; ``datasets.load_dataset(...)`` returns one of the same class.
With the format "arrow" a batch is an Arrow table, whose strings are hashed without a
Python object for each.
"""

from typing import Any

import datasets
import numpy as np

import clicks


def main() -> clicks.Training:
    """Trains one epoch in random order."""
    dataset = datasets.Dataset.from_dict(clicks.click_log()).shuffle(seed=0)
    arrow = dataset.with_format("arrow")
    return clicks.train(map(to_batch, arrow.iter(clicks.BATCH)))


def to_batch(table: Any) -> Any:
    """Returns the batch of an Arrow table."""
    return clicks.to_batch({name: table[name] for name in table.column_names})


if __name__ == "__main__":
    print(np.round(main().losses, 3))
