# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A process that is killed while it saves loses nothing that was complete."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jax_dynemb as jde
from checkpoint import kill_writer

KILLS = 54


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path, capsys):
    script = Path(kill_writer.__file__)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, tmp_path, str(KILLS), "0"],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\nkilled writers: {counts}")
    assert counts["kills"] == KILLS
    assert counts["lost"] == 0
    assert counts["inside_a_save"] >= KILLS // 2
    assert counts["completed"] >= 10
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
