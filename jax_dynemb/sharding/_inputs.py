# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of a whole batch to those of each device, and per-id answers back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_dynemb.config import TableConfig
from jax_dynemb.jagged import Jagged, offsets_of
from jax_dynemb.ops._layout import id_array
from jax_dynemb.sharding._placement import Placement

_ALL = PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Share:
    """How one feature of a batch is shared among devices; static.

    An array of ids is cut along its first axis. Jagged values are cut where each row
    is returned; where they are pooled, every device gets all of them and takes those
    of its own bags, because bags do not end where values can be cut.

    Attributes:
      given_shape: of the ids, without the axis of words.
      batch: rows of the result along the first axis.
      jagged: None, "rows" or "bags".
    """

    given_shape: tuple[int, ...]
    batch: int
    jagged: str | None

    def ids_spec(self, split: PartitionSpec) -> Any:
        """PartitionSpecs of what ``share_ids`` returns."""
        if self.jagged is None:
            return split
        values = split if self.jagged == "rows" else _ALL
        return Jagged(values, _ALL)

    def per_id_spec(self, split: PartitionSpec) -> PartitionSpec:
        """Of one number an id, as ``local_numbers`` takes and ``global_`` returns."""
        return _ALL if self.jagged == "bags" else split


def share_ids(
    placement: Placement, table: TableConfig, feature: str, ids: Any
) -> tuple[Share, Any]:
    """Checks ids and pads their first axis until the devices can share it."""
    if isinstance(ids, Jagged):
        values, shape = id_array(table, feature, ids.values)
        lengths = jnp.asarray(ids.lengths)
        pooled = table.pooling is not None
        batch = lengths.shape[0] if pooled else shape[0]
        if pooled:
            lengths = padded(placement, lengths, 0)
        else:
            values = padded(placement, values, -1)
        share = Share(shape, batch, "bags" if pooled else "rows")
        return share, Jagged(values, lengths)
    array, shape = id_array(table, feature, ids)
    if not shape:
        array = array[None]
    batch = shape[0] if shape else 1
    return Share(shape, batch, None), padded(placement, array, -1)


def padded(placement: Placement, array: Any, value: int) -> jax.Array:
    """With a first axis that the devices can share; bits of -1 where value is -1."""
    array = jnp.asarray(array)
    shards = placement.shards
    missing = max(1, -(-array.shape[0] // shards)) * shards - array.shape[0]
    if missing == 0:
        return array
    fill = jnp.zeros((missing, *array.shape[1:]), array.dtype)
    return jnp.concatenate([array, ~fill if value == -1 else fill])


def share_numbers(placement: Placement, share: Share, numbers: Any) -> jax.Array:
    """One number an id (weights), as devices share the ids."""
    numbers = jnp.asarray(numbers)
    if share.jagged == "bags":
        return numbers
    return padded(placement, numbers if share.given_shape else numbers[None], 0)


def local_ids(placement: Placement, share: Share, ids: Any) -> Any:
    """What a device looks up, from what shard_map hands it."""
    if share.jagged is None:
        return ids
    if share.jagged == "rows":
        n = ids.values.shape[0]
        position = jax.lax.axis_index(placement.axes) * n + jnp.arange(n)
        live = position < jnp.sum(ids.lengths)
        live = live.reshape(-1, *[1] * (ids.values.ndim - 1))
        return jnp.where(live, ids.values, ~jnp.zeros((), ids.values.dtype))
    first, lengths = _my_bags(placement, ids)
    return Jagged(_from(ids.values, first), lengths)


def local_numbers(
    placement: Placement, share: Share, ids: Any, numbers: jax.Array
) -> jax.Array:
    """One number an id, as a device has the ids."""
    if share.jagged != "bags":
        return numbers
    first, _ = _my_bags(placement, ids)
    return _from(numbers, first)


def global_numbers(
    placement: Placement, offsets: jax.Array | None, numbers: jax.Array
) -> jax.Array:
    """The reverse of ``local_numbers``: every device gets the numbers of all bags.

    Args:
      placement: of the collection.
      offsets: of this device's bags; None where ids are cut as an array.
      numbers: one for each id of this device.
    """
    if offsets is None:
        return numbers
    n, count = numbers.shape[0], offsets[-1]
    counts = jax.lax.all_gather(count, placement.axes)
    before = jnp.arange(placement.shards) < jax.lax.axis_index(placement.axes)
    first = jnp.sum(jnp.where(before, counts, 0))
    mine = jnp.where(jnp.arange(n) < count, numbers, 0).astype(numbers.dtype)
    room = jnp.zeros(2 * n, numbers.dtype)
    moved = jax.lax.dynamic_update_slice(room, mine, (first,))[:n]
    return jax.lax.psum(moved, placement.axes)


def restored(share: Share, per_id: jax.Array) -> jax.Array:
    """One number an id in the shape of the ids as given."""
    if not share.given_shape:
        return per_id[0]
    return per_id[: share.given_shape[0]]


def _my_bags(placement: Placement, ids: Jagged) -> tuple[jax.Array, jax.Array]:
    """Where this device's bags begin among the values, and their lengths."""
    bags = ids.lengths.shape[0] // placement.shards
    begin = jax.lax.axis_index(placement.axes) * bags
    offsets = offsets_of(ids.lengths, ids.values.shape[0])
    lengths = jax.lax.dynamic_slice(ids.lengths, (begin,), (bags,))
    return offsets[begin], lengths


def _from(array: jax.Array, first: jax.Array) -> jax.Array:
    """The array from an entry on; zeros behind it are past every length."""
    room = jnp.concatenate([array, jnp.zeros_like(array)])
    return jax.lax.dynamic_slice_in_dim(room, first, array.shape[0])


def shares_of(
    placement: Placement,
    tables: Mapping[str, TableConfig],
    ids: Mapping[str, Any],
) -> tuple[dict[str, Share], dict[str, Any]]:
    """``share_ids`` of every feature; ``tables`` is by feature."""
    pairs = {f: share_ids(placement, tables[f], f, x) for f, x in ids.items()}
    return {f: s for f, (s, _) in pairs.items()}, {f: x for f, (_, x) in pairs.items()}
