# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows whose columns lie in several narrow tables, put together on the host.

The tables hold the same keys in the same buckets, but maybe in other slots of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jax_dynemb._src.engines.shard import Query, Shards, export, used_since
from jax_dynemb._src.rows import Exported, part


def export_columns(shards: Shards, query: Query) -> Iterator[Exported]:
    """See ``Tables.export``.

    Args:
      shards: the pieces of the table, in order of columns.
      query: the scores of the first piece decide which rows are left out.
    """
    min_score, since, known_keys, chunk_buckets = query
    table, state = shards[0]
    if known_keys is not None:
        yield next(export(shards[:1], Query(0, None, known_keys, chunk_buckets)))
    each = [export([one], Query(chunk_buckets=chunk_buckets)) for one in shards]
    for pieces in zip(*each, strict=True):
        chunk = join_columns(pieces)
        wanted = chunk.scores >= np.uint64(min_score)
        if since is not None:
            wanted &= used_since(table, state, chunk, since)
        if wanted.any():
            yield chunk if wanted.all() else part(chunk, wanted)


def join_columns(pieces: Sequence[Exported]) -> Exported:
    """Joins chunks of the same keys, each with some of the columns."""
    sorted_pieces = [part(piece, np.argsort(piece.keys)) for piece in pieces]
    first = sorted_pieces[0]

    def joined(name: str | None) -> np.ndarray:
        arrays = [
            piece.rows if name is None else piece.optimizer_state[name]
            for piece in sorted_pieces
        ]
        return arrays[0] if arrays[0].ndim == 1 else np.concatenate(arrays, axis=1)

    states = {name: joined(name) for name in first.optimizer_state}
    return first._replace(rows=joined(None), optimizer_state=states)
