# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The host's time for lookups inside jde.nnx.jit: one argument of the whole step."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Mapping
from typing import Any

from jax.core import Tracer

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.ids import now
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.table import Tables

NAME = "_jax_dynemb_now"  # of the argument
_OUTSIDE = object()
_current: contextvars.ContextVar[Any] = contextvars.ContextVar(NAME, default=_OUTSIDE)


class NeedsTime(Exception):
    """A step that is being traced notes times, and has no argument for them yet."""


def taking_time(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a step so that its lookups find the time in an argument of their own."""

    @functools.wraps(fun)
    def step(*args: Any, **kwargs: Any) -> Any:
        token = _current.set(kwargs.pop(NAME, None))
        try:
            return fun(*args, **kwargs)
        finally:
            _current.reset(token)

    return step


def host_time(coll: Tables, state: Mapping[str, TableState]) -> Any:
    """Returns uint32[2], or None; raises NeedsTime in a step traced without it."""
    timestamp = ScoreStrategy.TIMESTAMP
    configs = coll.engine.catalog.dynamic.values()
    if all(config.score_strategy is not timestamp for config in configs):
        return None
    time = _current.get()
    if time is None:
        raise NeedsTime
    if time is not _OUTSIDE:
        return time
    is_traced = any(isinstance(each.index, Tracer) for each in state.values())
    return None if is_traced else now()
