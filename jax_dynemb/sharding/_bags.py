# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pooled features of which sums travel instead of rows.

Every owner gets the bags of all devices, with padding for the ids that are not its own,
pools them as a device alone would, and sends back one sum a bag; the device adds those
of all owners. In the update a bag's gradient goes to every owner. There is room for
every id with every owner, so nothing can overflow, and no id is looked at but by hash.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb.config import TableConfig
from jax_dynemb.jagged import offsets_of
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout
from jax_dynemb.ops._residual import FeatureGradient, FeatureResidual
from jax_dynemb.sharding._batch import Input, mean_scale
from jax_dynemb.sharding._keys import as_words, hash_words, owner_of, padding
from jax_dynemb.sharding._placement import Placement


@dataclasses.dataclass(frozen=True)
class Section:
    """One feature, or one of each table of a stack; static.

    Attributes:
      table: the stack's config, as a shard sees it.
      layouts: by place of the stack; None where a table has no such feature.
      width: owners of a place.
      places: of the stack.
    """

    table: TableConfig
    layouts: tuple[FeatureLayout | None, ...]
    width: int

    @property
    def live(self) -> list[FeatureLayout]:
        """Those that are there."""
        return [layout for layout in self.layouts if layout is not None]

    @property
    def ids(self) -> int:
        """Room for ids, from a device to an owner."""
        return max(layout.num_ids for layout in self.live)

    @property
    def bags(self) -> int:
        """Room for bags."""
        return max(layout.num_bags for layout in self.live)

    @property
    def bag_size(self) -> int:
        """Ids of every bag; 0 where bags differ and their lengths travel."""
        sizes = {layout.bag_size for layout in self.live}
        return sizes.pop() if len(sizes) == 1 else 0

    @property
    def weighted(self) -> bool:
        """Whether weights travel; then ids without one have weight 1."""
        return any(layout.weighted for layout in self.live)

    @property
    def shards(self) -> int:
        """Of the mesh."""
        return len(self.layouts) * self.width

    def layout_of_owner(self) -> FeatureLayout:
        """The bags of all devices as one feature."""
        ids, bags = (self.shards * n for n in (self.ids, self.bags))
        return FeatureLayout(
            feature=self.live[0].feature,
            table=self.table.name,
            pooling="sum",  # a mean divides when all sums are there
            given_shape=(ids,),
            ids_shape=(ids,),
            rows_shape=(bags,),
            bag_size=self.bag_size,
            weighted=self.weighted,
        )


@dataclasses.dataclass(frozen=True)
class Bags:
    """The features of one call whose sums travel.

    Attributes:
      sections: static; the arrays of all of them share the exchanges.
      inputs: by feature; none of them is needed for the update.
      dtype: of sums and gradients between devices.
      axes: of the mesh, over which the exchange goes.
    """

    sections: list[Section]
    inputs: Mapping[str, FeatureInput]
    dtype: str
    axes: tuple[str, ...]

    @property
    def tables(self) -> list[TableConfig]:
        """Those of the sections, with the dtype in which owners return sums."""
        tables = {section.table.name: section.table for section in self.sections}
        return [dataclasses.replace(t, dtype=self.dtype) for t in tables.values()]


def sections_of(
    placement: Placement, table: TableConfig, layouts: Sequence[FeatureLayout]
) -> list[Section]:
    """The sections of a stack, as a shard sees it, for these features of it."""
    stack = placement.stack(table.name)
    by_place: list[list[FeatureLayout]] = [[] for _ in range(stack.places)]
    for layout in layouts:
        if layout.table == table.name:
            by_place[placement.place_of(layout)].append(layout)
    rows = itertools.zip_longest(*by_place)  # the n-th feature of each table
    return [Section(table, row, stack.width) for row in rows]


def make_bags(
    placement: Placement,
    tables: Sequence[TableConfig],
    layouts: Sequence[FeatureLayout],
    inputs: Mapping[str, FeatureInput],
) -> Bags:
    """The features of these stacks, as a shard sees them."""
    sections = [s for t in tables for s in sections_of(placement, t, layouts)]
    dtype = placement.exchange_dtype or "float32"
    return Bags(sections, inputs, dtype, placement.axes)


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
    owner = owner_of(*hash_words(ids), section.width)
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
    """What an owner looks up, from what ``parts_to_owners`` sent."""
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
            offsets = offsets_of(lengths.reshape(-1), ids.shape[0])
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
    """What the owner keeps for the update, of each section."""
    return [
        FeatureResidual(given.ids, each, given.offsets, given.weights, None, layout)
        for (layout, given), each in zip(inputs, slots, strict=True)
    ]


def parts_to_devices(bags: Bags, sums: Sequence[jax.Array]) -> list[jax.Array]:
    """[shards, bags, dim] for the exchange of rows."""
    return [
        each.reshape(section.shards, section.bags, -1)
        for section, each in zip(bags.sections, sums, strict=True)
    ]


def outputs(
    bags: Bags, received: Sequence[jax.Array]
) -> dict[str, tuple[jax.Array, jax.Array | None]]:
    """By feature, rows in their dtype, and what a mean multiplied by."""
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
    kept: Sequence[FeatureResidual], received: Sequence[jax.Array]
) -> list[FeatureGradient]:
    """What the owner updates its rows by."""
    return [
        FeatureGradient(
            one.layout,
            each.reshape(-1, each.shape[-1]),
            one.ids,
            one.slots,
            one.offsets,
            one.weights,
            None,
        )
        for one, each in zip(kept, received, strict=True)
    ]
