# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tutorials' scripts find the truth that was planted in their data."""

import re
from pathlib import Path

import numpy as np
import pytest

from tutorials import (
    click_model,
    many_devices,
    ranker,
    resume,
    sequences,
    tasks,
    two_towers,
)

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
INCLUDED = re.compile(r'^--8<-- "([^":]+)(?::(\w+))?"$', re.MULTILINE)


@pytest.mark.slow
def test_clicks_are_predicted_nearly_as_well_as_the_truth_does():
    found = click_model.main(steps=600)
    assert found["learned"] > found["possible"] - 0.04
    assert found["users"] == click_model.USERS


@pytest.mark.slow
def test_towers_find_the_items_of_the_topic():
    found = two_towers.main(steps=300)
    assert 0.8 * found["possible"] < found["recall"] < 1.1 * found["possible"]


@pytest.mark.slow
def test_sessions_are_continued():
    assert sequences.main(steps=250) > 0.9


@pytest.mark.slow
def test_likes_of_new_people_are_ranked_as_bayes_rule_does():
    found = ranker.main()
    assert found["possible"] - 0.02 < found["learned"] < found["possible"] + 0.02
    assert found["begin"] < found["learned"] - 0.05  # the history is what helps


def test_the_best_guess_counts_likes_before_and_not_the_like_itself():
    topics, liked = np.array([[3, 3, 4, 3]]), np.array([[True, True, True, False]])
    believed = np.array([[0.5, 0.9, 0.5, 0.81 / 0.82]])
    want = believed * 0.9 + (1 - believed) * 0.1
    np.testing.assert_allclose(ranker.best_guess(topics, liked), want)


@pytest.mark.slow
def test_clicks_help_to_predict_purchases():
    found = tasks.main(steps=500)
    assert found["alone"] + 0.05 < found["buy"] < found["possible"] + 0.01


@pytest.mark.slow
def test_what_was_killed_is_resumed_and_served():
    assert resume.main(["--steps", "60"]) < 1e-6


@pytest.mark.slow
def test_two_devices_train_as_one():
    assert many_devices.main(devices=2, steps=30) < 1e-6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_include_scripts_that_are_there(page):
    """Each part that a page includes is in the script, and is not empty."""
    included = INCLUDED.findall(page.read_text(encoding="utf-8"))
    assert included
    for name, part in included:
        text = (ROOT / name).read_text(encoding="utf-8")
        if part:
            between = text.split(f"# --8<-- [start:{part}]")[1]
            text = between.split(f"# --8<-- [end:{part}]")[0]
        assert len(text.strip()) > 50, (name, part)
