# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``find`` under ``jax.vmap``: one lookup of all examples, since it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.ids import words_of
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import id_array

Found = tuple[dict[str, jax.Array], dict[str, jax.Array], Any]
Find = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Found]


def is_mapped(ids: Mapping[str, Any], weights: Mapping[str, Any]) -> bool:
    """Whether ``vmap`` runs over the ids of a call, or over their weights."""
    # The class is not public in JAX; tests/table/test_mapped.py is of its name.
    return any(
        isinstance(x, Tracer) and type(x).__name__ == "BatchTracer"
        for given in (*ids.values(), *weights.values())
        for x in (vars(given).values() if isinstance(given, Jagged) else (given,))
    )


def find_mapped(
    find: Find,
    tables: Callable[[str], Any],
    state: Any,
    ids: Mapping[str, Any],
    weights: Mapping[str, Any],
) -> Found:
    """Runs ``find`` once for all examples of a ``vmap``.

    Args:
      find: of an engine.
      tables: returns the config of a feature.
      state: that the examples share.
      ids: by feature.
      weights: by feature.

    Raises:
      NotImplementedError: ``vmap`` runs over the tables too.
    """

    @jax.custom_batching.custom_vmap
    def call(state: Any, ids: Any, weights: Any) -> Found:
        return find(state, ids, weights)

    @call.def_vmap
    def of_all(size: int, is_batched: Any, state: Any, ids: Any, weights: Any) -> Any:
        if any(jax.tree.leaves(is_batched[0])):
            raise NotImplementedError(
                "find under jax.vmap is not supported where vmap runs over the tables: "
                "give the state in_axes=None, or let the function close over it."
            )

        def every(x: Any, batched: bool) -> jax.Array:
            return x if batched else jnp.broadcast_to(x, (size, *jnp.shape(x)))

        ids, weights = jax.tree.map(every, (ids, weights), tuple(is_batched[1:]))
        joined = {f: _Joined(tables(f), f, x, weights.get(f)) for f, x in ids.items()}
        own = {f: x.weights for f, x in joined.items() if x.weights is not None}
        rows, found, after = call(state, {f: x.ids for f, x in joined.items()}, own)
        rows = type(rows)((f, joined[f].rows(x)) for f, x in rows.items())
        found = type(found)((f, joined[f].per_id(x)) for f, x in found.items())
        axes = jax.tree.map(lambda _: True, (rows, found))
        return (rows, found, after), (*axes, jax.tree.map(lambda _: False, after))

    # JAX would make 32 bits of the 64 of NumPy.
    wide = jax.tree.map(_as_words, dict(ids))
    return call(state, wide, dict(weights))


class _Joined:
    """The ids of one feature of all examples as those of one call.

    Attributes:
      ids: of all examples.
      weights: of them, or None.
    """

    def __init__(self, config: Any, feature: str, ids: Any, weights: Any):
        """Takes ids and weights with an axis of examples in front."""
        if isinstance(ids, Jagged):
            self._shape = ids.values.shape[:2]
            self.ids, self._bags = _joined_bags(ids), ids.lengths.shape[1] + 1
            self._pooled = config.pooling is not None
            self.weights = None if weights is None else weights.reshape(-1)
            return
        array, shape = id_array(config, feature, ids)
        self._bags, self._pooled, self._shape = 0, False, shape
        self.ids, self.weights = array, weights
        if config.pooling is not None and len(shape) == 2:
            # Ids of one axis are bags of one each, not a bag.
            self.ids = array.reshape(-1, *array.shape[2:])
            self.weights = None if weights is None else weights.reshape(-1)
            self._bags = shape[1]

    def rows(self, rows: jax.Array) -> jax.Array:
        """Cuts the rows of all examples."""
        if not self._bags:
            return rows
        rows = rows.reshape(self._shape[0], -1, rows.shape[-1])
        return rows[:, : self._bags - 1] if self._pooled else rows

    def per_id(self, numbers: jax.Array) -> jax.Array:
        """Cuts what all examples have one of for each id."""
        return numbers.reshape(self._shape) if self._bags else numbers


def _joined_bags(ids: Jagged) -> Jagged:
    """One Jagged: each example's unused places become one more bag, of padding."""
    examples, capacity = ids.values.shape[:2]
    offsets = jax.vmap(lambda v, n: Jagged(v, n).offsets)(ids.values, ids.lengths)
    last = offsets[:, -1:]
    is_used = jnp.arange(capacity)[None] < last
    is_used = is_used.reshape(*is_used.shape, *[1] * (ids.values.ndim - 2))
    padding = np.array(-1).astype(ids.values.dtype)
    values = jnp.where(is_used, ids.values, padding)
    lengths = jnp.concatenate([jnp.diff(offsets, axis=1), capacity - last], axis=1)
    flat = values.reshape(examples * capacity, *values.shape[2:])
    return Jagged(flat, lengths.reshape(-1))


def _as_words(x: Any) -> Any:
    wide = isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.dtype.itemsize == 8
    return words_of(x) if wide else x
