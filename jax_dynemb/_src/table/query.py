# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks which rows an export shall stream, before it reads any."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.engines.shard import Query
from jax_dynemb._src.ids import array_of
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kind_of import kind_of


def query_of(
    config: Any, min_score: Any, since: Any, known_keys: Any, chunk_buckets: Any
) -> Query:
    """Returns the arguments of ``Tables.export``, checked."""
    for name, given in {"min_score": min_score, "since": since}.items():
        if given is None:
            continue
        if not is_whole(given):
            raise TypeError(
                f"export: {name} must be a whole number, not {kind_of(given)}: a mark "
                "is get_score(state)[table]."
            )
        if given < 0:
            raise ValueError(f"export: {name} must be 0 or more, not {given}")
    if min_score and getattr(config, "lfu_halflife", None):
        raise ValueError(
            f"export: the counts of table '{config.name}' decay, so no score is their "
            "bound. Leave min_score out, and compare use_counts(state, table, "
            "scores) of what is exported."
        )
    if known_keys is not None:
        known_keys = keys_of(known_keys)
    return Query(min_score, since, known_keys, chunk_buckets)


def keys_of(given: Any) -> np.ndarray:
    """Returns ids as int64[n].

    Floats would lose the low bits of large ids, and pairs of words are two numbers.
    """
    keys = array_of(given)
    if keys.size == 0 and keys.ndim == 1:
        return np.empty(0, np.int64)
    if keys.ndim != 1 or keys.dtype.kind not in "iu":
        raise TypeError(
            f"known_keys must be the ids that the replica holds, int64[n], not "
            f"{kind_of(given)}. Chunks of an export have them as keys."
        )
    return keys.astype(np.int64)
