# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a step, from runs whose seconds are known."""

import itertools

import pytest

from suite.timing import Effort, time_chain

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

    def prepare():
        prepared.append(len(chain.runs))

    times = time_chain(chain, EFFORT, steps=9, before=prepare)
    assert times == pytest.approx([STEP] * 3)
    assert chain.runs == [9] + [1, 9] * 3  # the last leaves tables as full as they get
    assert prepared == list(range(7))


def test_a_run_of_one_step_that_was_interrupted_does_not_count():
    times = time_chain(Clockwork(0.5, 0.0, 0.0), EFFORT, steps=4)
    assert times == pytest.approx([STEP] * 3)


def test_runs_of_one_step_that_were_all_interrupted_are_left_out():
    times = time_chain(Clockwork(10.0), EFFORT, steps=4)
    assert times == pytest.approx([ONCE / 4 + STEP] * 3)


def test_a_repeat_takes_as_many_steps_as_fit():
    chain = Clockwork()
    effort = Effort(seconds=20.0, repeats=3)
    times = time_chain(chain, effort)
    assert times == pytest.approx([STEP] * 3)
    assert chain.runs == [4, 3] + [1, effort.steps(ONCE / 3 + STEP)] * 3


def test_a_repeat_of_one_step_is_all_there_is():
    assert time_chain(Clockwork(), EFFORT, steps=1) == [ONCE + STEP] * 3
