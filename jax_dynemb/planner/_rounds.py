# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many rounds the exchange of distinct ids is expected to take."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from jax_dynemb.planner._work import Batch

FAR = 7.0  # standard deviations that no pair of a device and an owner leaves


def chances_of_rounds(batch: Batch, width: int, room: int) -> np.ndarray:
    """Computes the chance that 1, 2, ... rounds are enough for the ids of a table.

    Ids are spread over owners by their hash, so what an owner gets of a device is
    binomial, and nearly normal. The fullest of all pairs of a device and an owner
    decides.

    Args:
      batch: of a step.
      width: owners.
      room: places for the ids of a device with one owner, at least 1.

    Returns:
      [n], rising to 1.
    """
    mean = batch.distinct / width
    deviation = math.sqrt(mean * (1 - 1 / width))
    most = min(mean + FAR * deviation, batch.ids)
    rounds = np.arange(1, max(1, math.ceil(most / room)) + 1)
    if deviation == 0:
        return (rounds == rounds[-1]).astype(float)
    above = (rounds * room + 0.5 - mean) / deviation / math.sqrt(2)
    too_many = np.array([0.5 * math.erfc(x) for x in above.tolist()])
    pairs = batch.shards * width
    with np.errstate(divide="ignore"):  # a chance of 1 that a pair has too many
        result = np.exp(pairs * np.log1p(-too_many))
    result[-1] = 1.0
    return result


def expected_rounds(chances: Iterable[np.ndarray]) -> float:
    """Computes the mean number of rounds of a step: all tables take as many.

    If one round is not enough, owners forget the first one, which counts too.

    Args:
      chances: by table, what ``chances_of_rounds`` returns.
    """
    joint = np.ones(1)
    for each in chances:
        if len(each) > 1:
            longer, shorter = (each, joint) if len(each) > len(joint) else (joint, each)
            joint = longer.copy()
            joint[: len(shorter)] *= shorter
    needed = np.arange(1, len(joint) + 1)
    run = needed + (needed > 1)
    return float((np.diff(joint, prepend=0.0) * run).sum())
