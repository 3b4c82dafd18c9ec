# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every option of a table reaches the kernels, or is one that Python alone reads.

An option is a field of ``TableConfig``. Kernels get the attribute "tables", whose
columns C++ names, first values, and arrays. So a new option that nothing passes on, and
a new column that no option sets, are found here.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops import array_shapes
from jax_dynemb._src.ops.attributes import table_attributes
from jax_dynemb._src.spec import TableSpec

PLAIN = {"name": "t", "dim": 8, "capacity": 4096, "optimizer": jde.optim.adam(0.1)}
TIERED = {"tier": jde.tiers.host(hbm_fraction=0.5)}
STORED = {
    "tier": jde.tiers.external(lambda table: jde.stores.Memory(table), hbm_fraction=0.5)
}
LFU = {"score_strategy": "lfu"}
COUNTS = {"admission": jde.admission.Frequency(5, jde.admission.Sketch(bytes=1 << 16))}

# By option: the options of a table, and another value of this one.
OTHERS: dict[str, tuple[dict[str, Any], Any]] = {
    "name": ({}, "u"),
    "dim": ({}, 16),
    "capacity": ({}, 8192),
    "feature_names": ({}, ("f",)),
    "initializer": ({}, jde.initializers.normal(0.1)),
    "eval_initializer": ({}, jde.initializers.normal(0.5)),
    "optimizer": ({}, jde.optim.lion(0.1)),
    "score_strategy": ({}, "customized"),
    "lfu_halflife": (LFU, 100),
    "on_full": (LFU, "compete"),
    "pooling": ({}, "sum"),
    "param_dtype": ({}, "bfloat16"),
    "dtype": ({}, "bfloat16"),
    "key_dtype": ({}, "int32"),
    "sharding": ({}, "replicated"),
    "pooling_factors": ({}, (2.0,)),
    "nonfinite": ({}, "propagate"),
    "hash_seed": ({}, 7),
    "rounding": ({"param_dtype": "bfloat16"}, "stochastic"),
    "state_dtype": ({}, {"mu": "bfloat16"}),
    "max_gradient": ({}, 1.0),
    "trainable": ({}, False),
    "insert": ({}, False),
    "admission": ({}, COUNTS["admission"]),
    "max_capacity": ({}, 8192),
    "grow_at": ({}, 0.5),
    "log_removed": ({}, 1000),
    "keep_for": ({}, 10),
    "row_format": ({}, "int8"),
    "tier": ({}, TIERED["tier"]),
    "padding_id": ({}, 0),
}
# Features have attributes of their own; the others are about meshes, growth and names.
PYTHON_ALONE = {
    "name",
    "feature_names",
    "pooling",
    "dtype",
    "key_dtype",
    "sharding",
    "pooling_factors",
    "max_gradient",
    "trainable",
    "max_capacity",
    "padding_id",
    "grow_at",
}
# Columns that say where in which arrays a table lies, and what one call does.
OF_A_CALL = {"shares", "first_bucket", "first_row", "part"}


def columns(options: dict[str, Any], **changes: Any) -> dict[str, int]:
    """Returns what the attribute says about a table, by the name of the column."""
    spec = TableSpec.of(jde.TableConfig(**PLAIN | options), **changes)
    numbers = table_attributes([spec])["tables"].tolist()
    return dict(zip(_ffi.constants()["table_fields"], numbers, strict=True))


def seen(options: dict[str, Any]) -> list[Any]:
    """Returns all that kernels get of a table, as values that compare."""
    spec = TableSpec.of(jde.TableConfig(**PLAIN | options))
    attributes = {
        k: np.asarray(v).tolist() for k, v in table_attributes([spec]).items()
    }
    return [attributes, array_shapes(spec)]


def test_every_option_is_here():
    fields = {field.name for field in dataclasses.fields(jde.TableConfig)}
    assert fields == OTHERS.keys()


@pytest.mark.parametrize("option", OTHERS)
def test_an_option_reaches_the_kernels_or_is_of_python_alone(option):
    base, value = OTHERS[option]
    reaches = seen(base) != seen(base | {option: value})
    assert reaches == (option not in PYTHON_ALONE)


def test_every_column_follows_from_an_option():
    changed = set()
    pairs = [(base, base | {option: x}) for option, (base, x) in OTHERS.items()]
    pairs += [(TIERED, STORED)]
    for before, after in pairs:
        one, other = columns(before), columns(after)
        changed |= {name for name in one if one[name] != other[name]}
    one = columns({})
    for change in ({"keeps_scores": True}, {"takes_time": True}, {"shards": 2}):
        other = columns({}, **change)
        changed |= {name for name in one if one[name] != other[name]}
    assert changed == set(one) - OF_A_CALL
