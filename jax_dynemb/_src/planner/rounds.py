# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Expects of a step: how many different ids, and rounds of exchanging them."""

from __future__ import annotations

import functools
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


BINS = 256  # of ranks, equally wide on a logarithmic scale


@functools.lru_cache(maxsize=4096)
def expected_distinct(draws: int, keys: int, skew: float) -> float:
    """Computes the mean number of different ids among ``draws`` of ``keys``.

    The key of rank r has the frequency ``r ** -skew`` (Zipf); 0: all are as frequent.
    """
    if draws <= 0:
        return 0.0
    if skew == 0 or keys == 1:
        return -keys * math.expm1(draws * math.log1p(-1 / keys)) if keys > 1 else 1.0
    edges = np.unique(np.rint(np.geomspace(1, keys + 1, BINS)))
    width = np.diff(edges)
    middle = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1]))
    frequency = middle**-skew
    chance = frequency / (width * frequency).sum()
    missing = np.exp(draws * np.log1p(-np.minimum(chance, 0.999)))
    return float((width * (1 - missing)).sum())
