# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as values of a key-value server: step, row and checksum in one value."""

from __future__ import annotations

import urllib.parse
import zlib
from collections.abc import Sequence

import numpy as np

from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.stores.layout import Layout

_STEP, _SUM = 8, 4


def values_of(
    names: Sequence[bytes], packed: np.ndarray, step: int, mark: bytes
) -> list[bytes]:
    """Makes one value of each row; its checksum covers the name, too.

    ``packed`` is uint8[n, row_bytes]; the checksum leaves out ``mark`` before names.
    """
    head = int(step).to_bytes(_STEP, "little")
    values = []
    for name, row in zip(names, packed, strict=True):
        body = head + row.tobytes()
        crc = zlib.crc32(body, zlib.crc32(name[len(mark) :]))
        values.append(body + crc.to_bytes(_SUM, "little"))
    return values


def rows_of(
    names: Sequence[bytes],
    values: Sequence[bytes | None],
    layout: Layout,
    mark: bytes,
    where: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Reads what ``values_of`` made: which names have a row, and the rows."""
    found = np.array([value is not None for value in values], bool)
    packed = np.zeros((len(names), layout.row_bytes), np.uint8)
    size = _STEP + layout.row_bytes
    bodies = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        body, crc = value[:-_SUM], value[-_SUM:]
        good = len(value) == size + _SUM
        if not good or zlib.crc32(body, zlib.crc32(name[len(mark) :])) != (
            int.from_bytes(crc, "little")
        ):
            key = int.from_bytes(name[-8:], "big")
            raise DamagedFileError(where, f"the value of key {key} is no row of it")
        bodies.append(body)
    if bodies:
        joined = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), size)
        packed[found] = joined[:, _STEP:]
    return found, packed


def names_of(keys: np.ndarray, mark: bytes) -> list[bytes]:
    """Names of keys uint64[n]: the mark and eight bytes, the highest first."""
    octets = keys.astype(">u8").tobytes()
    return [mark + octets[at : at + 8] for at in range(0, len(octets), 8)]


def keys_of(names: Sequence[bytes]) -> np.ndarray:
    """Keys int64[n] of names."""
    octets = b"".join(name[-8:] for name in names)
    return np.frombuffer(octets, ">u8").astype(np.uint64).view(np.int64)


def mark_of(*parts: str) -> bytes:
    """Makes the begin of a store's names; no store's mark begins another's."""
    return b"".join(urllib.parse.quote(part, safe="").encode() + b":" for part in parts)


def expect_layout(there: Layout | None, layout: Layout | None, where: str) -> Layout:
    """Chooses between the layouts of a store and of a caller, which must agree."""
    chosen = there or layout
    if chosen is None:
        raise ValueError(
            f"{where} is empty, so its rows are not known: give the table, such as "
            "coll.tables[name]"
        )
    if layout is not None:
        layout.check_same_table(chosen, where)
    return chosen
