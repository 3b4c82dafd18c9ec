# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How good a prediction of clicks is."""

from __future__ import annotations

import numpy as np


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Chance that a random click scores above a random non-click; ties count one half.

    Args:
      labels: 0 or 1, `[n]`.
      scores: anything that grows with the chance of a click, `[n]`.

    Returns:
      The area under the ROC curve, or NaN where only one kind of label is present.
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank = (last - (counts - 1) / 2.0)[place]  # mean rank among equals, counted from 1
    positive = labels > 0.5
    clicks = int(positive.sum())
    others = len(labels) - clicks
    if clicks == 0 or others == 0:
        return float("nan")
    return float((rank[positive].sum() - clicks * (clicks + 1) / 2) / (clicks * others))


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    """Mean negative log likelihood of 0/1 labels `[n]` under logits `[n]`."""
    logits = logits.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, logits) - labels * logits))
