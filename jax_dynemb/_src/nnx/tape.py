# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The record of the lookups that one call of a loss function makes.

Autodiff cannot reach into a table. So a zero *tap* is added to each lookup's rows, and
the gradient of the tap is the gradient of the rows. A tape collects the
lookups in the order in which the loss makes them and hands out the taps.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import jax
from jax.extend.core import take_current_trace

from jax_dynemb._src.nnx.coming import coming_ids
from jax_dynemb._src.nnx.variable import TraceMark
from jax_dynemb._src.table import Begun, Tables, batch_of, begin_prefetch

Rows = dict[str, jax.Array]
# Which argument of the loss, and the path in it.
ModulePath = tuple[int, tuple[Any, ...]]
TableKey = tuple[int, ...]

# Collections that training lookups used, as their code ran: a compiled step runs none.
_without_tape: weakref.WeakSet[Tables] = weakref.WeakSet()
_on_tape: weakref.WeakSet[Tables] = weakref.WeakSet()

_current: contextvars.ContextVar[Tape | None] = contextvars.ContextVar(
    "jax_dynemb_tape", default=None
)


@dataclasses.dataclass(frozen=True)
class Lookup:
    """One lookup of one collection."""

    path: ModulePath
    tables: Tables
    residual: Any
    rows: Rows
    key: TableKey


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prefetch:
    """A prefetch that goes on while the rest of the loss runs.

    Attributes:
      path: of the collection whose rows move; static.
      begun: of its tables.
      lookup: the number of the lookup behind which it began; static.
    """

    path: ModulePath = dataclasses.field(metadata={"static": True})
    begun: Begun
    lookup: int = dataclasses.field(metadata={"static": True})


class Tape:
    """Records the lookups of the collections in ``paths``; adds taps if it has them.

    With taps, rows of the coming batch begin to move behind the last lookup of their
    tables: ``last`` has the numbers of these lookups. Whatever reads the tables later
    waits for the rows.
    """

    def __init__(
        self,
        paths: dict[int, ModulePath],
        taps: list[Rows] | None = None,
        last: Collection[int] = (),
    ):
        self.lookups: list[Lookup] = []  # what was recorded, in order
        self.prefetches: dict[TableKey, Prefetch] = {}  # that have not ended
        self._paths = paths  # id(module) -> where the module is
        self._taps, self._last = taps, last
        self._mark = TraceMark()

    def attach(self, module: Any, tables: Tables, residual: Any, rows: Rows) -> Rows:
        """Records a lookup and returns its rows with their tap."""
        # Asked first: an inner transformation makes its own copies of the modules.
        if not self._mark.here():
            raise ValueError(_INNER_TRANSFORM.format(kind=type(module).__name__))
        _on_tape.add(module.coll)
        path = self._paths.get(id(module))
        if path is None:
            return rows  # not differentiated: its rows are constants
        if self._taps is not None:
            number = len(self.lookups)
            if number in self._last:
                rows = self._begin(module, path, rows)
            tap = self._taps[number]
            rows = OrderedDict((f, row + tap[f]) for f, row in rows.items())
        self.lookups.append(Lookup(path, tables, residual, rows, key_of(module)))
        return rows

    def _begin(self, module: Any, path: ModulePath, rows: Rows) -> Rows:
        """Begins to move rows of the coming batch, where the step knows it."""
        ids = coming_ids(module)
        if not ids:
            return rows
        engine = module.coll.hash_engine
        ids, _ = batch_of(engine.catalog, ids, None)
        begun, state, rows = begin_prefetch(engine, module._state(), ids, rows)
        module._set_state(state)
        if begun is not None:
            self.prefetches[key_of(module)] = Prefetch(path, begun, len(self.lookups))
        return rows

    def finish(self, module: Any) -> None:
        """Waits for rows of these tables, if some move."""
        prefetch = self.prefetches.pop(key_of(module), None)
        if prefetch is not None:
            state, _ = prefetch.begun.end(module._state(), ())
            module._set_state(state)


def key_of(module: Any) -> TableKey:
    """Identifies the tables of a module, which other modules may share."""
    return tuple(id(table) for table in module.tables.values())


def finish_prefetch(module: Any) -> None:
    """Ends a prefetch of these tables that the running loss has begun."""
    tape = _current.get()
    if tape is not None and tape.prefetches:
        tape.finish(module)


@contextlib.contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Makes ``tape`` the one that lookups report to."""
    token = _current.set(tape)
    try:
        yield tape
    finally:
        _current.reset(token)


def attach(module: Any, tables: Tables, residual: Any, rows: Rows) -> Rows:
    """Reports a training lookup to the tape in force, if there is one."""
    tape = _current.get()
    if tape is None:
        _without_tape.add(module.coll)
        if _is_differentiated():
            _on_tape.discard(module.coll)  # an earlier step's, perhaps one that failed
            kind = type(module).__name__
            warnings.warn(_NO_TAPE.format(kind=kind), stacklevel=_CALLER)
        return rows
    return tape.attach(module, tables, residual, rows)


def _is_differentiated() -> bool:
    """Returns whether ``jax.grad`` or a relative of it runs this code, not jit."""
    with take_current_trace() as trace:
        return type(trace).__name__ in _DIFFERENTIATING


def without_gradients(collections: Iterable[Tables]) -> bool:
    """Whether tables were looked up since the last update, and never on a tape.

    Then no row gradients exist. What is noted of these collections is forgotten.
    """
    result = False
    for tables in collections:
        result |= tables in _without_tape and tables not in _on_tape
        _without_tape.discard(tables)
        _on_tape.discard(tables)
    return result


# Traces of jax.jvp and of jax.linearize, which jax.grad and nnx.grad are made of.
_DIFFERENTIATING = ("JVPTrace", "LinearizeTrace")

# So many frames lie between ``attach`` and the code that calls a module of this
# package.
_CALLER = 5

_NO_TAPE = (
    "{kind}: plain nnx.grad or nnx.value_and_grad differentiates this training lookup. "
    "It sees the rows as constants, so no gradient reaches the tables and nothing "
    "trains them. Write loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch), "
    "and jde.nnx.Optimizer in place of nnx.Optimizer. To train the dense part alone, "
    "look up with train=False or call model.eval() first."
)

_INNER_TRANSFORM = (
    "{kind}: this lookup runs inside a transformation (jit, scan, cond, vmap, remat or "
    "grad) within the loss given to jde.nnx.value_and_grad, where its row gradients "
    "cannot be collected. Look the rows up before that transformation and pass them "
    "in: rows = model.sparse(ids), then the scan or remat over rows."
)
