# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Collects operands, results and aliases of one FFI call in the handler's order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.attributes import shares_arrays, table_attributes
from jax_dynemb._src.ops.packed_rows import refuse_packed
from jax_dynemb._src.ops.sizes import is_at_most, largest
from jax_dynemb._src.ops.state import TableState, check_state
from jax_dynemb._src.ops.tier_state import ring_of, with_notes
from jax_dynemb._src.spec import TableSpec

ALL = ("index", "values", "optimizer", "counters")
_READS_PACKED = ("find_packed",)
# A training lookup also takes the sketch and the ring of departed rows of tables that
# have them, and whatever removes rows takes their log.
OF_LOOKUP = (*ALL, "sketch", "removed", "departed")
OF_REMOVAL = ("index", "counters", "removed")

# Stands for a size without a bound, to learn whether scratch depends on it.
_ANY_BATCH = 1 << 20
_NO_BOUND = (
    "{op} with a symbolic number of ids ({size}) needs scratch memory for the largest "
    "batch, so each dimension must have a bound: give jax.export.symbolic_shape, or "
    "jde.export.program, a constraint such as constraints=['b <= 4096']."
)


class Call:
    """One FFI call about some tables, or none, with buffers as in xla_ffi/schema.h."""

    def __init__(
        self,
        op: str,
        tables: Sequence[TableSpec],
        num_ids: Sequence[int] = (),
        **attributes: Any,
    ):
        """Starts a call; ``attributes`` are those beside the tables' own.

        ``num_ids`` is of each feature, or of each table of a route. A scatter says
        there if slots may be equal, pair_gradients the shape of the suffixes, and rows.
        ValueError if the operation can not read a table's packed rows.
        """
        if op not in _READS_PACKED:
            refuse_packed(tables, op)
        self._op = op
        self._tables = list(tables)
        # Others lie in the arrays of the table before them.
        pairs = zip(self._tables, shares_arrays(tables), strict=True)
        self._with_own_arrays = [table for table, shares in pairs if not shares]
        self._num_ids = list(num_ids)
        of_tables = table_attributes(tables) if tables else {}
        self._attributes = of_tables | attributes
        self._operands: list[jax.Array] = []
        self._batch: list[jax.Array] = []  # those of them that are no tables
        self._results: list[Any] = []
        self._aliases: dict[int, int] = {}

    def operand(self, *arrays: jax.Array | None) -> None:
        """Adds arrays that are only read; None is an operand that the call lacks."""
        given = [array for array in arrays if array is not None]
        self._operands += given
        self._batch += given

    def read(self, *arrays: jax.Array) -> None:
        """Adds arrays of a table that are only read."""
        self._operands += arrays

    def result(self, shape: tuple[int, ...], dtype: Any) -> None:
        """Adds an array that is only written."""
        self._results.append(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)))

    def update(self, *arrays: jax.Array) -> None:
        """Adds arrays that are changed in place."""
        for array in arrays:
            self._aliases[len(self._operands)] = len(self._results)
            self._operands.append(array)
            # The type of the operand itself: it carries the memory space.
            self._results.append(jax.typeof(array))

    def arrays(
        self, states: Mapping[str, TableState], members: Sequence[str] = ALL
    ) -> list[jax.Array]:
        """Lists the arrays of all tables, each once, in the order of the handlers."""
        for table in self._tables:
            check_state(table, states[table.state_name])
        return [
            array
            for table in self._with_own_arrays
            for array in table_arrays(table, states[table.state_name], members)
        ]

    def take_tables(
        self,
        results: Iterator[jax.Array],
        states: Mapping[str, TableState],
        members: Sequence[str] = ALL,
    ) -> dict[str, TableState]:
        """The states after the call, by name: their arrays are the next results."""
        return {
            t.state_name: take_table(results, t, states[t.state_name], members)
            for t in self._with_own_arrays
        }

    def run(self, *, on_host: bool = False) -> Iterator[jax.Array]:
        """Yields the results in the order of adding; ``on_host`` without scratch."""
        tables = set(self._aliases.values())
        results = [x for i, x in enumerate(self._results) if i not in tables]
        self.operand(dispatch_operand(len(self._operands), self._batch, results))
        if not on_host:
            self.result((self._scratch_bytes(),), jnp.uint8)
        results = _ffi.call(
            self._op,
            self._results,
            self._operands,
            self._aliases,
            **self._attributes,
        )
        return iter(results if on_host else results[:-1])

    def _scratch_bytes(self) -> int:
        """Computes the scratch of the largest batch; symbolic sizes share one."""
        buckets = [table.local_buckets for table in self._tables]
        dims = [table.dim for table in self._tables]
        most = [n if isinstance(n, int) else largest(n) for n in self._num_ids]
        open_ended = [n for n, m in zip(self._num_ids, most, strict=True) if m is None]
        ids = [_ANY_BATCH if m is None else m for m in most]
        nbytes = _ffi.scratch_bytes(self._op, buckets, dims, ids)
        if open_ended and nbytes > 0:
            raise ValueError(_NO_BOUND.format(op=self._op, size=open_ended[0]))
        return nbytes


