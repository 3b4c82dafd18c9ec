# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What one run is asked to do."""

from __future__ import annotations

import dataclasses
from typing import Literal

# A step size that suits each optimizer on click logs. SGD's is large because a row is
# touched rarely and its gradient is the mean over a batch.
LEARNING_RATES = {"adagrad": 0.02, "rowwise_adagrad": 0.02, "adam": 0.002, "sgd": 2.0}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything a learner needs to know beside its data.

    Attributes:
      epochs: passes over the training rows, or pieces of a stream.
      batch_size: rows of one step.
      dim: width of an embedding.
      capacity: rows that the dynamic table holds.
      optimizer: how embedding rows move: a key of `LEARNING_RATES`.
      learning_rate: step size of the embedding rows.
      dense_learning_rate: step size of Adam on the networks.
      scale: initial embeddings are uniform in [-scale, scale].
      param_dtype: of the embedding rows.
      rounding: of their updates, see ``jde.TableConfig``.
      seed: seed of the initial weights, the tables and the order of the rows.
    """

    epochs: int = 3
    batch_size: int = 1024
    dim: int = 16
    capacity: int = 8192
    optimizer: str = "adagrad"
    learning_rate: float = LEARNING_RATES["adagrad"]
    dense_learning_rate: float = 1e-3
    scale: float = 0.01
    param_dtype: str = "float32"
    rounding: Literal["nearest", "stochastic"] = "nearest"
    seed: int = 0
