# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Orders the ids of one call on one device by table, and rows by feature again."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange.exchange_layout import (
    ExchangeLayout,
    capacity_of,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.ops import (
    FeatureInput,
    FeatureLayout,
    RouteTable,
    as_words,
    is_padding,
)
from jax_dynemb._src.spec import TableSpec

Input = tuple[FeatureLayout, FeatureInput]

# Bytes of a feature's rows up to which it is read with its neighbours: a copy of so few
# costs less than an operation of its own, and one read compiles sooner than many.
_READ_TOGETHER = 1 << 16
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class DeviceBatch:
    """Holds the features of row-wise tables in one call.

    Attributes:
      exchange: what is static in the exchange.
      inputs: the features, in order of tables.
      ids: uint32[n, 2], of all features.
    """

    exchange: ExchangeLayout
    inputs: list[Input]
    ids: jax.Array

    @property
    def has_uses(self) -> bool:
        """Whether some ids have numbers of their own."""
        return any(feature_input.uses is not None for _, feature_input in self.inputs)

    @property
    def scored(self) -> set[str]:
        """Names the tables whose ids have scores."""
        return {
            layout.table
            for layout, feature_input in self.inputs
            if feature_input.uses is not None and feature_input.uses.ndim == 2
        }

    def per_id(self, row: int, default: int) -> jax.Array:
        """Returns the counts (row 0) or score words (1, 2) of all ids, uint32[n]."""
        parts = []
        for layout, feature_input in self.inputs:
            rows = (
                () if feature_input.uses is None else jnp.atleast_2d(feature_input.uses)
            )
            own = rows[row] if row < len(rows) else None
            default_ = jnp.full(layout.num_ids, default, jnp.uint32)
            parts.append(default_ if own is None else own)
        return jnp.concatenate(parts)

    def cut(self, per_id: jax.Array) -> list[jax.Array]:
        """Cuts numbers of all ids by feature, in the order of ``inputs``."""
        ends = list(itertools.accumulate(layout.num_ids for layout, _ in self.inputs))
        return [per_id[b:e] for b, e in zip([0, *ends], ends, strict=False)]

    def by_feature(self, per_id: jax.Array) -> dict[str, jax.Array]:
        """Names the numbers of ids by their features, which all differ."""
        names = [layout.feature for layout, _ in self.inputs]
        return dict(zip(names, self.cut(per_id), strict=True))

    @functools.cached_property
    def runs(self) -> list[Run]:
        """Groups neighbouring features whose rows are read by the same operations."""
        result, begin = [], 0
        for key, run in itertools.groupby(enumerate(self.inputs), self._alike):
            inputs = [each for _, each in run]
            end = begin + sum(layout.num_ids for layout, _ in inputs)
            numbers = [_table_number(self, layout) for layout, _ in inputs]
            result.append(Run(inputs, numbers, begin, end, key[0], key[1]))
            begin = end
        return result

    def _alike(self, numbered: tuple[int, Input]) -> tuple[Any, ...]:
        """Returns dim and dtype of sums, and what is equal within a run."""
        n, (layout, feature_input) = numbered
        t = _table_number(self, layout)
        dim, dtype = self.exchange.tables[t].dim, self.exchange.dtypes[t]
        large = layout.num_ids * dim * jnp.dtype(dtype).itemsize > _READ_TOGETHER
        alone = n if large or feature_input.offsets is not None else -1
        if layout.pooling == "none":
            return dim, dtype, dtype, alone
        return dim, "float32", dtype, alone, layout.bag_size, layout.weighted


@dataclasses.dataclass(frozen=True)
class Run:
    """Holds neighbouring features of one dim.

    Attributes:
      inputs: the features; only one of them if bags differ.
      tables: numbers of their tables.
      begin: the first of their ids, among all of the batch.
      end: behind the last one.
      dim: of a row.
      dtype: of sums.
    """

    inputs: list[Input]
    tables: list[int]
    begin: int
    end: int
    dim: int
    dtype: str

    @property
    def bags(self) -> list[int]:
        """Counts the bags of each feature, or its ids without pooling."""
        return [layout.num_bags for layout, _ in self.inputs]


