# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/stream.py: a day in fixed memory, with a cause for every row that left."""

import numpy as np
import pytest

import stream


def test_a_day_in_fixed_memory():
    day = stream.Stream(batch=256, steps=6, born=200)
    config = stream.table("lfu", True, slots=1_024, start=256)
    done = stream.run(config, day, expires=2)
    stream.check_causes(done.stats)
    assert done.coll.tables["item"].capacity == 1_024  # it grew twice, and no further
    assert 0 < done.stats["item/rows"] <= 1_024
    for name in ("hits", "not_admitted", "evicted", "removed_by_rule"):
        assert done.stats[f"item/{name}"] > 0, name
    occurrences = stream.HOURS * day.steps * day.batch
    assert done.stats["item/hits"] + done.stats["item/misses"] == occurrences
    assert np.mean([auc for auc, _ in done.hours[12:]]) > 0.55  # it has learned


def test_admission_keeps_out_ids_that_occur_once():
    day = stream.Stream(batch=256, steps=6, born=200)
    everything, some = (
        stream.run(stream.table("step", admits, 512, 512), day, expires=24)
        for admits in (False, True)
    )
    assert some.stats["item/evicted"] < everything.stats["item/evicted"] / 2
    assert some.stats["item/hits"] > everything.stats["item/hits"]


def test_a_row_without_a_cause_is_noticed():
    day = stream.Stream(batch=64, steps=1, born=10)
    done = stream.run(stream.table("step", False, 256, 256), day, expires=24)
    wrong = dict(done.stats) | {"item/evicted": done.stats["item/evicted"] + 1}
    with pytest.raises(RuntimeError, match="inserted"):
        stream.check_causes(wrong)
