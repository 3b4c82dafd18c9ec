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

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash.layouts.mesh_axes import MeshAxes
from jax_dynemb._src.jagged import Jagged, check_lengths
from jax_dynemb._src.ops import id_array, is_symbolic, offsets_of_each

_ALL = PartitionSpec()


@dataclasses.dataclass(frozen=True)
class BatchSplit:
    """Describes how one feature of a batch is split over devices; static.

    An array of ids is cut along its first axis. Jagged values are cut where each row
    is returned. Where they are pooled, every device receives all of them and takes
    those of its own bags: bags do not end where values can be cut.

    Attributes:
      given_shape: of the ids, without the axis of words.
      batch: rows of the result along the first axis.
      jagged: None, "rows" or "bags".
    """

    given_shape: tuple[int, ...]
    batch: int
    jagged: str | None

    def ids_spec(self, split: PartitionSpec) -> Any:
        """Returns the PartitionSpecs of what ``split_ids`` returns."""
        if self.jagged is None:
            return split
        values = split if self.jagged == "rows" else _ALL
        return Jagged(values, _ALL)

    def per_id_spec(self, split: PartitionSpec) -> PartitionSpec:
        """Returns the spec of one number per id, as ``split_numbers`` makes it."""
        return _ALL if self.jagged == "bags" else split


def split_ids(
    placement: MeshAxes, table: TableConfig, feature: str, ids: Any
) -> tuple[BatchSplit, Any]:
    """Checks ids and pads their first axis until the devices can share it."""
    if isinstance(ids, Jagged):
        values, shape = id_array(table, feature, ids.values)
        lengths = jnp.asarray(check_lengths(ids.lengths, shape[0], feature))
        pooled = table.pooling is not None
        batch = lengths.shape[0] if pooled else shape[0]
        if pooled:
            lengths = padded(placement, lengths, 0)
        else:
            values = padded(placement, values, -1)
        split = BatchSplit(shape, batch, "bags" if pooled else "rows")
        return split, Jagged(values, lengths)
    array, shape = id_array(table, feature, ids)
    if not shape:
        array = array[None]
    batch = shape[0] if shape else 1
    return BatchSplit(shape, batch, None), padded(placement, array, -1)


def padded(placement: MeshAxes, array: Any, value: int) -> jax.Array:
    """Pads to a first axis that the devices can split; bits of -1 where value is -1."""
    array = jnp.asarray(array)
    shards = placement.shards
    missing = max(1, -(-array.shape[0] // shards)) * shards - array.shape[0]
    if missing == 0:
        return array
    fill = jnp.zeros((missing, *array.shape[1:]), array.dtype)
    return jnp.concatenate([array, ~fill if value == -1 else fill])


def split_numbers(placement: MeshAxes, split: BatchSplit, numbers: Any) -> jax.Array:
    """Splits one number per id, such as weights, as the ids are split."""
    numbers = jnp.asarray(numbers)
    if split.jagged == "bags":
        return numbers
    return padded(placement, numbers if split.given_shape else numbers[None], 0)


@dataclasses.dataclass(frozen=True)
class LocalIds:
    """Holds one feature as a device looks it up.

    Attributes:
      ids: of this device.
      first: int32[], where its bags begin among the values; None if it is handed them.
      malformed: uint32[1], bags that were cut, of all devices; None where none can be.
    """

    ids: Any
    first: jax.Array | None = None
    malformed: jax.Array | None = None

    def numbers(self, numbers: jax.Array) -> jax.Array:
        """Returns one number per id, as this device has the ids."""
        return numbers if self.first is None else _from(numbers, self.first)


def local_ids(
    placement: MeshAxes, splits: Mapping[str, BatchSplit], ids: Mapping[str, Any]
) -> dict[str, LocalIds]:
    """Builds the inputs of a device, by feature, from the arguments of shard_map.

    Args:
      placement: of the collection.
      splits: how devices share each feature.
      ids: of each feature. Lengths of all jagged ones are added up in one call.
    """
    local = {f: LocalIds(ids[f]) for f in splits}
    jagged = {f: split for f, split in splits.items() if split.jagged is not None}
    lengths = [(ids[f].lengths, split.given_shape[0]) for f, split in jagged.items()]
    for f, made in zip(jagged, offsets_of_each(lengths), strict=True):
        local[f] = _local_jagged(placement, jagged[f], ids[f], *made)
    return local


def _local_jagged(
    placement: MeshAxes,
    split: BatchSplit,
    ids: Any,
    offsets: jax.Array,
    malformed: jax.Array,
) -> LocalIds:
    if split.jagged == "rows":
        n = ids.values.shape[0]
        position = jax.lax.axis_index(placement.axes) * n + jnp.arange(n)
        live = position < offsets[-1]
        live = live.reshape(-1, *[1] * (ids.values.ndim - 1))
        own = jnp.where(live, ids.values, ~jnp.zeros((), ids.values.dtype))
        return LocalIds(own, None, malformed)
    bags = ids.lengths.shape[0] // placement.shards
    begin = jax.lax.axis_index(placement.axes) * bags
    own = jax.lax.dynamic_slice(offsets, (begin,), (bags + 1,))
    mine = Jagged(_from(ids.values, own[0]), own[1:] - own[:-1])
    return LocalIds(mine, own[0], malformed)


def global_numbers(
    placement: MeshAxes, offsets: jax.Array | None, numbers: jax.Array
) -> jax.Array:
    """Reverses ``LocalIds.numbers``: every device gets the numbers of all bags.

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


def restored(placement: MeshAxes, split: BatchSplit, per_id: jax.Array) -> jax.Array:
    """Returns one number per id, in the shape of the ids as given."""
    if not split.given_shape:
        return placement.gathered(per_id)[0]
    if per_id.shape[0] == split.given_shape[0]:
        return per_id
    return placement.gathered(per_id)[: split.given_shape[0]]


def _from(array: jax.Array, first: jax.Array) -> jax.Array:
    """Returns the array from an entry on; zeros behind it are past every length."""
    room = jnp.concatenate([array, jnp.zeros_like(array)])
    return jax.lax.dynamic_slice_in_dim(room, first, array.shape[0])


def check_static(ids: Mapping[str, Any]) -> None:
    """Refuses symbolic sizes: what devices exchange has static ones.

    Raises:
      ValueError: a size is known only when an exported program is called.
    """
    for feature, given in ids.items():
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(given)]
        if any(is_symbolic(size) for shape in shapes for size in shape):
            raise ValueError(
                f"Feature '{feature}': ids of shape {shapes[0]} have a symbolic size, "
                "but tables on a mesh exchange ids in arrays of static size. Export "
                "one program for each size of batch; or serve from one device, whose "
                "batches may have any size: jde.export.frozen moves the tables there."
            )


def splits_of(
    placement: MeshAxes,
    tables: Mapping[str, TableConfig],
    ids: Mapping[str, Any],
) -> tuple[dict[str, BatchSplit], dict[str, Any]]:
    """Calls ``split_ids`` for every feature; ``tables`` is by feature."""
    pairs = {f: split_ids(placement, tables[f], f, x) for f, x in ids.items()}
    return {f: s for f, (s, _) in pairs.items()}, {f: x for f, (_, x) in pairs.items()}
