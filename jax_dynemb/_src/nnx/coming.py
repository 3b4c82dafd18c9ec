# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hands the ids of a coming batch to a step of jde.nnx.jit: one more argument."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

NAME = "_jax_dynemb_coming"  # of the argument
_in_step: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar(
    NAME, default=None
)


@dataclasses.dataclass
class Announced:
    """Holds the batch that comes behind the present one.

    Attributes:
      model: that the step is called with.
      ids: what collections know as theirs, see ``TableModule.known_in``.
      taken: how many calls of a step have taken announced ids.
    """

    model: Any
    ids: Mapping[str, Any]
    taken: int = 0


_announced: dict[int, Announced] = {}  # by the id of the model, which it keeps alive


def announce(announced: Announced) -> None:
    """Makes the next calls of a step with this model take these ids."""
    _announced[id(announced.model)] = announced


def withdraw(announced: Announced) -> None:
    """Takes back what was announced."""
    if _announced.get(id(announced.model)) is announced:
        del _announced[id(announced.model)]


def with_coming(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Adds to the arguments of a step by name what is announced for its model."""
    if not _announced:  # nearly always
        return kwargs
    for each in (*args, *kwargs.values()):
        found = _announced.get(id(each))
        if found is not None:
            found.taken += 1
            return {**kwargs, NAME: dict(found.ids)}
    return kwargs


def taking_coming(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a step so that its lookups find the coming ids."""

    @functools.wraps(fun)
    def step(*args: Any, **kwargs: Any) -> Any:
        token = _in_step.set(kwargs.pop(NAME, None))
        try:
            return fun(*args, **kwargs)
        finally:
            _in_step.reset(token)

    return step


def coming_ids(module: Any) -> dict[str, Any]:
    """Returns the coming ids of a collection's tables with tiers, by feature."""
    announced = _in_step.get()
    if not announced:
        return {}
    tables = module.coll.engine.catalog.by_feature
    return {
        name: each
        for name, each in module.ids_in(announced).items()
        if getattr(tables[name], "tier", None) is not None
    }
