# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which tables, and when, a lookup has read: so that no other table is updated by it.

A stamp is eight words, see core/stamp.h: the run of the tables, then the moment of the
lookup, its nonce and the nonce before it. A state has the nonces of its latest lookups.
Kernels skip an update whose stamp is not one of those.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.spec import TableSpec

# From tables and their states to their stamps, uint32[tables, 8], in this order.
StampsOf = Callable[[Sequence[TableSpec], Mapping[str, Any]], jax.Array]

WORDS = 8
_RUN, _MOMENT, _NONCE, _BEFORE = (slice(n, n + 2) for n in range(0, WORDS, 2))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["names"]
)
@dataclasses.dataclass(frozen=True)
class Stamps:
    """The stamps of one lookup."""

    # uint32[tables, 8], one array for each kernel call of the lookup; with leading axes
    # where ``lax.scan`` stacked several lookups.
    rows: tuple[jax.Array, ...]
    names: tuple[tuple[str, ...], ...]  # of the tables, for each array

    def row(self, name: str) -> jax.Array:
        """Return the stamps of a table, uint32[lookups, 8]."""
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


class Latest(NamedTuple):
    """Holds what a state knows of itself, to compare stamps of residuals with."""

    run: Any  # uint32[2]
    moment: Any  # uint32[2]
    nonces: Any  # uint32[n, 2], of its latest lookups

    @classmethod
    def of(cls, row: Any) -> Latest:
        """Read the first row of a shard, uint32[counters, 2]."""
        names = ("stamp", "moment", "nonces")
        run, moment, nonces = (_ffi.code("counters", name) for name in names)
        return cls(row[run], row[moment], row[nonces:])


def join_stamps(lookups: Sequence[Stamps]) -> StampsOf:
    """Combine the stamps of lookups whose gradients are applied together.

    A state fits them if it fits each. It has few nonces, and may have had more lookups
    than that. So a lookup also fits if the next one, which fits, has its nonce.
    """

    def of(tables: Sequence[TableSpec], states: Mapping[str, Any]) -> jax.Array:
        names = [table.name for table in tables]
        if len(lookups) == 1 and (array := lookups[0].of(names)) is not None:
            return array
        return jnp.stack([_joined(lookups, table, states) for table in tables])

    return of


def _joined(
    lookups: Sequence[Stamps], table: TableSpec, states: Mapping[str, Any]
) -> jax.Array:
    """Return the latest stamp of a table, or zeros, which fit no state."""
    rows = jnp.concatenate([one.row(table.name) for one in lookups])
    if rows.shape[0] == 1:
        return rows[0]
    rows = _by_moment(rows)
    own = Latest.of(states[table.state_name].counters[table.first_row])
    return jnp.where(_all_fit(rows, own), rows[-1], jnp.uint32(0))


def fit_together(rows: jax.Array, own: Latest) -> jax.Array:
    """Tells whether lookups with these stamps have led to a state: bool[]."""
    if rows.shape[0] == 1:
        return _fitting(rows, own, jnp)[0][0]
    return _all_fit(_by_moment(rows), own)


def _by_moment(rows: jax.Array) -> jax.Array:
    low, high = _MOMENT.start, _MOMENT.start + 1
    return rows[jnp.lexsort((rows[:, low], rows[:, high]))]


def _all_fit(rows: jax.Array, own: Latest) -> jax.Array:
    """See ``join_stamps``; rows are in order of their moments."""
    fits, follows = _fitting(rows, own, jnp)

    def both(late: Any, early: Any) -> Any:  # the scan begins with the latest
        return early[0] | (early[1] & late[0]), early[1] & late[1]

    each, _ = jax.lax.associative_scan(both, (fits, follows), reverse=True)
    return each.all()


def _fitting(rows: Any, own: Latest, xp: Any) -> tuple[Any, Any]:
    """Compares the stamps of lookups with a state, and each with the next.

    ``rows`` is uint32[lookups, 8] in order of moments; ``xp`` is NumPy or jax.numpy.
    Returns bool[lookups] twice. First: the state has its nonce, or it is of a shard
    without the table, which draws none. Second: it is that which the next one followed.
    """
    nonce, run, later = rows[:, _NONCE], rows[:, _RUN], rows[1:]
    drawn = (nonce[:, :1] | nonce[:, 1:]) != 0
    known = _same(nonce[:, None], own.nonces[None]) | ~drawn
    fits = (known & _same(run[:, None], own.run[None, None])).any(axis=-1)
    same, before = _same(run[1:], run[:-1]), _same(later[:, _BEFORE], nonce[:-1])
    twice = _same(nonce[1:], nonce[:-1])
    end = xp.zeros(1, bool)
    return fits, xp.concatenate([same & (before | twice), end])


