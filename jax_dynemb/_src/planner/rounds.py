# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many rounds the exchange of distinct ids is expected to take."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from jax_dynemb._src.planner.work import Batch

ONE_ROUND = np.ones(1)  # chances of what never takes a further one
FAR = 8.0  # roots of the mean; no pair of a device and an owner is as far above it


def chances_of_rounds(batch: Batch, width: int, room: int) -> np.ndarray:
    """Computes the chance that 1, 2, ... rounds are enough for a table: [n], up to 1.

    Ids are spread over ``width`` owners by their hash, so what an owner gets of a
    device is binomial. The fullest of all pairs decides; each has ``room`` places, 1 or
    more.
    """
    from scipy.special import betainc  # not earlier: most processes never plan

    share = 1 / width
    mean = batch.distinct * share
    most = min(mean + FAR * math.sqrt(mean) + FAR, batch.ids)
    rounds = np.arange(1, max(1, math.ceil(most / room)) + 1)
    fit = np.minimum(rounds * room, batch.distinct)
    # The incomplete beta function is the tail of the binomial distribution.
    too_many = betainc(fit + 1, np.maximum(batch.distinct - fit, 1e-9), share)
    too_many = np.where(fit < batch.distinct, too_many, 0.0)
    pairs = batch.shards * width
    result = (1 - too_many) ** pairs
    result[-1] = 1.0
    return result


def expected_rounds(chances: Iterable[np.ndarray]) -> float:
    """Computes the mean rounds of a step from ``chances_of_rounds`` of its tables.

    If one is not enough, owners forget the first one, which counts too.
    """
    joint = ONE_ROUND
    for each in chances:
        if len(each) > 1:
            longer, shorter = (each, joint) if len(each) > len(joint) else (joint, each)
            joint = longer.copy()
            joint[: len(shorter)] *= shorter
    if len(joint) == 1:
        return 1.0
    needed = np.arange(1, len(joint) + 1)
    run = needed + (needed > 1)
    exactly = joint.copy()
    exactly[1:] -= joint[:-1]
    return float((exactly * run).sum())
