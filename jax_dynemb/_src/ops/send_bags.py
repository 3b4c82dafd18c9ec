# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sends ids of bags to GPUs of one host that read each other's memory."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.route import RouteTable, part_attribute


def send_bags(
    ids: Sequence[jax.Array],
    tables: Sequence[RouteTable],
    rank: Int32[Array, ""],
    *,
    devices: tuple[int, ...],
    shards: int,
) -> list[jax.Array]:
    """Sends each id to its owner, and padding in its place to the other devices.

    Args:
      ids: of each feature, uint32[n, 2]; -1 is padding.
      tables: of each feature; the shards own them.
      rank: of this device among the shards.
      devices: ids of GPUs, groups of shards side by side.
      shards: of a group.

    Returns:
      Of each feature, what all devices have sent here: uint32[shards, n, 2].
    """
    most = _ffi.constants()["most_exchanged"]
    result: list[jax.Array] = []
    for begin in range(0, len(ids), most):
        some = ids[begin : begin + most]
        call = Call(
            "send_bags",
            (),
            [x.shape[0] for x in some],
            parts=part_attribute(tables[begin : begin + most]),
            devices=np.array(devices, np.int64),
            shards=np.int64(shards),
        )
        for x in some:
            call.operand(x)
            call.result((shards * x.shape[0], 2), jnp.uint32)
        call.operand(rank.reshape(1))
        result += [x.reshape(shards, -1, 2) for x in call.run()]
    return result