def table_arrays(
    table: TableSpec, state: TableState, members: Sequence[str] = ALL
) -> list[jax.Array]:
    """The arrays of a table in the order of the handlers."""
    arrays = []
    for member in _taken(table, members):
        if member == "optimizer":
            arrays += [state.optimizer[name] for name in table.states]
        elif member == "departed":
            arrays.append(ring_of(state).notes)
        else:
            arrays.append(getattr(state, member))
    return arrays


def _taken(table: TableSpec, members: Sequence[str]) -> list[str]:
    """The members that a call takes of a table, in the order of the handlers."""
    keyless = table.part == "rows" and table.rounding != "stochastic"
    lacking = {
        "values" if table.part == "index" else None,
        "index" if keyless else None,
        None if table.takes_sketch else "sketch",
        None if table.ring_size else "removed",
        None if table.part == "index" and table.ring_rows else "departed",
    }
    return [m for m in OF_LOOKUP if m in members and m not in lacking]


def take_table(
    results: Iterator[jax.Array],
    table: TableSpec,
    state: TableState,
    members: Sequence[str] = ALL,
) -> TableState:
    """Builds the state after a call: its arrays are the next results, others stay."""
    new: dict[str, Any] = {}
    for member in _taken(table, members):
        if member == "optimizer":
            new[member] = {name: next(results) for name in table.states}
        elif member == "departed":
            new["tier"] = with_notes(state.tier, next(results))
        else:
            new[member] = next(results)
    return dataclasses.replace(state, **new)


_CHEAP_OPERATIONS = 1000  # XLA's bound for the calling thread
# Up to 32 asynchronous programs are in flight, each with outputs of its own. Fresh
# memory for large ones takes longer than the wait.
_MOST_BYTES = 1 << 23
_MANY_ARRAYS = 32  # the calling thread finishes fewer before another thread wakes up


def dispatch_operand(
    num_operands: int, batch: Sequence[jax.Array], results: Sequence[Any]
) -> jax.Array:
    """Makes the dummy operand of a call, uint32[], from its batch and its results.

    XLA's CPU client runs a program of fewer than 1,000 operations in the calling
    thread, and counts none for a custom call. So a step of embeddings alone would block
    Python until it is complete. The sum of a thousand words of ids adds enough. Kernels
    ignore its value: it is the operand "work" in xla_ffi/rules.cc. A call has the sum
    where that pays (docs/decisions/dispatch.md), else a constant.
    """
    nbytes = sum(x.size * x.dtype.itemsize for x in (*batch, *results))
    if num_operands >= _MANY_ARRAYS and is_at_most(nbytes, _MOST_BYTES):
        for array in batch:
            is_long = is_at_most(_CHEAP_OPERATIONS + 1 - array.size, 0)
            if array.dtype.kind in "iu" and is_long:
                flat = array.reshape(-1)[: _CHEAP_OPERATIONS + 1]
                return jax.lax.platform_dependent(flat, cpu=_sum, default=_zero)
    return jnp.zeros((), jnp.uint32)


def _sum(numbers: jax.Array) -> jax.Array:
    return jnp.sum(numbers.astype(jnp.uint32), dtype=jnp.uint32)


def _zero(numbers: jax.Array) -> jax.Array:
    return numbers[0].astype(jnp.uint32) * jnp.uint32(0)
