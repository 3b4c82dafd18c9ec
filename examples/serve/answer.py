# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What both backends return. Needs NumPy alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

MAX_BATCH = 4096


class Answer(NamedTuple):
    """Holds the predictions of one request, all of one moment of the training.

    Attributes:
      logits: float32[batch].
      rows: float32[features, batch, dim].
      step: of the training.
      age: seconds since the rows were copied.
    """

    logits: np.ndarray
    rows: np.ndarray
    step: int
    age: float


class Backend(Protocol):
    """Predicts, and follows a training meanwhile."""

    features: list[str]

    def __call__(self, ids: np.ndarray) -> Answer:
        """Predicts for int64[features, batch]; -1 is padding."""
        ...

    def close(self) -> None:
        """Ends the thread that follows the training."""
        ...


def open_backend(kind: str, folder: str) -> Backend:
    """Opens a folder with "jax" or "torch"; imports that framework alone."""
    if kind == "jax":
        from serve.jax_backend import JaxBackend  # noqa: PLC0415

        return JaxBackend(folder)
    if kind == "torch":
        from serve.torch_backend import TorchBackend  # noqa: PLC0415

        return TorchBackend(folder)
    raise ValueError(f"backend={kind!r} must be 'jax' or 'torch'")


def check_ids(ids: np.ndarray, features: int) -> None:
    """Raises ValueError unless ids are int64[features, 1 to MAX_BATCH]."""
    fits = ids.ndim == 2 and len(ids) == features and 0 < ids.shape[1] <= MAX_BATCH
    if ids.dtype != np.int64 or not fits:
        raise ValueError(
            f"ids must be int64[{features}, batch] with a batch of 1 to {MAX_BATCH}, "
            f"not {ids.dtype}{list(ids.shape)}: send a larger batch in parts."
        )
