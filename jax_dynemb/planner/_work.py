# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a step moves in the memory of a device, for each way to place a table.

Every formula counts what ids, rows, gradients and optimizer states must move at least.
Ids are taken as distinct and spread evenly over the owners.
"""

from __future__ import annotations

from typing import NamedTuple

PROBE = 128  # an id: its digests, key and score
ROUTE = 64  # an id on its way to the owner: keys of a sort, number and place
SORT = 32  # an id in an update


class Work(NamedTuple):
    """Bytes of a step.

    Attributes:
      everywhere: (forward, backward) on each device.
      owner: (forward, backward), also on each device that holds rows of the table.
    """

    everywhere: tuple[float, float]
    owner: tuple[float, float]


def rows_work(
    ids: float,
    bags: float,
    owned: float,
    updated: float,
    dim: int,
    param: int,
    wire: int,
    out: int,
    states: int,
    local_slots: float,
) -> Work:
    """Counts a table of which distinct rows travel.

    Args:
      ids: of a device.
      bags: of a device; the ids where it does not pool.
      owned: ids that an owner receives.
      updated: rows that an owner updates.
      dim: columns.
      param: bytes of a stored number.
      wire: bytes of a number between devices.
      out: bytes of a returned number.
      states: bytes of the optimizer states of a row.
      local_slots: rows that an owner has room for.
    """
    row = dim * param
    updated = min(updated, local_slots)
    return Work(
        (
            ids * (ROUTE + dim * wire) + bags * dim * out,
            ids * dim * (out + wire),
        ),
        (
            owned * (PROBE + row + dim * wire),
            owned * (SORT + dim * wire) + updated * 2 * (row + states),
        ),
    )


def sums_work(
    ids: float,
    bags: float,
    owned: float,
    shards: int,
    width: int,
    dim: int,
    param: int,
    wire: int,
    out: int,
    states: int,
    local_slots: float,
) -> Work:
    """Counts a table of which sums of bags travel.

    Args:
      ids: of a device.
      bags: of a device.
      owned: ids of all devices that an owner has.
      shards: of the mesh.
      width: owners of the table.
      dim: columns.
      param: bytes of a stored number.
      wire: bytes of a number between devices.
      out: bytes of a returned number.
      states: bytes of the optimizer states of a row.
      local_slots: rows that an owner has room for.
    """
    row, updated = dim * param, min(owned, local_slots)
    return Work(
        (
            ids * width * 8 + bags * dim * (width * wire + out),
            bags * dim * width * wire,
        ),
        (
            shards * ids * 8 + owned * (PROBE + row) + shards * bags * dim * wire,
            shards * ids * 8
            + owned * (SORT + dim * wire)
            + updated * 2 * (row + states),
        ),
    )


def columns_work(
    ids: float,
    bags: float,
    shards: int,
    dim: int,
    param: int,
    wire: int,
    out: int,
    states: int,
    slots: float,
) -> Work:
    """Counts a table whose columns are split; arguments as in ``sums_work``."""
    every, part = shards * ids, dim / shards
    updated = min(every, slots)
    forward = every * (8 + PROBE + part * param) + bags * dim * (wire + out)
    backward = bags * dim * (wire + out) + every * (SORT + part * wire)
    backward += updated * 2 * (part * param + states / shards)
    return Work((forward, backward), (0.0, 0.0))


def copies_work(
    ids: float,
    bags: float,
    shards: int,
    dim: int,
    param: int,
    out: int,
    states: int,
    slots: float,
) -> Work:
    """Counts a table of which each device has a copy."""
    every = shards * ids
    row, updated = dim * param, min(every, slots)
    forward = every * (8 + PROBE) + ids * (PROBE + row) + bags * dim * out
    summed = shards * min(ids, slots) * (SORT + dim * 4)
    backward = ids * (ROUTE + dim * (out + 4)) + summed + updated * 2 * (row + states)
    return Work((forward, backward), (0.0, 0.0))
