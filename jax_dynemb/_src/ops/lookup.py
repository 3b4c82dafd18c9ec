# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Training and serving lookup: one call for all tables and features, up to a size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src.ffi import constants
from jax_dynemb._src.ops.attributes import feature_attribute
from jax_dynemb._src.ops.call import OF_LOOKUP, Call
from jax_dynemb._src.ops.call_batches import Indices, call_batches, rows_of
from jax_dynemb._src.ops.layout import FeatureLayout
from jax_dynemb._src.ops.packed_rows import packed_attribute
from jax_dynemb._src.ops.promote_beside import begin_promotion
from jax_dynemb._src.ops.row_views import (
    Inputs,
    Outputs,
    RowBuffers,
    RowViews,
    States,
    feature_fields,
    take_whole,
    waves,
)
from jax_dynemb._src.ops.shared_ids import SharedArray
from jax_dynemb._src.ops.sizes import is_positive
from jax_dynemb._src.ops.stamps import WORDS, Stamps
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.ops.tier_lookup import coming_slots, find_tiered, lookup_tiered
from jax_dynemb._src.ops.tiers import Moves, promote
from jax_dynemb._src.spec import TableSpec

Others = Callable[[FeatureLayout], list[tuple[str, Any, int]]]


class PeerRows(NamedTuple):
    """Names GPUs of one host to which a lookup writes its rows.

    Attributes:
      devices: ids, groups of ``shards`` side by side.
      shards: of a group; each gets one group of rows of each feature, see ``RowView``.
      rank: of this device among them.
    """

    devices: tuple[int, ...]
    shards: int
    rank: Int32[Array, ""]

    @property
    def attributes(self) -> dict[str, Any]:
        """Returns those of a call."""
        devices = np.array(self.devices, np.int64)
        return {"devices": devices, "shards": np.int64(self.shards)}


@dataclasses.dataclass(frozen=True)
class _CallBatch:
    """Describes one call of several."""

    tables: Indices  # their numbers
    features: Indices  # numbers of their features
    configs: list[TableSpec]  # of these tables
    inputs: Inputs  # of their features
    views: RowViews  # where the features' rows go
    arrays: RowBuffers  # that features share
    shared: SharedArray | None  # the ids of features that share them

    @property
    def read(self) -> tuple[str, ...]:
        """Lists what a serving lookup reads: counters for the seed only."""
        seeded = constants()["seeded_initializers"]
        draws = any(t.eval_initializer.kernel in seeded for t in self.configs)
        return ("index", "values", "counters") if draws else ("index", "values")

    @property
    def is_packed(self) -> bool:
        """Whether the rows of the tables are packed, those of all or of none."""
        return any(table.row_format is not None for table in self.configs)

    def start(self, op: str, peers: PeerRows | None = None, **attributes: Any) -> Call:
        """The call, with its attributes."""
        rows = [
            feature_fields(layout, self.configs)
            | {"has_uses": int(feature_input.uses is not None)}
            | where
            for (layout, feature_input), where in zip(
                self.inputs, self.arrays.fields(self.views), strict=True
            )
        ]
        if self.shared is not None:
            self.shared.add_counts(rows)
        if peers is not None:
            op, attributes = f"peer_{op}", attributes | peers.attributes
        num_ids = [layout.num_ids for layout, _ in self.inputs]
        features = feature_attribute(rows)
        return Call(op, self.configs, num_ids, features=features, **attributes)

    def add_features(self, call: Call, others: Others) -> None:
        """Adds operands and results; ``others`` are (name, dtype, size) by layout."""
        configs = {table.name: table for table in self.configs}
        used, shared = set[int](), self.shared
        pairs = zip(self.inputs, self.views, strict=True)
        for f, ((layout, feature_input), where) in enumerate(pairs):
            config = configs[layout.table]
            ids = feature_input.given
            if ids is None:
                ids = feature_input.ids
            if shared:
                ids = shared.operand(f, ids)
            call.operand(
                ids, feature_input.offsets, feature_input.weights, feature_input.uses
            )
            if where is not None:
                self.arrays.add_result(call, used, where)
            elif layout.pooling != "no_rows":
                call.result((layout.num_bags, config.dim), config.dtype)
            for name, dtype, size in others(layout):
                if shared is not None and name == "slots":
                    size = shared.slots(f, size)
                if size is not None:
                    call.result((size,), dtype)

    def take_features(
        self, results: Iterator[jax.Array], others: Others, outputs: Outputs
    ) -> None:
        """Takes the results that ``add_features`` added, as outputs of features."""
        used, shared = set[int](), self.shared
        triples = zip(self.features, self.inputs, self.views, strict=True)
        for f, (index, (layout, _), where) in enumerate(triples):
            output = outputs[index] = {}
            if where is not None:
                if where.array not in used:
                    self.arrays.keep(where, next(results))
                used.add(where.array)
            elif layout.pooling != "no_rows":
                output["rows"] = next(results)
            for name, _, _ in others(layout):
                if shared is not None and name == "slots" and shared.has(f):
                    shared.take_slots(f, results, output)
                else:
                    output[name] = next(results)


