# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a lookup keeps for the update: each id's slot, and the bags."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.ops.layout import FeatureLayout
from jax_dynemb._src.ops.row_views import RowView
from jax_dynemb._src.ops.stamps import Stamps
from jax_dynemb._src.shown import Shown


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["ids", "slots", "offsets", "weights", "scale"],
    meta_fields=["layout"],
)
@dataclasses.dataclass(frozen=True, repr=False)
class FeatureResidual(Shown):
    """One feature of a lookup."""

    # uint32[num_ids, 2] or [num_ids]; an update checks that a slot still holds its id.
    ids: jax.Array
    # int32[num_ids]; -1 for padding, -2 for an id that was refused, -3 for one that was
    # not admitted.
    slots: jax.Array
    offsets: jax.Array | None  # int32[num_bags + 1], or None
    weights: jax.Array | None  # float32[num_ids], or None
    scale: jax.Array | None  # float32[num_bags], what a mean multiplied by, or None
    layout: FeatureLayout = dataclasses.field(repr=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Residual(Shown):
    """Holds what ``lookup`` returns for ``apply_gradients``: a pytree.

    Attributes:
      features: by name. Slots of a replicated table are those of the device's copy. Of
        a row-wise one on a mesh the owner's, for ids that travelled in a further round
        only.
      stamps: of the tables, so that no others are updated.
      kept: by strategy, what its update need not exchange again; empty on one device.
    """

    features: dict[str, FeatureResidual]
    stamps: Stamps = dataclasses.field(repr=False)
    kept: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class FeatureGradient:
    """A residual with its gradients, flat, as the update takes it."""

    layout: FeatureLayout  # of the flat arrays; several micro-batches are one here
    gradients: jax.Array  # dtype[num_bags, dim], or an array that several share
    ids: jax.Array  # as in ``FeatureResidual``, like the fields below
    slots: jax.Array  # int32[num_ids]
    offsets: jax.Array | None  # int32[num_bags + 1], or None
    weights: jax.Array | None  # float32[num_ids], or None
    scale: jax.Array | None  # float32[num_bags], or None
    view: RowView | None = None  # of the gradients in a shared array
    # Whether they are of several lookups, of which one may have reused a slot.
    joined: bool = False
    # Of several features one after the other: ids uint32[n, 2], where the call takes
    # them, and slots int32[n]. ``ids`` and ``slots`` are a part of them.
    shared: tuple[jax.Array | None, jax.Array] | None = None


def check_residual(residual: FeatureResidual) -> None:
    """Refuses arrays that are not of one lookup, or of several by ``lax.scan``."""
    layout, stacked = residual.layout, residual.slots.shape[:-1]
    n, bags = layout.num_ids, layout.num_bags
    pairs = residual.ids.ndim == len(stacked) + 2
    of_id, of_bag = (*stacked, n), (*stacked, bags)
    jagged, mean = layout.bag_size == 0, layout.pooling == "mean"
    arrays = {
        "ids": (residual.ids, (*of_id, 2) if pairs else of_id, "ui"),
        "slots": (residual.slots, of_id, "int32"),
        "offsets": (
            residual.offsets,
            (*stacked, bags + 1) if jagged else None,
            "int32",
        ),
        "weights": (residual.weights, of_id if layout.weighted else None, "float32"),
        "scale": (residual.scale, of_bag if mean else None, "float32"),
    }
    for name, (array, shape, dtype) in arrays.items():
        if array is None and shape is None:
            continue
        found = "absent"
        if array is not None:
            found = f"{array.dtype}{list(array.shape)}"
            alike = array.dtype.kind in dtype if dtype == "ui" else array.dtype == dtype
            if shape is not None and array.shape == shape and alike:
                continue
        wanted = "absent" if shape is None else f"{dtype}{list(shape)}"
        raise ValueError(
            f"Feature '{layout.feature}': {name} of the residual must be "
            f"{wanted.replace('ui[', '[')}, not {found}. Pass the residual as lookup "
            "returned it; stack several with lax.scan or pass a list of them."
        )


def join_gradient(
    residual: FeatureResidual,
    gradient: Any,
    dim: int,
    limit: float | None = None,
    joined: bool = False,
) -> FeatureGradient:
    """Puts residual and gradient [*stacked, *rows_shape, dim] together.

    ``limit`` bounds its numbers. ``joined``: there are gradients of other lookups too.
    """
    check_residual(residual)
    layout = residual.layout
    stacked = residual.slots.shape[:-1]
    if gradient is None:
        raise ValueError(
            f"Feature '{layout.feature}': its gradient is None; pass zeros in the "
            "shape of its rows."
        )
    gradient = jnp.asarray(gradient)
    expected = (*stacked, *layout.rows_shape, dim)
    if gradient.shape != expected:
        raise ValueError(
            f"Feature '{layout.feature}': the gradient has shape {gradient.shape}, but "
            f"its rows have shape {expected}; pass the gradient of the rows that "
            "lookup returned."
        )
    if gradient.dtype not in (jnp.float32, jnp.bfloat16, jnp.float16):
        gradient = gradient.astype(jnp.float32)
    if limit is not None:
        gradient = jnp.clip(gradient, -limit, limit)
    batches = math.prod(stacked)
    gradient = gradient.reshape(batches, layout.num_bags, dim)
    scale, offsets = residual.scale, residual.offsets
    num_bags = batches * layout.num_bags
    if offsets is not None and stacked:
        gradient, scale, offsets = _one_more_bag(gradient, scale, offsets, layout)
        num_bags += batches
    flat = dataclasses.replace(
        layout, ids_shape=(batches * layout.num_ids,), rows_shape=(num_bags,)
    )
    return FeatureGradient(
        layout=flat,
        gradients=gradient.reshape(num_bags, dim),
        ids=residual.ids.reshape(-1, *residual.ids.shape[len(stacked) + 1 :]),
        slots=residual.slots.reshape(-1),
        offsets=offsets,
        weights=None if residual.weights is None else residual.weights.reshape(-1),
        scale=None if scale is None else scale.reshape(-1),
        joined=joined or bool(stacked),
    )


def _one_more_bag(
    gradient: jax.Array,
    scale: jax.Array | None,
    offsets: jax.Array,
    layout: FeatureLayout,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Micro-batches of bags of any length, end to end.

    The padding behind the last bag of a micro-batch becomes a bag of its own, so that
    each bag ends where the next begins. Its gradient is not read.
    """
    batches = gradient.shape[0]
    starts = jnp.arange(batches, dtype=jnp.int32) * layout.num_ids
    offsets = (offsets.reshape(batches, -1) + starts[:, None]).reshape(-1)
    end = jnp.full(1, batches * layout.num_ids, jnp.int32)
    gradient = jnp.pad(gradient, ((0, 0), (0, 1), (0, 0)))
    if scale is not None:
        scale = jnp.pad(scale.reshape(batches, -1), ((0, 0), (0, 1)))
    return gradient, scale, jnp.concatenate([offsets, end])
