# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The loop that trains a learner and measures it after every epoch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np

from . import metrics
from .clicks import Clicks, Source
from .settings import Settings


class Learner(Protocol):
    """A model with its tables and optimizer, dynamic or dense."""

    title: str

    def begin(self, clicks: Clicks) -> None:
        """Sees the training rows of an epoch before it starts."""
        ...

    def train(self, clicks: Clicks) -> jax.Array:
        """Takes one step on a batch; returns the loss."""
        ...

    def predict(self, clicks: Clicks) -> np.ndarray:
        """Returns the logits of a batch."""
        ...

    def stats(self) -> dict[str, float]:
        """Returns table statistics."""
        ...


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What an epoch led to.

    `seconds` is the time of training and testing, with whatever had to be compiled.
    """

    number: int
    train_loss: float
    auc: float
    log_loss: float
    seconds: float
    table: dict[str, float]


def fit(
    learner: Learner,
    source: Source,
    settings: Settings,
    *,
    on_step: Callable[[], None] = lambda: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Trains for `settings.epochs` epochs and tests after each."""
    rng = np.random.default_rng(settings.seed) if source.shuffle else None
    history = []
    for number in range(settings.epochs):
        start = time.perf_counter()
        train, test = source.epoch(number)
        loss = _train(learner, train, settings.batch_size, rng, on_step)
        auc, log_loss = evaluate(learner, test, settings.batch_size)
        seconds = time.perf_counter() - start
        stats = learner.stats()
        history.append(Epoch(number + 1, loss, auc, log_loss, seconds, stats))
        on_epoch(history[-1])
    return history


def evaluate(learner: Learner, test: Clicks, batch_size: int) -> tuple[float, float]:
    """Returns AUC and log loss on the test rows."""
    logits = np.concatenate([learner.predict(b) for b in test.batches(batch_size)])
    logits = logits[: len(test)]  # the rest filled up the last batch
    return metrics.auc(test.labels, logits), metrics.log_loss(test.labels, logits)


def count_steps(source: Source, settings: Settings) -> int:
    """Number of training steps of all epochs."""
    rows = [len(source.epoch(number)[0]) for number in range(settings.epochs)]
    return sum(-(-count // settings.batch_size) for count in rows)


def _train(
    learner: Learner,
    train: Clicks,
    batch_size: int,
    rng: np.random.Generator | None,
    on_step: Callable[[], None],
) -> float:
    learner.begin(train)
    losses = []
    for batch in train.batches(batch_size, rng):
        losses.append(learner.train(batch))
        on_step()
    # Read once an epoch: reading a loss waits for the device.
    return float(np.mean([np.asarray(loss) for loss in losses]))
