# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""More tables than one call takes: several collections in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax_dynemb as jde
from jax_dynemb import _ffi

State = dict[str, Any]


class Several:
    """Collections side by side, used like one `jde.Tables`.

    Attributes:
      tables: configs by table name.
      features: table names by feature name.
    """

    def __init__(self, configs: Sequence[jde.TableConfig]):
        """Splits the tables into as many collections as are needed."""
        most = _ffi.constants()["max_tables"]
        starts = range(0, len(configs), most)
        self._parts = [jde.Tables(configs[first : first + most]) for first in starts]
        self.tables = {k: v for part in self._parts for k, v in part.tables.items()}
        self.features = {k: v for part in self._parts for k, v in part.features.items()}

    def init(self, seed: Any = 0) -> State:
        """Empty tables."""
        return {k: v for part in self._parts for k, v in part.init(seed).items()}

    def clear(self, state: State) -> State:
        """The tables without rows."""
        for part in self._parts:
            state = part.clear(state)
        return state

    def lookup(self, state: State, ids: Mapping[str, Any]) -> tuple[Any, Any, State]:
        """Training lookup; the residual is a list of each collection's."""
        rows, residuals = {}, []
        for part in self._parts:
            some, residual, state = part.lookup(state, _of(part, ids))
            rows |= some
            residuals.append(residual)
        return rows, residuals, state

    def find(self, state: State, ids: Mapping[str, Any]) -> tuple[Any, Any, State]:
        """Serving lookup."""
        rows, found = {}, {}
        for part in self._parts:
            some, flags, state = part.find(state, _of(part, ids))
            rows, found = rows | some, found | flags
        return rows, found, state

    def apply_gradients(
        self, state: State, residual: Any, d_rows: Mapping[str, Any]
    ) -> State:
        """One optimizer update of every row that the lookups touched."""
        for part, each in zip(self._parts, residual, strict=True):
            state = part.apply_gradients(state, each, _of(part, d_rows))
        return state

    def stats(self, state: State) -> dict[str, int | float]:
        """Counters of all tables."""
        return {k: v for part in self._parts for k, v in part.stats(state).items()}


def _of(part: jde.Tables, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arrays[name] for name in part.features}
