# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Larger tables on a mesh.

Every shard splits its own buckets. Where buckets do not come out even on the shards,
each has fewer in the larger table than it has then. Those behind them move to other
shards.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_dynemb.engines import shard
from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stacks import Stack
from jax_dynemb.engines.shard import grown_spec, grown_state, split_spec
from jax_dynemb.ops import TableState, is_shared

_ALL = PartitionSpec()


def grow(
    placement: Placement, stack: Stack, factor: int, arrays: TableState
) -> TableState:
    """See ``Engine.grow``; of one stack."""
    spec = placement.state_spec(stack)

    def body(state: TableState) -> TableState:
        return grown_state(stack.local, factor, state)

    split = placement.mapped(body, (spec,), shard.without_homes(spec))(arrays)
    if not _moves(stack, factor):
        return split
    if placement.is_inside():
        raise ValueError(
            f"Table '{stack.name}' has {stack.local.num_buckets} buckets on "
            f"{stack.width} devices. They do not come out even, so rows move to other "
            "devices when it grows: call grow outside of the shard_map."
        )
    move = functools.partial(_shared_anew, placement, stack, factor)
    tier = split.tier
    if tier is not None:
        held = None if tier.held is None else move(tier.held)
        tier = dataclasses.replace(tier, place=move(tier.place), held=held)
        rows: dict[str, Any] = {}  # frames begin empty
    else:
        rows = {
            "values": move(split.values),
            "optimizer": {name: move(x) for name, x in split.optimizer.items()},
        }
    return dataclasses.replace(
        split,
        index=move(split.index),
        sketch=None if split.sketch is None else move(split.sketch),
        tier=tier,
        **rows,
    )


def _moves(stack: Stack, factor: int) -> bool:
    """Whether shards have fewer buckets than theirs become."""
    return _split_buckets(stack, factor) > _grown_buckets(stack, factor)


def _split_buckets(stack: Stack, factor: int) -> int:
    return split_spec(stack.local, factor).local_buckets


def _grown_buckets(stack: Stack, factor: int) -> int:
    return grown_spec(stack.local, factor).local_buckets


def _shared_anew(
    placement: Placement, stack: Stack, factor: int, array: jax.Array
) -> jax.Array:
    """Leaves out the last buckets, which are empty, and cuts the others evenly."""
    assert placement.mesh is not None
    of_bucket = array.shape[0] // (stack.shards * _split_buckets(stack, factor))
    rows = of_bucket * stack.shards * _grown_buckets(stack, factor)
    kept = placement.gathered(array)[:rows]
    where = NamedSharding(placement.mesh, placement.split)
    if placement.is_explicit:
        return jax.reshard(kept, where)
    return jax.lax.with_sharding_constraint(kept, where)


def grow_homes(
    placement: Placement,
    stack: Stack,
    factor: int,
    before: TableState,
    after: TableState,
) -> TableState:
    """See ``Engine.grow_homes``; of one stack."""
    if stack.local.tier is None:
        return after
    spec: Any = placement.state_spec(stack)
    homes = spec.tier.homes

    @functools.partial(jax.jit, static_argnums=3, donate_argnums=1)
    def move(before, new_homes, first, count):
        def body(before, new_homes, first):
            return shard.moved_rows(
                stack.local, factor, before, new_homes, first, count
            )

        run = placement.mapped(body, (spec, homes, _ALL), homes)
        return run(before, new_homes, first)

    if not _moves(stack, factor):
        return shard.with_grown_homes(stack.local, factor, before, after, move)
    place: Any = after.tier.place  # pyright: ignore[reportOptionalMemberAccess]
    slots = place.shape[0] // _grown_buckets(stack, factor)
    place = jax.ShapeDtypeStruct(
        (slots * _split_buckets(stack, factor),), place.dtype, sharding=place.sharding
    )
    split = shard.with_grown_homes(
        stack.local, factor, before, _with_tier(after, place=place), move
    )
    return _with_tier(after, homes=_homes_shared_anew(stack, factor, split))


def _homes_shared_anew(stack: Stack, factor: int, split: TableState) -> jax.Array:
    """Cuts the homes of all shards evenly, through the memory of the host."""
    assert split.tier is not None
    homes = split.tier.homes
    if is_shared(homes):
        buckets = stack.local.num_buckets
        even = max(n for n in range(1, stack.width + 1) if buckets % n == 0)
        raise NotImplementedError(
            f"Table '{stack.name}' has a tier, and lies on {stack.width} devices of "
            f"several processes, where its {buckets} buckets do not come out even: it "
            f"cannot grow there. Use {even} devices, which divide them."
        )
    of_bucket = homes.shape[0] // _split_buckets(stack, factor)
    kept = np.asarray(homes)[: of_bucket * _grown_buckets(stack, factor)]
    return jax.device_put(kept, homes.sharding)


def _with_tier(state: TableState, **changes: Any) -> TableState:
    assert state.tier is not None
    return dataclasses.replace(state, tier=dataclasses.replace(state.tier, **changes))
