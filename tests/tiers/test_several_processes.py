# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tiered tables on the devices of two processes: the same bits."""

from pathlib import Path

import jax
import pytest

from processes import run_job

SCRIPT = Path(__file__).with_name("several_processes.py")


# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11 crashes"
)
def test_two_processes_hold_the_rows_of_one():
    (alone,) = run_job(SCRIPT, 1, "none", 1)
    pair = run_job(SCRIPT, 2, "host", 2)
    first, second = (process["rows"] for process in pair)
    assert first and second and not first.keys() & second.keys()
    assert first | second == alone["rows"]
