# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The same model in PyTorch, on tables that follow a training. No JAX here."""

from __future__ import annotations

import numpy as np
import torch

from jax_dynemb_torch import Subscriber
from serve.answer import Answer, check_ids


class TorchBackend:
    """Serves the publication in a folder of ``publish.py``."""

    def __init__(self, folder: str):
        """Loads the newest snapshot, and follows."""
        # 64 ids are too few to share: waiting for other threads takes longer.
        torch.set_num_threads(1)
        self._served = Subscriber(f"{folder}/published")
        names = self._served.version().collection.features
        pairs = [(name, each) for name, (each,) in names.items()]
        self.features = [each for _, each in sorted(pairs, key=lambda p: int(p[0][1:]))]

    @torch.inference_mode()
    def __call__(self, ids: np.ndarray) -> Answer:
        """Predicts for int64[features, batch]; -1 is padding."""
        check_ids(ids, len(self.features))
        version = self._served.version()  # held: rows and layers of one moment
        columns = zip(self.features, torch.from_numpy(np.array(ids)), strict=True)
        found, dense = version.collection(dict(columns)), version.dense
        rows = torch.stack([found[name] for name in self.features])
        x = rows.movedim(0, 1).flatten(1)
        hidden = torch.relu(x @ dense["hidden"] + dense["bias"])
        logits = hidden @ dense["top"]
        return Answer(logits.numpy(), rows.numpy(), version.step, version.age())

    def close(self) -> None:
        """Ends the thread that follows the training."""
        self._served.close()
