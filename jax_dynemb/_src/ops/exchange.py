# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exchanges arrays between GPUs of one host that read each other's memory."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src import ffi as _ffi


class Piece(NamedTuple):
    """Says where rows lie in each part of an array that is exchanged.

    Attributes:
      array: its number.
      begin: where the rows begin in a part, in bytes.
      row_bytes: of one row.
      room: bytes of all rows that fit, and of what aligns the next piece.
      counter: the row of the counters that says how many rows are live; -1: all.
    """

    array: int
    begin: int
    row_bytes: int
    room: int
    counter: int = -1


def exchange(
    arrays: Sequence[jax.Array],
    pieces: Sequence[Piece],
    rank: Int32[Array, ""],
    counters: Int32[Array, "counters shards"],
    *,
    devices: tuple[int, ...],
    counted_by_sender: bool,
    gathers: bool = False,
) -> list[jax.Array]:
    """Runs an all_to_all in which only live rows move, inside a shard_map.

    Bytes outside of live rows are whatever the memory holds.

    Args:
      arrays: each of as many equal parts as there are shards, or all of one part.
      pieces: what lies in the parts.
      rank: of this device among the shards.
      counters: how many rows this device has for each other one, or will get from it.
      devices: ids of GPUs, groups of shards side by side.
      counted_by_sender: whose counters count.
      gathers: whether all devices get the same part; arrays become [shards, ...].
    """
    result: list[jax.Array] = []
    shards = counters.shape[1]
    parts, first = (1, (shards,)) if gathers else (shards, ())
    sizes = [x.size * x.dtype.itemsize // parts for x in arrays]
    pieces = _fewer(pieces, sizes)
    for numbers in _calls(arrays, pieces):
        some = [arrays[n] for n in numbers]
        result += _ffi.call(
            "exchange",
            [jax.ShapeDtypeStruct((*first, *x.shape), x.dtype) for x in some],
            [*some, rank, counters],
            {},
            devices=np.array(devices, np.int64),
            shards=np.int64(shards),
            pieces=np.array(_renumbered(pieces, numbers), np.int64).reshape(-1),
            counted_by_sender=counted_by_sender,
        )
    return result


def _fewer(pieces: Sequence[Piece], part_bytes: Sequence[int]) -> list[Piece]:
    """Makes one piece, all of it live, of an array with more than a call may have."""
    most = _ffi.constants()["most_pieces"]
    result: list[Piece] = []
    for n, size in enumerate(part_bytes):
        mine = [piece for piece in pieces if piece.array == n]
        result += mine if len(mine) <= most else [Piece(n, 0, size, size)]
    return result


def _calls(arrays: Sequence[jax.Array], pieces: Sequence[Piece]) -> list[list[int]]:
    """Splits the numbers of the arrays into calls of as many as one call may have."""
    most_arrays, most_pieces = (
        _ffi.constants()[name] for name in ("most_exchanged", "most_pieces")
    )
    counts = collections.Counter(piece.array for piece in pieces)
    calls: list[list[int]] = []
    room = 0
    for n in range(len(arrays)):
        if not calls or len(calls[-1]) == most_arrays or counts[n] > room:
            calls.append([])
            room = most_pieces
        calls[-1].append(n)
        room -= counts[n]
    return calls


def _renumbered(pieces: Sequence[Piece], numbers: Sequence[int]) -> list[Piece]:
    """Selects the pieces of some arrays, which become the only ones."""
    number_of = {n: i for i, n in enumerate(numbers)}
    return [
        piece._replace(array=number_of[piece.array])
        for piece in pieces
        if piece.array in number_of
    ]