def _same(a: Any, b: Any) -> Any:
    """Compare numbers of two words each; no reduction, so that XLA fuses it."""
    return (a[..., 0] == b[..., 0]) & (a[..., 1] == b[..., 1])


def stamp_of(counters: jax.Array) -> jax.Array:
    """Returns the stamp of the lookup that left counters uint32[rows, counters, 2]."""
    run, moment, nonce, nonces = (
        _ffi.code("counters", name) for name in ("stamp", "moment", "nonce", "nonces")
    )
    ring = counters[0, nonces:]
    place = (counters[0, moment, 0] - 1) % ring.shape[0]
    before = jax.lax.dynamic_index_in_dim(ring, place, keepdims=False)
    return jnp.concatenate(
        [counters[0, run], counters[0, moment], counters[0, nonce], before]
    )


def check_stamps(
    stamps: Sequence[Stamps], counters: Mapping[str, Rows], call: str
) -> None:
    """Refuses residuals of other tables, where stamps and counters are concrete."""
    arrays = [array for one in stamps for array in one.rows]
    arrays += [rows.counters for rows in counters.values()]
    if not all(map(is_readable, arrays)):
        return
    own: dict[str, np.ndarray] = {}
    given: dict[str, list[np.ndarray]] = {}
    for one in stamps:
        for array, names in zip(one.rows, one.names, strict=True):
            words = np.asarray(array).reshape(-1, array.shape[-2], WORDS)
            begin = 0
            for name in names:
                if name not in own:
                    own[name] = counters[name].read(array)
                end = begin + len(own[name])
                given.setdefault(name, []).append(words[:, begin:end])
                begin = end
    for name, several in given.items():
        together = np.concatenate(several)
        for shard, mine in enumerate(own[name]):
            check_rows(together[:, shard], Latest.of(mine), name, call)


def check_rows(rows: np.ndarray, own: Latest, table: str, call: str) -> None:
    """Refuses stamps of one shard, uint32[lookups, 8], that its state did not give."""
    moments = _as_int(rows[:, _MOMENT])
    order = np.argsort(moments, kind="stable")
    rows, moments = rows[order], moments[order]
    fits, follows = _fitting(rows, own, np)
    for n in reversed(range(len(rows) - 1)):
        fits[n] |= follows[n] & fits[n + 1]
    if fits.all():
        return
    wrong = int(np.argmin(fits))
    problem = _BRANCH
    if (rows[wrong, _RUN] != own.run).any():
        problem = _FOREIGN
    elif moments[wrong] > _as_int(own.moment):
        problem = _OLDER
    raise ValueError(problem.format(call=call, table=table))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Where the moments of a table are: one row of counters for each shard."""

    counters: jax.Array  # of its arrays, uint32[rows, counters, 2]
    # First row of each shard; None where every device has a copy.
    rows: tuple[int, ...] | None

    def read(self, stamps: Any) -> np.ndarray:
        """Returns uint32[shards, counters, 2]; waits for the device.

        Copies differ in their nonces, so a copy's stamps are compared with its own
        device.
        """
        if self.rows is not None:
            return np.asarray(self.counters)[np.array(self.rows)]
        copies = {s.device: s.data for s in self.counters.addressable_shards}
        first, count = next(iter(copies.values())), stamps.shape[-2]
        shards = [
            s for s in getattr(stamps, "addressable_shards", ()) if not s.replica_id
        ]
        shards.sort(key=lambda s: s.index[-2].start or 0)
        of = [copies.get(s.device, first) for s in shards]
        if len(of) != count:  # a residual that was moved
            of = [first] * count
        return np.stack([np.asarray(each[0]) for each in of])


_FOREIGN = (
    "{call}: the residual belongs to other tables than this state: table '{table}' was "
    "initialised apart from it. Pass the residual that lookup "
    "returned together with this state."
)
_OLDER = (
    "{call}: the state is older than the lookup of its residual (table '{table}'). "
    "Pass the state that lookup returned: rows, residual, state = coll.lookup(...)."
)
_BRANCH = (
    "{call}: the lookup of the residual is none of the latest ones of this state "
    "(table '{table}'). It read another branch of the state, or the state was restored "
    "since, or 16 lookups came in between. Pass the state that lookup returned, or "
    "that of one of the 15 lookups after it. Gradients of more go into one list."
)


def is_readable(array: jax.Array) -> bool:
    """Tell whether an array has numbers that this process can read."""
    if isinstance(array, Tracer):
        return False
    return getattr(array, "is_fully_addressable", True)


def _as_int(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint64)[..., 0]
