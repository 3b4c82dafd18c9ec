# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids and the fewest bytes of a step."""

import numpy as np
import pytest

from suite import workloads
from suite.figures import recorded
from suite.job import Job
from suite.timing import H200_BANDWIDTH


def test_shapes_and_draws():
    case = workloads.CASES["q"]
    ids = workloads.batch_ids(case, "zipf", seed=0)
    assert ids.shape == (26, 2048)
    assert ids.min() >= 0
    assert ids.max() < case.rows
    even = workloads.batch_ids(case, "uniform", seed=0)
    assert np.bincount(ids[0]).max() > 10 * np.bincount(even[0]).max()
    fresh = workloads.batch_ids(case, "fresh", seed=0)
    assert workloads.distinct_rows(fresh) == case.num_ids
    assert fresh.min() > case.rows


def test_one_id_takes_half_of_the_places_or_all():
    case = workloads.CASES["p"]
    hot = workloads.batch_ids(case, "hot", seed=0)[0]
    assert np.bincount(hot).max() / hot.size == pytest.approx(0.5, abs=0.05)
    assert len(np.unique(hot)) > 1000
    same = workloads.batch_ids(case, "same", seed=0)
    assert workloads.distinct_rows(same) == 1


def test_minimum_bytes_by_hand():
    case = workloads.Case(tables=1, rows=10, dim=2, batch=3, bag=2, pooled=True)
    forward = 4 * 2 * 4 + 6 * 8 + 3 * 2 * 4  # rows, ids, outputs
    assert workloads.minimum_bytes(case, 4, None) == forward
    adam = forward + 3 * 2 * 4 + 6 * 8 + 4 * 2 * (2 * 4) + 4 * 2 * (4 * 4)
    assert workloads.minimum_bytes(case, 4, "adam") == adam
    narrow = 4 * 2 * 2 + 6 * 8 + 3 * 2 * 2
    assert workloads.minimum_bytes(case, 4, None, 2, 2) == narrow


@pytest.mark.parametrize("case", ["a", "b"])
def test_floors_are_those_that_were_recorded_beside_the_peers(case):
    for record in recorded("peers_h200.json"):
        if record["case"] == case and record["ids"] != "fresh":
            shape = workloads.CASES[case]
            job = Job(case, shape, record["ids"], record["optimizer"])
            floor_ms = job.floor_bytes() / H200_BANDWIDTH * 1e3
            assert floor_ms == pytest.approx(record["floor_ms"], rel=0.01)
