# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Trains from a PyTorch DataLoader.

python examples/recipes/torch_dataloader.py

The loader's numbers go to JAX as NumPy arrays, because a torch tensor would cost one
more copy. Workers are spawned: JAX has threads, and a process with threads must not be
forked.
"""

from typing import Any

import numpy as np
import torch

import clicks


class Clicks(torch.utils.data.Dataset[Any]):
    """Batches of the log: a list of row numbers gives their columns."""

    def __init__(self):
        """Makes the log."""
        self.columns = clicks.click_log()

    def __len__(self):
        """Returns the number of examples."""
        return len(self.columns["label"])

    def __getitem__(self, rows: list[int]) -> Any:
        """Returns one batch, whose ids are hashed here: in a worker, if there are."""
        return clicks.to_batch({k: column[rows] for k, column in self.columns.items()})


def main(workers: int = 0) -> clicks.Training:
    """Trains one epoch in random order."""
    dataset = Clicks()
    shuffled = torch.utils.data.RandomSampler(
        dataset, generator=torch.Generator().manual_seed(0)
    )
    loader = torch.utils.data.DataLoader(
        dataset,
        sampler=torch.utils.data.BatchSampler(shuffled, clicks.BATCH, drop_last=False),
        batch_size=None,  # the sampler gives whole batches
        collate_fn=dict,  # of NumPy arrays: the default would make tensors
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    return clicks.train(loader)


if __name__ == "__main__":
    print(np.round(main(workers=2).losses, 3))
