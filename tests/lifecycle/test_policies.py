# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rule.from_policy: eviction policies of other libraries, by names of fields."""

import dataclasses
import datetime
from typing import Any

import jax.numpy as jnp
import pytest

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule, TimeMarks

DAY = 24 * 60
NANOSECONDS = 60 * 10**9


def number(words: Any) -> int:
    return int(words[0]) | int(words[1]) << 32


def fbgemm(strategy: int, **fields) -> dict:
    return {"eviction_trigger_mode": 3, "eviction_strategy": strategy, **fields}


def test_lists_of_fbgemm_are_by_table():
    policy = fbgemm(2, ttls_in_mins=[5, DAY], counter_thresholds=[0, 15])
    rule = Rule.from_policy(policy, table=1)
    assert rule is not None and rule.combine == "all" and rule.is_time
    assert number(rule.unused_for) == DAY * NANOSECONDS and rule.count_below == 15
    assert Rule.from_policy(policy, table=0) is None  # disabled if either is 0
    with pytest.raises(ValueError, match="no ttls_in_mins for table 2"):
        Rule.from_policy(policy, table=2)


@pytest.mark.parametrize(
    "policy, field, value",
    [
        (fbgemm(0, ttls_in_mins=[7]), "unused_for", 7 * NANOSECONDS),
        (fbgemm(1, counter_thresholds=[3]), "count_below", 3),
        (fbgemm(3, l2_weight_thresholds=[0.5]), "norm_below", 0.5),
        (fbgemm(5, training_id_keep_count=[900]), "keep_at_most", 3600),
        ({"eviction_threshold": 15, "decay_rate": 0.99}, "count_below", 15),
        ({"eviction_threshold": 0.25}, "norm_below", 0.25),
        ({"steps_to_live": 4000}, "unused_for", 4000),
        ({"l2_weight_threshold": 0.75}, "norm_below", 0.75),
        ({"eviction_ttl_mins": DAY}, "unused_for", DAY * NANOSECONDS),
        (
            {"training_id_keep_count": 50, "eviction_ttl_mins": 0},
            "keep_at_most",
            200,
        ),
        (
            {"training_id_keep_count": 50, "eviction_ttl_mins": 2},
            "unused_for",
            2 * NANOSECONDS,
        ),
    ],
)
def test_one_field(policy, field, value):
    rule = Rule.from_policy(policy, ranks=4)
    found = getattr(rule, field)
    assert (number(found) if found.shape else found) == value
    set_ = [n for n in ("unused_for", "count_below", "norm_below", "keep_at_most")]
    assert [n for n in set_ if getattr(rule, n) is not None] == [field]


def test_policies_that_remove_nothing():
    @dataclasses.dataclass
    class NoEvictionPolicy:
        pass

    assert Rule.from_policy(NoEvictionPolicy()) is None
    assert (
        Rule.from_policy({"eviction_trigger_mode": 0, "eviction_strategy": 0}) is None
    )
    assert Rule.from_policy({"eviction_ttl_mins": 0}) is None
    assert Rule.from_policy({"steps_to_live": None}) is None
    assert Rule.from_policy({"l2_weight_threshold": -1.0}) is None
    assert Rule.from_policy({"delete_threshold": 0}) is None
    off = fbgemm(
        5,
        training_id_keep_count=[9],
        enable_eviction_for_feature_score_eviction_policy=[False],
    )
    assert Rule.from_policy(off) is None


def test_inference_fields_and_marks():
    @dataclasses.dataclass
    class CountTimestampMixedEvictionPolicy:
        eviction_threshold: int = 15
        decay_rate: float = 0.99
        eviction_ttl_mins: int = DAY
        inference_eviction_threshold: int = 2
        inference_eviction_ttl_mins: int | None = None

    marks = TimeMarks()
    now = datetime.datetime.now().timestamp()
    marks.add(77, now - 2 * 86400)
    marks.add(900, now)
    policy = CountTimestampMixedEvictionPolicy()
    rule = Rule.from_policy(policy, inference=True, marks=marks)
    assert rule is not None
    assert rule.count_below == 2 and number(rule.unused_since) == 77
    assert not rule.is_time
    scores = {
        "training_id_keep_count": 50,
        "max_inference_id_num_per_rank": 20,
        "inference_eviction_feature_score_threshold": 3.0,
    }
    rule = Rule.from_policy(scores, inference=True)
    assert rule is not None and rule.keep_at_most == 20
    assert number(rule.score_below) == 3


def test_limits_of_paddle():
    """A row is removed if its score is below the threshold, or by its days unseen."""
    marks, now = TimeMarks(), datetime.datetime.now().timestamp()
    marks.add(31, now - 40 * 86400)
    marks.add(77, now - 31 * 86400)
    marks.add(900, now)
    policy = {"delete_threshold": 0.8, "delete_after_unseen_days": 30}
    rule = Rule.from_policy(policy | {"show_click_decay_rate": 0.98}, marks=marks)
    assert rule is not None and rule.combine == "any"
    assert number(rule.score_below) == 1 and number(rule.unused_since) == 77
    coll = jde.Tables([jde.TableConfig("t", 4, 128, score_strategy="customized")])
    state = coll.init(0)
    for score, key in enumerate([5, 6, 7]):
        ids, scores = {"t": jde.ids([key])}, {"t": jnp.uint32(score)}
        _, _, state = coll.lookup(state, ids, scores=scores)
    rule = Rule.from_policy({"delete_threshold": 0.8})
    assert rule is not None
    removed, state = coll.erase_where(state, {"t": rule})
    assert int(removed["t"]) == 1 and coll.stats(state)["t/rows"] == 2


def test_numbers_of_the_caller():
    scores = fbgemm(5, training_id_keep_count=[10, 20])
    for ranks in (0, -1, 2.0, True):  # none must empty the table
        with pytest.raises(ValueError, match="ranks must be 1 or more"):
            Rule.from_policy(scores, ranks=ranks)
    with pytest.raises(TypeError, match=r"write marks=marks\[name\]"):
        Rule.from_policy(fbgemm(0, ttls_in_mins=[5]), marks={"t": TimeMarks()})
    with pytest.raises(ValueError, match="no ttls_in_mins for table 0"):
        Rule.from_policy(fbgemm(0, ttls_in_mins=5))
    enabled = "enable_eviction_for_feature_score_eviction_policy"
    with pytest.raises(ValueError, match=f"no {enabled} for table 1"):
        Rule.from_policy(scores | {enabled: [True]}, table=1)
    assert Rule.from_policy(scores | {enabled: [True, False]}, table=1) is None
    assert Rule.from_policy(fbgemm(5, training_id_keep_count=[0])) is None


def test_strangers():
    with pytest.raises(TypeError, match="no eviction policy of FBGEMM, TorchRec, Deep"):
        Rule.from_policy(5)
    with pytest.raises(ValueError, match="takes its time when it runs"):
        Rule.from_policy(fbgemm(4, ttls_in_mins=[1]))
    with pytest.raises(ValueError, match="from 0 to 5"):
        Rule.from_policy(fbgemm(6))
