# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a whole KeyedJaggedTensor, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.torchrec import misfit as _misfit
from jax_dynemb._src.torchrec import regions as _regions
from jax_dynemb._src.torchrec.arrays import is_traced, shown
from jax_dynemb._src.torchrec.asserted import MisfitError
from jax_dynemb._src.torchrec.check import check_keys, check_lengths_of, check_weights
from jax_dynemb._src.torchrec.layout import Layout


def validate(kjt: Any) -> bool:
    """Checks that the parts of a KeyedJaggedTensor fit each other. On the host only.

    Args:
      kjt: any.

    Returns:
      True.

    Raises:
      TypeError: under jit.
      ValueError: it was made of what does not fit. Or keys repeat; lengths are
        negative, or more than a key has room for; weights are of another size; or
        inverse indices name no bag.
    """
    layout, lengths = kjt._layout, kjt._lengths
    if layout.misfit is not None:
        words = f" (TorchRec: {layout.misfit.words})" if layout.misfit.words else ""
        _misfit.refuse(layout, f"validate{words}")
    if is_traced(kjt._values, lengths):
        raise TypeError(
            "validate reads lengths on the host, so it cannot stand inside jit: call "
            "it on the batch before the step."
        )
    check_keys(layout.keys)
    lengths = check_lengths_of(np.asarray(lengths), None)
    if lengths.shape != (sum(layout.strides),):
        raise ValueError(
            f"there are {lengths.shape[0]} lengths for {sum(layout.strides)} bags: "
            "give one length for each bag."
        )
    places = sum(layout.capacities)
    if kjt._values.shape[0] != places:
        raise ValueError(
            f"there are {kjt._values.shape[0]} values for {places} places: make the "
            "tensor with from_lengths_sync, which lays them out."
        )
    counts = _regions.counts_of(lengths, layout.strides)
    if not layout.compact:
        for key, count, room in zip(
            layout.keys, counts, layout.capacities, strict=True
        ):
            if count > room:
                raise ValueError(
                    f"key '{key}' has lengths for {count} values, but room for {room}:"
                    " make the lengths those of its bags, or raise its capacity."
                )
    check_weights(kjt._weights, places)
    if layout.inverse_keys is not None:
        check_inverse(layout, kjt._inverse)
    return True


def check_bounds(collection: Any, kjt: Any) -> None:
    """Refuses ids that are no row numbers of their tables, as FBGEMM's FATAL mode does.

    On the host, before the step: ids are hash keys here, so the tables would take them.
    -1 is padding, and passes there too.

    Args:
      collection: an ``EmbeddingBagCollection`` or ``EmbeddingCollection``.
      kjt: a KeyedJaggedTensor with its features.

    Raises:
      IndexError: an id is below -1, or its config's ``num_embeddings`` or more.
      TypeError: under jit.
    """
    if is_traced(kjt._values):
        raise TypeError(
            "check_bounds reads ids on the host, so it cannot stand inside jit: call "
            "it on the batch before the step."
        )
    sizes = {config.name: config.num_embeddings for config in collection._shown}
    for route in collection.routes:
        ids = shown(np.asarray(kjt[route.feature]._values))
        wrong = ids[(ids < -1) | (ids >= sizes[route.table])]
        if wrong.size:
            raise IndexError(
                f"feature '{route.feature}' has {wrong.size} ids outside of table "
                f"'{route.table}' of {sizes[route.table]} rows, such as {wrong[0]}: "
                "give the table more num_embeddings, or leave check_bounds out, since "
                "it holds any id."
            )


def check_inverse(layout: Layout, inverse: Any) -> Any:
    """Refuses inverse indices, integers [F, B], that name no bag of their key.

    Returns the same as int32 if they were in NumPy.
    """
    keys = layout.inverse_keys or ()
    if not hasattr(inverse, "dtype"):
        inverse = np.asarray(inverse, np.int32).reshape(len(keys), -1)
    if missing := sorted(set(layout.keys) - set(keys)):
        raise MisfitError(f"inverse_indices have no row for keys {missing}: add one.")
    if inverse.ndim != 2 or inverse.shape[0] != len(keys):
        raise ValueError(
            f"inverse_indices have shape {inverse.shape}, but name {len(keys)} keys: "
            "give int[F, B], a row for each key."
        )
    if is_traced(inverse):
        return inverse
    known = np.asarray(inverse)
    for key, bags in zip(layout.keys, layout.strides, strict=True):
        row = known[keys.index(key)]
        if row.size and (row.min() < 0 or row.max() >= bags):
            raise ValueError(
                f"inverse_indices of key '{key}' reach from {row.min()} to "
                f"{row.max()}, but it has bags 0 to {bags - 1}: name one for each "
                "example."
            )
    return known.astype(np.int32) if isinstance(inverse, np.ndarray) else inverse


def check_offsets_exist(layout: Layout, lengths: Any) -> None:
    """Refuses offsets into an array that has, or under jit may have, room left."""
    if layout.compact or len(layout.keys) <= 1:
        return
    fix = "call packed().offsets(), or kjt[key].offsets() for one key."
    if is_traced(lengths):
        raise TypeError(f"offsets: under jit regions may have room left; {fix}")
    counts = _regions.counts_of(np.asarray(lengths), layout.strides)
    if tuple(counts.tolist()) != layout.capacities:
        raise ValueError(f"offsets: regions of keys have room left; {fix}")


def kjt_is_equal(a: Any, b: Any) -> bool:
    """Tells whether two hold the same keys, bags and weights. On the host only.

    Args:
      a: one KeyedJaggedTensor.
      b: the other; its capacities may differ.
    """
    if not (hasattr(a, "stride_per_key") and hasattr(b, "stride_per_key")):
        return False
    if a._layout.misfit is not None or b._layout.misfit is not None:
        return _misfit.same((a._layout, *a._leaves()), (b._layout, *b._leaves()))
    same = a.keys() == b.keys() and a.stride_per_key() == b.stride_per_key()
    if not same or (a.weights_or_none() is None) != (b.weights_or_none() is None):
        return False
    a, b = a.packed(), b.packed()
    values = [shown(np.asarray(each._values)) for each in (a, b)]
    arrays = [tuple(values), (a.lengths(), b.lengths())]
    if a.weights_or_none() is not None:
        arrays.append((a.weights(), b.weights()))
    inverse = a.inverse_indices_or_none(), b.inverse_indices_or_none()
    if (inverse[0] is None) != (inverse[1] is None):
        return False
    if inverse[0] is not None:
        arrays.append((inverse[0][1], inverse[1][1]))
    return all(np.array_equal(x, y) for x, y in arrays)
