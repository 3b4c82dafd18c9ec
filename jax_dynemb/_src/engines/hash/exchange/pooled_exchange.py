# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Packs bags into each exchange, and unpacks what arrives (see pooled_batch.py)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.exchange.device_batch import Input, mean_scale
from jax_dynemb._src.engines.hash.exchange.pooled_batch import (
    PooledBatch,
    PooledFeature,
)
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureLayout,
    FeatureResidual,
    RowView,
    TableState,
    as_words,
    hash_words,
    is_padding,
    offsets_of_each,
    owner_of,
    padding,
)


def parts_to_owners(bags: PooledBatch) -> list[jax.Array]:
    """Packs uint32[shards, ...] for the exchange of ids: ids, then all else of bags."""
    ids = []
    for feature in bags.features:
        blocks = [one and bags.inputs[one.feature] for one in feature.layouts]
        masked = [_masked_ids(feature, each, bags.first) for each in blocks]
        ids.append(jnp.concatenate(masked))
    return ids + _numbers_to_owners(bags)


def _numbers_to_owners(bags: PooledBatch) -> list[jax.Array]:
    """Packs lengths of bags that differ, and weights, of each feature."""
    parts = []
    for feature in bags.features:
        pairs = [(one, one and bags.inputs[one.feature]) for one in feature.layouts]
        if feature.bag_size == 0:
            lengths = [_lengths(feature, *pair) for pair in pairs]
            parts.append(_to_owners(feature, lengths))
        if feature.weighted:
            weights = [_weights(feature, *pair) for pair in pairs]
            parts.append(_to_owners(feature, weights))
    return parts


def bags_to_owners(bags: PooledBatch) -> list[jax.Array]:
    """Sends what ``parts_to_owners`` packs, where nothing else travels with it."""
    tables = bags.route_tables
    if tables is None:
        return bags.links.all_to_all(parts_to_owners(bags))
    names = [feature.live[0].feature for feature in bags.features]
    ids = bags.links.send_bags([as_words(bags.inputs[n].ids) for n in names], tables)
    numbers = _numbers_to_owners(bags)
    return ids + (bags.links.all_to_all(numbers) if numbers else [])


def _masked_ids(
    feature: PooledFeature,
    feature_input: FeatureInput | None,
    first: jax.Array | int | None,
) -> jax.Array:
    """Packs uint32[width, ids, 2]: for each owner its own ids among padding."""
    if feature_input is None:
        return padding((feature.width, feature.ids))
    ids = as_words(feature_input.ids)
    ids = jnp.concatenate([ids, padding((feature.ids - ids.shape[0],))])
    if first is None:
        return jnp.broadcast_to(ids, (feature.width, *ids.shape))
    table = feature.table
    hashes = hash_words(ids, table.hash_seed)
    owner = owner_of(*hashes, table.num_buckets, table.local_buckets)
    shard = first + jnp.arange(feature.width, dtype=jnp.int32)
    mine = owner[None] == shard[:, None]  # padding stays padding, whosever it is
    return jnp.where(mine[..., None], ids[None], padding((1, 1)))


def _lengths(
    feature: PooledFeature,
    layout: FeatureLayout | None,
    feature_input: FeatureInput | None,
) -> jax.Array:
    if layout is None or feature_input is None:
        return jnp.zeros(feature.bags, jnp.uint32)
    if feature_input.offsets is None:
        lengths = jnp.full(layout.num_bags, layout.bag_size, jnp.uint32)
    else:
        lengths = (feature_input.offsets[1:] - feature_input.offsets[:-1]).astype(
            jnp.uint32
        )
    return jnp.pad(lengths, (0, feature.bags - layout.num_bags))


def _weights(
    feature: PooledFeature,
    layout: FeatureLayout | None,
    feature_input: FeatureInput | None,
) -> jax.Array:
    if layout is None or feature_input is None:
        return jnp.zeros(feature.ids, jnp.uint32)
    weights = feature_input.weights
    if weights is None:
        weights = jnp.ones(layout.num_ids, jnp.float32)
    words = jax.lax.bitcast_convert_type(weights, jnp.uint32)
    return jnp.pad(words, (0, feature.ids - layout.num_ids))


def _to_owners(feature: PooledFeature, by_block: Sequence[jax.Array]) -> jax.Array:
    """Repeats to [shards, ...]: all owners of a block get the same."""
    return jnp.repeat(jnp.stack(by_block), feature.width, axis=0)


