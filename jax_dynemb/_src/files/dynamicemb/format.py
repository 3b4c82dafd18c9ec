# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The files of a DynamicEmb dump: names, dtypes, what JSON and scores mean.

Raw little-endian arrays without headers: row i of every file of one table and rank
belongs together. The number of rows is the size of the keys file.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jax_dynemb._src.engines.shard import PACKED

KEYS, VALUES, SCORES = "emb_keys", "emb_values", "emb_scores"
STATES = "emb_opt_values"
COUNTER_KEYS, COUNTER_FREQUENCIES = "counter_keys", "counter_frequencies"
DTYPES = {
    KEYS: "<i8",
    VALUES: "<f4",
    SCORES: "<i8",
    STATES: "<f4",
    COUNTER_KEYS: "<i8",
    COUNTER_FREQUENCIES: "<i8",
}
EVICT_STRATEGY = {
    "timestamp": "EvictStrategy.KLru",
    "step": "EvictStrategy.KCustomized",
    "customized": "EvictStrategy.KCustomized",
    "no_eviction": "EvictStrategy.KCustomized",
    "lfu": "EvictStrategy.KLfu",
}
# Their name of each optimizer, our states in the order of their columns, and our
# names of the hyper-parameters.
OPTIMIZERS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "sgd": ("sgd", (), {"lr": "learning_rate"}),
    "adam": (
        "adam",
        ("mu", "nu"),
        {
            "lr": "learning_rate",
            "beta1": "b1",
            "beta2": "b2",
            "eps": "eps",
            "weight_decay": "weight_decay",
        },
    ),
    "adagrad": (
        "exact_adagrad",
        ("sum_of_squares",),
        {
            "lr": "learning_rate",
            "eps": "eps",
            "initial_accumulator_value": "initial_accumulator_value",
        },
    ),
    "ftrl": (  # of releases after v26.06
        "ftrl",
        ("z", "n"),
        {
            "lr": "learning_rate",
            "learning_rate_power": "lr_power",
            "ftrl_beta": "beta",
            "initial_accumulator_value": "initial_accumulator_value",
            "l1_reg": "l1",
            "l2_reg": "l2",
        },
    ),
    "rowwise_adagrad": (
        "exact_row_wise_adagrad",
        ("sum_of_squares",),
        {
            "lr": "learning_rate",
            "eps": "eps",
            "initial_accumulator_value": "initial_accumulator_value",
        },
    ),
}
# What the columns of compound scores are; DynamicEmb does not say it.
SCORE_COLUMNS = "score_columns"
UPDATES = "updates"  # of the optimizer; DynamicEmb knows "iters" of Adam alone
# Files of rows and states hold these, by the JSON's "embedding_dtype".
FLOATS = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
BLOCK_ROWS = 65_536
_FIRST_RESERVED = -4
_HIGH_LIMIT = np.uint64(0x3FFF_FFFF)  # what fits above the clock in a score
# What their word means, unless a table says that its scores are its own.
OURS = {theirs: ours for ours, theirs in reversed(EVICT_STRATEGY.items())}


def file_name(table: str, kind: str, rank: int, ranks: int) -> str:
    """Returns the name of one file."""
    return f"{table}_{kind}.rank_{rank}.world_size_{ranks}"


def json_name(table: str) -> str:
    """Returns the name of a table's metadata file."""
    return f"{table}_opt_args.json"


def is_reserved(keys: np.ndarray) -> np.ndarray:
    """Keys that DynamicEmb refuses, and so does this library: -4 to -1."""
    return (keys >= _FIRST_RESERVED) & (keys <= -1)


def our_scores(raw: np.ndarray, strategy: str, now: int) -> np.ndarray:
    """Converts scores of a file, uint64[n]; ages are counted from ``now``, in ns."""
    if strategy == "timestamp":
        return np.maximum(1, now + 1 - raw.view(np.int64)).view(np.uint64)
    if strategy == "customized":  # checked before
        return raw
    if strategy in PACKED:
        return np.minimum(raw, _HIGH_LIMIT) << np.uint64(32) | np.uint64(1)
    return np.maximum(raw, np.uint64(1))


def split(
    columns: np.ndarray, states: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The states of rows, float32[n, S], by name."""
    result, start = {}, 0
    for name, shape in states.items():
        width = shape[0] if shape else 1
        result[name] = columns[:, start : start + width].reshape(-1, *shape)
        start += width
    return result
