# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every field of DynamicEmbTableOptions maps or is refused with a sentence."""

import dataclasses
import enum
import re
import types
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from peer_options import as_objects, given, options_of, wanted

OPTIONS = options_of("dynamicemb")
DEFAULTS = {name: option.get("default") for name, option in OPTIONS.items()}


class Score(enum.Enum):
    TIMESTAMP = 0
    LFU = 3
    NO_EVICTION = 4


class Check(enum.Enum):
    ERROR = 0
    WARNING = 1
    IGNORE = 2


# DynamicEmb's strategies and its KVCounter, by their attributes.
FREQUENCY = types.SimpleNamespace(threshold=3)
RARE = types.SimpleNamespace(threshold=300)
COIN = types.SimpleNamespace(p=0.25)
COUNTER = types.SimpleNamespace(capacity=1 << 16)


KEEPS = {"score_strategy": Score.NO_EVICTION}
NO_TIER = {"tier": None}
# Ids that wait read zeros with this strategy, other first rows than the table's.
OF_ZEROS = types.SimpleNamespace(
    threshold=3, initializer_args=types.SimpleNamespace(mode="CONSTANT", value=0.0)
)


def of_uniform(threshold: int) -> Any:
    args = types.SimpleNamespace(mode="UNIFORM", lower=None, upper=None)
    return types.SimpleNamespace(threshold=threshold, initializer_args=args)


def in_host(frames: int) -> Any:
    """The tier of which so many of 128 rows are in device memory."""
    return jde.tiers.host(hbm_fraction=frames / 128)


def of(**options: Any) -> jde.TableConfig:
    """Takes the defaults of a table with a size, as attributes."""
    said = types.SimpleNamespace(**DEFAULTS | SIZES | options)
    return jde.TableConfig.from_dynamicemb(said, "t")


def counted(threshold: int, of_each: int, counts: Any) -> Any:
    """The rule of a table whose buckets have so many of the counter."""
    room = jde.admission.Exact(32 * 128 * of_each, of_each)
    return jde.admission.Frequency(threshold, room, counts=counts)


SIZES = {"dim": 8, "max_capacity": 4096}
# What the defaults mean there, in the words of this library.
OF_DEFAULTS = jde.TableConfig(
    "t",
    8,
    4096,
    max_capacity=4096,
    grow_at=0.5,
    score_strategy="timestamp",
    on_full="evict",
    initializer=jde.initializers.uniform(-1 / 64, 1 / 64),
    eval_initializer=jde.initializers.zeros(),
    param_dtype="float32",
    key_dtype="int64",
    admission=None,
    tier=None,
    insert=True,
    trainable=True,
)


def test_the_defaults():
    assert of() == OF_DEFAULTS


@pytest.mark.parametrize("name", [name for name in DEFAULTS if name not in SIZES])
def test_an_option_that_is_left_out_has_its_default(name):
    """Walks the options one by one: left out, and said; alone, and among all others."""
    value = DEFAULTS[name]
    others = {k: v for k, v in DEFAULTS.items() if k != name}
    for beside in (SIZES, others | SIZES):
        for said in (beside, beside | {name: value}):
            assert jde.TableConfig.from_dynamicemb(said, "t") == OF_DEFAULTS
    as_attributes = types.SimpleNamespace(**others | SIZES)
    assert jde.TableConfig.from_dynamicemb(as_attributes, "t") == OF_DEFAULTS


# DynamicEmbInitializerArgs by mode: what is left out, and what DynamicEmb completes.
COMPLETED: dict[str, tuple[dict[str, Any], Any]] = {
    "no mode": ({}, jde.initializers.uniform(-1 / 64, 1 / 64)),
    "no upper": ({"lower": -2.0}, jde.initializers.uniform(-2, 1 / 64)),
    "no lower": ({"upper": 2.0}, jde.initializers.uniform(-1 / 64, 2)),
    "normal": ({"mode": "NORMAL"}, jde.initializers.normal(1, 0)),
    "constant": ({"mode": "CONSTANT"}, jde.initializers.constant(0)),
    "truncated": (
        {"mode": "TRUNCATED_NORMAL", "upper": 2.0},
        jde.initializers.truncated_normal(1, 0, 0, 2),
    ),
}