def owner_inputs(bags: PooledBatch, received: Sequence[jax.Array]) -> list[Input]:
    """Builds the inputs of an owner from what ``parts_to_owners`` sent."""
    count = len(bags.features)
    numbers = iter(received[count:])
    arrived = [
        _arrived(feature, ids, numbers)
        for feature, ids in zip(bags.features, received[:count], strict=True)
    ]
    jagged = [(n.reshape(-1), x.shape[0]) for x, n, _ in arrived if n is not None]
    # Each device has sent lengths without a mistake: none is counted here.
    offsets = iter([begins for begins, _ in offsets_of_each(jagged)])
    result = []
    for feature, (ids, lengths, weights) in zip(bags.features, arrived, strict=True):
        own = None if lengths is None else next(offsets)
        result.append((feature.owner_layout(), FeatureInput(ids, own, weights)))
    return result


def _arrived(
    feature: PooledFeature, ids: jax.Array, numbers: Iterator[jax.Array]
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Takes ids, lengths of bags that differ and weights, devices end to end."""
    ids = ids.reshape(-1, 2)
    lengths = weights = None
    if feature.bag_size == 0:
        lengths = next(numbers).astype(jnp.int32)
    if feature.weighted:
        words = next(numbers).reshape(-1)
        weights = jax.lax.bitcast_convert_type(words, jnp.float32)
    if lengths is not None:
        place = _without_tails(feature, lengths.sum(axis=1))
        ids = jnp.take(ids, place, axis=0, mode="fill", fill_value=0xFFFFFFFF)
        if weights is not None:
            weights = jnp.take(weights, place, mode="fill", fill_value=0)
    return ids, lengths, weights


def _without_tails(feature: PooledFeature, counts: jax.Array) -> jax.Array:
    """Finds the next id, so that bags of one device follow those of another."""
    begins = feature.ids * np.arange(feature.shards, dtype=np.int32)
    return end_to_end(begins, counts, feature.shards * feature.ids)


def end_to_end(
    begins: jax.Array | np.ndarray, counts: jax.Array, size: int
) -> jax.Array:
    """Finds in an array the ids of devices, those of one behind those of another.

    Args:
      begins: int32[devices], where the ids of each device begin.
      counts: int32[devices], how many it has.
      size: of the array.

    Returns:
      int32[size], the position of each id; ``size`` behind the last one.
    """
    ends = jnp.cumsum(counts)
    position = jnp.arange(size, dtype=jnp.int32)
    device = jnp.searchsorted(ends, position, side="right", method="scan_unrolled")
    device = jnp.minimum(device.astype(jnp.int32), counts.shape[0] - 1)
    place = jnp.asarray(begins)[device] + position - (ends - counts)[device]
    return jnp.where(position < ends[-1], place, size)


class PooledSums(NamedTuple):
    """Holds what an owner has found, and the sums that this device gets.

    Attributes:
      found: of each feature as an owner, see ``ops.lookup`` and ``ops.find``.
      sums: of each feature, the array that has arrived from all owners.
      states: of this device.
    """

    found: list[dict[str, jax.Array]]
    sums: list[jax.Array]
    states: dict[str, TableState]


def lookup_sums(
    bags: PooledBatch,
    states: Mapping[str, TableState],
    inputs: Sequence[Input],
    scores: jax.Array,
) -> PooledSums:
    """Looks up as an owner, inserts unseen ids, and exchanges the sums.

    Args:
      bags: what was sent to this owner.
      states: of this device.
      inputs: see ``owner_inputs``.
      scores: of ``bags.tables``, one after the other.
    """
    asked = bags.tables, states, inputs, scores, bags.wire().views
    if bags.is_pushed:
        return _arrived_sums(bags, *bags.links.lookup(*asked))
    found, new, _ = ops.lookup(*asked)
    return _arrived_sums(bags, found, new)


def find_sums(
    bags: PooledBatch, states: Mapping[str, TableState], inputs: Sequence[Input]
) -> PooledSums:
    """Looks up as ``lookup_sums`` does, and inserts nothing."""
    find = bags.links.find if bags.is_pushed else ops.find
    found, new = find(bags.tables, states, inputs, bags.wire().views)
    return _arrived_sums(bags, found, new)


def _arrived_sums(
    bags: PooledBatch, found: list[dict[str, jax.Array]], states: dict[str, TableState]
) -> PooledSums:
    rows = [each["rows"] for each in found]
    sums = rows if bags.is_pushed else bags.wire().exchange(rows)
    return PooledSums(found, sums, states)


def owner_residuals(
    inputs: Sequence[Input], slots: Sequence[jax.Array]
) -> list[FeatureResidual]:
    """Returns what the owner keeps for the update, for each feature."""
    return [
        FeatureResidual(
            feature_input.ids,
            each,
            feature_input.offsets,
            feature_input.weights,
            None,
            layout,
        )
        for (layout, feature_input), each in zip(inputs, slots, strict=True)
    ]


def pooled_outputs(
    bags: PooledBatch, received: Sequence[jax.Array]
) -> dict[str, tuple[jax.Array, jax.Array | None]]:
    """Returns, by feature, rows in their dtype and the factors of a mean.

    Args:
      bags: what travelled.
      received: of each feature, [shards, bags, dim].
    """
    result = {}
    for feature, sums in zip(bags.features, received, strict=True):
        by_block = sums.reshape(-1, feature.width, *sums.shape[1:])
        total = _in_rank_order(by_block.astype(jnp.float32))
        for layout, rows in zip(feature.layouts, total, strict=True):
            if layout is None:
                continue
            rows, scale = rows[: layout.num_bags], None
            if layout.pooling == "mean":
                scale = mean_scale(layout, bags.inputs[layout.feature])
                rows = rows * scale[:, None]
            result[layout.feature] = rows.astype(feature.table.dtype), scale
    return result


def _in_rank_order(parts: jax.Array) -> jax.Array:
    """Sums [blocks, width, ...] over ``width``, first to last.

    The order of ``jnp.sum`` depends on what XLA fuses it with, so on the transport.
    """
    return functools.reduce(jnp.add, [parts[:, n] for n in range(parts.shape[1])])


def found_parts(
    bags: PooledBatch, inputs: Sequence[Input], found: Sequence[jax.Array]
) -> list[jax.Array]:
    """Packs uint8[shards, ids] for the way back: what an owner has of each device."""
    parts = []
    for feature, (_, feature_input), flags in zip(
        bags.features, inputs, found, strict=True
    ):
        if feature_input.offsets is not None:  # see _without_tails
            begin = feature_input.offsets[:-1].reshape(feature.shards, -1)[:, :1]
            place = begin + jnp.arange(feature.ids, dtype=jnp.int32)[None]
            flags = jnp.take(flags, place, mode="fill", fill_value=0)
        parts.append(flags.reshape(feature.shards, feature.ids))
    return parts


def local_found_flags(
    bags: PooledBatch, received: Sequence[jax.Array]
) -> dict[str, jax.Array]:
    """Marks, by feature, the ids that an owner has: uint8[num_ids]."""
    result = {}
    for feature, flags in zip(bags.features, received, strict=True):
        by_block = flags.reshape(-1, feature.width, feature.ids).max(axis=1)
        for layout, each in zip(feature.layouts, by_block, strict=True):
            if layout is None:
                continue
            # Past the bags of a device an owner answers for those of the next one.
            live = ~is_padding(as_words(bags.inputs[layout.feature].ids))
            result[layout.feature] = each[: layout.num_ids] & live.astype(jnp.uint8)
    return result


def exchange_gradients(
    bags: PooledBatch, features: Sequence[FeatureGradient]
) -> tuple[list[jax.Array], list[RowView]]:
    """Sends the gradient of each bag to every owner of its table.

    Returns:
      Of each feature of ``bags``, the array in which those of all devices have arrived,
      and where they lie in it.
    """
    wire = bags.wire()
    by_name = {f.layout.feature: _scaled(f) for f in features}
    has_blocks = any(len(feature.layouts) > 1 for feature in bags.features)
    if has_blocks or not bags.links.peers:  # one collective is faster than many
        return bags.exchange(_gradient_parts(bags, by_name)), wire.views
    # All devices own all tables, so nothing is packed: each array goes to all.
    owned = [feature.live[0].feature for feature in bags.features]
    return wire.gather([by_name[name] for name in owned])


def _gradient_parts(
    bags: PooledBatch, by_name: Mapping[str, jax.Array]
) -> list[jax.Array]:
    """Packs gradients, [shards, bags, dim]: each bag's to the owners of its table."""
    parts = []
    for feature in bags.features:
        shape = (feature.bags, feature.table.dim)
        by_block = []
        for layout in feature.layouts:
            gradient = jnp.zeros((0, shape[1]), bags.dtype)
            if layout is not None:
                gradient = by_name[layout.feature].astype(bags.dtype)
            missing = shape[0] - gradient.shape[0]
            by_block.append(jnp.pad(gradient, ((0, missing), (0, 0))))
        parts.append(_to_owners(feature, by_block))
    return parts


def _scaled(feature: FeatureGradient) -> jax.Array:
    if feature.scale is None:
        return feature.gradients
    return feature.gradients.astype(jnp.float32) * feature.scale[:, None]


def owner_gradients(
    kept: Sequence[FeatureResidual],
    received: Sequence[jax.Array],
    views: Sequence[RowView],
) -> list[FeatureGradient]:
    """Builds the owner's gradients from the arrays that have arrived."""
    return [
        FeatureGradient(
            one.layout, each, one.ids, one.slots, one.offsets, one.weights, None, view
        )
        for one, each, view in zip(kept, received, views, strict=True)
    ]
