# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a step exchanges, and whether rows or sums of bags are fewer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.hash.exchange.buffers import BufferField
from jax_dynemb._src.engines.hash.exchange.device_batch import wire_dtype
from jax_dynemb._src.engines.hash.exchange.exchange_layout import capacity_of
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    PooledFeature,
    pooled_features_of,
)
from jax_dynemb._src.engines.hash.layouts import Placement, Stack
from jax_dynemb._src.ops import FeatureLayout
from jax_dynemb._src.spec import TableSpec


class Cost(NamedTuple):
    """Bytes that a device hands to each exchange, padding and its own part included."""

    ids: int
    rows: int
    gradients: int


def itemsize(dtype: str) -> int:
    """Bytes of a number."""
    return {"float32": 4, "uint8": 1}.get(dtype, 2)


def cost_of_rows(
    placement: Placement, stack: Stack, table: TableSpec, sizes: Sequence[int]
) -> Cost:
    """Counts the bytes of a stack whose distinct rows travel.

    Args:
      placement: of the collection.
      stack: the arrays.
      table: the stack, as a shard sees it.
      sizes: by block, ids of a device.
    """
    factor = placement.exchange_factor
    room = capacity_of(max(sizes), table.owners, factor, table.local_slots)
    per_id = 12 if table.score_strategy is ScoreStrategy.LFU else 8
    dtypes = wire_dtype(placement, table), placement.exchange_dtype or "float32"
    pieces = [BufferField(table.name, room, table.dim, dtype).bytes for dtype in dtypes]
    ids = room * per_id + 8  # and how many a device has, of which so many are repeats
    return Cost(*(stack.shards * n for n in (ids, *pieces)))


def cost_of_sums(placement: Placement, features: Sequence[PooledFeature]) -> Cost:
    """Counts the bytes of features whose sums travel."""
    dtype = placement.exchange_dtype or "float32"
    ids = sums = 0
    for each in features:
        ids += each.shards * each.ids * (12 if each.weighted else 8)
        ids += 0 if each.bag_size else each.shards * each.bags * 4
        piece = BufferField(each.table.name, each.bags, each.table.dim, dtype)
        sums += each.shards * piece.bytes
    return Cost(ids, sums, sums)


def cost_of(
    placement: Placement,
    stack: Stack,
    table: TableSpec,
    layouts: Sequence[FeatureLayout],
) -> tuple[str, Cost]:
    """Chooses what travels for the features of a stack, "rows" or "sums".

    Args:
      placement: of the collection; its stacks are not read.
      stack: the arrays.
      table: the stack, as a shard sees it.
      layouts: of its features on a device.
    """
    sizes = [0] * stack.blocks
    for layout in layouts:
        sizes[stack.block_of_feature(layout.feature)] += layout.num_ids
    rows = cost_of_rows(placement, stack, table, sizes)
    pooled = all(layout.pooling in ("sum", "mean") for layout in layouts)
    if not pooled or placement.exchange_pooled == "rows":
        return "rows", rows
    features = pooled_features_of(stack, table, layouts)
    if placement.has_hosts and stack.blocks == 1:  # one sum of each host crosses
        count = placement.hosts.count
        features = [dataclasses.replace(each, width=count) for each in features]
    sums = cost_of_sums(placement, features)
    if placement.exchange_pooled == "sums" or sum(sums) < sum(rows):
        return "sums", sums
    return "rows", rows
