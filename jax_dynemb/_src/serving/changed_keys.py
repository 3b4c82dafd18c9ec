# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what segments say of a table, and stores it in a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.integrity import (
    DamagedFileError,
    Part,
    delta_path,
    read_delta_header,
    verify,
)
from jax_dynemb._src.files.safetensors import read_tensor, rows_of
from jax_dynemb._src.ids import PADDING
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.rows import held_last, last_holders
from jax_dynemb._src.table import Tables, erase_keys, id_arrays, insert_kept

_LEAST_ROWS, _MOST_ROWS = 1 << 7, 1 << 16  # of a call of the device
_TINY = np.finfo(np.float32).tiny


class ChangedKeys(NamedTuple):
    """Holds changed rows of a table, and the keys that were removed.

    Attributes:
      keys: int64[n].
      rows: float32[n, dim], or int8 with ``scales``, which the device multiplies.
      scales: float32[n]; None with floats.
      removed: int64[m].
    """

    keys: np.ndarray
    rows: np.ndarray
    scales: np.ndarray | None
    removed: np.ndarray

    def only(self, which: np.ndarray, removed: np.ndarray) -> ChangedKeys:
        """Selects rows, with other removed keys."""
        scales = None if self.scales is None else self.scales[which]
        return ChangedKeys(self.keys[which], self.rows[which], scales, removed)

    def larger_size(self) -> int:
        """Returns that of the program for somewhat more rows; 0 if there is none."""
        last = len(self.keys) % _MOST_ROWS
        if last == 0 or (size := _size_of(last)) == _MOST_ROWS:
            return 0
        return _size_of(size + 1)


def changed_in(part: Part, name: str, dim: int) -> ChangedKeys | None:
    """Reads what a segment says of a table, compared with its checksums.

    Returns:
      The changes; None if there are none.
    """
    if name not in part.files:
        return None
    header = read_delta_header(delta_path(part.path, name))
    if header.link != part.files[name]:
        raise DamagedFileError(header.path, "it is of another segment")
    verify(header)
    keys, removed = read_tensor(header, "keys"), read_tensor(header, "removed")
    if "scales" in header.tensors:
        scales = read_tensor(header, "scales")
        # XLA's threads read subnormal scales as zeros, so NumPy multiplies these.
        if not ((scales > 0) & (scales < _TINY)).any():
            return ChangedKeys(keys, read_tensor(header, "rows"), scales, removed)
    rows = rows_of(header, np.arange(len(keys)), dim).astype(np.float32, copy=False)
    return ChangedKeys(keys, rows, None, removed)


def newest_of(parts: list[ChangedKeys | None]) -> list[ChangedKeys]:
    """Leaves out of changes in order what a later one says of the same keys."""
    some = [each for each in parts if each is not None]
    if len(some) < 2:
        return some
    last = last_holders([keys for each in some for keys in (each.removed, each.keys)])
    return [
        each.only(
            held_last(each.keys, 2 * number + 1, last),
            each.removed[held_last(each.removed, 2 * number, last)],
        )
        for number, each in enumerate(some)
    ]


def with_changes(
    coll: Tables, name: str, state: TableState, changes: list[ChangedKeys]
) -> TableState:
    """Removes keys from a table and stores rows in it; donates ``state``.

    Doing it twice changes nothing more. Changes of a list are of different keys.
    """
    for each in changes:
        if len(each.removed):
            state = erase_keys(coll, name, state, each.removed)
    for each in changes:
        for keys, rows, scales in _batches(each):
            for ids in id_arrays(coll.tables[name], keys):
                # One batch is stored while the next is made: each holds memory.
                jax.block_until_ready(state.counters)
                state = _store(coll, name, state, ids, rows, scales)
    return state


def prepare(
    coll: Tables, name: str, state: TableState, like: ChangedKeys, size: int
) -> None:
    """Compiles what stores so many rows in a table, so that a segment need not wait."""
    keys = np.full(size, PADDING, np.int64)
    rows = np.zeros((size, *like.rows.shape[1:]), like.rows.dtype)
    scales = None if like.scales is None else np.zeros(size, np.float32)
    for ids in id_arrays(coll.tables[name], keys):
        _store.prepare(coll, name, state, ids, rows, scales)


def _batches(
    changes: ChangedKeys,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yields keys, rows and scales of few sizes, each of which is a program."""
    for start in range(0, len(changes.keys), _MOST_ROWS):
        keys, rows, scales = (
            None if each is None else each[start : start + _MOST_ROWS]
            for each in changes[:3]
        )
        assert keys is not None and rows is not None
        size = _size_of(len(keys))
        if size > len(keys):
            keys, rows = _padded(keys, size, PADDING), _padded(rows, size)
            scales = None if scales is None else _padded(scales, size)
        yield keys, rows, scales


def _size_of(count: int) -> int:
    """Returns the least size that holds so many rows."""
    size = _LEAST_ROWS
    while size < count:
        size = min(4 * size, _MOST_ROWS)
    return size


def _padded(array: np.ndarray, size: int, value: int = 0) -> np.ndarray:
    result = np.full((size, *array.shape[1:]), value, array.dtype)
    result[: len(array)] = array
    return result


@kept_jit(0, 1, donated=(2,))
def _store(
    coll: Tables,
    name: str,
    state: TableState,
    ids: jax.Array,
    rows: jax.Array,
    scales: jax.Array | None,
) -> TableState:
    if scales is not None:
        rows = rows.astype(jnp.float32) * scales[:, None]
    return insert_kept(coll, name, state, ids, rows, {})
