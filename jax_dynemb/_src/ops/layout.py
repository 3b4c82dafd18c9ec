# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Flattens the ids that a user passes and their numbers, and shapes the rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.ids import array_of, check_depth
from jax_dynemb._src.ids import ids as make_ids
from jax_dynemb._src.jagged import Jagged, check_lengths
from jax_dynemb._src.ops.offsets import offsets_of_each
from jax_dynemb._src.ops.sizes import is_symbolic

_TRUNCATED = (
    "Feature '{feature}': ids have dtype {dtype} but table '{table}' has 64-bit keys. "
    "JAX truncates int64 arrays when x64 is off, so values above 2**31 may already be "
    "lost. Convert on the host: ids = jde.ids(np_array). If your ids really are "
    "32-bit, give the table's config key_dtype='int32'."
)

_SYMBOLIC_BAGS = (
    "Feature '{feature}': the last axis of its ids, the size of its bags, is the "
    "symbolic dimension {size}, but a kernel takes bags of one static size. Pad bags "
    "with -1 to a static size, or pass a jde.Jagged, whose capacity may be symbolic."
)


class IdsTable(Protocol):
    """A table of any kind, as far as the form of its ids depends on it."""

    @property
    def name(self) -> str:
        """Returns the table's name."""
        ...

    @property
    def pooling(self) -> str | None:
        """How rows of a bag are pooled."""
        ...

    @property
    def key_dtype(self) -> str:
        """Returns the dtype of ids."""
        ...


@dataclasses.dataclass(frozen=True)
class FeatureLayout:
    """Describes the static shape of one feature in one call."""

    feature: str
    table: str  # the name of its table
    pooling: str  # "none", "sum", "mean" or "no_rows"
    # Shape of the ids as given, without the axis of the two words.
    given_shape: tuple[int, ...]
    # The same, but bags of length zero have become bags of one padding.
    ids_shape: tuple[int, ...]
    rows_shape: tuple[int, ...]  # shape of the returned rows, without dim
    bag_size: int  # ids of each bag; 0 where offsets are given
    weighted: bool  # whether each id has a weight

    @property
    def num_ids(self) -> int:
        """Ids, padding included."""
        return math.prod(self.ids_shape)

    def shaped_as_given(self, per_id: jax.Array) -> jax.Array:
        """One number per id, flat, in the shape of the ids as given."""
        return per_id[: math.prod(self.given_shape)].reshape(self.given_shape)

    @property
    def num_bags(self) -> int:
        """Rows that the feature returns."""
        return math.prod(self.rows_shape)


# The pooling of a call, by that of a table: "sqrtn" is a sum with divided weights.
KERNEL_POOLINGS = {None: "none", "sum": "sum", "mean": "mean", "sqrtn": "sum"}


