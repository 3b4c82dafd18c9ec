# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Large arrays are files of whole rows: which arrays, how many rows, what names.

They are the chunks of the zarr array that orbax describes, uncompressed, so orbax and
tensorstore read them too. Here they are written and read straight from and to devices.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.disk import write_json

PIECE_BYTES = 1 << 26
DESCRIPTION = ".zarray"

Index = tuple[slice, ...]


def piece_shape(leaf: Any, is_cut: bool = False) -> tuple[int, ...] | None:
    """Returns the shape of an array's pieces, or None if it is stored by orbax.

    Each shard has a whole number of pieces, so that processes write files of their own.
    Orbax cannot store only the first rows of an array, as ``is_cut`` wants.
    """
    if not isinstance(leaf, jax.Array) or leaf.ndim == 0:
        return None
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return None
    if leaf.nbytes <= PIECE_BYTES and not is_cut:
        return None
    rows, *rest = leaf.sharding.shard_shape(leaf.shape)
    row_bytes = math.prod(rest) * leaf.dtype.itemsize
    least = 1 if is_cut else 0
    fitting = (d for d in _divisors(rows) if d * row_bytes <= PIECE_BYTES)
    most = max(fitting, default=least)
    if most * row_bytes < PIECE_BYTES >> 10 and not is_cut:
        return None  # one row is too large, or the number of rows has no such divisor
    return most, *rest


def directory_of(item: Path, path: Sequence[str]) -> Path:
    """Where orbax puts a leaf."""
    return item / ".".join(path)


class Grid(NamedTuple):
    """An array that is cut into pieces."""

    shape: tuple[int, ...]
    piece: tuple[int, ...]

    def overlapping(self, index: Index) -> Iterator[tuple[str, Index, Index]]:
        """Yields each piece of a part: its file, what of it, and where in the part."""
        sides = [
            list(_cuts(*span.indices(size)[:2], step))
            for span, size, step in zip(index, self.shape, self.piece, strict=True)
        ]
        for cuts in itertools.product(*sides):
            name = ".".join(str(number) for number, _, _ in cuts)
            yield name, tuple(c[1] for c in cuts), tuple(c[2] for c in cuts)


def describe_pieces(directory: Path, grid: Grid) -> None:
    """Says of which shape array and pieces are; orbax described whole shards."""
    path = directory / DESCRIPTION
    fields = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, fields | {"shape": grid.shape, "chunks": grid.piece})


def is_piece(path: Path) -> bool:
    """Whether a file holds numbers, not a description."""
    return all(part.isdigit() for part in path.name.split("."))


def is_host(device: Any) -> bool:
    """Whether a device's memory is the host's."""
    return device.platform == "cpu"


def as_bytes(piece: Any) -> np.ndarray:
    """uint8[n]: the numbers of an array in the order of its rows."""
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def _cuts(begin: int, end: int, step: int) -> Iterator[tuple[int, slice, slice]]:
    """How steps cover a range: number, part of the step, part of the range."""
    if begin >= end:
        return
    for number in range(begin // step, -(-end // step)):
        first, last = max(begin, number * step), min(end, (number + 1) * step)
        inside = slice(first - number * step, last - number * step)
        yield number, inside, slice(first - begin, last - begin)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in small]
