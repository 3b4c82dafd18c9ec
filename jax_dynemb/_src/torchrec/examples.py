# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bags of the examples of a variable batch, where one bag stands for several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.torchrec import bags as _bags
from jax_dynemb._src.torchrec.arrays import is_traced, padding_like, taken
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.torchrec.routes import Features

Rooms = int | Mapping[str, int] | None


class Bags(NamedTuple):
    """Rows of a key in bags, and the ids of the rows, or None."""

    rows: Any  # float[entries, dim]
    lengths: Any  # int32[bags]
    indices: Any


def inverse_of(features: Features, key: str) -> Any:
    """Finds the bag of a key that each example of a variable batch has, or None."""
    variable = isinstance(features, KeyedJaggedTensor)
    if not variable or not features.variable_stride_per_key():
        return None
    inverse = features.inverse_indices_or_none()
    return None if inverse is None else inverse[1][inverse[0].index(key)]


def room_of(capacity: Rooms, key: str) -> int | None:
    """Returns the entries that the examples of a key may have in all; None: as many.

    Raises:
      ValueError: a dict lacks the key, or a number is below 0.
    """
    room = capacity.get(key) if isinstance(capacity, Mapping) else capacity
    if isinstance(capacity, Mapping) and room is None:
        raise ValueError(
            f"capacity={dict(capacity)!r} has no key {key!r}: give each feature with "
            "inverse_indices a number, or one int for all."
        )
    if room is not None and room < 0:
        raise ValueError(f"capacity must be 0 or more, not {room!r}.")
    return room


def of_examples(bags: Bags, inverse: Any, room: int | None) -> tuple[Bags, Any]:
    """Returns the bag of each example, where bags stand for several.

    With ``room`` there are so many entries, whatever the lengths are: the last ones are
    padding, or entries of the last examples have no place. Also returns how many had
    none.

    Raises:
      TypeError: under jit without room.
    """
    if room is not None:
        return _in_room(bags, inverse, room)
    if is_traced(bags.lengths, inverse):
        raise TypeError(
            "EmbeddingCollection: under jit the rows of inverse_indices are as many as "
            "data says. Say how many there is room for: model(kjt, capacity=4096), or "
            "a dict by feature. stats() counts what had no room."
        )
    lengths, index = np.asarray(bags.lengths), np.asarray(inverse)
    entries = _bags.entries_of(lengths, index)
    indices = None if bags.indices is None else bags.indices[entries]
    return Bags(jnp.take(bags.rows, entries, axis=0), lengths[index], indices), 0


def _in_room(bags: Bags, inverse: Any, room: int) -> tuple[Bags, Any]:
    index = jnp.asarray(inverse)
    begins = jnp.take(_bags.offsets_from(jnp.asarray(bags.lengths)), index)
    wanted = _bags.offsets_from(jnp.take(jnp.asarray(bags.lengths), index))
    ends = jnp.minimum(wanted, room)
    lengths = ends[1:] - ends[:-1]
    example, place = _bags.positions(lengths, room)
    live = example < index.shape[0]
    entries = jnp.take(begins, example, mode="clip") + place
    rows = taken(bags.rows, entries, live, padding_like(bags.rows))
    indices = bags.indices
    if indices is not None:
        indices = taken(indices, entries, live, padding_like(indices))
    return Bags(rows, lengths, indices), wanted[-1] - ends[-1]