def lookup(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    scores: jax.Array,
    views: RowViews = (),
    arrays: RowBuffers | None = None,
    peers: PeerRows | None = None,
) -> tuple[Outputs, dict[str, TableState], Stamps]:
    """Looks up, and inserts what is not there.

    Of tables with ``takes_given``, ``scores`` uint32[tables, 2] has the words. Each
    feature gets "slots" int32[num_ids], and where it has them "rows" dtype[num_bags,
    dim], or the array that its view shares, and "scale" float32[num_bags]. Then come
    the new states by name, and the stamps. ``arrays`` are those that another call
    writes too. With ``peers``, where ``is_one_call`` and no table has a tier, all rows
    share one array, which has what this device gets from all.
    """
    if any([table.tier is not None for table in tables]):
        return lookup_tiered(lookup, tables, states, inputs, scores, views)
    arrays, views = arrays or RowBuffers(), views or [None] * len(inputs)
    outputs: Outputs = [{} for _ in inputs]
    new: dict[str, TableState] = {}
    stamps: list[jax.Array] = []
    names: list[tuple[str, ...]] = []
    for batch in _batches(tables, inputs, views, arrays):
        call, before = batch.start("lookup", peers), {**states, **new}
        if any([table.takes_given for table in batch.configs]):
            call.operand(rows_of(scores, batch.tables))
        call.result((len(batch.configs), WORDS), jnp.uint32)
        call.update(*call.arrays(before, OF_LOOKUP))
        batch.add_features(call, _of_lookup)
        if peers is not None:
            call.operand(peers.rank.reshape(1))
        results = call.run()
        stamps.append(next(results))
        names.append(tuple([table.name for table in batch.configs]))
        new |= call.take_tables(results, before, OF_LOOKUP)
        batch.take_features(results, _of_lookup, outputs)
    if any(views):
        take_whole(outputs, views, arrays)
    return outputs, new, Stamps(tuple(stamps), tuple(names))


