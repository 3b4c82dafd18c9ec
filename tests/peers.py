# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs that read each other's memory, on a mesh of CPU devices.

What the custom call does, XLA's collectives do here, and whatever it leaves unwritten
is garbage: NaNs, and numbers that no table has. So a result that reads it is wrong.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jax_dynemb._src.engines.hash import links
from jax_dynemb._src.engines.hash.layouts import mesh_axes, peers, placement

_GARBAGE = {"float": np.nan, "uint": 0xA5, "int": -1515870811}


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Lets every mesh of CPU devices exchange as GPUs do."""
    for module in (mesh_axes, placement):
        patch.setattr(module, "peers_of", _peers_of)
    patch.setattr(links.Links, "exchange", _exchange)


def _peers_of(mesh, axes, transport):
    if transport == "collectives" or not isinstance(mesh, Mesh):
        return peers.Peers((), "collectives")
    return peers.Peers(tuple(range(mesh.size)))


def _exchange(self, arrays, pieces, live=None):
    """Stands for ``Links.exchange``."""
    arrived = [
        jax.lax.all_to_all(x.reshape(self.shards, -1), self.axes, 0, 0, tiled=True)
        for x in arrays
    ]
    counts = None
    if live is not None:
        counts = live.counts.T
        if live.by_sender:
            counts = jax.lax.all_to_all(counts, self.axes, 0, 0, tiled=True)
    result = []
    for n, (array, part) in enumerate(zip(arrays, arrived, strict=True)):
        mine = [piece for piece in pieces if piece.array == n]
        mask = _mask(mine, part.shape[1], part.dtype.itemsize, counts, self.shards)
        kind = "float" if jnp.issubdtype(part.dtype, jnp.floating) else None
        kind = kind or ("uint" if part.dtype.kind == "u" else "int")
        garbage = jnp.full_like(part, _GARBAGE[kind])
        result.append(jnp.where(mask, part, garbage).reshape(array.shape))
    return result


def _mask(pieces, width, itemsize, counts, shards):
    """Says which elements of each part arrive, bool[shards, width]."""
    mask = jnp.zeros((shards, width), bool)
    column = jnp.arange(width)[None]
    for piece in pieces:
        assert piece.begin % itemsize == 0 and piece.row_bytes % itemsize == 0
        begin, row = piece.begin // itemsize, piece.row_bytes // itemsize
        end = jnp.full(shards, begin + piece.room // itemsize)
        if piece.counter >= 0:
            assert counts is not None
            end = jnp.minimum(end, begin + counts[:, piece.counter] * row)
        mask |= (column >= begin) & (column < end[:, None])
    return mask
