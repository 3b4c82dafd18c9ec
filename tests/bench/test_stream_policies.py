# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/stream_policies.py: its tables, and a short day in one of them."""

import jax_dynemb as jde
import stream_policies


def test_each_policy_has_a_table_of_the_same_size():
    tables = [policy.table(512, 4_096) for policy in stream_policies.policies()]
    assert len(set(map(repr, tables))) == 8
    assert {table.num_slots for table in tables} == {512}
    assert [t.on_full for t in tables].count("compete") == 2
    assert [t.admission is None for t in tables].count(False) == 3
    assert isinstance(jde.Tables(tables[:1]).init(0), dict)


def test_a_policy_is_measured():
    policy = stream_policies.policies()[1]
    short = stream_policies.stream.Stream(batch=64, steps=2, born=20)
    line = stream_policies.measure(policy, short, 256, 4_096)
    assert (line["scores"], line["entry"]) == ("step", "admission")
    assert len(line["hours"]) == stream_policies.stream.HOURS
    assert 0 < line["auc"] < 1 and 0 < line["hit_rate"] < 1
