# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A click model to serve: the example of training, shortened."""

from __future__ import annotations

import dataclasses

import numpy as np
from rich.console import Console

from ctr import synthetic
from ctr.clicks import Clicks
from ctr.dynamic import DynamicLearner
from ctr.fit import fit
from ctr.settings import Settings

ROWS = 420_000  # about a minute on two cores


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model, and rows with ids that it knows and ids that it does not."""

    learner: DynamicLearner
    test: Clicks
    logits: np.ndarray


def train(rows: int) -> Trained:
    """Trains on the synthetic stream; its test rows come later and hold new ids."""
    source = synthetic.load(synthetic.Stream(rows=rows))
    settings = Settings(epochs=len(source.parts), capacity=16_384)
    learner = DynamicLearner(source, settings)
    last = fit(learner, source, settings)[-1]
    Console().print(f"trained on {rows:,} rows: test AUC {last.auc:.3f}")
    test = next(source.epoch(settings.epochs - 1)[1].batches(settings.batch_size))
    return Trained(learner, test, learner.predict(test))
