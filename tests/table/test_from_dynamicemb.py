# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every field of DynamicEmbTableOptions maps or is refused with a sentence."""

import enum
import types
from typing import Any

import pytest

import jax_dynemb as jde

# DynamicEmb's defaults (dynamicemb_config.py of v26.06), by name.
DEFAULTS: dict[str, Any] = {
    "embedding_dtype": None,
    "dim": None,
    "max_capacity": None,
    "evict_strategy": "LRU",
    "local_hbm_for_values": 0,
    "device_id": None,
    "training": True,
    "initializer_args": {"mode": "UNIFORM", "lower": None, "upper": None},
    "eval_initializer_args": {"mode": "CONSTANT", "value": 0.0},
    "caching": False,
    "init_capacity": None,
    "max_load_factor": 0.5,
    "score_strategy": "TIMESTAMP",
    "bucket_capacity": 128,
    "safe_check_mode": "IGNORE",
    "global_hbm_for_values": 0,
    "external_storage": None,
    "index_type": None,
    "dist_type": "roundrobin",
    "admit_strategy": None,
    "admission_counter": None,
}


class Score(enum.Enum):
    TIMESTAMP = 0
    LFU = 3
    NO_EVICTION = 4


# DynamicEmb's strategies and its KVCounter, by their attributes.
FREQUENCY = types.SimpleNamespace(threshold=3)
RARE = types.SimpleNamespace(threshold=300)
COIN = types.SimpleNamespace(p=0.25)
COUNTER = types.SimpleNamespace(capacity=1 << 16)


def of(**options: Any) -> jde.TableConfig:
    """Takes the defaults of a table with a size, as attributes."""
    sizes = {"dim": 8, "max_capacity": 4096}
    given = types.SimpleNamespace(**DEFAULTS | sizes | options)
    return jde.TableConfig.from_dynamicemb(given, "t")


def counted(threshold: int, of_each: int, counts: Any) -> Any:
    """The rule of a table whose buckets have so many of the counter."""
    room = jde.admission.Exact(32 * 128 * of_each, of_each)
    return jde.admission.Frequency(threshold, room, counts=counts)


def test_the_defaults():
    expected = jde.TableConfig(
        "t", 8, 4096, score_strategy="timestamp", max_capacity=4096, grow_at=0.5
    )
    assert of() == expected
    given = {"dim": 8, "max_capacity": 4096, "max_load_factor": 0.5}
    assert jde.TableConfig.from_dynamicemb(given, "t") == expected


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"dim": 16}, {"dim": 16}),
        ({"embedding_dtype": "torch.bfloat16"}, {"param_dtype": "bfloat16"}),
        ({"index_type": "torch.uint64"}, {"key_dtype": "int64"}),
        ({"init_capacity": 1024}, {"capacity": 1024, "max_capacity": 4096}),
        ({"max_load_factor": 0.7}, {"grow_at": 0.7}),
        ({"max_load_factor": 0, "init_capacity": 1024}, {"max_capacity": 1024}),
        ({"score_strategy": Score.LFU}, {"score_strategy": "lfu"}),
        ({"score_strategy": (Score.LFU, Score.TIMESTAMP)}, {"score_strategy": "lfu"}),
        ({"score_strategy": (Score.TIMESTAMP, Score.LFU)}, {"score_strategy": "lfu"}),
        (
            {"score_strategy": Score.NO_EVICTION},
            {"on_full": "refuse", "max_capacity": None},
        ),
        (
            {"initializer_args": {"mode": "NORMAL", "mean": 1.0, "std_dev": 0.5}},
            {"initializer": jde.initializers.normal(0.5, 1.0)},
        ),
        (
            {"initializer_args": {"mode": "TRUNCATED_NORMAL"}},
            {"initializer": jde.initializers.truncated_normal(1.0, 0.0, 0.0, 1.0)},
        ),
        (
            {"initializer_args": {"mode": "UNIFORM", "lower": -1, "upper": 2}},
            {"initializer": jde.initializers.uniform(-1, 2)},
        ),
        ({"initializer_args": {"mode": "DEBUG"}}, {}),
        (
            {"eval_initializer_args": {"mode": "CONSTANT", "value": 0.5}},
            {"eval_initializer": jde.initializers.constant(0.5)},
        ),
        ({"evict_strategy": "LFU"}, {"score_strategy": "timestamp"}),
        (
            {"admit_strategy": FREQUENCY, "admission_counter": COUNTER},
            {"admission": counted(3, 16, "lookups")},
        ),
        (
            {
                "admit_strategy": RARE,
                "admission_counter": COUNTER,
                "score_strategy": Score.LFU,
            },
            {"admission": counted(300, 16, "occurrences")},
        ),
        ({"admit_strategy": COIN}, {"admission": jde.admission.Probability(0.25)}),
        ({"admission_counter": COUNTER}, {"admission": None}),
        ({"safe_check_mode": "ERROR"}, {"on_full": "evict"}),
        ({"local_hbm_for_values": 2**30, "global_hbm_for_values": 2**33}, {}),
    ],
)
def test_a_field_that_maps(options, fields):
    config = of(**options)
    for name, value in fields.items():
        assert getattr(config, name) == value, name


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"device_id": 1}, "jax.default_device"),
        ({"bucket_capacity": 1024}, "128 slots"),
        ({"training": False}, "jde.export"),
        ({"caching": True}, "shard them"),
        ({"external_storage": object}, "must be a jde.stores.Store"),
        ({"dist_type": "continuous"}, "the hash of an id"),
        ({"admit_strategy": object()}, "admission=... of jde.admission"),
        ({"admit_strategy": FREQUENCY}, "with a KVCounter"),
        ({"index_type": "int32"}, "key_dtype='int32'"),
        ({"score_strategy": (Score.LFU, Score.LFU)}, "only TIMESTAMP and LFU"),
        ({"initializer_args": {"mode": "XAVIER"}}, "use one of"),
        ({"bucket_size": 128}, "bucket_size.*known"),
    ],
)
def test_a_field_that_is_refused(options, instead):
    with pytest.raises(ValueError, match=instead):
        of(**options)


def test_external_storage_becomes_a_tier():
    def redis(table):
        raise NotImplementedError(table)

    config = of(external_storage=redis, caching=True, init_capacity=1000)
    assert config.tier == jde.tiers.external(redis)
    assert config.capacity == 1000 and config.max_capacity is None


def test_every_field_is_known():
    for name, value in DEFAULTS.items():
        sizes = {"dim": 8, "max_capacity": 4096}
        jde.TableConfig.from_dynamicemb({name: value} | sizes, "t")


def test_options_without_a_size():
    with pytest.raises(ValueError, match="no capacity and no dim; set dim, and max_"):
        jde.TableConfig.from_dynamicemb({}, "t")
    with pytest.raises(ValueError, match="None are no DynamicEmbTableOptions"):
        jde.TableConfig.from_dynamicemb(None, "t")


def test_fields_beside_the_options():
    config = jde.TableConfig.from_dynamicemb(
        {"dim": 8, "max_capacity": 256}, "t", capacity=1024, max_capacity=4096
    )
    assert (config.capacity, config.max_capacity) == (1024, 4096)
