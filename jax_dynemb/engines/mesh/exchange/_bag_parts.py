# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Packs bags into each exchange, and unpacks what arrives (see _bags.py)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jax_dynemb.engines.mesh.exchange._bags import Bags, Section
from jax_dynemb.engines.mesh.exchange._device_batch import Input, mean_scale
from jax_dynemb.ops import (
    FeatureGradient,
    FeatureInput,
    FeatureLayout,
    FeatureResidual,
    RowView,
    as_words,
    hash_words,
    is_padding,
    offsets_of,
    owner_of,
    padding,
)


def parts_to_owners(bags: Bags) -> list[jax.Array]:
    """uint32[shards, ...] for the exchange of ids."""
    parts = []
    for section in bags.sections:
        pairs = [(one, one and bags.inputs[one.feature]) for one in section.layouts]
        parts.append(jnp.concatenate([_masked_ids(section, x) for _, x in pairs]))
        if section.bag_size == 0:
            lengths = [_lengths(section, *pair) for pair in pairs]
            parts.append(_to_owners(section, lengths))
        if section.weighted:
            weights = [_weights(section, *pair) for pair in pairs]
            parts.append(_to_owners(section, weights))
    return parts


def _masked_ids(section: Section, given: FeatureInput | None) -> jax.Array:
    """uint32[width, ids, 2]: for each owner its own ids among padding."""
    if given is None:
        return padding((section.width, section.ids))
    ids = as_words(given.ids)
    ids = jnp.concatenate([ids, padding((section.ids - ids.shape[0],))])
    owner = owner_of(*hash_words(ids, section.table.hash_seed), section.width)
    shard = jnp.arange(section.width, dtype=jnp.int32)
    mine = owner[None] == shard[:, None]  # padding stays padding, whosever it is
    return jnp.where(mine[..., None], ids[None], padding((1, 1)))


def _lengths(
    section: Section, layout: FeatureLayout | None, given: FeatureInput | None
) -> jax.Array:
    if layout is None or given is None:
        return jnp.zeros(section.bags, jnp.uint32)
    if given.offsets is None:
        lengths = jnp.full(layout.num_bags, layout.bag_size, jnp.uint32)
    else:
        lengths = (given.offsets[1:] - given.offsets[:-1]).astype(jnp.uint32)
    return jnp.pad(lengths, (0, section.bags - layout.num_bags))


def _weights(
    section: Section, layout: FeatureLayout | None, given: FeatureInput | None
) -> jax.Array:
    if layout is None or given is None:
        return jnp.zeros(section.ids, jnp.uint32)
    weights = given.weights
    if weights is None:
        weights = jnp.ones(layout.num_ids, jnp.float32)
    words = jax.lax.bitcast_convert_type(weights, jnp.uint32)
    return jnp.pad(words, (0, section.ids - layout.num_ids))


def _to_owners(section: Section, by_place: Sequence[jax.Array]) -> jax.Array:
    """[shards, ...]: all owners of a place get the same."""
    return jnp.repeat(jnp.stack(by_place), section.width, axis=0)


def inputs_of_owner(bags: Bags, received: Sequence[jax.Array]) -> list[Input]:
    """Builds the inputs of an owner from what ``parts_to_owners`` sent."""
    arrays, result = iter(received), []
    for section in bags.sections:
        ids = next(arrays).reshape(-1, 2)
        offsets = weights = None
        lengths = next(arrays) if section.bag_size == 0 else None
        if section.weighted:
            words = next(arrays).reshape(-1)
            weights = jax.lax.bitcast_convert_type(words, jnp.float32)
        if lengths is not None:
            lengths = lengths.astype(jnp.int32)
            place = _without_tails(section, lengths.sum(axis=1))
            ids = jnp.take(ids, place, axis=0, mode="fill", fill_value=0xFFFFFFFF)
            if weights is not None:
                weights = jnp.take(weights, place, mode="fill", fill_value=0)
            # Each device has sent lengths without a mistake: none is counted here.
            offsets, _ = offsets_of(lengths.reshape(-1), ids.shape[0])
        result.append((section.layout_of_owner(), FeatureInput(ids, offsets, weights)))
    return result


