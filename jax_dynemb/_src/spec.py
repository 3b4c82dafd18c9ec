# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table as kernels see it: without features, without a mesh, cheap to derive."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, Self

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Admission, Frequency
from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.host_tier import HostTier
from jax_dynemb._src.initializers import Initializer
from jax_dynemb._src.optim.interface import StateSpec, stored_states
from jax_dynemb._src.removal_options import ring_size
from jax_dynemb._src.row_formats import packed_bytes
from jax_dynemb._src.table_sizes import most_shards


@dataclasses.dataclass(frozen=True)
class Block:
    """Where a table lies in arrays that it shares with others.

    Attributes:
      arrays: their name in a state.
      num_buckets: of the arrays.
      counter_rows: of the arrays.
      first_bucket: of the table.
      first_row: of the table's counters.
    """

    arrays: str
    num_buckets: int
    counter_rows: int
    first_bucket: int
    first_row: int


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """One table in the arrays of one device.

    Engines derive specs from a checked ``TableConfig`` and replace their fields; a
    spec itself checks nothing. What follows from the fields is computed once. Fields
    without a line here are those of ``TableConfig``.

    Attributes:
      num_buckets: buckets of the whole table, over all shards.
      evicts: whether a new key may replace an old row.
      competes: whether it may do so only if the row's score is lower than its own.
      shards: parts of equal arrays that the buckets are cut into; a call sees one of
        them. Where the buckets do not come out even, the last arrays end in buckets
        that no key has.
      unseen: what becomes of unseen ids in a lookup: "admitted" by the table's rule,
        "all" stored, or "none".
      keep_for: in units of the clock; 0: rows evicted young are not counted.
      keeps_scores: whether a lookup leaves the scores of rows that it finds.
      takes_time: whether a lookup brings the time that a table notes.
      block: where in shared arrays the table lies; None if it has its own.
      tier: where the rows lie; None: all in device memory.
      ring_rows: of a table above a store, evicted rows that a device keeps; 0: none.
      part: of a tiered table, which arrays an ordinary call gets: "whole", "index" or
        "rows" (docs/decisions/tiers.md).
    """

    name: str
    dim: int
    num_buckets: int
    initializer: Initializer
    eval_initializer: Initializer
    optimizer: Any
    score_strategy: ScoreStrategy
    evicts: bool
    pooling: str | None
    param_dtype: str
    dtype: str
    key_dtype: str
    nonfinite: str
    hash_seed: int = dataclasses.field(repr=False)
    rounding: str = "nearest"
    state_dtype: tuple[tuple[str, str], ...] = ()
    trainable: bool = True
    row_format: str | None = None
    lfu_halflife: int | None = None
    admission: Admission | None = None
    unseen: Literal["admitted", "all", "none"] = "admitted"
    keeps_scores: bool = False
    log_removed: int = 0
    keep_for: int = 0
    takes_time: bool = False
    competes: bool = False
    shards: int = 1
    block: Block | None = None
    tier: HostTier | None = None
    ring_rows: int = 0
    part: Literal["whole", "index", "rows"] = "whole"

    @classmethod
    def of(cls, config: TableConfig, **changes: Any) -> Self:
        """Derives the spec of a table that has arrays of its own on one device.

        Args:
          config: the table.
          changes: fields of the spec that differ, such as those of a part of a table.
        """
        fields: dict[str, Any] = {name: getattr(config, name) for name in _OF_CONFIG}
        fields |= dict(
            keep_for=int(config.keep_for or 0),  # pyright: ignore[reportArgumentType]
            competes=config.on_full == "compete",
            unseen="admitted" if config.insert else "none",
            ring_rows=0 if config.tier is None else config.tier.ring_rows,
        )
        return cls(**fields | changes)

    @functools.cached_property
    def sketch_words(self) -> int:
        """Words of each bucket's part of the sketch; 0 for a table without one."""
        rule = self.admission
        return rule.block_words if isinstance(rule, Frequency) else 0

    @functools.cached_property
    def counts_keys(self) -> bool:
        """Whether the sketch is an index of counted keys, ``Exact``."""
        rule = self.admission
        return isinstance(rule, Frequency) and rule.counts_keys

    @functools.cached_property
    def takes_sketch(self) -> bool:
        """Whether a lookup receives the sketch; alike for tables that share arrays."""
        return self.unseen != "all" and self.sketch_words > 0

    @functools.cached_property
    def ring_size(self) -> int:
        """Keys in each ring of the log of removed keys; 0 for a table without one."""
        return ring_size(self.log_removed, self.shards * self.counter_rows)

    @functools.cached_property
    def takes_given(self) -> bool:
        """Whether a lookup brings a number for the table: its score, or the time."""
        return self.takes_time or self.has_custom_scores

    @functools.cached_property
    def has_custom_scores(self) -> bool:
        """Whether users' scores stand behind each bucket (core/custom_score.h)."""
        return self.score_strategy is ScoreStrategy.CUSTOMIZED

    @functools.cached_property
    def index_words(self) -> int:
        """Words of a bucket in the index."""
        constants = _ffi.constants()
        given = constants["given_words"] if self.has_custom_scores else 0
        return constants["bucket_words"] + given

    @functools.cached_property
    def num_slots(self) -> int:
        """Slots of the whole table: ``num_buckets * 128``."""
        return self.num_buckets * _ffi.constants()["bucket_capacity"]

    @functools.cached_property
    def local_buckets(self) -> int:
        """Buckets in the arrays of one shard; all of them without a mesh."""
        return -(-self.num_buckets // self.shards)

    @functools.cached_property
    def owners(self) -> float:
        """How many shards the buckets fill: fewer than there are, if not all do."""
        return self.num_buckets / self.local_buckets

    @functools.cached_property
    def spare_buckets(self) -> int:
        """Buckets at the end of the arrays of all shards that no key has."""
        return self.shards * self.local_buckets - self.num_buckets

    @functools.cached_property
    def local_slots(self) -> int:
        """Slots in the arrays of one shard."""
        return self.local_buckets * _ffi.constants()["bucket_capacity"]

    @functools.cached_property
    def first_slot(self) -> int:
        """The table's first slot in its arrays."""
        return self.bucket_range[0] * _ffi.constants()["bucket_capacity"]

    @functools.cached_property
    def bucket_range(self) -> tuple[int, int]:
        """The table's first bucket in the arrays of a shard, and its end."""
        first = 0 if self.block is None else self.block.first_bucket
        return first, first + self.local_buckets

    @functools.cached_property
    def state_name(self) -> str:
        """The name of the table's arrays in a state."""
        return self.name if self.block is None else self.block.arrays

    @functools.cached_property
    def max_shards(self) -> int:
        """The most shards of equally many buckets, a power of two."""
        return most_shards(self.num_buckets)

    @functools.cached_property
    def counter_rows(self) -> int:
        """Rows of the counter array of one shard."""
        return self.max_shards // self.shards if self.is_even else 1

    @functools.cached_property
    def is_even(self) -> bool:
        """Whether the rows of counters that a file has come out even on the shards."""
        return self.max_shards % self.shards == 0

    @functools.cached_property
    def first_row(self) -> int:
        """The first of its arrays' counter rows that is the table's."""
        return 0 if self.block is None else self.block.first_row

    @functools.cached_property
    def own_counters(self) -> slice:
        """The rows of its arrays' counters that are the table's."""
        if self.block is None:
            return slice(None)
        return slice(self.first_row, self.first_row + self.counter_rows)

    @functools.cached_property
    def stored_row(self) -> tuple[int, str]:
        """Items of a row in the array ``values``, and their dtype."""
        if self.row_format is None:
            return self.dim, self.param_dtype
        return packed_bytes(self.row_format, self.dim), "uint8"

    @functools.cached_property
    def frames(self) -> int:
        """Frames of each bucket of a tiered table."""
        assert self.tier is not None
        return self.tier.frames(self.name, self.num_buckets, 4 * self.record_words)

    @functools.cached_property
    def device_rows(self) -> int:
        """Rows that the arrays of a shard hold: all slots, or frames and spill rows."""
        if self.tier is None:
            return self.local_slots
        frames = self.frames
        spill = self.tier.spilled(self.local_buckets, frames)
        return self.local_buckets * frames + spill

    @functools.cached_property
    def record_words(self) -> int:
        """Words of a home record: the row, its states, padding to 16 bytes."""
        *_, last = self.record_parts
        return -(-sum(last) // 4) * 4

    @functools.cached_property
    def record_parts(self) -> list[tuple[int, int]]:
        """Where the row and each state begin in a record, and their sizes, in words."""
        row = -(-self.dim * (4 if self.param_dtype == "float32" else 2) // 4)
        parts = [(0, row)]
        for spec in self.states.values():  # as core/tiers/record.h lays them out
            end, width = sum(parts[-1]), math.prod(spec.shape)
            parts.append((-(-end // 4) * 4 if width > 1 else end, width))
        return parts

    @functools.cached_property
    def states(self) -> dict[str, StateSpec]:
        """Optimizer states of a row by name, in the order of the arrays."""
        return stored_states(self.optimizer, self.dim, self.state_dtype)


_OPTIONS = {f.name for f in dataclasses.fields(TableConfig)} | {"num_buckets", "evicts"}
# The fields that a spec takes from its config, under the same names.
_OF_CONFIG = [f.name for f in dataclasses.fields(TableSpec) if f.name in _OPTIONS]
AnyTable = TableConfig | TableSpec
