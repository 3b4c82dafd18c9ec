# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A process that is killed while it saves loses nothing that was complete."""

import pytest

import jax_dynemb as jde
from checkpoint import kill_writer
from processes import NIGHTLY, counts_of

KILLS = 540 if NIGHTLY else 24


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path, capsys):
    counts = counts_of(kill_writer.__file__, tmp_path, KILLS, 0)
    with capsys.disabled():
        print(f"\nkilled writers: {counts}")
    assert counts["kills"] == KILLS
    assert counts["lost"] == 0
    assert counts["inside_a_save"] >= KILLS // 2
    assert counts["completed"] >= KILLS * 10 / 54
    # What the last one left behind is complete too, and can be gone on with.
    step = kill_writer.check(tmp_path)
    assert step >= counts["last"]
    jde.checkpoint.save(
        tmp_path,
        step + 1,
        kill_writer.content(step + 1),
        tables=kill_writer.COLL,
        keep=kill_writer.KEEP,
        wait=True,
    )
    assert kill_writer.check(tmp_path) == step + 1
    assert len(jde.checkpoint.steps(tmp_path)) <= kill_writer.KEEP
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} <= {
        str(step + 1),
        str(step),
    }
