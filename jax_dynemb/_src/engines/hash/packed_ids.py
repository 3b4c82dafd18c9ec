# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of many features as one array, between the program that routes and the next."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import id_array

Shape = tuple[int, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedIds:
    """Holds the ids of features that devices share equally; a pytree.

    A device has the words of its part of each feature, one feature after the other.

    Attributes:
      words: uint32[n, 2].
      shapes: by feature, that of its ids without the axis of words; static.
      placement: says how devices share them; static.
    """

    words: jax.Array
    shapes: tuple[tuple[str, Shape], ...] = dataclasses.field(metadata={"static": True})
    placement: Placement = dataclasses.field(metadata={"static": True})

    def by_feature(self) -> dict[str, jax.Array]:
        """Returns the ids as they were given, uint32[..., 2]."""
        shards = _parts(self.placement)
        own = {f: (n // shards, *rest) for f, (n, *rest) in self.shapes}

        def cut(words: jax.Array) -> dict[str, jax.Array]:
            begin, result = 0, {}
            for feature, shape in own.items():
                end = begin + math.prod(shape)
                result[feature] = words[begin:end].reshape(*shape, 2)
                begin = end
            return result

        split = self.placement.split
        run = self.placement.mapped(cut, (split,), dict.fromkeys(own, split))
        return run(self.words)


def pack(
    catalog: Catalog[TableConfig], placement: Placement, ids: Mapping[str, Any]
) -> tuple[dict[str, Any], PackedIds | None]:
    """Packs the features whose ids are pairs that devices share equally.

    Every array at the boundary of a program costs time. XLA copies an argument that is
    a result too, and it sees that the parts of an array in their order are the array.

    Args:
      catalog: the tables.
      placement: of the collection, with its mesh.
      ids: by feature.

    Returns:
      The ids with None where they are packed; and those.
    """
    placement = dataclasses.replace(placement, stacks=())
    arrays = {}
    for feature, given in ids.items():
        if not isinstance(given, Jagged):
            array, shape = id_array(catalog.config_of(feature), feature, given)
            if array.ndim > len(shape) > 0 and shape[0] % _parts(placement) == 0:
                arrays[feature] = array
    if len(arrays) < 2:
        return OrderedDict(ids), None

    def join(arrays: dict[str, jax.Array]) -> jax.Array:
        return jnp.concatenate([arrays[f].reshape(-1, 2) for f in shapes])

    split, shapes = placement.split, {f: x.shape[:-1] for f, x in arrays.items()}
    words = placement.mapped(join, (dict.fromkeys(shapes, split),), split)(arrays)
    packed = PackedIds(words, tuple(shapes.items()), placement)
    rest = OrderedDict((f, None if f in shapes else x) for f, x in ids.items())
    return rest, packed


def _parts(placement: Placement) -> int:
    """Returns in how many parts a call sees an array: one inside of shard_map."""
    return 1 if placement.is_inside() else placement.shards