def make_batch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    factor: float | None = None,
) -> DeviceBatch:
    """Puts the features of these tables in order.

    Args:
      placement: of the collection.
      tables: row-wise tables that the features use, as a shard sees them.
      inputs: layouts and arrays of the features on this device.
      factor: instead of the placement's ``exchange_factor``.
    """
    ordered = in_order(placement, tables, inputs, lambda x: x[0])
    parts = [_parts(placement, n, t, ordered) for n, t in enumerate(tables)]
    exchange = ExchangeLayout(
        tables=tuple(tables),
        parts=tuple(part for some in parts for part in some),
        sizes=tuple(sum(part.size for part in some) for some in parts),
        capacities=tuple(
            max(_capacity(placement, table, part.size, factor) for part in some)
            for table, some in zip(tables, parts, strict=True)
        ),
        dtypes=tuple(wire_dtype(placement, t) for t in tables),
        gradient_dtype=placement.exchange_dtype or "float32",
        links=placement.links,
    )
    ids = jnp.concatenate([as_words(feature_input.ids) for _, feature_input in ordered])
    return DeviceBatch(exchange, ordered, ids)


def _capacity(
    placement: Placement, table: TableSpec, size: int, factor: float | None
) -> int:
    if factor is not None:  # any skew has to fit
        return capacity_of(size, table.owners, factor)
    usual = placement.exchange_factor
    return capacity_of(size, table.owners, usual, table.local_slots)


def in_order(
    placement: Placement,
    tables: Sequence[TableSpec],
    items: Sequence[T],
    layout_of: Callable[[T], FeatureLayout],
) -> list[T]:
    """Sorts values of features into the order of their ids in a batch."""

    def order(item: T) -> tuple[int, int]:
        layout = layout_of(item)
        return numbers[layout.table], placement.block_of(layout)

    numbers = {t.name: n for n, t in enumerate(tables)}
    return sorted((x for x in items if layout_of(x).table in numbers), key=order)


def _parts(
    placement: Placement, number: int, table: TableSpec, ordered: Sequence[Input]
) -> list[RouteTable]:
    """Describes the ids of each table in a stack."""
    stack = placement.stack(table.name)
    sizes = [0] * len(stack.tables)
    for layout, _ in ordered:
        if layout.table == table.name:
            sizes[placement.block_of(layout)] += layout.num_ids
    begin = number * stack.shards
    return [
        RouteTable(
            size=size,
            first=begin + block * stack.width,
            owners=stack.width,
            hash_seed=table.hash_seed,
            num_buckets=table.num_buckets,
            local_buckets=table.local_buckets,
        )
        for block, size in enumerate(sizes)
        if size > 0 or len(sizes) == 1
    ]


def wire_dtype(placement: Placement, table: TableSpec) -> str:
    """Chooses the dtype of rows between devices: exact without ``exchange_dtype``."""
    if placement.exchange_dtype is not None:
        return placement.exchange_dtype
    if table.param_dtype != "float32" and table.row_format is None:
        return table.param_dtype
    return "float32" if table.pooling else table.dtype


def finalize_pooling(
    batch: DeviceBatch, sums: Sequence[jax.Array]
) -> list[tuple[jax.Array, jax.Array | None]]:
    """Returns rows in their dtype, and the factors of a mean, by feature."""
    result = []
    for run, total in zip(batch.runs, sums, strict=True):
        begin = 0
        triples = zip(run.inputs, run.tables, run.bags, strict=True)
        for (layout, feature_input), table, bags in triples:
            own, scale = total[begin : begin + bags], None
            if layout.pooling == "mean":
                scale = mean_scale(layout, feature_input)
                own = own * scale[:, None]
            dtype = batch.exchange.tables[table].dtype
            result.append((own.astype(dtype), scale))
            begin += bags
    return result


def mean_scale(layout: FeatureLayout, feature_input: FeatureInput) -> jax.Array:
    """Computes float32[bags]: one over the number of ids that are not padding."""
    live = (~is_padding(as_words(feature_input.ids))).astype(jnp.int32)
    if feature_input.offsets is None:
        count = live.reshape(layout.num_bags, layout.bag_size).sum(axis=1)
    else:
        before = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(live)])
        count = before[feature_input.offsets[1:]] - before[feature_input.offsets[:-1]]
    return 1.0 / jnp.maximum(count, 1).astype(jnp.float32)


def _table_number(batch: DeviceBatch, layout: FeatureLayout) -> int:
    names = [table.name for table in batch.exchange.tables]
    return names.index(layout.table)
