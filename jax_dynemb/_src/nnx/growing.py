# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers, beside modules, when each was checked for growth and its counters."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from jax_dynemb._src.engines import StatsFuture
from jax_dynemb._src.lifecycle import Growth, GrowthWatch, fits_in_memory
from jax_dynemb._src.table import abstract, check_values


@dataclasses.dataclass
class _Watched:
    watch: GrowthWatch
    too_large: dict[str, int] | None = None


# Beside the modules: their attributes decide which compiled program fits them.
_watched: weakref.WeakKeyDictionary[Any, _Watched] = weakref.WeakKeyDictionary()


def growth_now(module: Any, every: int) -> Growth | None:
    """Counts a step; returns larger sizes if tables are due and there is room."""
    one_table = next(iter(module.tables.values())).get_value()
    check_values(one_table, "maybe_grow")  # inside jit it would count once and not grow
    own = _watched.get(module)
    if own is None or own.watch.every != every:
        own = _watched[module] = _Watched(GrowthWatch(every))
    own.watch.count()
    due = own.watch.due(module.coll, module.get_state)
    if not due or due == own.too_large:
        return None
    growth, state = module.coll.plan_growth(due), module.get_state()
    needed = growth.needed_bytes(growth.compile(abstract(state)))
    if not fits_in_memory(growth, state, needed):
        own.too_large = due
        return None
    own.watch.restart()
    return growth


Stats = dict[str, float | int]


@dataclasses.dataclass
class _Numbers:
    last: Stats = dataclasses.field(default_factory=dict)
    coming: StatsFuture | None = None


# Beside the modules: their attributes decide which compiled program fits them.
_numbers: weakref.WeakKeyDictionary[Any, _Numbers] = weakref.WeakKeyDictionary()


def last_known(module: Any, start: Callable[[], StatsFuture]) -> Stats:
    """Returns the newest numbers that have arrived, and starts the next copy."""
    numbers = _numbers.setdefault(module, _Numbers())
    if numbers.coming is not None and numbers.coming.done():
        arrived, numbers.coming = numbers.coming, None
        numbers.last = arrived.result()
    if numbers.coming is None:
        numbers.coming = start()
    return dict(numbers.last)
