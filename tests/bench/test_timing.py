# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a step, from runs whose seconds are known."""

import itertools

import pytest

from jax_dynemb.bench.timing import Effort, time_chain, time_few

EFFORT = Effort(seconds=1.0, repeats=3, fewest=2)
ONCE, STEP = 5.0, 0.25  # seconds of a run, and of each of its steps


class Clockwork:
    """Takes as long as it says."""

    def __init__(self, *interrupted: float):
        self.interrupted = itertools.cycle(interrupted or (0.0,))  # runs of one step
        self.runs = []

    def run(self, steps: int) -> float:
        self.runs.append(steps)
        once = ONCE + (next(self.interrupted) if steps == 1 else 0.0)
        return once / steps + STEP


def test_what_a_run_waits_for_once_is_not_of_a_step():
    chain, prepared = Clockwork(), []
    times = time_few(chain, EFFORT, 9, lambda: prepared.append(len(chain.runs)))
    assert times == pytest.approx([STEP] * 3)
    assert chain.runs == [9] + [1, 9] * 3  # the last leaves tables as full as they get
    assert prepared == list(range(7))


def test_a_run_of_one_step_that_was_interrupted_does_not_count():
    times = time_few(Clockwork(0.5, 0.0, 0.0), EFFORT, 4, lambda: None)
    assert times == pytest.approx([STEP] * 3)


def test_runs_of_one_step_that_were_all_interrupted_are_left_out():
    times = time_few(Clockwork(10.0), EFFORT, 4, lambda: None)
    assert times == pytest.approx([ONCE / 4 + STEP] * 3)


def test_a_long_run_is_divided_by_its_steps():
    times = time_chain(Clockwork(), EFFORT, steps=100)
    assert times == pytest.approx([ONCE / 100 + STEP] * 3)
