# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A prefetcher of two processes has the rows of one, each in the store of its owner."""

from pathlib import Path

import jax
import pytest

from processes import run_job

SCRIPT = Path(__file__).with_name("prefetch_rows_of_processes.py")
# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11"
    ),
]


def test_two_processes_have_the_rows_of_one(tmp_path):
    """They hold 512 of 1,200 rows; one ends two batches early, and so do both."""
    (alone,) = run_job(SCRIPT, 1, 1, "none", tmp_path)
    pair = run_job(SCRIPT, 2, 2, "ssd", tmp_path)
    for table, rows in alone["here"].items():
        parts = [said[where][table] for said in pair for where in ("here", "below")]
        assert min(map(len, parts)) > 100
        assert sum(map(len, parts)) == len(rows)  # so none is in two places
        assert dict(pair for part in parts for pair in part.items()) == rows
    for rank, said in enumerate(pair):
        assert (said["steps"], said["error"]) == (alone["steps"], "")
        assert said["returned"] > 100
        commits = tmp_path / f"{rank}-of-2" / "wide" / "commits"
        assert (commits / "step-25.json").exists()


def test_the_failure_of_one_store_ends_both_prefetchers(tmp_path):
    first, second = run_job(SCRIPT, 2, 2, "broken", tmp_path)
    assert "the prefetcher of another process has failed" in first["error"]
    assert second["error"] == "the disk is gone"
    assert 0 < first["steps"] == second["steps"] < 38


def test_processes_may_not_share_the_place_of_a_store(tmp_path):
    for said in run_job(SCRIPT, 2, 2, "shared", tmp_path):
        assert "keep rows of table 'bags' in ('server', 7)" in said["error"]
        assert said["steps"] == 0
