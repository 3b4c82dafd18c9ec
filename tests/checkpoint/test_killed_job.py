# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of two processes, killed in part or whole while they train and save."""

from pathlib import Path

import pytest

import jax_dynemb as jde
from checkpoint import kill_job
from processes import NIGHTLY, counts_of

# In every other run one process is killed, in the others both are.
RUNS = 100 if NIGHTLY else 6


@pytest.mark.slow
def test_jobs_killed_at_any_moment(tmp_path, capsys):
    counts = counts_of(kill_job.__file__, tmp_path, RUNS, 1)
    survivors = counts.pop("survivors")
    with capsys.disabled():
        print(f"\nkilled jobs: {counts}")
        for seconds, words in survivors:
            print(f"a survivor ended after {seconds} s: {words[:160]}")
    assert counts["kills"] == RUNS * 3 // 2
    assert counts["lost"] == 0
    assert counts["wrong"] == 0
    assert counts["started"] >= RUNS and counts["completed"] >= 3
    # No process waits for ever for a dead one, and none is silent.
    assert len(survivors) == kill_job.WATCHED
    assert all(seconds is not None for seconds, _ in survivors)
    assert all("Error" in words or "error" in words for _, words in survivors)
    one_process_goes_on(tmp_path, counts)


def one_process_goes_on(directory: Path, counts: dict) -> None:
    """With what the last job left behind; rubbish is swept away."""
    coll = jde.Tables([kill_job.TABLE])
    restored = jde.checkpoint.restore(directory, coll.init(1), tables=coll)
    assert restored.step == counts["latest"] >= counts["last"]
    assert kill_job.held(coll, restored.tree) == counts["held"]
    after = restored.step + 1
    jde.checkpoint.save(
        directory, after, restored.tree, tables=coll, keep=kill_job.KEEP, wait=True
    )
    left = {path.name for path in directory.iterdir() if path.is_dir()}
    assert left == {str(restored.step), str(after)}
