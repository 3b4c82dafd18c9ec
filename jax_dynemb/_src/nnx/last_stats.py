# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers the newest counters of each module that have reached the host."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from jax_dynemb._src.engines import StatsFuture

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
