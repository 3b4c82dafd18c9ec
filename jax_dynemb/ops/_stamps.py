# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which tables, and when, a lookup has read: so that no other table is updated by it.

A stamp is four words, see core/stamp.h: a number that ``init`` gave the tables, and
the clock after the lookup. Kernels skip an update whose stamp does not fit the state.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb import _ffi

# From names of tables to their stamps, uint32[tables, 4], in this order.
StampsOf = Callable[[Sequence[str]], jax.Array]

WORDS = 4
_GOLDEN = 0x9E3779B97F4A7C15
_numbers = itertools.count(1)


def new_stamp() -> np.ndarray:
    """Make a number that no other tables of this process have, as uint32[2].

    It counts calls, so every process of a job that runs the same program gets the same.
    """
    value = next(_numbers) * _GOLDEN % 2**64
    return np.array([value & 0xFFFFFFFF, value >> 32], np.uint32)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["names"]
)
@dataclasses.dataclass(frozen=True)
class Stamps:
    """The stamps of one lookup.

    Attributes:
      rows: uint32[tables, 4], one array for each kernel call of the lookup; with
        leading axes where ``lax.scan`` stacked several lookups.
      names: of the tables, for each array.
    """

    rows: tuple[jax.Array, ...]
    names: tuple[tuple[str, ...], ...]

    def row(self, name: str) -> jax.Array:
        """Return the stamps of a table, uint32[lookups, 4]."""
        for array, names in zip(self.rows, self.names, strict=True):
            if name in names:
                return array[..., names.index(name), :].reshape(-1, WORDS)
        return jnp.zeros((0, WORDS), jnp.uint32)

    def of(self, names: Sequence[str]) -> jax.Array | None:
        """Return the array of exactly these tables of one lookup, if there is one."""
        for array, own in zip(self.rows, self.names, strict=True):
            if own == tuple(names) and array.ndim == 2:
                return array
        return None


def join_stamps(lookups: Sequence[Stamps]) -> StampsOf:
    """Combine the stamps of lookups whose gradients are applied together.

    A state fits them if it fits each: they must agree on the table, and the latest
    clock counts.
    """

    def of(names: Sequence[str]) -> jax.Array:
        if len(lookups) == 1 and (array := lookups[0].of(names)) is not None:
            return array
        return jnp.stack([_latest(lookups, name) for name in names])

    return of


def _latest(lookups: Sequence[Stamps], name: str) -> jax.Array:
    rows = jnp.concatenate([one.row(name) for one in lookups])
    if rows.shape[0] == 1:
        return rows[0]
    table, low, high = rows[:, :2], rows[:, 2], rows[:, 3]
    same = (table == table[:1]).all()
    top = jnp.max(high)
    clock = jnp.stack([jnp.max(jnp.where(high == top, low, jnp.uint32(0))), top])
    # No table has stamp 0.
    return jnp.concatenate([jnp.where(same, table[0], jnp.uint32(0)), clock])


def stamp_of(counters: jax.Array) -> jax.Array:
    """Return the stamp that a lookup gives which has left these counters.

    Args:
      counters: of one shard, uint32[rows, counters, 2].
    """
    words = [_ffi.code("counters", name) for name in ("stamp", "clock")]
    return jnp.concatenate([counters[0, word] for word in words])


def check_stamps(
    stamps: Sequence[Stamps], counters: Mapping[str, Rows], call: str
) -> None:
    """Refuse residuals of other tables, where stamps and counters are concrete.

    Args:
      stamps: of the lookups.
      counters: by table, where its clock and its stamp are.
      call: the function that was called, for the message.

    Raises:
      ValueError: the state is not one that the lookup returned, nor a later one.
    """
    arrays = [array for one in stamps for array in one.rows]
    arrays += [rows.counters for rows in counters.values()]
    if not all(map(_is_readable, arrays)):
        return
    stamp_at, clock_at = (_ffi.code("counters", n) for n in ("stamp", "clock"))
    for one in stamps:
        for array, names in zip(one.rows, one.names, strict=True):
            own = np.concatenate([counters[name].read() for name in names])
            words = np.asarray(array).reshape(-1, len(own), WORDS)
            table = names[0] if len(names) == 1 else "', '".join(names)
            if (words[..., :2] != own[:, stamp_at]).any():
                raise ValueError(_FOREIGN.format(call=call, table=table))
            if (_as_int(words[..., 2:]) > _as_int(own[:, clock_at])).any():
                raise ValueError(_OLDER.format(call=call, table=table))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Where the clock of a table is: one row of counters for each shard.

    Attributes:
      counters: of its arrays, uint32[rows, counters, 2].
      rows: first row of each shard.
    """

    counters: jax.Array
    rows: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Return uint32[shards, counters, 2]; waits for the device."""
        return np.asarray(self.counters)[np.array(self.rows)]


_FOREIGN = (
    "{call}: the residual belongs to other tables than this state: table '{table}' was "
    "initialised apart from it. Pass the residual that lookup "
    "returned together with this state."
)
_OLDER = (
    "{call}: the state is older than the lookup of its residual (table '{table}'). "
    "Pass the state that lookup returned: rows, residual, state = coll.lookup(...)."
)


def _is_readable(array: jax.Array) -> bool:
    if isinstance(array, Tracer):
        return False
    return getattr(array, "is_fully_addressable", True)


def _as_int(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint64)[..., 0]
