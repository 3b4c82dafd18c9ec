# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A killed job of two processes with tiers goes on as if nothing had happened."""

import signal
from pathlib import Path

import jax
import pytest

from processes import run_job, start_job

SCRIPT = Path(__file__).with_name("checkpoints_of_processes.py")
# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11"
    ),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run that nothing interrupts: one process, no tier."""
    folder = tmp_path_factory.mktemp("whole")
    (said,) = run_job(SCRIPT, 1, 1, "none", folder, "whole")
    return {when: said[when]["here"] for when in ("saved", "last")}, folder


def killed(tier: str, folder: Path) -> None:
    """Starts a job that saves, trains on and ends by a signal."""
    for process in start_job(SCRIPT, 2, 2, tier, folder, "killed"):
        process.communicate(timeout=240)
        # JAX aborts a process that sees the other one die before its own signal comes.
        assert process.returncode in (-signal.SIGKILL, -signal.SIGABRT)


def assert_same(parts: list[dict], expected: dict) -> None:
    """Compares what processes have here and below; no row is in two places."""
    for table in parts[0]["here"]:
        places = [said[where].get(table, {}) for said in parts for where in said]
        assert sum(map(len, places)) == len(expected[table]) > 500
        assert {k: row for p in places for k, row in p.items()} == expected[table]


@pytest.mark.parametrize("tier", ["host", "ssd"])
def test_a_killed_job_goes_on(tmp_path, whole, tier):
    expected, _ = whole
    killed(tier, tmp_path)
    pair = run_job(SCRIPT, 2, 2, tier, tmp_path, "resumed")
    for when in ("saved", "last"):
        assert_same([said[when] for said in pair], expected[when])
    if tier == "host":
        for processes in (1, 2):  # into other tiers and capacities, or none
            job = run_job(SCRIPT, processes, processes, tier, tmp_path, "moved")
            for parts in zip(*(said["moved"] for said in job), strict=True):
                assert_same(list(parts), expected["saved"])
        return
    for said in pair:
        assert min(map(len, said["last"]["below"].values())) > 100
    for said in run_job(SCRIPT, 2, 2, tier, tmp_path, "moved"):
        assert all("stores of several processes" in each for each in said["moved"])
    (said,) = run_job(SCRIPT, 1, 1, tier, tmp_path, "moved")
    for part in said["moved"]:  # into tables without a store, and larger ones
        assert_same([part], expected["saved"])
    for processes in (1, 3):
        job = run_job(SCRIPT, processes, processes, tier, tmp_path, "resumed")
        for when in ("saved", "last"):
            assert_same([said[when] for said in job], expected[when])
        for said in job:  # a row stays in the process that owns it
            saved, last = (
                {(t, k) for part in said[when].values() for t in part for k in part[t]}
                for when in ("saved", "last")
            )
            assert saved <= last
        below = [min(map(len, said["saved"]["below"].values())) for said in job]
        # Each table has four buckets, so the last of three devices has none.
        assert [n > 100 for n in below] == [True, True, False][:processes]


def test_two_processes_take_over_tables_of_one(whole):
    """The checkpoint is of one process, and of tables without a tier."""
    expected, folder = whole
    job = run_job(SCRIPT, 2, 2, "none", folder, "moved")
    for parts in zip(*(said["moved"] for said in job), strict=True):
        assert_same(list(parts), expected["saved"])
