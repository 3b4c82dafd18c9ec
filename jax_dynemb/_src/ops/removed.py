# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The log of removed keys between the calls of kernels (core/removals.h)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from jax_dynemb._src.ops.keys import add_to_words
from jax_dynemb._src.spec import TableSpec

Log = UInt32[Array, "rows entries 2"]


def empty_log(table: TableSpec) -> Log | None:
    """Makes the log of a shard without removed keys; None without ``log_removed``."""
    if table.ring_size == 0:
        return None
    return jnp.zeros((table.counter_rows, 1 + table.ring_size, 2), jnp.uint32)


def overwritten_log(log: Log) -> Log:
    """Moves all heads so far that no key from before can be read any more."""
    return log.at[:, 0].set(add_to_words(log[:, 0], jnp.uint32(log.shape[1])))


def grown_log(table: TableSpec, grown: TableSpec, log: Log | None) -> Log | None:
    """Keeps the log of a shard if its parts stay, else begins another."""
    same = table.counter_rows == grown.counter_rows
    return log if same and table.ring_size == grown.ring_size else empty_log(grown)


def log_heads(log: np.ndarray) -> np.ndarray:
    """Reads how many keys the logs of uint32[rows, 1 + n, 2] have had: uint64[rows]."""
    return np.ascontiguousarray(log[:, 0]).view(np.uint64)[..., 0]


def read_log(log: np.ndarray, since: np.ndarray | None) -> np.ndarray | None:
    """Reads the keys removed since heads: int64[m], each once.

    ``log`` is uint32[rows, 1 + n, 2] on the host; ``since`` the heads of an earlier
    read, or None for all that is left. Returns None if some were overwritten.
    """
    words = np.ascontiguousarray(log).view(np.uint64)[..., 0]
    heads, size = words[:, 0], words.shape[1] - 1
    if since is None:
        since = np.zeros_like(heads)
    since = np.asarray(since, np.uint64)
    if since.shape != heads.shape or (since > heads).any():
        return None
    new = (heads - since).astype(np.int64)
    if (new > size).any():
        return None
    ring = np.repeat(np.arange(len(heads)), new)
    first = np.repeat(np.cumsum(new) - new, new)
    number = since[ring] + (np.arange(len(ring)) - first).astype(np.uint64)
    place = (number % np.uint64(size)).astype(np.int64)
    return np.unique(words[ring, 1 + place].view(np.int64))
