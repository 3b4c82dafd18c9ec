# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of tables: enough to read the rows without the program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import ScoreStrategy, TableConfig


@dataclasses.dataclass(frozen=True)
class Schema:
    """Describes the rows of a table, as JSON keeps it.

    Attributes:
      num_buckets: of 128 slots; 0 where rows are not kept in buckets.
      param_dtype: of the rows; "int8" or "int4" where each has a scale.
      key_dtype: "int64" or "int32".
      score_strategy: value of ``jde.ScoreStrategy``; "" if not known.
      lfu_halflife: of ``TableConfig``; 0 where counts do not decay.
      score_bits: of the custom scores of a customized table; 0 in what earlier versions
        wrote: 30 bits, above a clock.
      optimizer: "kind" ("optax" for a transformation, "" if not known) and the
        hyper-parameters of a fused one; a schedule's learning rate is None.
      states: shapes of the optimizer states of a row by name.
      state_dtype: of the arrays of states that are neither float32 nor int32.
      initial: what a state has in a row without an update, where it is not 0.
      config: the other fields of the config, for people to read.
      arrays: in a checkpoint, the name of the arrays that the table shares with
        others; "" if it has its own.
      place: which of their parts is the table's.
      places: how many parts there are.
      column_parts: narrow tables, one after the other, that have its columns.
      first_bucket: in arrays that tables of other sizes share.
      first_row: likewise, of the table's counters.
      hash_seed: of the table; in a checkpoint only, since it is a secret.
    """

    name: str
    dim: int
    num_buckets: int = 0
    param_dtype: str = "float32"
    key_dtype: str = "int64"
    score_strategy: str = ""
    lfu_halflife: int = 0
    score_bits: int = 0
    optimizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    states: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    state_dtype: Mapping[str, str] = dataclasses.field(default_factory=dict)
    initial: Mapping[str, float] = dataclasses.field(default_factory=dict)
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arrays: str = ""
    place: int = 0
    places: int = 1
    column_parts: int = 1
    first_bucket: int = 0
    first_row: int = 0
    hash_seed: int = dataclasses.field(default=0, repr=False)

    @classmethod
    def of(cls, config: TableConfig, step: int | None = None) -> Schema:
        """Describes a table of a program; ``step`` is where a learning rate stands."""
        return cls(
            name=config.name,
            dim=config.dim,
            num_buckets=config.num_buckets,
            param_dtype=config.param_dtype,
            key_dtype=config.key_dtype,
            score_strategy=ScoreStrategy(config.score_strategy).value,
            lfu_halflife=config.lfu_halflife or 0,
            score_bits=62 if config.score_strategy == "customized" else 0,
            optimizer=_optimizer(config.optimizer, step),
            states={name: spec.shape for name, spec in config.states.items()},
            state_dtype=dict(config.state_dtype),
            initial={
                name: spec.initial
                for name, spec in config.states.items()
                if spec.initial != 0
            },
            config={
                "capacity": config.capacity,
                "feature_names": list(config.feature_names),
                "initializer": _initializer(config.initializer),
                "eval_initializer": _initializer(config.eval_initializer),
                "on_full": config.on_full,
                "pooling": config.pooling,
                "dtype": config.dtype,
            }
            | _counter(config),
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Schema:
        """Reads what ``to_json`` wrote."""
        states = {name: tuple(shape) for name, shape in fields["states"].items()}
        known = {field.name for field in dataclasses.fields(cls)}
        kept: dict[str, Any] = {k: v for k, v in fields.items() if k in known}
        return cls(**{**kept, "states": states})

    def to_json(self, secret: bool = False) -> dict[str, Any]:
        """Returns dicts, lists, strings and numbers; ``secret`` adds the hash's seed.

        Only a checkpoint keeps it. Rows do not depend on it, so files for others do
        without.
        """
        fields = dataclasses.asdict(self)
        # Files of tables that do not use them stay as they were.
        names = ("state_dtype", "lfu_halflife", "score_bits")
        left_out = {k for k in names if not fields[k]}
        left_out |= set() if secret else {"hash_seed"}
        return {k: fields[k] for k in fields if k not in left_out}

    @property
    def counter_rows(self) -> int:
        """Rows of a table's counters, see ``TableConfig``."""
        return math.gcd(self.num_buckets, 64)

    @property
    def row_bytes(self) -> int:
        """Counts the bytes of a row with its states, key and score, in memory."""
        bits = {"float32": 32, "int8": 8, "int4": 4}.get(self.param_dtype, 16)
        numbers = sum(4 * (shape[0] if shape else 1) for shape in self.states.values())
        given = 8 if self.score_strategy == "customized" else 0
        return -(-bits * self.dim // 8) + numbers + 17 + given


def _counter(config: TableConfig) -> dict[str, Any]:
    """How ids without a row are counted."""
    rule = config.admission
    if not isinstance(rule, Frequency):
        return {}
    if rule.counts_keys:
        return {"counter": "exact"}
    return {"counter": "sketch", "counter_bits": rule.counter_bits}


def _optimizer(optimizer: Any, step: int | None) -> dict[str, Any]:
    if not optimizer.kind:
        return {"kind": "optax"}
    fields = dataclasses.asdict(optimizer)
    fields |= dict(fields.pop("numbers", ()))
    initial = dict(fields.pop("initial", ()))
    if "sum_of_squares" in initial:
        fields["initial_accumulator_value"] = initial["sum_of_squares"]
    rate: Any = fields["learning_rate"]
    if callable(rate):
        fields["learning_rate"] = (
            None if step is None else float(np.asarray(rate(step)))
        )
    return fields


def _initializer(initializer: Any) -> dict[str, Any]:
    return {"kind": initializer.kind} | dataclasses.asdict(initializer)