@pytest.mark.parametrize("case", COMPLETED)
def test_an_initializer_has_the_defaults_of_what_is_left_out(case):
    args, expected = COMPLETED[case]
    assert of(initializer_args=args).initializer == expected


@pytest.mark.parametrize(
    ("options", "fields", "ids"),
    [
        ({"init_capacity": 1024}, {}, 4096),  # the rows when it has grown
        ({"init_capacity": 1024, "max_capacity": None}, {}, 1024),
        ({"score_strategy": Score.NO_EVICTION, "init_capacity": 1024}, {}, 4096),
        ({}, {"capacity": 16384, "max_capacity": 16384}, 16384),  # of four devices
        ({"external_storage": lambda table: None, "init_capacity": 1024}, {}, 4096),
    ],
)
def test_first_rows_are_those_of_all_ids_that_a_table_is_for(options, fields, ids):
    said = types.SimpleNamespace(**DEFAULTS | SIZES | options)
    config = jde.TableConfig.from_dynamicemb(said, "t", **fields)
    bound = ids**-0.5
    assert config.initializer == jde.initializers.uniform(-bound, bound)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"index_type": "torch.uint64"}, {"key_dtype": "int64"}),
        ({"init_capacity": 1024}, {"capacity": 1024, "max_capacity": 4096}),
        ({"max_load_factor": 0.7}, {"grow_at": 0.7}),
        ({"max_load_factor": 0, "init_capacity": 1024}, {"max_capacity": 1024}),
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
        ({"safe_check_mode": "IGNORE"}, {"on_full": "evict"}),
        ({"safe_check_mode": Check.WARNING}, {"on_full": "evict"}),
        ({"safe_check_mode": Check.ERROR}, {"on_full": "evict_or_error"}),
        ({"safe_check_mode": Check.ERROR} | KEEPS, {"on_full": "error"}),
        ({"safe_check_mode": "WARNING"} | KEEPS, {"on_full": "warn"}),
        ({"safe_check_mode": 2} | KEEPS, {"on_full": "refuse"}),
        ({"local_hbm_for_values": 2**30, "global_hbm_for_values": 2**33}, NO_TIER),
        # 4,096 rows of 8 float32 are 2^17 bytes; SGD keeps no state.
        ({"global_hbm_for_values": 2**17}, NO_TIER),
        ({"global_hbm_for_values": 2**17 - 1}, {"tier": in_host(64)}),
        ({"global_hbm_for_values": 2**14}, {"tier": in_host(16)}),
        ({"global_hbm_for_values": 2**14, "caching": True}, {"tier": in_host(16)}),
        ({"local_hbm_for_values": 2**13}, {"tier": in_host(8)}),
        (
            {"local_hbm_for_values": 2**13, "global_hbm_for_values": 2**14},
            {"tier": in_host(8)},
        ),
        ({"caching": True, "global_hbm_for_values": 2**17}, NO_TIER),
        ({"global_hbm_for_values": 1}, {"tier": in_host(1)}),
        ({"local_hbm_for_values": 1025}, {"tier": in_host(1)}),
        (
            {"admit_strategy": of_uniform(threshold=3), "admission_counter": COUNTER},
            {"admission": counted(3, 16, "lookups")},
        ),
    ],
)
def test_a_field_that_maps(options, fields):
    config = of(**options)
    for name, value in fields.items():
        assert getattr(config, name) == value, name


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"caching": True}, "shard them"),
        ({"safe_check_mode": "SOMETIMES"}, "ERROR, WARNING or IGNORE"),
        (
            {"admit_strategy": OF_ZEROS, "admission_counter": COUNTER},
            "give the table the same initializer_args",
        ),
        ({"admit_strategy": object()}, "admission=... of jde.admission"),
        ({"admit_strategy": FREQUENCY}, "with a KVCounter"),
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


