# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/bench_planner.py: its draws of plans, and the clock of its steps."""

import argparse
import itertools

import numpy as np
import pytest

import bench_planner
import jax_dynemb as jde
from jax_dynemb._src.planner import probes as _probes

TOPOLOGY = jde.Topology(2, 10**11, 2e12, 1e11, step_overhead=1e-4)


@pytest.mark.parametrize("apart", [0.0, 0.6, 1.0])
def test_tables_are_drawn_until_predictions_differ(apart, capsys):
    options = argparse.Namespace(
        plans=6, tables=4, batch=8192, most_rows=1e6, apart=apart
    )
    rng = np.random.default_rng(3)
    chosen, plans = bench_planner._plans_apart(rng, TOPOLOGY, options)
    assert [len(some) for some in chosen] == [4] * 6
    pairs = list(itertools.combinations([plan.ms for plan in plans], 2))
    found = sum(abs(np.log(a / b)) > np.log(1.1) for a, b in pairs) / len(pairs)
    draws = int(capsys.readouterr().out.split()[0])
    assert found >= apart or draws == 30
    assert draws == 1 or apart > 0


def test_calls_of_a_round_follow_each_other(monkeypatch):
    ran, now = [], iter(range(0, 1000, 7))
    monkeypatch.setattr(_probes, "clock", lambda: ran.append("clock") or next(now))

    def several(state, batch):
        ran.append(batch)
        return state + 1

    times = _probes.timed_rounds(several, np.zeros(()), ["a", "b"], 2)
    once = ["clock", *("ab" * _probes.TURNS), "clock"]
    assert ran == ["a", "b", *once, *once]
    assert times == [7 / (2 * _probes.TURNS)] * 2
