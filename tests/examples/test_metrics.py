# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from ctr.metrics import auc, log_loss


def pairs_won(labels, scores):
    clicks, others = scores[labels == 1], scores[labels == 0]
    difference = clicks[:, None] - others[None, :]
    return np.mean((difference > 0) + 0.5 * (difference == 0))


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auc_is_the_share_of_pairs_in_the_right_order(levels):
    rng = np.random.default_rng(levels)
    labels = rng.integers(2, size=200)
    scores = rng.integers(levels, size=200).astype(np.float32)
    assert auc(labels, scores) == pytest.approx(pairs_won(labels, scores))


def test_auc_of_one_kind_of_label_is_undefined():
    assert math.isnan(auc(np.ones(3), np.arange(3.0)))


def test_log_loss_equals_its_definition_and_never_overflows():
    labels = np.array([1.0, 0.0, 1.0])
    chance = np.array([0.9, 0.2, 0.6])
    logits = np.log(chance / (1 - chance)).astype(np.float32)
    expected = -np.mean(np.log([0.9, 0.8, 0.6]))
    assert log_loss(labels, logits) == pytest.approx(expected, rel=1e-6)
    assert log_loss(np.zeros(1), np.array([1e4], np.float32)) == pytest.approx(1e4)
