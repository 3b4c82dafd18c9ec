# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Warns of tables that change inside a plain ``jax.jit`` and are not returned.

A Module is a pytree, so ``jax.jit`` accepts it and builds a copy from tracers. What the
function writes into the copy is lost, unless the function returns the copy. A copy that
is dropped without a read after its last change was not returned.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer


class _Copy:
    """The state of one copy, which its first Variable identifies, and does not keep."""

    def __init__(self, kind: str):
        self.kind = kind
        self.is_unread = False


_unwatched = 0  # running calls of jde.nnx.jit, which returns every change itself


class _Unwatched:
    """A context of each call: one made of a generator takes four times as long."""

    def __enter__(self) -> None:
        global _unwatched
        _unwatched += 1

    def __exit__(self, *error: object) -> None:
        global _unwatched
        _unwatched -= 1


unwatched = _Unwatched()


_copies: dict[int, _Copy] = {}  # by the id of a Variable that is alive


def watch(module: Any) -> None:
    """Starts to watch a Module that JAX has built, if it holds tracers."""
    variable = _first_variable(module)
    if _unwatched or variable is None or id(variable) in _copies:
        return
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(variable)):
        return
    _copies[id(variable)] = _Copy(type(module).__name__)
    weakref.finalize(variable, _dropped, id(variable)).atexit = False


def on_tables_changed(module: Any) -> None:
    """Notes that tables of a Module have changed."""
    if (copy := _copies.get(id(_first_variable(module)))) is not None:
        copy.is_unread = True


def on_tables_read(module: Any) -> None:
    """Notes that the tables of a Module were read."""
    if (copy := _copies.get(id(_first_variable(module)))) is not None:
        copy.is_unread = False


def _first_variable(module: Any) -> nnx.Variable[Any] | None:
    tables = vars(module).get("tables")
    first = next(iter(tables.values()), None) if isinstance(tables, Mapping) else None
    return first if isinstance(first, nnx.Variable) else None


def _dropped(variable: int) -> None:
    copy = _copies.pop(variable)
    if copy.is_unread:
        warnings.warn(_LOST.format(kind=copy.kind), stacklevel=2)


_LOST = (
    "{kind}: tables changed in a copy of the module that jax.jit made of its argument, "
    "and the copy was dropped: rows that a lookup inserted, or an optimizer updated, "
    "are lost. Use jde.nnx.jit in place of jax.jit, or return the module from the "
    "function. To read without inserting: train=False, or model.eval()."
)