@pytest.mark.parametrize("name", OPTIONS)
def test_every_field_does_what_the_list_says(name):
    option = OPTIONS[name]
    example = {k: as_objects(v) for k, v in given(name, option).items()}
    if "refused" in option:
        with pytest.raises(ValueError, match=re.escape(option["refused"])) as error:
            of(**example)
        assert name in str(error.value)
        return
    expected = wanted(option) if "gives" in option else {}
    assert of(**example) == dataclasses.replace(OF_DEFAULTS, **expected)


def test_a_budget_that_no_tier_has_becomes_the_nearest(caplog):
    config = of(global_hbm_for_values=10)
    assert "grant 10 bytes of device memory to rows of 131072 bytes" in caplog.text
    coll = jde.Tables([config])  # one row of each bucket in device memory
    rows, _, _ = coll.lookup(coll.init(0), {config.name: jde.ids(np.arange(3000))})
    assert np.unique(np.asarray(rows[config.name]), axis=0).shape == (3000, 8)
    caplog.clear()
    assert of(global_hbm_for_values=2**17 // 128).tier == in_host(1)
    assert not caplog.text
    tier = jde.tiers.host(hbm_rows=512)
    options = {"dim": 8, "max_capacity": 4096, "global_hbm_for_values": 10}
    assert jde.TableConfig.from_dynamicemb(options, "t", tier=tier).tier == tier


def test_a_budget_counts_optimizer_states_and_all_devices():
    options = {"dim": 8, "max_capacity": 4096, "global_hbm_for_values": 3 * 2**14}
    adam = {"optimizer": jde.optim.adam(0.1)}  # thrice the bytes
    config = jde.TableConfig.from_dynamicemb(options, "t", **adam)
    assert config.tier == in_host(16)
    wide = {"capacity": 8192, "max_capacity": 8192}  # two ranks of 4,096
    config = jde.TableConfig.from_dynamicemb(options, "t", **adam, **wide)
    assert config.tier == in_host(8)
    options["local_hbm_for_values"] = 3 * 2**14  # of each of the two
    config = jde.TableConfig.from_dynamicemb(options, "t", **adam, **wide)
    assert config.tier == in_host(16)
    hbm = jde.Tables([config]).memory()["t"]["hbm"]
    assert (
        hbm < jde.Tables([dataclasses.replace(config, tier=None)]).memory()["t"]["hbm"]
    )


def test_what_is_passed_beside_the_options_answers_a_refusal():
    options = {"dim": 8, "max_capacity": 4096, "safe_check_mode": "ERROR"}
    config = jde.TableConfig.from_dynamicemb(options, "t", on_full="error")
    assert config.on_full == "error" and config.score_strategy == "timestamp"
    rule = jde.admission.Probability(0.5)
    options = {"dim": 8, "max_capacity": 4096, "admit_strategy": OF_ZEROS}
    config = jde.TableConfig.from_dynamicemb(options, "t", admission=rule)
    assert config.admission == rule


@pytest.mark.parametrize("mode", ["ERROR", "WARNING"])
def test_a_safe_check_of_a_table_that_evicts_acts(mode):
    """One lookup of more ids than slots: those that find no place are said."""
    options = {"dim": 8, "max_capacity": 256, "safe_check_mode": mode}
    coll = jde.Tables([jde.TableConfig.from_dynamicemb(options, f"safe_{mode}")])
    name = f"safe_{mode}"
    _, _, state = coll.lookup(coll.init(0), {name: jde.ids(range(100))})
    assert coll.stats(state)[f"{name}/refused"] == 0
    _, _, state = coll.lookup(state, {name: jde.ids(range(5000))})
    if mode == "WARNING":
        with pytest.warns(RuntimeWarning, match="although it evicts"):
            coll.stats(state)
        return
    with pytest.raises(RuntimeError, match=f"{name}' refused .* although it evicts"):
        coll.stats(state)


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