def _without_tails(section: Section, counts: jax.Array) -> jax.Array:
    """Where the next id is, so that bags of one device follow those of another."""
    n, ends = section.ids, jnp.cumsum(counts)
    position = jnp.arange(section.shards * n, dtype=jnp.int32)
    device = jnp.searchsorted(ends, position, side="right", method="scan_unrolled")
    device = jnp.minimum(device.astype(jnp.int32), section.shards - 1)
    place = device * n + position - (ends - counts)[device]
    return jnp.where(position < ends[-1], place, section.shards * n)


def residuals_of_owner(
    inputs: Sequence[Input], slots: Sequence[jax.Array]
) -> list[FeatureResidual]:
    """Returns what the owner keeps for the update, for each section."""
    return [
        FeatureResidual(given.ids, each, given.offsets, given.weights, None, layout)
        for (layout, given), each in zip(inputs, slots, strict=True)
    ]


def outputs(
    bags: Bags, received: Sequence[jax.Array]
) -> dict[str, tuple[jax.Array, jax.Array | None]]:
    """Returns, by feature, rows in their dtype and the factors of a mean.

    Args:
      bags: what travelled.
      received: of each section, [shards, bags, dim].
    """
    result = {}
    for section, sums in zip(bags.sections, received, strict=True):
        by_place = sums.reshape(-1, section.width, *sums.shape[1:])
        total = by_place.astype(jnp.float32).sum(axis=1)
        for layout, rows in zip(section.layouts, total, strict=True):
            if layout is None:
                continue
            rows, scale = rows[: layout.num_bags], None
            if layout.pooling == "mean":
                scale = mean_scale(layout, bags.inputs[layout.feature])
                rows = rows * scale[:, None]
            result[layout.feature] = rows.astype(section.table.dtype), scale
    return result


def found_parts(
    bags: Bags, inputs: Sequence[Input], found: Sequence[jax.Array]
) -> list[jax.Array]:
    """uint8[shards, ids] for the exchange back: what an owner has of each device."""
    parts = []
    for section, (_, given), flags in zip(bags.sections, inputs, found, strict=True):
        if given.offsets is not None:  # see _without_tails
            begin = given.offsets[:-1].reshape(section.shards, -1)[:, :1]
            place = begin + jnp.arange(section.ids, dtype=jnp.int32)[None]
            flags = jnp.take(flags, place, mode="fill", fill_value=0)
        parts.append(flags.reshape(section.shards, section.ids))
    return parts


def local_found_flags(
    bags: Bags, received: Sequence[jax.Array]
) -> dict[str, jax.Array]:
    """Marks, by feature, the ids that an owner has: uint8[num_ids]."""
    result = {}
    for section, flags in zip(bags.sections, received, strict=True):
        by_place = flags.reshape(-1, section.width, section.ids).max(axis=1)
        for layout, each in zip(section.layouts, by_place, strict=True):
            if layout is None:
                continue
            # Past the bags of a device an owner answers for those of the next one.
            live = ~is_padding(as_words(bags.inputs[layout.feature].ids))
            result[layout.feature] = each[: layout.num_ids] & live.astype(jnp.uint8)
    return result


def gradient_parts(bags: Bags, features: Sequence[FeatureGradient]) -> list[jax.Array]:
    """[shards, bags, dim] for the exchange of gradients: each bag's to every owner."""
    by_name = {f.layout.feature: f for f in features}
    parts = []
    for section in bags.sections:
        shape = (section.bags, section.table.dim)
        by_place = []
        for layout in section.layouts:
            gradient = jnp.zeros((0, shape[1]), bags.dtype)
            if layout is not None:
                gradient = _scaled(by_name[layout.feature]).astype(bags.dtype)
            missing = shape[0] - gradient.shape[0]
            by_place.append(jnp.pad(gradient, ((0, missing), (0, 0))))
        parts.append(_to_owners(section, by_place))
    return parts


def _scaled(feature: FeatureGradient) -> jax.Array:
    if feature.scale is None:
        return feature.gradients
    return feature.gradients.astype(jnp.float32) * feature.scale[:, None]


def gradients_of_owner(
    kept: Sequence[FeatureResidual],
    received: Sequence[jax.Array],
    places: Sequence[RowView],
) -> list[FeatureGradient]:
    """Builds the owner's gradients from the arrays that have arrived."""
    return [
        FeatureGradient(
            one.layout, each, one.ids, one.slots, one.offsets, one.weights, None, place
        )
        for one, each, place in zip(kept, received, places, strict=True)
    ]
