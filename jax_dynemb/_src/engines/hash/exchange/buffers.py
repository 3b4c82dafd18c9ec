# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of rows as they lie on the wire.

Kernels write the rows of all tables into one array, which one all_to_all takes as it
is, and read what comes out of it where it lies: nothing is joined, cut or turned.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.exchange.places import Places
from jax_dynemb._src.engines.hash.links import Links, Live
from jax_dynemb._src.ops import Piece, RowView

_ALIGNMENT = 16  # bytes, of a piece: so that kernels may move vectors

# Of a wave, from one device. Two waves take a few more kernels than one; where they are
# long enough, one is on the links while kernels work on the other.
WAVE_BYTES = 32 << 20


class BufferField(NamedTuple):
    """Describes the rows of one table, or one feature, between two devices.

    Attributes:
      table: whose they are.
      rows: how many.
      dim: their columns.
      dtype: on the wire.
    """

    table: str
    rows: int
    dim: int
    dtype: str

    @property
    def size(self) -> int:
        """Counts elements, with those that align the begin of the next piece."""
        unit = _ALIGNMENT // jnp.dtype(self.dtype).itemsize
        return -(-self.rows * self.dim // unit) * unit

    @property
    def bytes(self) -> int:
        """Returns the bytes of its elements."""
        return self.size * jnp.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class ExchangeBuffers:
    """Describes the arrays of one exchange: one per dtype, in equal parts per device.

    Large exchanges are made in two waves, each of about half of the bytes.

    Attributes:
      pieces: in each of the parts, side by side.
      links: between the devices.
    """

    pieces: tuple[BufferField, ...]
    links: Links

    @property
    def shards(self) -> int:
        """Counts the devices."""
        return self.links.shards

    @functools.cached_property
    def views(self) -> list[RowView]:
        """Locates the rows of each piece, for all devices."""
        arrays = [
            (p.dtype, wave) for p, wave in zip(self.pieces, self._waves, strict=True)
        ]
        widths = dict.fromkeys(arrays, 0)
        offsets = []
        for piece, array in zip(self.pieces, arrays, strict=True):
            offsets.append(widths[array])
            widths[array] += piece.size
        numbers = {array: n for n, array in enumerate(widths)}
        return [
            RowView(
                array=numbers[array],
                dtype=piece.dtype,
                size=self.shards * widths[array],
                offset=offset,
                group=piece.rows,
                stride=widths[array],
                wave=array[1],
            )
            for piece, array, offset in zip(self.pieces, arrays, offsets, strict=True)
        ]

    @property
    def _waves(self) -> list[int]:
        """Numbers the wave in which each piece travels."""
        if self.links.peers:  # their exchanges go on the stream of the kernels
            return [0] * len(self.pieces)
        by_table: dict[str, int] = {}
        for piece in self.pieces:
            size = by_table.get(piece.table, 0) + self.shards * piece.bytes
            by_table[piece.table] = size
        before = np.concatenate([[0], np.cumsum(list(by_table.values()))])
        cut = int(np.argmin(np.abs(before - before[-1] / 2)))
        if min(before[cut], before[-1] - before[cut]) < WAVE_BYTES:
            return [0] * len(self.pieces)
        second = set(list(by_table)[cut:])
        return [int(piece.table in second) for piece in self.pieces]

    def exchange(
        self,
        by_piece: Sequence[jax.Array],
        live: Live | None = None,
        moved: Sequence[int] | None = None,
    ) -> list[jax.Array]:
        """Runs one all_to_all for each array, or one for all of them between peers.

        Args:
          by_piece: of each piece, the array that it lies in.
          live: rows of the first pieces that mean something; others need not arrive.
          moved: numbers of the pieces that must arrive; None: all.

        Returns:
          Of each piece, the array in which it has arrived.
        """
        views = self.views
        whole = {p.array: x for p, x in zip(views, by_piece, strict=True)}
        if self.links.peers:
            arrived = self._between_peers(whole, live, moved)
        else:
            arrived = {n: self._all_to_all(x) for n, x in whole.items()}
        return [arrived[p.array] for p in views]

    def gather(
        self, rows: Sequence[jax.Array]
    ) -> tuple[list[jax.Array], list[RowView]]:
        """Sends rows to all devices, those of a piece from an array of their own.

        Args:
          rows: of each piece, [rows, dim].

        Returns:
          Of each piece, the array with those of all devices, and where they lie in it.
        """
        flat, views = [], []
        for n, (x, piece, view) in enumerate(
            zip(rows, self.pieces, self.views, strict=True)
        ):
            own = x.astype(piece.dtype).reshape(-1)
            flat.append(jnp.pad(own, (0, piece.size - own.shape[0])))
            size = self.shards * piece.size
            where = {"array": n, "size": size, "offset": 0, "stride": piece.size}
            views.append(dataclasses.replace(view, **where))
        return [x.reshape(-1) for x in self.links.gather(flat)], views

    def _all_to_all(self, array: jax.Array) -> jax.Array:
        return self.links.swap(array.reshape(self.shards, -1)).reshape(-1)

    def _between_peers(
        self,
        whole: Mapping[int, jax.Array],
        live: Live | None,
        moved: Sequence[int] | None,
    ) -> dict[int, jax.Array]:
        numbers = list(whole)
        counted = 0 if live is None else live.counts.shape[0]
        pieces = []
        for n, (piece, view) in enumerate(zip(self.pieces, self.views, strict=True)):
            if moved is not None and n not in moved:
                continue
            itemsize = jnp.dtype(piece.dtype).itemsize
            pieces.append(
                Piece(
                    array=numbers.index(view.array),
                    begin=view.offset * itemsize,
                    row_bytes=piece.dim * itemsize,
                    room=piece.bytes,
                    counter=n if n < counted else -1,
                )
            )
        arrived = self.links.exchange([whole[n] for n in numbers], pieces, live)
        return dict(zip(numbers, arrived, strict=True))

    def filled(self, parts: Sequence[jax.Array]) -> list[jax.Array]:
        """Joins what no kernel has written; returns the array of each piece.

        Args:
          parts: of each piece, [shards, rows, dim].
        """
        numbers = dict.fromkeys(view.array for view in self.views)
        arrays = {number: self._joined(number, parts) for number in numbers}
        return [arrays[view.array] for view in self.views]

    def _joined(self, number: int, parts: Sequence[jax.Array]) -> jax.Array:
        flat = []
        for n, (piece, where) in enumerate(zip(self.pieces, self.views, strict=True)):
            # XLA of jaxlib 0.11.2 crashes on a CPU where an array of size 0 is joined.
            if where.array == number and piece.rows > 0:
                part = parts[n].reshape(self.shards, -1).astype(where.dtype)
                flat.append(jnp.pad(part, ((0, 0), (0, piece.size - part.shape[1]))))
        if not flat:
            dtype = next(v.dtype for v in self.views if v.array == number)
            return jnp.zeros(0, dtype)
        return jnp.concatenate(flat, axis=1).reshape(-1)

    def part(self, n: int, array: jax.Array, view: RowView | None = None) -> jax.Array:
        """Returns the rows of a piece, [shards, rows, dim].

        Args:
          n: its number.
          array: that it has arrived in.
          view: where it lies there, if not as in what was exchanged.
        """
        piece, where = self.pieces[n], view or self.views[n]
        end = where.offset + piece.rows * piece.dim
        part = array.reshape(self.shards, -1)[:, where.offset : end]
        return part.reshape(self.shards, piece.rows, piece.dim)

    def rows_at(
        self,
        pieces: Sequence[tuple[int, int]],
        arrays: Sequence[jax.Array],
        places: Places,
    ) -> jax.Array:
        """Reads the row of each id, zeros where it has none: one read for an array.

        Args:
          pieces: of one dim, in the order of the ids: numbers, and how many ids.
          arrays: of each piece of the exchange, that it lies in.
          places: of the ids; ``table`` is the number of their piece.
        """
        parts, begin = [], 0
        for _, run in itertools.groupby(pieces, lambda p: self.views[p[0]].array):
            some = list(run)
            end = begin + sum(count for _, count in some)
            first = some[0][0]
            if arrays[first].size > 0:
                mine = [n for n, _ in some]
                part = self._read(mine, arrays[first], places.cut(begin, end))
            else:
                piece = self.pieces[first]
                part = jnp.zeros((end - begin, piece.dim), piece.dtype)
            parts.append(part)
            begin = end
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def _read(
        self, numbers: Sequence[int], array: jax.Array, places: Places
    ) -> jax.Array:
        """Reads rows of some pieces in one array."""
        dim, stride = self.pieces[numbers[0]].dim, self.views[numbers[0]].stride
        offsets = np.zeros(len(self.views), int)
        offsets[numbers] = [self.views[n].offset for n in numbers]
        # The largest unit in which all rows can be counted: a row, if dims are equal.
        unit = math.gcd(stride, dim, *offsets.tolist())
        begin = places.owner * (stride // unit) + places.number * (dim // unit)
        begin += jnp.array(offsets // unit, jnp.int32)[places.table]
        units = array.reshape(-1, unit)
        begin = jnp.where(places.live, begin, units.shape[0])
        if dim == unit:
            return jnp.take(units, begin, axis=0, mode="fill", fill_value=0)
        rows = jax.lax.gather(
            units,
            begin[:, None],
            jax.lax.GatherDimensionNumbers((1, 2), (), (0,)),
            (dim // unit, unit),
            mode=jax.lax.GatherScatterMode.FILL_OR_DROP,
            fill_value=0,
        )
        return rows.reshape(-1, dim)
