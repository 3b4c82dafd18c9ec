# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Configs go through JSON and YAML and come back equal."""

import dataclasses
import datetime
import json

import optax
import pytest
import yaml

import jax_dynemb as jde

o, a = jde.optim, jde.admission
OPTIMIZERS = [
    o.sgd(0.1),
    o.sgd(0.1, clip_row_norm=1.0),
    o.adam(1e-3, b1=0.8, weight_decay=0.01),
    o.adam(1e-3, bias_correction="row"),
    o.adam(1e-3, catch_up="decay", weight_decay=0.1),
    o.momentum(0.1, 0.8, nesterov=True),
    o.momentum(0.1, catch_up="smart"),
    o.rowwise_adagrad(0.05, initial_accumulator_value=0.1),
    o.adagrad(0.05, eps=1e-6),
    o.ftrl(0.1, l1=0.2),
    o.lion(1e-4),
    o.lamb(0.1),
    o.rmsprop(0.1),
    o.none(),
]
OTHERS = [
    {"pooling": "sqrtn", "feature_names": ("a", "b"), "padding_id": 0},
    {"initializer": jde.initializers.truncated_normal(0.1)},
    {"eval_initializer": jde.initializers.constant(2.0)},
    {"admission": a.Frequency(5, a.Sketch(bytes=1 << 16), halve_every=7)},
    {"admission": a.Frequency(2, a.Exact(1000)), "hash_seed": 2**63 + 1},
    {"admission": a.Probability(0.1), "max_capacity": 1 << 20},
    {"tier": jde.tiers.host(hbm_fraction=0.125), "param_dtype": "bfloat16"},
    {"score_strategy": "timestamp", "keep_for": datetime.timedelta(hours=3)},
    {"score_strategy": "lfu", "lfu_halflife": 9, "on_full": "compete"},
    {
        "optimizer": o.adam(0.1),
        "state_dtype": {"mu": "bfloat16"},
        "rounding": "stochastic",
        "param_dtype": "float16",
    },
]


@pytest.mark.parametrize("fields", [{"optimizer": x} for x in OPTIMIZERS] + OTHERS)
def test_both_ways(fields):
    config = jde.TableConfig("cat", 8, 4096, **fields)
    written = config.to_dict()
    assert jde.TableConfig.from_dict(json.loads(json.dumps(written))) == config
    assert jde.TableConfig.from_dict(yaml.safe_load(yaml.safe_dump(written))) == config


def test_what_people_write():
    text = """
    name: cat
    dim: 8
    capacity: 4096
    pooling: sum
    optimizer: {kind: adam, learning_rate: 1e-3}
    initializer: {kind: normal, stddev: 0.01}
    """
    assert jde.TableConfig.from_dict(yaml.safe_load(text)) == jde.TableConfig(
        "cat",
        8,
        4096,
        pooling="sum",
        optimizer=o.adam(1e-3),
        initializer=jde.initializers.normal(0.01),
    )


def test_defaults_are_left_out():
    plain = jde.TableConfig("cat", 8, 4096)
    assert plain.to_dict() == {"name": "cat", "dim": 8, "capacity": 4096}
    for field in dataclasses.fields(plain):  # every field is written if it differs
        assert field.name in jde.TableConfig.__doc__


def test_what_no_file_holds_is_given():
    config = jde.TableConfig("cat", 8, 4096, optimizer=optax.adam(0.1))
    with pytest.raises(ValueError, match=r"Leave it out, to_dict\(leave_out"):
        config.to_dict()
    with pytest.raises(ValueError, match="which no file can hold"):
        jde.TableConfig(
            "cat", 8, 4096, optimizer=o.sgd(optax.constant_schedule(0.1))
        ).to_dict()
    fields = config.to_dict(leave_out=("optimizer",))
    back = jde.TableConfig.from_dict(fields, optimizer=config.optimizer)
    assert back == config


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="no field 'dims'. Did you mean 'dim'?"):
        jde.TableConfig.from_dict({"name": "cat", "dims": 8})
    with pytest.raises(ValueError, match=r"optimizer: 'kind' must be one of .*'adam'"):
        jde.TableConfig.from_dict(
            {"name": "c", "dim": 8, "capacity": 9, "optimizer": {"kind": "adamw"}}
        )
    with pytest.raises(TypeError, match="of a list of tables write"):
        jde.TableConfig.from_dict([])