def one_row_each(
    feature: str, table: str, num_ids: int, pooling: str = "none"
) -> FeatureLayout:
    """The layout of flat ids that are not pooled."""
    shape = (num_ids,)
    return FeatureLayout(feature, table, pooling, shape, shape, shape, 1, False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FeatureInput:
    """The arrays of one feature in one call."""

    ids: jax.Array  # uint32[num_ids, 2], or [num_ids] of another integer type
    offsets: jax.Array | None  # int32[num_bags + 1] where bags differ in length
    weights: jax.Array | None  # float32[num_ids], or None
    # uint32[1], how many bags were cut, or None where none can be.
    malformed: jax.Array | None = None
    # uint32[num_ids], how many ids each one stands for; None: one.
    uses: jax.Array | None = None
    # uint32[n, 2], the ids of several features one after the other, ``ids`` a part of
    # them; None: the feature has an array of its own.
    shared: jax.Array | None = None
    # ``ids`` as they were given, for kernels that get offsets: to these all is padding
    # after the last bag. None where ``ids`` are the same.
    given: jax.Array | None = None


class JaggedBags(NamedTuple):
    """Holds the ids of one jagged feature, and where its bags begin."""

    ids: jax.Array  # flat; those after the last bag are not padding yet
    offsets: jax.Array  # int32[bags + 1]
    malformed: jax.Array  # uint32[1], how many bags were cut


def slots_only(
    layout: FeatureLayout, feature_input: FeatureInput
) -> tuple[FeatureLayout, FeatureInput]:
    """The ids of a feature, for a call that returns no rows."""
    alone = one_row_each(layout.feature, layout.table, layout.num_ids, "no_rows")
    return alone, FeatureInput(
        feature_input.ids,
        None,
        None,
        uses=feature_input.uses,
        shared=feature_input.shared,
    )


def prepare(
    config: IdsTable,
    feature: str,
    ids: Any,
    weights: Any = None,
    bags: JaggedBags | None = None,
) -> tuple[FeatureLayout, FeatureInput]:
    """Brings a feature's ids, of any shape or ``Jagged``, into the kernels' form.

    Args:
      config: of the feature's table.
      feature: its name.
      ids: as a user passes them.
      weights: one an id, or None.
      bags: of ``jagged_bags``, which adds up lengths of several features in one call.
    """
    if isinstance(ids, Jagged):
        if bags is None:
            bags = jagged_bags({feature: config}, {feature: ids})[feature]
        return _prepare_jagged(config, feature, bags, weights)
    array, shape = id_array(config, feature, ids)
    pooled = config.pooling is not None
    given_shape = shape
    bag_size = shape[-1] if pooled and len(shape) >= 2 else 1
    if is_symbolic(bag_size):
        raise ValueError(_SYMBOLIC_BAGS.format(feature=feature, size=bag_size))
    # Ids without a bag axis are bags of one; empty bags have no ids to divide by.
    rows_shape = shape[:-1] if pooled and len(shape) >= 2 else shape
    if bag_size == 0:
        array, shape, bag_size = _one_padding_each(array, rows_shape)
    flat = array.reshape(math.prod(shape), *array.shape[len(shape) :])
    named = feature, config.name, KERNEL_POOLINGS[config.pooling]
    shapes = given_shape, shape, rows_shape
    layout = FeatureLayout(*named, *shapes, bag_size, weights is not None)
    factors = None if weights is None else _flat_weights(layout, weights)
    return layout, FeatureInput(flat, None, factors)


def jagged_bags(
    configs: Mapping[str, IdsTable], ids: Mapping[str, Jagged]
) -> dict[str, JaggedBags]:
    """Finds where bags begin, with the lengths of all features in one call."""
    arrays = {f: _flat_ids(configs[f], f, bags) for f, bags in ids.items()}
    lengths = [
        (check_lengths(bags.lengths, arrays[f].shape[0], f), arrays[f].shape[0])
        for f, bags in ids.items()
    ]
    made = zip(ids, offsets_of_each(lengths), strict=True)
    return {f: JaggedBags(arrays[f], *offsets) for f, offsets in made}


def _flat_ids(config: IdsTable, feature: str, bags: Jagged) -> jax.Array:
    array, shape = id_array(config, feature, bags.values)
    if len(shape) != 1:
        raise ValueError(
            f"Feature '{feature}': Jagged.values must be one flat array of ids, not of "
            f"shape {shape}; flatten it and give the length of each bag in lengths."
        )
    return array


def _prepare_jagged(
    config: IdsTable, feature: str, bags: JaggedBags, weights: Any
) -> tuple[FeatureLayout, FeatureInput]:
    offsets, shape = bags.offsets, bags.ids.shape[:1]
    array = _pad_after(bags.ids, offsets[-1])
    pooled = config.pooling is not None
    rows_shape = (offsets.shape[0] - 1,) if pooled else shape
    bag_size = 0 if pooled else 1
    named = feature, config.name, KERNEL_POOLINGS[config.pooling]
    shapes = shape, shape, rows_shape
    layout = FeatureLayout(*named, *shapes, bag_size, weights is not None)
    flat_weights = None if weights is None else _flat_weights(layout, weights)
    own_offsets = offsets if pooled else None
    # XLA drops the copy with padding unless something reads it.
    given = bags.ids if pooled else None
    return layout, FeatureInput(
        array, own_offsets, flat_weights, bags.malformed, given=given
    )


def id_array(
    config: IdsTable, feature: str, ids: Any
) -> tuple[jax.Array, tuple[int, ...]]:
    """The ids as a jax Array, and their shape without the axis of words."""
    narrow = config.key_dtype == "int32"
    if not hasattr(ids, "dtype"):
        ids = array_of(ids)
    if isinstance(ids, np.ndarray) and ids.dtype in (np.int64, np.uint64):
        if narrow:
            raise TypeError(_too_wide(config, feature, ids.dtype))
        ids = make_ids(ids)
    dtype = jnp.dtype(ids.dtype)
    if dtype.kind not in "iu":
        raise TypeError(
            f"Feature '{feature}': ids must be integers, not {dtype}. Make them with "
            "jde.ids, or hash other values with jde.hash_ids first."
        )
    ids = ids if isinstance(ids, jax.Array) else jnp.asarray(ids)
    if narrow:
        if dtype.itemsize != 4:
            raise TypeError(_too_wide(config, feature, dtype))
        return ids, ids.shape
    if dtype.itemsize == 8:
        return ids, ids.shape
    if dtype == jnp.uint32 and ids.ndim >= 1 and ids.shape[-1] == 2:
        return ids, ids.shape[:-1]
    raise TypeError(_TRUNCATED.format(feature=feature, dtype=dtype, table=config.name))


def _too_wide(config: IdsTable, feature: str, dtype: Any) -> str:
    return (
        f"Feature '{feature}': table '{config.name}' has key_dtype='int32', but the "
        f"ids have dtype {dtype}. Pass int32 or uint32 ids, or drop key_dtype and use "
        "jde.ids."
    )


def _padding(array: jax.Array) -> jax.Array:
    """-1 in the array's type: all bits set."""
    return ~jnp.zeros((), array.dtype)


def _pad_after(array: jax.Array, end: jax.Array) -> jax.Array:
    """Ids from position ``end`` on become padding."""
    position = jnp.arange(array.shape[0], dtype=jnp.int32)
    live = (position < end).reshape(-1, *[1] * (array.ndim - 1))
    return jnp.where(live, array, _padding(array))


def _one_padding_each(
    array: jax.Array, rows_shape: tuple[int, ...]
) -> tuple[jax.Array, tuple[int, ...], int]:
    """Bags of length zero become bags of one padding."""
    shape = (*rows_shape, 1)
    words = array.shape[len(shape) :]
    return jnp.full((*shape, *words), _padding(array), array.dtype), shape, 1


def _flat_weights(layout: FeatureLayout, weights: Any) -> jax.Array:
    check_depth(f"Feature '{layout.feature}': weights", weights)
    weights = jnp.asarray(weights)
    if weights.size == 0 and layout.num_ids > 0:
        return jnp.zeros(layout.num_ids, jnp.float32)
    if weights.shape != layout.ids_shape:
        raise ValueError(
            f"Feature '{layout.feature}': weights have shape {weights.shape}, the ids "
            f"{layout.ids_shape}; give one weight for each id."
        )
    return weights.astype(jnp.float32).reshape(-1)


def with_uses(
    strategy: ScoreStrategy | str,
    layout: FeatureLayout,
    feature_input: FeatureInput,
    counts: Any,
    scores: Any,
    of_table: jax.Array,
) -> FeatureInput:
    """Adds ids' counts, uint32 in their shape, and scores, in words, to a feature.

    Ids without a score have ``of_table``, uint32[2].
    """
    if counts is None and scores is None:
        return feature_input
    uses = _flat(layout, "counts", counts)
    words = None if scores is None else [_flat(layout, "scores", x) for x in scores]
    return dataclasses.replace(
        feature_input, uses=join_uses(strategy, uses, words, of_table)
    )


def join_uses(
    strategy: ScoreStrategy | str,
    counts: jax.Array | None,
    scores: Sequence[Any] | None,
    of_table: jax.Array,
) -> jax.Array | None:
    """Joins flat counts and scores: uint32[n], or uint32[3, n] of a customized table.

    Such a table takes both or none: 1 and ``of_table``, uint32[2], stand for None.
    """
    if strategy != ScoreStrategy.CUSTOMIZED:
        return counts
    some = counts if scores is None else scores[0]
    if some is None:
        return None
    if counts is None:
        counts = jnp.ones_like(some)
    if scores is None:
        scores = [jnp.broadcast_to(word, some.shape) for word in of_table]
    return jnp.stack([counts, *scores])


def _flat(layout: FeatureLayout, what: str, numbers: Any) -> jax.Array | None:
    if numbers is None:
        return None
    numbers = jnp.asarray(numbers)
    if numbers.size == 0 and layout.num_ids > 0:  # bags of one padding
        return jnp.zeros(layout.num_ids, jnp.uint32)
    if numbers.shape != layout.ids_shape:
        raise ValueError(
            f"Feature '{layout.feature}': {what} have shape {numbers.shape}, the ids "
            f"{layout.ids_shape}; give one number for each id."
        )
    return numbers.reshape(-1)
