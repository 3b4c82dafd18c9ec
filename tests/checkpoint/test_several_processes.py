# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of several processes: one process goes on with them, and back."""

from pathlib import Path

import numpy as np
import pytest

from processes import run_job

SCRIPT = Path(__file__).with_name("several_processes.py")


def together(parts: list[dict]) -> dict:
    """Joins what processes hold, each row in one of them."""
    rows: dict = {}
    for part in parts:
        assert not rows.keys() & part.keys()
        rows |= part
    return rows


@pytest.mark.slow
def test_a_run_moves_from_one_process_to_two_and_back(tmp_path):
    (alone,) = run_job(SCRIPT, 1, "alone", tmp_path)
    pair = run_job(SCRIPT, 2, "pair", tmp_path)  # compares bytes
    for process in pair:
        np.testing.assert_allclose(process["losses"], alone["losses"][3:], rtol=1e-5)
    assert together([process["imported"] for process in pair]) == alone["rows"]
    (again,) = run_job(SCRIPT, 1, "again", tmp_path)  # compares bytes
    rows = together([process["rows"] for process in pair])
    assert again["rows"] == rows and len(rows) >= len(alone["rows"]) > 30
