# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a step moves in the memory of a device, for each way to place a table.

Every formula counts what ids, rows, gradients and optimizer states must move at least.
Ids are spread evenly over the owners.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

PROBE = 128  # an id that differs from all others: its digests, key and score
AGAIN = 32  # an id whose bucket was read before
ROUTE = 64  # an id on its way to the owner: keys of a sort, number and place
SORT = 32  # an id in an update


class Bytes(NamedTuple):
    """Counts what a part of a step touches."""

    ids: float  # bytes of probes, routes and sorts
    rows: float  # bytes of rows, gradients and optimizer states, in any order
    arrays: float = 0.0  # bytes of arrays that are read or written from end to end


class Work(NamedTuple):
    """Counts bytes of a step; each is a pair (forward, backward)."""

    everywhere: tuple[Bytes, Bytes]  # on each device
    owner: tuple[Bytes, Bytes]  # also on each device that holds rows of the table

    def total(self) -> Bytes:
        """Adds everything up, for a device that holds rows."""
        parts = [*self.everywhere, *self.owner]
        return Bytes(*(sum(numbers) for numbers in zip(*parts, strict=True)))


NOTHING = (Bytes(0.0, 0.0), Bytes(0.0, 0.0))


@dataclasses.dataclass(frozen=True)
class Batch:
    """Counts what a step has of one table."""

    ids: float  # of a device
    bags: float  # of a device; the ids where it does not pool
    distinct: float  # ids of a device that differ
    distinct_everywhere: float  # likewise, of all devices together
    shards: int  # devices


@dataclasses.dataclass(frozen=True)
class Row:
    """Describes the numbers of a row."""

    dim: int  # columns
    param: int  # bytes of a stored number
    wire: int  # bytes of a number between devices
    out: int  # bytes of a returned number
    states: int  # bytes of the optimizer states of the row

    @property
    def stored(self) -> int:
        """Bytes of the row and its states."""
        return self.dim * self.param + self.states


def rows_work(batch: Batch, row: Row, width: int, places: float) -> Work:
    """Counts a table of which distinct rows travel to ``width`` owners.

    An owner has ``places`` for ids and rows of all devices; all of them are moved.
    """
    arriving = batch.shards * batch.distinct / width
    owned = batch.distinct_everywhere / width
    wire, out = row.dim * row.wire, row.dim * row.out
    return Work(
        (
            Bytes(batch.ids * ROUTE, batch.ids * wire, batch.bags * out),
            Bytes(0.0, batch.ids * out, batch.distinct * wire),
        ),
        (
            Bytes(
                places * 8 + arriving * AGAIN + owned * PROBE,
                arriving * row.dim * row.param,
                places * wire,
            ),
            Bytes(arriving * SORT, arriving * wire + owned * 2 * row.stored),
        ),
    )


def sums_work(batch: Batch, row: Row, width: int) -> Work:
    """Counts a table of which sums of bags travel; arguments as in ``rows_work``."""
    every = batch.shards * batch.ids
    mine, bags = every / width, batch.shards * batch.bags
    owned = batch.distinct_everywhere / width
    wire, out = row.dim * row.wire, row.dim * row.out
    sums = batch.bags * width * wire
    return Work(
        (
            Bytes(batch.ids * width * 8, 0.0, sums + batch.bags * out),
            Bytes(0.0, 0.0, sums),
        ),
        (
            Bytes(
                every * 8 + mine * AGAIN + owned * PROBE,
                mine * row.dim * row.param,
                bags * wire,
            ),
            Bytes(every * 8 + mine * SORT, mine * wire + owned * 2 * row.stored),
        ),
    )


def columns_work(batch: Batch, row: Row) -> Work:
    """Counts a table whose columns are split."""
    every, part = batch.shards * batch.ids, row.dim / batch.shards
    returned = batch.bags * row.dim * (row.wire + row.out)
    updated = batch.distinct_everywhere * 2 * row.stored / batch.shards
    return Work(
        (
            Bytes(
                every * (8 + AGAIN) + batch.distinct_everywhere * PROBE,
                every * part * row.param,
                returned,
            ),
            Bytes(every * SORT, every * part * row.wire + updated, returned),
        ),
        NOTHING,
    )


def copies_work(batch: Batch, row: Row, slots: int) -> Work:
    """Counts a table of which each device has a copy; at most ``slots`` sums go."""
    every, sums = batch.shards * batch.ids, batch.shards * batch.distinct
    out = row.dim * row.out
    updated = batch.distinct_everywhere * 2 * row.stored
    places = batch.shards * min(batch.ids, slots)
    return Work(
        (
            Bytes(
                every * (8 + AGAIN)
                + batch.distinct_everywhere * PROBE
                + batch.ids * AGAIN,
                batch.ids * row.dim * row.param,
                batch.bags * out,
            ),
            Bytes(
                batch.ids * ROUTE + places * 8 + sums * (AGAIN + SORT),
                batch.ids * out + sums * row.dim * 4 + updated,
                places * row.dim * 4,
            ),
        ),
        NOTHING,
    )


def round_work(batch: Batch, row: Row, places: float) -> tuple[Bytes, Bytes]:
    """Counts what each further round of rows moves: all ids and all places again."""
    moved = (batch.ids + places) * row.dim * row.wire
    touched = batch.ids * ROUTE + places * 8
    return Bytes(touched, moved), Bytes(touched, moved)


def work_of(
    kind: str, batch: Batch, row: Row, width: int, places: float, slots: int
) -> tuple[Work, tuple[Bytes, Bytes]]:
    """Counts a step of one kind, and each further round of it."""
    if kind == "column_wise":
        return columns_work(batch, row), NOTHING
    if kind == "replicated":
        return copies_work(batch, row, slots), NOTHING
    if kind == "sums":
        return sums_work(batch, row, width), NOTHING
    return rows_work(batch, row, width, places), round_work(batch, row, places)
