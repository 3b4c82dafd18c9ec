# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the attributes of a call: its tables and features, as numpy arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.spec import TableSpec

_POLICY = {
    ScoreStrategy.STEP: "step",
    ScoreStrategy.TIMESTAMP: "timestamp",
    ScoreStrategy.LFU: "lfu",
    ScoreStrategy.CUSTOMIZED: "customized",
    ScoreStrategy.NO_EVICTION: "step",
}


def table_attributes(tables: Sequence[TableSpec]) -> dict[str, np.ndarray]:
    """The attributes ``tables``, ``initializers`` and ``state_initial``."""
    own = [_of_table(table) for table in tables]
    place = _ffi.constants()["table_fields"].index("shares")
    fields = np.stack([each.fields for each in own])
    fields[:, place] = shares_arrays(tables)
    return {
        "tables": fields.reshape(-1),
        "initializers": np.concatenate([each.initializers for each in own]),
        "state_initial": np.concatenate([each.state_initial for each in own]),
    }


class _OfTable(NamedTuple):
    """Holds the attributes of one table, but for whether it shares arrays."""

    fields: np.ndarray
    initializers: np.ndarray
    state_initial: np.ndarray


@functools.lru_cache(maxsize=1024)  # computed in every call, else, of 26 tables
def _of_table(table: TableSpec) -> _OfTable:
    own = {"shares": 0, **_table_fields(table)}
    names = _ffi.constants()["table_fields"]
    numbers = [
        _padded(each.kernel_parameters(), "initializer_parameters")
        for each in (table.initializer, table.eval_initializer)
    ]
    initial = [state.initial for state in table.states.values()]
    return _OfTable(
        np.array([own[name] for name in names], dtype=np.int64),
        np.concatenate(numbers),
        _padded(initial, "max_states"),
    )


def shares_arrays(tables: Sequence[TableSpec]) -> list[bool]:
    """Whether each table lies in the arrays of the one before it in the call."""
    names = [None, *(table.state_name for table in tables)]
    return [name == before for before, name in zip(names, names[1:], strict=False)]


def _table_fields(table: TableSpec) -> dict[str, int]:
    strategy = ScoreStrategy(table.score_strategy)
    policy = "decaying_lfu" if table.lfu_halflife else _POLICY[strategy]
    kind = table.optimizer.kind
    return {
        "num_states": len(table.states),
        "num_buckets": table.num_buckets,
        "policy": _ffi.code("score_policies", policy),
        # What a full bucket does with new keys (core/table_ref.h).
        "evicts": (2 if table.competes else 1) if table.evicts else 0,
        "initializer": _ffi.code("initializers", table.initializer.kernel),
        "eval_initializer": _ffi.code("initializers", table.eval_initializer.kernel),
        "optimizer": 0 if kind in ("", "none") else _ffi.code("optimizers", kind),
        "first_bucket": 0 if table.block is None else table.block.first_bucket,
        "local_buckets": table.local_buckets,
        "first_row": 0 if table.block is None else table.block.first_row,
        "counter_rows": table.counter_rows,
        "skips_nonfinite": int(table.nonfinite == "skip"),
        "rounding": int(table.rounding == "stochastic"),
        "hash_seed": int(np.uint64(table.hash_seed).astype(np.int64)),
        "keeps_scores": int(table.keeps_scores),
        "ring_size": table.ring_size,
        "keep_for": table.keep_for,
        "halflife": table.lfu_halflife or 0,
        "takes_given": int(table.takes_given),
        "departed_rows": table.ring_rows,
        "part": _ffi.code("table_parts", table.part),
        **_admission(table),
    }


def _admission(table: TableSpec) -> dict[str, int]:
    """The fields about unseen ids."""
    rule = table.admission if table.unseen == "admitted" else None
    kind = "none" if table.unseen == "none" else "all"
    kind = kind if rule is None else rule.kernel_rule()
    counter = table.admission
    bits = counter.counter_bits if isinstance(counter, Frequency) else 0
    return {
        "admission": _ffi.code("admission_rules", kind),
        "threshold": 0 if rule is None or kind == "all" else rule.kernel_threshold(),
        "sketch_words": table.sketch_words if table.takes_sketch else 0,
        "sketch_bits": bits,
    }


def _padded(numbers: Sequence[float], length: str) -> np.ndarray:
    result = np.zeros(_ffi.constants()[length], np.float32)
    result[: len(numbers)] = numbers
    return result


def feature_attribute(rows: Sequence[dict[str, int]]) -> np.ndarray:
    """The attribute ``features`` from a dict for each feature."""
    fields = _ffi.constants()["feature_fields"]
    return np.array([row[field] for row in rows for field in fields], dtype=np.int64)
