# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/train_larger_than_memory.py: a small cache changes no result."""

import numpy as np

import train_larger_than_memory as larger


def test_a_twentieth_of_the_rows_in_memory(capsys, tmp_path):
    task = larger.Task(items=20_000, batch=96, capacity=32_768)
    where, below = larger.tier(task), larger.disk(task, tmp_path)
    runs = (larger.run(task, 120, each) for each in (None, where, below))
    plain, tiered, on_disk = runs
    np.testing.assert_array_equal(tiered.losses, plain.losses)
    assert tiered.auc == plain.auc > 0.6
    row = 4 * 3 * larger.DIM  # and both moments of Adam
    assert tiered.memory["pinned_host"] == task.capacity * row
    device_rows = where.hbm_rows + where.spill_rows
    assert 20 * device_rows <= task.capacity
    assert tiered.stats["item/written_back"] > 0
    assert 0 < tiered.stats["item/hbm_hit_rate"] < 1
    np.testing.assert_array_equal(on_disk.losses, plain.losses)
    assert on_disk.auc == plain.auc
    assert on_disk.memory["pinned_host"] <= plain.memory["hbm"] / 16
    rows = on_disk.stats["item/rows"] + on_disk.stats["item/rows_below"]
    assert rows == plain.stats["item/rows"] and on_disk.stats["item/refused"] == 0
    assert on_disk.stats["item/departed"] > on_disk.stats["item/returned"] > 0
    larger.report(plain, tiered, on_disk)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["AUC", *[f"{plain.auc:.6f}"] * 3]
    returned = f"{on_disk.stats['item/returned']:,}"
    assert f"rows that came back {0:>36} {0:>13} {returned:>13}" in lines
