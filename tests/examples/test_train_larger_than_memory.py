# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/train_larger_than_memory.py: a small cache changes no result."""

import numpy as np

import train_larger_than_memory as larger


def test_a_twentieth_of_the_rows_in_device_memory(capsys):
    task = larger.Task(items=6_000, batch=128, capacity=16_384)
    where = larger.tier(task)
    plain, tiered = (larger.run(task, 40, each) for each in (None, where))
    np.testing.assert_array_equal(tiered.losses, plain.losses)
    assert tiered.auc == plain.auc > 0.6
    row = 4 * 3 * larger.DIM  # and both moments of Adam
    assert tiered.memory["pinned_host"] == task.capacity * row
    device_rows = where.hbm_rows + where.spill_rows
    assert 20 * device_rows <= task.capacity
    assert tiered.stats["item/written_back"] > 0
    assert 0 < tiered.stats["item/hbm_hit_rate"] < 1
    larger.report(plain, tiered)
    assert "hbm_hit_rate" in capsys.readouterr().out
