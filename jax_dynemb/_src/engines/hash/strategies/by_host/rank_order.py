# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Orders bags that have come by host as if all devices had sent them at once.

Where one update takes several lookups, owners tell first which ids still have their
rows. In that exchange the bags of an owner are in the order of devices.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import end_to_end
from jax_dynemb._src.ops import FeatureResidual


def in_rank_order(
    residual: FeatureResidual, hosts: int, devices: int
) -> FeatureResidual:
    """Orders the bags of an owner by the device that has sent them.

    Args:
      residual: what the owner keeps of a feature. Places in a host come one after the
        other, and for each of them the devices that have it, host by host. It has
        leading axes where ``lax.scan`` has stacked lookups.
      hosts: how many.
      devices: of each.

    Returns:
      Ids, slots and offsets; weights are left out.
    """
    stacked = residual.slots.shape[:-1]
    parts = [residual.ids, residual.slots]
    parts += [] if residual.offsets is None else [residual.offsets]
    flat = [x.reshape(-1, *x.shape[len(stacked) :]) for x in parts]
    order = functools.partial(_ordered, hosts=hosts, devices=devices)
    ordered = jax.vmap(order)(*flat)
    ids, slots, *rest = [x.reshape(*stacked, *x.shape[1:]) for x in ordered]
    offsets = rest[0] if rest else None
    return dataclasses.replace(
        residual, ids=ids, slots=slots, offsets=offsets, weights=None
    )


def _ordered(
    ids: jax.Array,
    slots: jax.Array,
    offsets: jax.Array | None = None,
    *,
    hosts: int,
    devices: int,
) -> tuple[jax.Array, ...]:
    if offsets is not None:
        return _jagged(ids, slots, offsets, hosts, devices)

    def turned(x: jax.Array) -> jax.Array:
        parts = x.reshape(devices, hosts, -1, *x.shape[1:])
        return parts.swapaxes(0, 1).reshape(x.shape)

    return turned(ids), turned(slots)


def _jagged(
    ids: jax.Array, slots: jax.Array, offsets: jax.Array, hosts: int, devices: int
) -> tuple[jax.Array, ...]:
    lengths = (offsets[1:] - offsets[:-1]).reshape(devices, hosts, -1)
    begins = offsets[:-1].reshape(lengths.shape)[..., 0].T.reshape(-1)
    lengths = lengths.swapaxes(0, 1).reshape(hosts * devices, -1)
    source = end_to_end(begins, lengths.sum(axis=1), slots.shape[0])
    zero = jnp.zeros(1, jnp.int32)
    return (
        jnp.take(ids, source, axis=0, mode="fill", fill_value=0xFFFFFFFF),
        jnp.take(slots, source, mode="fill", fill_value=-1),
        jnp.concatenate([zero, jnp.cumsum(lengths.reshape(-1))]).astype(jnp.int32),
    )
