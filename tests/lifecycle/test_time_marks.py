# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TimeMarks: clocks of tables by the time of the day."""

import json

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule, TimeMarks
from support import export


def test_the_latest_mark_that_is_old_enough():
    marks = TimeMarks()
    for clock, hour in [(10, 0), (20, 1), (30, 2)]:
        marks.add(clock, hour * 3600)
    now = 2.5 * 3600
    assert marks.before(hours=1, seconds=now) == 20
    assert marks.before(hours=1, minutes=30, seconds=now) == 20  # just as old
    assert marks.before(hours=1, minutes=31, seconds=now) == 10
    assert marks.before(days=1, seconds=now) == 0
    assert marks.before(seconds=now) == 30


def test_a_clock_that_runs_backwards():
    """A table was restored: what came after its clock did not happen."""
    marks = TimeMarks()
    for clock in (10, 20, 30):
        marks.add(clock, clock)
    marks.add(15, 40)
    assert marks.to_json() == [[10, 10], [40, 15]]


def test_text_and_back():
    marks = TimeMarks()
    marks.add(2**60, 1.5)
    marks.add(2**60 + 1, 2.5)
    again = TimeMarks.from_json(json.loads(json.dumps(marks.to_json())))
    assert again.to_json() == marks.to_json() == [[1.5, 2**60], [2.5, 2**60 + 1]]


def test_old_marks_are_thinned_out():
    marks = TimeMarks(limit=100)
    for n in range(1000):
        marks.add(n, n)
    assert len(marks) <= 100
    assert marks.before(seconds=999) == 999
    for age in (10, 30, 100, 300):
        found = marks.before(minutes=age / 60, seconds=999)
        assert 999 - 1.3 * age <= found <= 999 - age


def test_mistakes():
    marks = TimeMarks()
    marks.add(5, 100.0)
    with pytest.raises(ValueError, match="order of time"):
        marks.add(6, 99.0)
    for seconds in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="is no time"):
            marks.add(6, seconds)
        with pytest.raises(ValueError, match="is no time"):
            marks.before(hours=1, seconds=seconds)
    for clock in (-1, 1.5, "7", {"t": 7}, None, True):
        with pytest.raises(TypeError, match=r"write marks.add\(coll.get_score"):
            marks.add(clock)
    for hours in (-1, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="are no age from 0 on"):
            marks.before(hours=hours)
    for text in ("[[1, 2]]", None, [[1]], [5], 3):
        with pytest.raises(TypeError, match="pairs of seconds and clock that to_json"):
            TimeMarks.from_json(text)
    assert marks.to_json() == [[100.0, 5]]
    for limit in (1, 2.5, True):
        with pytest.raises(ValueError, match="from 2 on"):
            TimeMarks(limit)


def test_rows_unused_for_an_hour(platform):
    coll = jde.Tables([jde.TableConfig("t", 2, 256)])
    state, marks = coll.init(0), TimeMarks()
    for hour in range(4):
        marks.add(coll.get_score(state)["t"], hour * 3600)
        _, _, state = coll.lookup(state, {"t": jde.ids(np.array([hour, 9]))})
    rule = Rule(unused_since=marks.before(hours=1, seconds=3 * 3600))
    _, state = coll.erase_where(state, {"t": rule})
    assert set(export(coll, state, "t")) == {2, 3, 9}