def find(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    views: RowViews = (),
    arrays: RowBuffers | None = None,
    peers: PeerRows | None = None,
) -> tuple[Outputs, dict[str, TableState]]:
    """Looks up and changes nothing; the tables need not be donated.

    Each feature gets "rows" as in ``lookup``, "found" uint8[num_ids] and "slots"
    int32[num_ids]. ``peers`` get rows as there. A program that also changes the
    returned states waits for the reads.
    """
    inputs = [
        (lay, dataclasses.replace(feature_input, uses=None))
        for lay, feature_input in inputs
    ]
    if any([table.tier is not None for table in tables]):
        return find_tiered(find, tables, states, inputs, views)
    arrays, views = arrays or RowBuffers(), views or [None] * len(inputs)
    outputs: Outputs = [{} for _ in inputs]
    new: dict[str, TableState] = {}
    for batch in _batches(tables, inputs, views, arrays):
        before = {**states, **new}
        if batch.is_packed:
            packed = packed_attribute(batch.configs)
            call = batch.start("find_packed", packed=packed)
        else:
            call = batch.start("find", peers)
        call.read(*call.arrays(before, batch.read))
        batch.add_features(call, _of_find)
        if peers is not None:
            call.operand(peers.rank.reshape(1))
        batch.take_features(call.run(), _of_find, outputs)
        mine = [outputs[i] for i in batch.features]
        for output in mine:  # XLA removes it where the program does not use it
            output["found"] = (output["slots"] >= 0).astype(jnp.uint8)
        slots = [output["slots"] for output in mine]
        for name in {table.state_name: None for table in batch.configs}:
            new[name] = _after(before[name], slots)
    if any(views):
        take_whole(outputs, views, arrays)
    return outputs, new


def prefetch(
    tables: Sequence[TableSpec], states: States, inputs: Inputs
) -> dict[str, TableState]:
    """Brings stored rows without a frame into frames; returns the changed states."""
    used, new, slots = coming_slots(find, tables, states, inputs)
    return new | promote(used, new, slots, "prefetch")


def begin_prefetch(
    tables: Sequence[TableSpec],
    states: States,
    inputs: Inputs,
    passed: Sequence[jax.Array],
) -> tuple[dict[str, TableState], dict[str, Moves], list[jax.Array]]:
    """Begins a prefetch that goes on beside what reads ``passed``.

    ``end_promotion`` takes the changed states and what moves.
    """
    used, new, slots = coming_slots(find, tables, states, inputs)
    after, moves, arrays = begin_promotion(used, new, slots, passed)
    return new | after, moves, arrays


def _of_lookup(layout: FeatureLayout) -> list[tuple[str, Any, int]]:
    slots = [("slots", jnp.int32, layout.num_ids)]
    scale = [("scale", jnp.float32, layout.num_bags)]
    return slots + scale if layout.pooling == "mean" else slots


def _of_find(layout: FeatureLayout) -> list[tuple[str, Any, int]]:
    return [("slots", jnp.int32, layout.num_ids)]


def _batches(
    tables: Sequence[TableSpec], inputs: Inputs, views: RowViews, arrays: RowBuffers
) -> Iterator[_CallBatch]:
    """Yields the calls of a lookup, nearly always one."""
    table_of = [layout.table for layout, _ in inputs]
    wave_of = waves(table_of, views) if any(views) else None
    for some, features in call_batches(tables, table_of, wave_of):
        own, mine = [tables[i] for i in some], [inputs[i] for i in features]
        here, shared = [views[i] for i in features], None
        if any([feature_input.shared is not None for _, feature_input in mine]):
            whole = [feature_input.shared for _, feature_input in mine]
            shared = SharedArray(
                whole, [feature_input.ids for _, feature_input in mine]
            )
        yield _CallBatch(some, features, own, mine, here, arrays, shared)


def _after(state: TableState, slots: Sequence[jax.Array]) -> TableState:
    """The same state, but not before the slots are known.

    The counters, which every change of a table reads, get nothing added that depends on
    a slot: XLA cannot know that no slot is below -16. If the
    call returned the arrays, a program that does not donate them would copy the tables.
    """
    known = [each for each in slots if is_positive(each.size)]
    if not known:
        return state
    return dataclasses.replace(state, counters=after(state.counters, known[0]))


def after(numbers: jax.Array, known: jax.Array | None) -> jax.Array:
    """The same uint32 numbers, but not before others are known.

    Args:
      numbers: any.
      known: int32, none below -16, such as slots; None: nothing is waited for.
    """
    if known is None:
        return numbers
    nothing = (known.reshape(-1)[0] + 16) >> 31
    return numbers | nothing.astype(jnp.uint32)
