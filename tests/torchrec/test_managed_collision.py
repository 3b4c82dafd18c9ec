# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in the place of TorchRec's managed collision."""

import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from golden.load_golden import misc
from jax_dynemb.admission import Probability
from jax_dynemb.lifecycle import Rule

T = jde.torchrec
PADDED_BATCH = 6


class DistanceLFU_EvictionPolicy:  # noqa: N801 (TorchRec's name)
    """As TorchRec's, as far as it is read."""

    def __init__(self, threshold_filtering_func: Any = None):
        self._threshold_filtering_func = threshold_filtering_func


def fields(**params: Any) -> dict[str, Any]:
    return T.from_managed_collision(params)[0]


TRACES = [
    trace
    for trace in misc()["mch_traces"]
    if trace["eviction_interval"] == 1 and not trace["policy"].startswith("Distance")
]


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["policy"])
def test_rows_that_torchrec_evicts_have_the_lowest_scores(trace):
    """Ids that its module evicts or turns away leave the table after each step.

    None of them has a higher score than one that stays. Ties are not compared: it keeps
    the id that has a slot, and a table the one that was used last.
    """
    config = T.EmbeddingConfig(1, 4, "t").to_table(
        **fields(zch_size=128, eviction_policy=trace["policy"])
    )
    coll = jde.Tables([config])
    state, slots, compared = coll.init(0), {}, 0
    nowhere = max(slot for step in trace["steps"] for slot in step["remapped"])
    for step in trace["steps"]:
        _, _, state = coll.lookup(state, {"t": jde.ids(step["ids"])})
        pairs = zip(step["remapped"], step["ids"], strict=True)
        slots |= {slot: key for slot, key in pairs if slot != nowhere}
        (chunk,) = coll.export(state, "t")
        scores = dict(zip(chunk.keys.tolist(), chunk.scores.tolist(), strict=True))
        if trace["policy"].startswith("LFU"):
            uses = coll.use_counts(state, "t", chunk.scores)
            scores = dict(zip(chunk.keys.tolist(), uses.tolist(), strict=True))
        leaves = set(scores) - set(slots.values())
        assert set(slots.values()) <= set(scores)
        for key in leaves:
            assert scores[key] <= min(scores[stays] for stays in slots.values())
            compared += 1
        gone = [*leaves, *[-1] * (PADDED_BATCH - len(leaves))]
        state = coll.erase(state, {"t": jde.ids(gone)})
    assert compared > 20
    assert sorted(slots.values()) == trace["final_sorted_raw_ids"][:-1]


def test_arguments_become_fields_and_a_rule():
    config = SimpleNamespace(features=["a", "b"], single_ttl=24, per_feature_ttl=None)
    made, rule = T.from_managed_collision(
        {
            "zch_size": 1000,
            "device": "cuda",
            "total_num_buckets": 10,
            "max_probe": 64,
            "eviction_policy_name": SimpleNamespace(value="SINGLE_TTL_EVICTION"),
            "eviction_config": config,
            "opt_in_prob": 25,
            "percent_reserved_slots": 5,
        }
    )
    day = Rule(unused_for=datetime.timedelta(hours=24))
    assert repr(rule) == repr(day)
    table = T.EmbeddingBagConfig(10, 8, "t", feature_names=["a", "b"]).to_table(**made)
    assert (table.capacity, table.score_strategy) == (1000, "timestamp")
    assert table.admission == Probability(0.25)
    same = {"features": ["a", "b"], "per_feature_ttl": [24, 24]}
    per_feature = {"eviction_policy_name": "PER_FEATURE_TTL_EVICTION"}
    _, rule = T.from_managed_collision(per_feature | {"eviction_config": same})
    assert repr(rule) == repr(day)


def test_policies_become_score_strategies():
    assert fields(zch_size=7) == {"capacity": 7, "score_strategy": "no_eviction"}
    assert fields(opt_in_prob=-1) == fields(opt_in_prob=None) == fields()
    assert fields(eviction_policy="LRU_EvictionPolicy") == {"score_strategy": "step"}
    assert fields(eviction_policy_name="LRU_EVICTION") == {"score_strategy": "step"}
    policy = {"eviction_policy": DistanceLFU_EvictionPolicy(), "mch_size": None}
    for interval, halflife in ((None, 1000), (20, 1000), (5000, 5000)):
        given = {**policy, "eviction_interval": interval, "buckets": 4}
        faded, _ = T.from_managed_collision(given)
        assert faded == {"score_strategy": "lfu", "lfu_halflife": halflife}
    made, rule = T.from_managed_collision(policy, lfu_halflife=50)
    assert made == {"score_strategy": "lfu", "lfu_halflife": 50} and rule is None


@pytest.mark.parametrize(
    ("params", "fix"),
    [
        (
            {"eviction_policy": DistanceLFU_EvictionPolicy(lambda counts: counts)},
            "admission=jde.admission.Frequency",
        ),
        ({"eviction_policy": "MRU"}, "use .'LFU_EvictionPolicy'"),
        ({"eviction_policy_name": "SINGLE_TTL_EVICTION"}, "single_ttl, in hours"),
        (
            {
                "eviction_policy_name": "PER_FEATURE_TTL_EVICTION",
                "eviction_config": {"features": ["a", "b"], "per_feature_ttl": [1, 2]},
            },
            "a table for each",
        ),
        ({"zch_sise": 10}, "zch_sise is unknown"),
        ({"input_hash_func": abs}, "jde.hash_ids"),
        ({"mch_size": 100}, "its own initial row"),
    ],
)
def test_what_has_no_counterpart_says_what_to_write(params, fix):
    with pytest.raises(ValueError, match=fix):
        T.from_managed_collision(params)


def test_initial_rows_stand_for_the_slot_that_is_shared():
    """An id that gets no row reads its own initial row, and trains no other."""
    config = T.EmbeddingConfig(256, 4, "t").to_table(**fields(opt_in_prob=0))
    coll = jde.Tables([config])
    ids = {"t": jde.ids([5, 6])}
    rows, residual, state = coll.lookup(coll.init(0), ids)
    state = coll.apply_gradients(state, residual, {"t": np.ones((2, 4), np.float32)})
    again, _, state = coll.lookup(state, ids)
    np.testing.assert_array_equal(again["t"], rows["t"])
    assert not np.array_equal(rows["t"][0], rows["t"][1])
    assert coll.stats(state)["t/rows"] == 0
